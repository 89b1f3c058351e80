"""No method does more than twice the arithmetic it needs; the benchmark of speed runs."""

import importlib
import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_runs import OWN_METHODS, quick_compilation, tiny_dataset, tiny_settings
from vem.algorithms.base import METHODS, build, put_rows, spec_of, sweepable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmarks():
    if not (ROOT / "benchmarks" / "peers.py").exists():
        pytest.skip("the benchmarks are not part of this distribution")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("arithmetic"), importlib.import_module("peers")


@pytest.mark.parametrize("name", OWN_METHODS)
def test_no_method_does_twice_what_it_needs(benchmarks, name):
    arithmetic, _ = benchmarks
    dataset = tiny_dataset()
    spec = spec_of(dataset)
    config = build(METHODS[name].config, tiny_settings(name))
    algorithm = METHODS[name].make(config, spec, 10)
    swept = {field: jnp.zeros(()) for field in sweepable(METHODS[name].config)}
    state = jax.eval_shape(algorithm.init, jax.random.key(0), swept)
    needed = arithmetic.needed_flops(name, config, spec)
    for stage in algorithm.stages:
        done = arithmetic.done_flops(stage, state, put_rows(dataset))
        assert 0.99 < done / needed[stage.name] < 2, stage.name


def test_the_benchmark_measures_every_figure(benchmarks, tmp_path, capsys):
    _, peers = benchmarks
    with quick_compilation(tmp_path):
        figures = peers.measure(tiny_dataset(), ["bail"], 2, 1, {"bail": tiny_settings("bail")})
    bail = figures["methods"]["bail"]
    assert set(bail["updates_per_second"]) == {"one_seed", "3_seeds"}
    assert list(bail["stages"]) == ["envelope", "clone"]
    for stage in bail["stages"].values():
        assert np.isfinite(stage["share_of_sgemm"]["3_seeds"])
    json.dumps(figures, allow_nan=False)
    if importlib.util.find_spec("d3rlpy") is None:
        assert "d3rlpy is not installed" in capsys.readouterr().out
