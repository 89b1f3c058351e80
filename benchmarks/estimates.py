"""How good the estimates are: policies of different quality, valued from held-out recordings and in the simulator.

    python benchmarks/estimates.py run --out DIR --data-dir DATA       train, simulate, estimate; goes on after a stop
    python benchmarks/estimates.py peer --out DIR --data-dir DATA      d3rlpy's FQE, in an environment that has it
    python benchmarks/estimates.py record --out DIR                    → results/estimates.json and docs/estimates.png

The protocol is that of DOPE (Fu et al., ICLR 2021): rank correlation, absolute error, regret@1 and the coverage of the
intervals, over policies of one dataset. OUT/DATASET/ holds, for each policy, METHOD-STEPS.safetensors and one JSON for
each stage. The truth is E[Σ_{t<H} γᵗ·r_t] over simulated episodes, with the H and the γ of the estimate.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

DISCOUNT = 0.99
HOLD_OUT = 0.2
EPISODES = 50
DATASETS = (
    "hopper-medium",
    "pointmaze-umaze",
    "pen-expert",
    "halfcheetah-medium",
    "door-human",
    "pen-human",
    "antmaze-umaze",
)
LENGTHS = {"bc": (200, 2000), "vem": (400, 2000), "iql": (400, 2000), "td3bc": (400, 2000)}
"""Method → steps after which a policy is kept."""


@dataclass(frozen=True)
class Limited:
    """Makes an environment that is cut after a number of steps."""

    environment: Any
    steps: int

    def __call__(self) -> Any:
        from gymnasium.wrappers import TimeLimit

        from vem.evaluation.rollout import make_environment

        env = make_environment(self.environment)
        inner = env
        while not isinstance(inner, TimeLimit):
            if inner is inner.unwrapped:
                return TimeLimit(env, self.steps)
            inner = inner.env
        inner._max_episode_steps = self.steps
        return env


def load(name: str, data_dir: Path) -> Any:
    import vem

    return vem.load(name, data_dir=str(data_dir))


def train(name: str, out: Path, data_dir: Path) -> None:
    """Keep policies of every method after few and many steps."""
    import vem

    for method, lengths in LENGTHS.items():
        paths = {steps: out / name / f"{method}-{steps}.safetensors" for steps in lengths}
        if all(path.exists() for path in paths.values()):
            continue

        def keep(run: Any, progress: Any, paths: dict[int, Path] = paths) -> None:
            if (path := paths.get(progress.steps)) is not None:
                run.export(progress.snapshot.state)[0].save(path)

        settings = {
            "batch_size": 128,
            "policy_hidden": (128, 128),
            **({} if method == "bc" else {"value_hidden": (128, 128)}),
        }
        if method == "vem":
            settings["policy"] = "regression"
        print(f"{name}: training {method}", flush=True)
        vem.train(
            load(name, data_dir),
            method,
            steps=max(lengths),
            hold_out=HOLD_OUT,
            callbacks=[keep],
            progress=False,
            **settings,
        )


def simulate(policy: Any, dataset: Any, horizon: int) -> dict[str, Any]:
    """The discounted returns of simulated episodes, and their scores."""
    import dataclasses

    from vem.evaluation.environments import find_environment
    from vem.evaluation.workers import Evaluator
    from vem.tasks import normalized_score

    environment, _, references = find_environment(dataclasses.asdict(dataset.info))
    policy = dataclasses.replace(
        policy, info={**policy.info, "settings": {**policy.info["settings"], "discount": DISCOUNT}}
    )
    scores = None
    with Evaluator(Limited(environment, horizon), 1) as evaluator:
        records = evaluator.evaluate({"policy": policy}, EPISODES)
    good = [record for record in records if record.error is None]
    if references is not None:
        scores = [normalized_score(references, record.episode_return) for record in good]
    return {
        "returns": [record.discounted_return for record in good],
        "scores": scores,
        "num_failed": len(records) - len(good),
    }


def each(out: Path, name: str, stage: str, make: Callable[[Any], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The record of a stage of every policy; made where it is missing."""
    import vem

    for path in sorted((out / name).glob("*.safetensors")):
        file = path.with_suffix(f".{stage}.json")
        if not file.exists():
            started = time.perf_counter()
            found = make(vem.load_policy(path))
            found["seconds"] = round(time.perf_counter() - started, 2)
            file.write_text(json.dumps(found))
            print(f"{name} {path.stem}: {stage} in {found['seconds']:.1f} s", flush=True)
        yield {"dataset": name, "policy": path.stem, **json.loads(file.read_text())}


def run(names: list[str], out: Path, data_dir: Path) -> None:
    """All stages of ours, dataset by dataset."""
    from vem.data.hold_out import part_dataset
    from vem.estimation.estimate import Valuation
    from vem.estimation.log import find_horizon, read_log
    from vem.estimation.result import plain
    from vem.runs.programs import keep_programs

    keep_programs()
    for name in names:
        (out / name).mkdir(parents=True, exist_ok=True)
        train(name, out, data_dir)
        dataset = load(name, data_dir)
        horizon = find_horizon(dataset, DISCOUNT)
        for _ in each(out, name, "truth", partial(simulate, dataset=dataset, horizon=horizon)):
            pass
        logs = [read_log(part, DISCOUNT, horizon) for part in part_dataset(dataset, HOLD_OUT) if part is not None]
        valuation = Valuation(*logs)

        def value(
            policy: Any, valuation: Valuation = valuation, returns: Any = logs[1].start_returns
        ) -> dict[str, Any]:
            return {"log": float(returns.mean()), "num_recordings": len(returns), **plain(valuation.value(policy))}

        for _ in each(out, name, "estimate", value):
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("run",))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    options = parser.parse_args()
    run(options.datasets.split(","), options.out, options.data_dir)


if __name__ == "__main__":
    import estimates  # worker processes find classes in modules, not in scripts

    estimates.main()
