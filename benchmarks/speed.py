"""How fast training is, as ratios inside one run: to the machine's own sgemm, and to the same update in PyTorch.

    python benchmarks/speed.py --out benchmarks/results/speed.json

Every figure is the best of several interleaved repetitions, since other work on the machine only ever slows one down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

OBSERVATION_SIZE, ACTION_SIZE, EPISODE_STEPS = 29, 8, 1000
BATCH_SIZE, UPDATES = 128, 200
CRITIC = OBSERVATION_SIZE * 256 + 256 * 256 + 256
ACTOR = OBSERVATION_SIZE * 256 + 256 * 256 + 256 * ACTION_SIZE
# A multiply and an add for each weight and row; forward once, backward twice, less the first layer's input gradient.
UPDATE_FLOPS = 2 * BATCH_SIZE * (3 * (2 * CRITIC + ACTOR) - 3 * OBSERVATION_SIZE * 256)
REFRESH_FLOPS = 2 * 2 * CRITIC


def make_dataset(num_rows: int):
    from vem.data.arrays import from_arrays

    generator = np.random.default_rng(0)
    timeouts = np.zeros(num_rows, bool)
    timeouts[EPISODE_STEPS - 1 :: EPISODE_STEPS] = True
    return from_arrays(
        generator.standard_normal((num_rows, OBSERVATION_SIZE), dtype=np.float32),
        generator.uniform(-1, 1, (num_rows, ACTION_SIZE)).astype(np.float32),
        (generator.random(num_rows) < 0.01).astype(np.float32),
        np.zeros(num_rows, bool),
        timeouts,
        name="speed",
        teleports="keep",
    )


def best_seconds(run, repetitions: int) -> float:
    return min(_timed(run) for _ in range(repetitions))


def _timed(run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def sgemm_rate() -> float:
    """Floating-point operations a second of NumPy's 4096×256 by 256×256 product in single precision."""
    left = np.random.default_rng(0).random((4096, 256), dtype=np.float32)
    right = np.random.default_rng(1).random((256, 256), dtype=np.float32)
    return 2 * 4096 * 256 * 256 / best_seconds(lambda: left @ right, 50)


def sgemm_rate_without_avx512() -> float | None:
    """The same with OpenBLAS's AVX2 kernels, in a process of its own; None where NumPy has another BLAS."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import speed; print(speed.sgemm_rate())"
    environment = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


class Stage:
    """The compiled chunk of a joint VEM stage with the paper's sizes, ready to be timed."""

    def __init__(self, dataset, num_seeds: int, refresh: str) -> None:
        import jax

        from vem.algorithms.base import build, spec_of
        from vem.algorithms.vem import VEM, make
        from vem.training.loop import compile_chunk, start
        from vem.training.machine import lay_out, prepare_devices
        from vem.training.request import Trial
        from vem.training.rows import put_rows

        prepare_devices()

        chosen = {
            "schedule": "joint",
            "policy_draw": "uniform",
            "batch_size": BATCH_SIZE,
            "steps_per_refresh": UPDATES,
            "refresh": refresh,
        }
        spec = spec_of(dataset)
        algorithm = make(build(VEM, chosen), spec, 10**9)
        trials = [Trial(seed, {}) for seed in range(num_seeds)]
        snapshot = start(algorithm, trials, {"expectile": 0.3, "effective_sample": 0.5})
        self.layout = lay_out(num_seeds)
        self.state, self.memory = self.layout.spread((snapshot.state, snapshot.memory))
        self.rows = put_rows(dataset, True, True, place=self.layout.place)
        self.keys = self.layout.spread(jax.vmap(jax.random.key)(np.arange(num_seeds)))
        self.program = compile_chunk(algorithm.stages[0], self.layout.mesh)
        self.done = 0
        self.run(0, 1)

    def run(self, refresh_index: int, count: int = UPDATES) -> None:
        import jax

        counts = self.layout.counts(count)
        given = (self.state, self.memory, self.rows, self.keys, counts)
        state, memory, _ = self.program(*given, self.done, refresh_index)
        self.state, self.memory = jax.block_until_ready((state, memory))
        self.done += count


def plan_seconds(stage: Stage) -> float:
    import jax

    from vem import plan as memory

    rows = stage.rows
    steps = memory.Steps(rows.rewards, 0.99 * rows.continues, rows.valid)
    plan = jax.jit(memory.episodic_maximum)
    values = stage.memory.values[0]
    return best_seconds(lambda: jax.block_until_ready(plan(values, steps)), 8)


