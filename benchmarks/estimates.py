"""How good the estimates are: policies of different quality, valued from held-out trajectories and in the simulator.

    python benchmarks/estimates.py run --out DIR --data-dir DATA       train, simulate, estimate; goes on after a stop
    PYTHON benchmarks/estimates.py peer --out DIR --data-dir DATA      the same policies by d3rlpy, in its own Python
    python benchmarks/estimates.py record --out DIR                    → results/estimates.json, and the part below
    python benchmarks/estimates.py write                              the record → docs/choosing.md and its chart

The protocol is that of DOPE (Fu et al., ICLR 2021): rank correlation, absolute error, regret@1 and the coverage of the
intervals, over policies of one dataset. OUT/DATASET/ holds, for each policy, METHOD-STEPS.safetensors and one JSON for
each stage. The truth is E[Σ_{t<H} γᵗ·r_t] over simulated episodes, with the H and the γ of the estimate.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "estimates.json"
PAGE, CHART = ROOT / "docs" / "choosing.md", ROOT / "docs" / "estimates.png"
DISCOUNT = 0.99
HOLD_OUT = 0.2
PEER_STEPS = 5_000
EPISODES = 50
DATASETS = (
    "hopper-medium",
    "pen-expert",
    "halfcheetah-medium",
    "door-human",
    "pen-human",
    "antmaze-umaze",
)
TRAININGS = (
    ("bc", (200, 2000)),
    *((method, lengths) for method in ("vem", "iql", "td3bc") for lengths in ((400, 2000), (10_000,))),
)
"""Methods, and the steps after which a policy is kept; the last of them is the length of the training."""


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

    for method, lengths in TRAININGS:
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
        if method == "vem" and max(lengths) < 10_000:
            settings["policy"] = "regression"  # a guided policy needs longer to be one
        print(f"{name}: training {method}", flush=True)
        dataset, length = load(name, data_dir), max(lengths)
        try:
            vem.train(dataset, method, steps=length, hold_out=HOLD_OUT, callbacks=[keep], progress=False, **settings)
        except vem.VemError as error:  # values that diverge leave a policy less
            print(f"{name}: {method} has no policy after {length} steps: {error}", flush=True)


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
    from vem.data.dataset import part_dataset
    from vem.estimation.estimate import Valuation, to_json
    from vem.estimation.log import find_horizon, read_log
    from vem.training.machine import keep_programs

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
            return {"log": float(returns.mean()), "num_trajectories": len(returns), **to_json(valuation.value(policy))}

        for _ in each(out, name, "estimate", value):
            pass


def peer(names: list[str], out: Path, data_dir: Path) -> None:
    """The same policies valued by d3rlpy's FQE: its default settings, standardized observations, no time limit."""
    import d3rlpy
    import torch

    from vem.data.dataset import part_dataset, trajectories_of
    from vem.estimation.log import scale_actions

    torch.set_num_threads(1)
    for name in names:
        training, held_out = part_dataset(load(name, data_dir), HOLD_OUT)
        rows = np.flatnonzero(training.valid)
        columns = [training.observations[rows], scale_actions(training.actions[rows], training), training.rewards[rows]]
        columns += [training.observations[rows + 1], training.terminal[rows]]
        columns = [np.asarray(column, np.float32).reshape(len(rows), -1) for column in columns]
        first = np.flatnonzero(np.diff(trajectories_of(held_out), prepend=-1))
        starts = held_out.observations[held_out.episode_starts[first]].astype(np.float32)

        def value(policy: Any, columns: Any = columns, starts: Any = starts, dataset: Any = training) -> dict[str, Any]:
            mean, deviation = columns[0].mean(axis=0), columns[0].std(axis=0) + 1e-6

            def act(observations: np.ndarray) -> np.ndarray:
                return scale_actions(np.asarray(policy.act(observations), np.float32), dataset)

            class Actor:
                """What FQE asks of an algorithm."""

                def predict_best_action(self, scaled: torch.Tensor) -> torch.Tensor:
                    return torch.as_tensor(act(scaled.numpy() * deviation + mean))

            scaler = d3rlpy.preprocessing.StandardObservationScaler(mean=mean, std=deviation)
            config = d3rlpy.ope.FQEConfig(gamma=DISCOUNT, observation_scaler=scaler)
            fitted = d3rlpy.ope.FQE(algo=type("Algorithm", (), {"impl": Actor()})(), config=config)
            d3rlpy.seed(0)
            fitted.create_impl(columns[0].shape[1:], columns[1].shape[1])
            random, ones = np.random.default_rng(0), np.ones((config.batch_size, 1), np.float32)
            for _ in range(PEER_STEPS):
                rows = random.integers(0, len(columns[0]), config.batch_size)
                observed, acted, reward, following, terminal = (column[rows] for column in columns)
                batch = (observed, acted, reward, following, acted, terminal, ones)
                fitted.update(d3rlpy.dataset.TransitionMiniBatch(*batch, transitions=[]))
            return {"value": float(fitted.predict_value(starts, act(starts)).mean()), "steps": PEER_STEPS}

        for _ in each(out, name, "peer", value):
            pass


