"""Mean or drawn actions: scores of the same policies evaluated both ways.

    vem evaluate RUN --stochastic && python benchmarks/drawn.py RUN
    vem evaluate RUN --no-stochastic && python benchmarks/drawn.py RUN

adds the newest evaluation of each RUN to benchmarks/results/trials/drawn.json, in the place of one with the same
dataset, method, steps and way of acting.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
from score_records import Record, column_of, index, to_text
from table_text import table, unique
from vem.algorithms.base import METHODS
from vem.evaluation.results import read_evaluation
from vem.tasks import TASKS
from vem.training.run import Run

RECORDS = Path(__file__).resolve().parent / "results" / "trials" / "drawn.json"
KEY = ("dataset", "algorithm", "preset", "policy", "weight_decay", "steps", "actions")


def read_trial(directory: Path) -> Record:
    """The newest evaluation of a run."""
    run = Run(directory)
    evaluation, config = read_evaluation(run), run.config
    if evaluation is None or evaluation.score is None:
        raise SystemExit(f"{directory} has no evaluation with a score; evaluate it first")
    return {
        "dataset": run.facts.info.name,
        "algorithm": config.algorithm,
        "preset": config.preset,
        "policy": config.settings.get("policy"),
        "weight_decay": config.settings.get("policy_weight_decay"),
        "steps": config.steps,
        "actions": evaluation.actions,
        "episodes": evaluation.episodes,
        "scores": [round(row.means["score"] or 0.0, 2) for row in evaluation.trials.values()],
    }


def drawn_table(path: Path = RECORDS) -> str:
    """Scores of the seeds with mean and with drawn actions, a row a run that was evaluated both ways."""
    trials: list[Record] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    of_run = lambda trial: tuple(trial[name] for name in KEY[:-1])
    rows = []
    for run in unique(map(of_run, trials)):
        own = {trial["actions"]: trial for trial in trials if of_run(trial) == run}
        if {"mean", "sampled"} <= own.keys():
            either = own["mean"]
            rows.append(
                [
                    either["dataset"],
                    _what(either),
                    f"{either['steps']:,}",
                    *(_scores(own[how]["scores"]) for how in ("mean", "sampled")),
                ]
            )
    return table(["dataset", "policies", "steps", "mean actions", "drawn actions"], rows)


def _what(trial: Record) -> str:
    decay = trial["weight_decay"]
    changed = f", weight decay {decay:g}" if trial["policy"] == "guided" and decay else ""
    return f"{column_of(trial)}{', ' + trial['policy'] if trial['policy'] else ''}{changed}"


def _scores(scores: Sequence[float]) -> str:
    each = " / ".join(f"{score:.1f}" for score in scores)
    return f"{sum(scores) / len(scores):.1f} ({each})"


def _place(trial: Record) -> tuple[Any, ...]:
    tasks, methods = list(TASKS), list(METHODS)
    return (index(tasks, trial["dataset"]), trial["dataset"], index(methods, trial["algorithm"]), str(trial))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    trials = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    known = {tuple(trial[name] for name in KEY): trial for trial in trials}
    for path in parser.parse_args().runs:
        trial = read_trial(path)
        known[tuple(trial[name] for name in KEY)] = trial
    RECORDS.write_text(to_text(sorted(known.values(), key=_place)), encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
