"""Updates per second of every method, beside other libraries' same methods, and how much of the machine they use.

    python benchmarks/peers.py --out benchmarks/results/peers.json

All in one run, interleaved; the best of several repetitions each, since other work on the machine only ever slows one
down, and the spread of them. d3rlpy is measured where it is installed, unifloral, JAX-CORL and CORL where their folders
are given (``foreign.py`` says how to get them), all with the same networks and batches; drawing the batch counts on
both sides. ``--before DIR`` also times one seed of an older checkout of this project, in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arithmetic import update_flops
from foreign import LIBRARIES, make_foreign
from speed import make_dataset, sgemm_rate
from vem.algorithms.base import METHODS, Rows, Spec, build, spec_of, sweepable
from vem.data.dataset import Dataset
from vem.training.loop import compile_chunk, start
from vem.training.machine import lay_out, prepare_devices
from vem.training.request import Trial
from vem.training.rows import put_rows

NUM_SEEDS = 3
MORE_SEEDS = (2, 4, 5, 8)
"""Further numbers of seeds, for IQL alone."""
RUN_UPDATES = 100_000
"""Length of the run whose stages are weighed against each other."""


class Chunk:
    """The compiled updates of one stage, for some seeds side by side, without refreshes of the memory."""

    def __init__(self, name: str, settings: Any, stage_index: int, rows: Rows, spec: Spec, num_seeds: int) -> None:
        algorithm = METHODS[name].make(settings, spec, RUN_UPDATES)
        swept = {key: value for key in sweepable(type(settings)) if (value := getattr(settings, key)) is not None}
        self.stage = algorithm.stages[stage_index]
        self.layout = lay_out(num_seeds)
        state = start(algorithm, [Trial(seed, {}) for seed in range(num_seeds)], swept).state
        memory = jax.tree.map(lambda leaf: np.zeros((num_seeds, *leaf.shape), leaf.dtype), self.stage.empty())
        self.state, self.memory = self.layout.spread((state, memory))
        self.rows, self.num_seeds, self.done = self.layout.share(rows), num_seeds, 0
        self.keys = self.layout.spread(jax.vmap(jax.random.key)(np.arange(num_seeds)))
        self.program = compile_chunk(self.stage, self.layout.mesh)
        self.run(1)

    def run(self, count: int) -> None:
        counts = self.layout.counts(count)
        state, memory, _ = self.program(self.state, self.memory, self.rows, self.keys, counts, self.done, -1)
        self.state, self.memory = jax.block_until_ready((state, memory))
        self.done += count


def measure(
    dataset: Dataset,
    names: Sequence[str],
    updates: int,
    repetitions: int,
    changes: Mapping[str, Any] | None = None,
    folders: Mapping[str, Path] | None = None,
) -> dict[str, Any]:
    """The figures of the methods; ``changes`` replaces settings by method, ``folders`` hold other libraries."""
    spec = spec_of(dataset)
    rows = put_rows(dataset)
    settings = {name: build(METHODS[name].config, dict((changes or {}).get(name, {}))) for name in names}
    runs: dict[tuple[str, ...], Callable[[], None]] = {}
    flops: dict[tuple[str, str], float] = {}
    shares: dict[str, dict[str, float]] = {}
    for name in names:
        stages = METHODS[name].make(settings[name], spec, RUN_UPDATES).stages
        shares[name] = {stage.name: stage.num_steps / RUN_UPDATES for stage in stages}
        for index, stage in enumerate(stages):
            for num_seeds in (1, NUM_SEEDS, *(MORE_SEEDS if name == "iql" else ())):
                chunk = Chunk(name, settings[name], index, rows, spec, num_seeds)
                runs[name, stage.name, str(num_seeds)] = lambda chunk=chunk: chunk.run(updates)
                first = jax.tree.map(lambda leaf: leaf[0], chunk.state)
            flops[name, stage.name] = update_flops(stage, first, rows)
    for name, peer in make_peers(dataset, settings).items():
        runs["d3rlpy", name] = lambda peer=peer: [peer() for _ in range(updates)] and None
    for (library, name), update in make_foreign(dataset, dict(folders or {})).items():
        if name in names:
            runs[library, name] = lambda update=update: update(updates)
    seconds: dict[tuple[str, ...], list[float]] = {key: [] for key in runs}
    rates = []
    for _ in range(repetitions):
        rates.append(sgemm_rate())
        for key, run in runs.items():
            seconds[key].append(_timed(run) / updates)
    sgemm = max(rates)
    methods = {name: _figures(name, shares[name], flops, seconds, sgemm) for name in names}
    return {"sgemm_gflops": sgemm / 1e9, "methods": methods}


def _figures(
    name: str,
    shares: Mapping[str, float],
    flops: Mapping[tuple[str, str], float],
    seconds: Mapping[tuple[str, ...], Sequence[float]],
    sgemm: float,
) -> dict[str, Any]:
    best = {key: min(values) for key, values in seconds.items()}
    counts = list(dict.fromkeys(key[2] for key in best if key[0] == name and len(key) == 3))
    total, stages = dict.fromkeys(counts, 0.0), {}
    for stage, share in shares.items():
        per_seed = {count: best[name, stage, count] / int(count) for count in counts}
        total = {count: total[count] + share * per_seed[count] for count in counts}
        stages[stage] = {
            "megaflops": flops[name, stage] / 1e6,
            "milliseconds_per_seed": {_label(count): 1e3 * value for count, value in per_seed.items()},
            "slowest_over_best": {
                _label(count): max(seconds[name, stage, count]) / best[name, stage, count] for count in counts
            },
            "share_of_sgemm": {_label(count): flops[name, stage] / value / sgemm for count, value in per_seed.items()},
        }
    figures: dict[str, Any] = {
        "updates_per_second": {_label(count): 1 / value for count, value in total.items()},
        "stages": stages,
    }
    peers = {key[0]: best[key] for key in best if len(key) == 2 and key[1] == name}
    if peers:
        figures["peers"] = {
            library: {
                "updates_per_second": 1 / value,
                "slowest_over_best": max(seconds[library, name]) / value,
                # Where there are several stages, a peer's update is that of the last.
                "share_of_sgemm": 1e6 * stages[list(shares)[-1]]["megaflops"] / value / sgemm,
                "times_as_fast": {_label(count): value / total[count] for count in counts},
            }
            for library, value in peers.items()
        }
    return figures


def measure_before(folder: Path, names: Sequence[str], options: argparse.Namespace) -> dict[str, float]:
    """Updates per second of one seed in an older checkout of this project, by its own benchmark."""
    command = [sys.executable, str(folder / "benchmarks" / "peers.py"), "--methods", ",".join(names)]
    command += [
        "--rows",
        str(options.rows),
        "--updates",
        str(options.updates),
        "--repetitions",
        str(options.repetitions),
    ]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    text = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder).stdout
    methods = json.loads(text[text.index("{") :])["methods"]
    return {name: figures["updates_per_second"]["one_seed"] for name, figures in methods.items()}


def _label(count: str) -> str:
    return "one_seed" if count == "1" else f"{count}_seeds"


def make_peers(dataset: Dataset, settings: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """d3rlpy's update, with a batch drawn, of each method that both have; empty where it is not installed."""
    try:
        import d3rlpy
    except ImportError:
        print("d3rlpy is not installed: its methods are left out (pip install d3rlpy)")
        return {}
    encoder = lambda hidden: d3rlpy.models.VectorEncoderFactory(hidden_units=list(hidden))
    valid = dataset.valid
    rows = d3rlpy.dataset.MDPDataset(
        observations=dataset.observations[valid],
        actions=dataset.actions[valid],
        rewards=dataset.rewards[valid],
        terminals=dataset.terminal[valid].astype(np.float32),
        timeouts=(np.append(~valid[1:], True) & ~dataset.terminal)[valid].astype(np.float32),
    )
    configs = {
        "iql": lambda s: d3rlpy.algos.IQLConfig(
            actor_encoder_factory=encoder(s.policy_hidden),
            critic_encoder_factory=encoder(s.value_hidden),
            value_encoder_factory=encoder(s.value_hidden),
            batch_size=s.batch_size,
        ),
        # Without the multiplier, which ours has only where a threshold is set.
        "cql": lambda s: d3rlpy.algos.CQLConfig(
            actor_encoder_factory=encoder(s.policy_hidden),
            critic_encoder_factory=encoder(s.value_hidden),
            batch_size=s.batch_size,
            n_action_samples=s.num_sampled_actions,
            alpha_learning_rate=0.0,
        ),
        "bcq": lambda s: d3rlpy.algos.BCQConfig(
            actor_encoder_factory=encoder(s.policy_hidden),
            critic_encoder_factory=encoder(s.value_hidden),
            imitator_encoder_factory=encoder(s.generator_hidden),
            batch_size=s.batch_size,
            n_action_samples=s.num_target_actions,
        ),
    }

    def peer(name: str) -> Callable[[], Any]:
        method, size = configs[name](settings[name]).create(device="cpu:0"), settings[name].batch_size
        method.build_with_dataset(rows)
        update = lambda: method.update(rows.sample_transition_batch(size))
        update()
        return update

    return {name: peer(name) for name in configs if name in settings}