def collect(out: Path) -> list[dict[str, Any]]:
    """What every policy whose stages are done gave, without the places of this machine."""
    found = []
    for path in sorted(out.glob("*/*.estimate.json")):
        name = path.name.removesuffix(".estimate.json")
        truth_path = path.with_name(f"{name}.truth.json")
        if not truth_path.exists():
            continue
        estimate, truth = (json.loads(file.read_text()) for file in (path, truth_path))
        returns, peer_path = np.asarray(truth["returns"]), path.with_name(f"{name}.peer.json")
        found.append(
            {
                "dataset": path.parent.name,
                "policy": name,
                "truth": float(returns.mean()),
                "truth_error": float(returns.std(ddof=1) / len(returns) ** 0.5),
                "score": None if truth["scores"] is None else float(np.mean(truth["scores"])),
                "value": estimate["value"]["value"],
                "interval": estimate["value"]["interval"],
                "verdict": estimate["verdict"],
                "plain": estimate["plain"]["value"],
                "supported": estimate["supported"],
                "peer": json.loads(peer_path.read_text())["value"] if peer_path.exists() else None,
                "effective_sample": estimate["importance"]["effective_sample"],
                "log": estimate["log"],
                "num_trajectories": estimate["num_trajectories"],
                "seconds": estimate["seconds"],
            }
        )
    return found


def measure(policies: list[dict[str, Any]], key: str = "value", takes_highest: bool = False) -> dict[str, Any]:
    """The figures of one dataset's policies, by the estimate under ``key``; ours chooses as ``vem select`` does."""
    from scipy.stats import spearmanr

    truth, value = (np.array([policy[name] for policy in policies]) for name in ("truth", key))
    span, chosen = float(np.ptp(truth)) or 1.0, int(value.argmax())
    if key == "value" and not takes_highest:
        low = (policies[chosen]["interval"] or [-np.inf])[0]
        chosen = max(np.flatnonzero(value >= low), key=lambda index: policies[index]["supported"])
    scores = [policy["score"] for policy in policies]
    inside = [
        policy["interval"][0] - 2 * policy["truth_error"]
        <= policy["truth"]
        <= policy["interval"][1] + 2 * policy["truth_error"]
        for policy in policies
        if policy["interval"] is not None
    ]
    return {
        "num_policies": len(policies),
        "rank_correlation": float(spearmanr(truth, value)[0]) if min(np.ptp(truth), np.ptp(value)) > 0 else None,
        "absolute_error": float(np.abs(truth - value).mean() / span),
        "regret": float((truth.max() - truth[chosen]) / span),
        "regret_score": None if None in scores else float(max(scores) - scores[chosen]),
        "coverage": float(np.mean(inside)) if inside else None,
    }


