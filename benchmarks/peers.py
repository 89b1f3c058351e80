"""Updates per second of every method, beside d3rlpy's same method, and how much of the machine they use.

    python benchmarks/peers.py --out benchmarks/results/peers.json

All in one run, interleaved, the best of several repetitions each: other work on the machine only ever slows one down.
d3rlpy is measured where it is installed, with the same networks and batches; drawing the batch counts on both sides.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from arithmetic import done_flops, needed_flops
from speed import make_dataset, sgemm_rate
from vem.algorithms import METHODS
from vem.algorithms.base import Rows, Spec, put_rows, spec_of
from vem.algorithms.config import build, sweepable
from vem.data import Dataset
from vem.runs.loop import Member, compile_chunk, start

NUM_SEEDS = 3
RUN_UPDATES = 100_000
"""Length of the run whose stages are weighed against each other."""


class Chunk:
    """The compiled updates of one stage, for some seeds side by side, without refreshes of the memory."""

    def __init__(self, name: str, settings: Any, stage_index: int, rows: Rows, spec: Spec, num_seeds: int) -> None:
        algorithm = METHODS[name].make(settings, spec, RUN_UPDATES)
        swept = {key: value for key in sweepable(type(settings)) if (value := getattr(settings, key)) is not None}
        self.stage = algorithm.stages[stage_index]
        self.state = start(algorithm, [Member(seed, {}) for seed in range(num_seeds)], swept).state
        self.memory = jax.tree.map(lambda leaf: np.zeros((num_seeds, *leaf.shape), leaf.dtype), self.stage.empty())
        self.rows, self.num_seeds, self.done = rows, num_seeds, 0
        self.keys = jax.vmap(jax.random.key)(np.arange(num_seeds))
        self.program = compile_chunk(self.stage)
        self.run(1)

    def run(self, count: int) -> None:
        state, memory, _ = self.program(self.state, self.memory, self.rows, self.keys, self.done, count, -1)
        self.state, self.memory = jax.block_until_ready((state, memory))
        self.done += count


def measure(
    dataset: Dataset, names: Sequence[str], updates: int, repetitions: int, changes: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The figures of the methods; ``changes`` replaces settings by method."""
    spec = spec_of(dataset)
    rows = put_rows(dataset)
    settings = {name: build(METHODS[name].config, dict((changes or {}).get(name, {}))) for name in names}
    runs: dict[tuple[str, ...], Callable[[], None]] = {}
    flops: dict[tuple[str, str], tuple[float, float]] = {}
    shares: dict[str, dict[str, float]] = {}
    for name in names:
        stages = METHODS[name].make(settings[name], spec, RUN_UPDATES).stages
        needed = needed_flops(name, settings[name], spec)
        shares[name] = {stage.name: stage.num_steps / RUN_UPDATES for stage in stages}
        for index, stage in enumerate(stages):
            for num_seeds in (1, NUM_SEEDS):
                chunk = Chunk(name, settings[name], index, rows, spec, num_seeds)
                runs[name, stage.name, str(num_seeds)] = lambda chunk=chunk: chunk.run(updates)
                first = jax.tree.map(lambda leaf: leaf[0], chunk.state)
            flops[name, stage.name] = (needed[stage.name], done_flops(stage, first, rows))
    for name, peer in make_peers(dataset, settings).items():
        runs["d3rlpy", name] = lambda peer=peer: [peer() for _ in range(updates)] and None
    best = dict.fromkeys(runs, float("inf"))
    rates = []
    for _ in range(repetitions):
        rates.append(sgemm_rate())
        for key, run in runs.items():
            best[key] = min(best[key], _timed(run) / updates)
    sgemm = max(rates)
    methods = {name: _figures(name, shares[name], flops, best, sgemm) for name in names}
    return {"sgemm_gflops": sgemm / 1e9, "methods": methods}


def _figures(
    name: str,
    shares: Mapping[str, float],
    flops: Mapping[tuple[str, str], tuple[float, float]],
    best: Mapping[tuple[str, ...], float],
    sgemm: float,
) -> dict[str, Any]:
    stages: dict[str, Any] = {}
    seconds = {"1": 0.0, str(NUM_SEEDS): 0.0}
    for stage, share in shares.items():
        needed, done = flops[name, stage]
        per_seed = {count: best[name, stage, count] / int(count) for count in seconds}
        seconds = {count: seconds[count] + share * per_seed[count] for count in seconds}
        stages[stage] = {
            "needed_megaflops": needed / 1e6,
            "done_over_needed": done / needed,
            "milliseconds_per_seed": {_label(count): 1e3 * value for count, value in per_seed.items()},
            "share_of_sgemm": {_label(count): needed / value / sgemm for count, value in per_seed.items()},
        }
    figures: dict[str, Any] = {
        "updates_per_second": {_label(count): 1 / value for count, value in seconds.items()},
        "stages": stages,
    }
    if (peer := best.get(("d3rlpy", name))) is not None:
        figures["d3rlpy_updates_per_second"] = 1 / peer
        # Its update is that of the last stage, where there are several.
        figures["d3rlpy_share_of_sgemm"] = 1e6 * stages[list(shares)[-1]]["needed_megaflops"] / peer / sgemm
        figures["times_d3rlpy"] = {_label(count): peer / value for count, value in seconds.items()}
    return figures


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


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__}
    for name in ("d3rlpy", "torch"):
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
    options = parser.parse_args()
    dataset = make_dataset(options.rows)
    figures = measure(dataset, options.methods.split(","), options.updates, options.repetitions)
    about = {
        "rows": dataset.num_rows,
        "observation_size": dataset.observation_size,
        "action_size": dataset.action_size,
        "sizes": "each method's default networks and batch; refreshes of memories are not timed here",
        "seeds_side_by_side": NUM_SEEDS,
        "repetitions": options.repetitions,
        "updates": options.updates,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "versions": _versions(),
    }
    text = json.dumps({"about": about, **figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