def _timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    flags = next((line for line in lines if line.startswith("flags")), "")
    return f"{name} with {'AVX-512' if 'avx512f' in flags else 'AVX2' if 'avx2' in flags else 'neither AVX2'}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}
    for name in ("jaxlib", "d3rlpy", "torch", "flax"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--methods", default=",".join(name for name in METHODS if not METHODS[name].ablates), help="default: all"
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=100, help="updates in one timed stretch")
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--before", type=Path, metavar="DIR", help="an older checkout of this project")
    for library in LIBRARIES:
        parser.add_argument(f"--{library}", type=Path, metavar="DIR", help=f"folder of {library}")
    options = parser.parse_args()
    prepare_devices()
    names = options.methods.split(",")
    folders = {name: path for name in LIBRARIES if (path := getattr(options, name.replace("-", "_"))) is not None}
    before = None if options.before is None else measure_before(options.before.resolve(), names, options)
    dataset = make_dataset(options.rows)
    figures = measure(dataset, names, options.updates, options.repetitions, folders=folders)
    for name, rate in (before or {}).items():
        now = figures["methods"][name]["updates_per_second"]
        times = {label: value / rate for label, value in now.items()}
        figures["methods"][name]["before"] = {"updates_per_second": rate, "times_as_fast": times}
    about = {
        "rows": dataset.num_rows,
        "observation_size": dataset.observation_size,
        "action_size": dataset.action_size,
        "sizes": "each method's default networks and batch; refreshes of memories are not timed here",
        "seeds_side_by_side": NUM_SEEDS,
        "repetitions": options.repetitions,
        "updates": options.updates,
        "cores": os.cpu_count(),
        "devices": len(jax.devices()),
        "processor": _processor(),
        "versions": _versions(),
    }
    text = json.dumps({"about": about, **figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