def torch_update_seconds() -> float | None:
    """The same joint update in PyTorch, eager, or None where it is not installed."""
    try:
        import torch
    except ImportError:
        return None

    def network(size: int):
        hidden = [torch.nn.Linear(OBSERVATION_SIZE, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
        return torch.nn.Sequential(*hidden, torch.nn.Linear(256, size))

    critics, actor = [network(1), network(1)], network(ACTION_SIZE)
    log_std = torch.nn.Parameter(torch.zeros(ACTION_SIZE))
    value_optimizer = torch.optim.Adam([p for c in critics for p in c.parameters()], 3e-4)
    policy_optimizer = torch.optim.Adam([*actor.parameters(), log_std], 3e-4)
    observations, actions = torch.randn(100_000, OBSERVATION_SIZE), torch.rand(100_000, ACTION_SIZE) * 2 - 1
    returns = torch.randn(2, 100_000)

    def update() -> None:
        rows = torch.randint(100_000, (BATCH_SIZE,))
        seen, planned = observations[rows], returns[:, rows]
        values = torch.stack([critic(seen)[:, 0] for critic in critics])
        difference = planned - values
        loss = (torch.where(difference > 0, 0.3, 0.7) * difference**2).mean(1).sum()
        value_optimizer.zero_grad()
        loss.backward()
        value_optimizer.step()
        weight = torch.softmax((planned.min(0).values - values.mean(0)).detach(), 0) * BATCH_SIZE
        density = torch.distributions.Normal(torch.tanh(actor(seen)), (-3 + 4 * torch.sigmoid(log_std)).exp())
        loss = -(weight * density.log_prob(actions[rows]).sum(-1)).mean()
        policy_optimizer.zero_grad()
        loss.backward()
        policy_optimizer.step()

    for _ in range(20):
        update()
    return best_seconds(lambda: [update() for _ in range(50)], 5) / 50


def peak_memory(num_rows: int) -> dict[str, float]:
    """Peak resident bytes of a process that makes the rows and trains on them, against the rows' own bytes."""
    command = [sys.executable, __file__, "--measure-memory", "--rows", str(num_rows)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_memory(num_rows: int) -> None:
    """Train a few periods on the rows of a file, in this process, and print the peak."""
    import tempfile

    import h5py

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.hdf5"
        # Written by a child, so that making the rows does not count.
        child = os.fork()
        if child == 0:
            generator = np.random.default_rng(0)
            with h5py.File(path, "w") as file:
                file["observations"] = generator.standard_normal((num_rows, OBSERVATION_SIZE), dtype=np.float32)
                file["actions"] = generator.uniform(-1, 1, (num_rows, ACTION_SIZE)).astype(np.float32)
                file["rewards"] = (generator.random(num_rows) < 0.01).astype(np.float32)
                file["terminals"] = np.zeros(num_rows, bool)
                timeouts = np.zeros(num_rows, bool)
                timeouts[EPISODE_STEPS - 1 :: EPISODE_STEPS] = True
                file["timeouts"] = timeouts
            os._exit(0)
        os.waitpid(child, 0)
        from vem.data.load import load
        from vem.training.request import make_request
        from vem.training.run import Run

        dataset = load(path, teleports="keep")
        config = make_request(str(path), steps=1000, settings={"batch_size": BATCH_SIZE})
        run = Run.create(Path(folder) / "run", config, dataset).train()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"peak_bytes": peak, "data_bytes": run.dataset.num_bytes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--measure-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_memory:
        measure_memory(options.rows)
        return

    import jax

    memory = peak_memory(options.rows)  # first: a child's peak starts at what its parent holds
    dataset = make_dataset(options.rows)
    one, three = Stage(dataset, 1, "rolling"), Stage(dataset, 3, "rolling")
    full = Stage(dataset, 1, "full")
    seconds: dict[str, list[float]] = {name: [] for name in ("one", "three", "full", "refresh", "period", "period3")}
    rates = []
    for _ in range(options.repetitions):
        rates.append(sgemm_rate())
        seconds["one"].append(_timed(lambda: one.run(-1)) / UPDATES)
        seconds["three"].append(_timed(lambda: three.run(-1)) / UPDATES / 3)
        seconds["period"].append(_timed(lambda: one.run(1)))
        seconds["period3"].append(_timed(lambda: three.run(1)))
        seconds["full"].append(_timed(lambda: full.run(1, 1)))
    sgemm, avx2 = max(rates), sgemm_rate_without_avx512()
    best = {name: min(values) for name, values in seconds.items() if values}
    plan = plan_seconds(full)
    refresh = best["full"] - best["one"]
    torch_seconds = torch_update_seconds()
    figures = {
        "sgemm_gflops": sgemm / 1e9,
        "sgemm_avx2_gflops": None if avx2 is None else avx2 / 1e9,
        "update_milliseconds": {"one_seed": 1e3 * best["one"], "three_seeds_per_seed": 1e3 * best["three"]},
        "update_share_of_sgemm": {
            "one_seed": UPDATE_FLOPS / best["one"] / sgemm,
            "three_seeds": UPDATE_FLOPS / best["three"] / sgemm,
        },
        "refresh_seconds": refresh,
        "refresh_share_of_sgemm": REFRESH_FLOPS * dataset.num_rows / (refresh - plan) / sgemm,
        "plan_seconds": plan,
        "plan_share_of_refresh": plan / refresh,
        "run_over_updates_alone": {
            "one_seed": best["period"] / (best["one"] * UPDATES),
            "three_seeds": best["period3"] / (best["three"] * UPDATES * 3),
        },
        "torch_update_milliseconds": None if torch_seconds is None else 1e3 * torch_seconds,
        "torch_over_ours": None if torch_seconds is None else torch_seconds / best["one"],
        "memory": {**memory, "limit_bytes": 1.5 * memory["data_bytes"] + 800e6},
    }
    about = {
        "rows": dataset.num_rows,
        "batch_size": BATCH_SIZE,
        "steps_per_refresh": UPDATES,
        "update_flops": UPDATE_FLOPS,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "versions": {"python": platform.python_version(), "jax": jax.__version__, "numpy": np.__version__},
        "repetitions": options.repetitions,
    }
    text = json.dumps({"about": about, "figures": figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
