"""The benchmark of speed runs and counts an update's operations."""

import dataclasses
import importlib
import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_runs import quick_compilation, tiny_dataset, tiny_settings
from vem.algorithms.base import METHODS, build, spec_of, sweepable
from vem.training.rows import put_rows

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def benchmarks():
    if not (ROOT / "benchmarks" / "peers.py").exists():
        pytest.skip("the benchmarks are not part of this distribution")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("arithmetic"), importlib.import_module("peers")


def test_operations_are_those_of_the_matrix_products(benchmarks):
    arithmetic, _ = benchmarks
    dataset = tiny_dataset()
    for name, settings, expected in (
        # A row of 3 numbers, forward once and backward twice, less the gradient of the input.
        ("bc", {}, 3 * 3 * 512 + 3 * 512 * 512 + 3 * 512 * 2 - 3 * 512),
        # Two critics value 30 sampled actions and the recorded one; the actor and the targets hardly count.
        ("cql", {"num_sampled_actions": 10}, 2 * 31 * (3 * 5 * 512 + 3 * 512 * 512 + 3 * 512 - 5 * 512)),
    ):
        hidden = {key: (512, 512) for key in ("policy_hidden", "value_hidden") if key in fields_of(name)}
        config = build(METHODS[name].config, {"batch_size": 64, **settings, **hidden})
        algorithm = METHODS[name].make(config, spec_of(dataset), 10)
        swept = {field: jnp.zeros(()) for field in sweepable(METHODS[name].config)}
        state = jax.eval_shape(algorithm.init, jax.random.key(0), swept)
        found = arithmetic.update_flops(algorithm.stages[0], state, put_rows(dataset))
        assert found == pytest.approx(2 * 64 * expected, rel=0.1), name


def fields_of(name):
    return [field.name for field in dataclasses.fields(METHODS[name].config)]


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