def peer_table(record: list[dict[str, Any]]) -> str:
    """The support-weighted value beside the plain one and d3rlpy's, on the policies that all of them valued."""
    record = [policy for policy in record if policy["peer"] is not None]
    names = list(dict.fromkeys(policy["dataset"] for policy in record))
    lines = [["estimate", "rank correlation", "error ÷ range", "regret ÷ range", "regret, score"]]
    lines.append(["---", *["---:"] * 4])
    for title, key in (("support-weighted (the estimate)", "value"), ("plain", "plain"), ("d3rlpy's FQE", "peer")):
        found = [measure([policy for policy in record if policy["dataset"] == name], key) for name in names]
        keys = ("rank_correlation", "absolute_error", "regret", "regret_score")
        lines.append([title, *(_text(_mean([facts[name] for facts in found])) for name in keys)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"Means over the {len(names)} datasets, {len(record)} policies:\n\n{table}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def estimate_table(record: list[dict[str, Any]]) -> str:
    """The figures of each dataset, and their means."""
    names = list(dict.fromkeys(policy["dataset"] for policy in record))
    found = {name: measure([policy for policy in record if policy["dataset"] == name]) for name in names}
    keys = ("rank_correlation", "absolute_error", "regret", "regret_score", "coverage")
    header = ["dataset", "policies", "rank correlation", "error ÷ range", "regret ÷ range", "regret, score", "covered"]
    rows = [[name, str(facts["num_policies"]), *(_text(facts[key]) for key in keys)] for name, facts in found.items()]
    if len(names) > 1:
        means = [_text(_mean([facts[key] for facts in found.values()])) for key in keys]
        rows.append(["mean", str(len(record)), *means])
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    highest = [
        measure([policy for policy in record if policy["dataset"] == name], takes_highest=True) for name in names
    ]
    lost = _text(_mean([facts["regret_score"] for facts in highest]))
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\nTaking the highest value would lose {lost} points of the score in the mean."


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def filled(text: str, record: list[dict[str, Any]]) -> str:
    """The page with its marked part made anew from the record."""
    content = "No measurement is recorded yet."
    if record:
        chart = "![Estimated against simulated returns](estimates.png)"
        parts = [estimate_table(record), chart]
        if any(policy["peer"] is not None for policy in record):
            parts.append(peer_table(record))
        content = "\n\n".join(parts)
    pattern = re.compile("(<!-- estimates -->).*?(<!-- /estimates -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n\n{content}\n\n{match[2]}", text)


def read_record(path: Path = RECORD) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["policies"] if path.exists() else []


def draw(record: list[dict[str, Any]], path: Path = CHART) -> None:
    """Estimates with their intervals against the truths, a panel for each dataset."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = list(dict.fromkeys(policy["dataset"] for policy in record))
    columns = min(3, len(names))
    shape = (-(-len(names) // columns), columns)
    figure, axes = plt.subplots(*shape, figsize=(3.0 * columns, 2.8 * shape[0]), squeeze=False, layout="constrained")
    for axis in axes.flat[len(names) :]:
        axis.remove()
    for axis, name in zip(axes.flat, names, strict=False):
        policies = [policy for policy in record if policy["dataset"] == name]
        truth, value = (np.array([policy[key] for policy in policies]) for key in ("truth", "value"))
        ends = np.array([policy["interval"] or (policy["value"],) * 2 for policy in policies])
        axis.errorbar(truth, value, np.abs(ends.T - value), fmt="o", markersize=4, elinewidth=0.8, alpha=0.8)
        both = [min(truth.min(), value.min()), max(truth.max(), value.max())]
        axis.plot(both, both, color="gray", linewidth=0.8)
        axis.axhline(policies[0]["log"], color="gray", linewidth=0.8, linestyle=":")
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("simulated")
    for axis in axes[:, 0]:
        axis.set_ylabel("estimated (dotted: the log)")
    figure.savefig(path, dpi=110)


def write() -> None:
    """Fill the page, and draw the chart."""
    record = read_record()
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    if record:
        draw(record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("run", "peer", "record", "write"))
    parser.add_argument("--out", type=Path, default=Path("runs/estimates"))
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    options = parser.parse_args()
    if options.verb in ("run", "peer"):
        {"run": run, "peer": peer}[options.verb](options.datasets.split(","), options.out, options.data_dir)
        return
    if options.verb == "record":
        settings = {"discount": DISCOUNT, "hold_out": HOLD_OUT, "episodes": EPISODES}
        RECORD.write_text(json.dumps({**settings, "policies": collect(options.out)}, indent=1) + "\n")
    write()


if __name__ == "__main__":
    import estimates  # worker processes find classes in modules, not in scripts

    estimates.main()
