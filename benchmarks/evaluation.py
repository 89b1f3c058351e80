"""Steps per second of evaluating three AntMaze policies, against a bare loop over env.step in one process.

python benchmarks/evaluation.py [--quick] [--run RUN]

Both are measured in one run, the bare loop before and after the evaluation, so that the ratio is of one machine in
one state. Without --run the policies are untrained networks of the default size: their ants do not reach the goal, so
every episode has all 700 steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from vem import envs
from vem.evaluation.workers import Evaluator
from vem.policy import Policy, load_policy, make_policy
from vem.training.records import EpisodeRecord

ENVIRONMENT = "vem/AntMaze-UMaze-v0"
RESULT = Path(__file__).parent / "results" / "evaluation.json"


def untrained_policy(seed: int, observation_size: int = 29, action_size: int = 8, width: int = 256) -> Policy:
    generator = np.random.default_rng(seed)

    def layers(output_size: int, *networks: int) -> list[dict[str, np.ndarray]]:
        sizes = (observation_size, width, width, output_size)
        return [
            {
                "weight": generator.normal(0, inputs**-0.5, (*networks, inputs, outputs)).astype(np.float32),
                "bias": np.zeros((*networks, outputs), np.float32),
            }
            for inputs, outputs in pairwise(sizes)
        ]

    parameters = {
        "actor": layers(action_size),
        "log_std": np.zeros(action_size, np.float32),
        "critics": layers(1, 2),
        "value_unit": np.asarray(1.0, np.float32),
    }
    bounds = (-np.ones(action_size), np.ones(action_size))
    normalizer = (np.zeros(observation_size), np.ones(observation_size))
    return make_policy("gaussian", parameters, bounds, normalizer, {"settings": {"discount": 0.99}})


def bare_loop(num_steps: int) -> tuple[float, float]:
    """Steps per second, and processor seconds per step, of one process that only draws random actions."""
    env = envs.make(ENVIRONMENT)
    env.action_space.seed(0)
    env.reset(seed=0)
    started, used = time.perf_counter(), time.process_time()
    for _ in range(num_steps):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()
    rate, per_step = num_steps / (time.perf_counter() - started), (time.process_time() - used) / num_steps
    env.close()
    return rate, per_step


def evaluate(policies: dict[str, Policy], num_episodes: int, num_workers: int) -> tuple[list[EpisodeRecord], dict]:
    """The records, and wall and processor seconds: of the whole, and without the workers' start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    with Evaluator(ENVIRONMENT, num_workers) as evaluator:
        warming = evaluator.evaluate({"warm": next(iter(policies.values()))}, num_workers)
        ready = time.perf_counter()
        records = evaluator.evaluate(policies, num_episodes)
        finished = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return records, {
        "start_seconds": ready - started,
        "seconds": finished - ready,
        "cores_busy": processor / (finished - started),
        "processor_seconds_per_step": processor / sum(record.length or 0 for record in (*warming, *records)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="4 episodes a policy instead of 100; writes no result")
    parser.add_argument("--run", help="a run directory with policies for AntMaze-umaze")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.run:
        policies = {path.stem: load_policy(path) for path in sorted(Path(options.run, "policies").iterdir())}
    else:
        policies = {f"seed{seed}": untrained_policy(seed) for seed in range(3)}
    num_episodes, num_bare = (4, 2_000) if options.quick else (100, 20_000)

    bare = [bare_loop(num_bare)]
    records, seconds = evaluate(policies, num_episodes, options.workers)
    bare.append(bare_loop(num_bare))

    num_steps = sum(record.length or 0 for record in records)
    rate = num_steps / seconds["seconds"]
    bare_rate, bare_processor = np.mean(bare, axis=0)
    result = {
        "environment": ENVIRONMENT,
        "policies": len(policies),
        "trained": bool(options.run),
        "episodes_per_policy": num_episodes,
        "failed_episodes": sum(record.error is not None for record in records),
        "workers": options.workers,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "steps": num_steps,
        "steps_per_second": round(rate, 1),
        "bare_steps_per_second": [round(bare_rate, 1) for bare_rate, _ in bare],
        "ratio": round(rate / bare_rate, 3),
        "bare_processor_seconds_per_step": round(bare_processor, 6),
        **{name: round(value, 6) for name, value in seconds.items()},
    }
    print(json.dumps(result, indent=2))
    if not options.quick:
        RESULT.parent.mkdir(parents=True, exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
