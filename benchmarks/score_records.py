"""Compact records of evaluated runs: what a score depends on and what was measured, without this machine's paths."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vem.algorithms.base import METHODS
from vem.comparison.job import matching_evaluation
from vem.evaluation.environments import References
from vem.evaluation.results import QUANTITIES, trial_values
from vem.evaluation.statistics import over_seeds
from vem.tasks import TASKS, task_of
from vem.training.run import Run

RECORDS = Path(__file__).resolve().parent / "results" / "scores"
PAPER_RECORDS = RECORDS.parent / "paper"
"""Those of the comparison at equal time."""
RECORD_VERSION = 3
CURVE_QUANTITIES = ("score", "return", "value_error")

Record = dict[str, Any]


def collect(directories: Iterable[Path], out: Path = RECORDS) -> list[Path]:
    """Write a record of every evaluated run in or below the directories and return the files."""
    written = []
    for directory in directories:
        for run in runs_below(directory):
            record = make_record(run)
            if record is None:
                print(
                    f"{run.directory}: left out; it is not evaluated at its end in its own environment, or is a sweep"
                )
                continue
            path = out / f"{record['dataset']}-{column_of(record)}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(to_text(record), encoding="utf-8")
            written.append(path)
    return written


def runs_below(directory: Path) -> list[Run]:
    """The run in a directory, or the runs below it."""
    run = Run(directory)
    return [run] if run.is_run else [Run(path.parent) for path in sorted(directory.rglob("config.json"))]


def make_record(run: Run) -> Record | None:
    """What a run depended on and gave; None without an evaluation of its final policies."""
    config, data = run.config, run.facts
    evaluation = matching_evaluation(run)
    if evaluation is None or len(evaluation.groups) != 1:
        return None
    summary, group, task = evaluation.to_json(), evaluation.groups[0], task_of(data.info)
    episodes = [e for e in run.episodes().records if e.steps == config.steps and e.environment is None]
    trials = summary["trials"]
    return {
        "version": RECORD_VERSION,
        "dataset": task.name if task else data.info.name,
        "algorithm": config.algorithm,
        "preset": config.preset,
        "seeds": list(config.seeds),
        "steps": config.steps,
        "minutes": getattr(config, "minutes", None),
        "settings": config.settings,
        "data": {
            "source": data.info.source if data.info.source.startswith("minari:") else Path(data.info.source).name,
            "sha256": data.sha256,
            "num_rows": data.num_rows,
            "rules": {**data.info.rules, **config.rules},
            "recipe": data.info.metadata.get("recipe"),
        },
        "packages": {**run.packages, **_simulator()},
        "processor": processor(),
        "training_seconds": training_seconds(run),
        "core_seconds": core_seconds(run),
        "curve": learning_curve(run, evaluation.references),
        "evaluation": {
            **{name: summary[name] for name in ("environment", "references", "num_episodes", "seed", "actions")},
            "trials": {name: _rounded(_without(row, "first_error")) for name, row in trials.items()},
            "over_seeds": {
                name: _rounded(group.quantities[name]._asdict()) for name in QUANTITIES if name in group.quantities
            },
            "returns": {
                name: [_round(e.episode_return) for e in episodes if e.trial == name and e.episode_return is not None]
                for name in trials
            },
        },
    }


def _simulator() -> dict[str, str]:
    """What the run's config does not say: where its policies were evaluated."""
    names = ("mujoco", "gymnasium", "gymnasium-robotics")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


def processor(facts: Path = Path("/proc/cpuinfo")) -> str:
    """What this machine computes with, on which the steps of a run at equal time depend."""
    names = re.findall(r"^model name\s*:\s*(.+)$", facts.read_text(), re.MULTILINE) if facts.exists() else []
    vectors = "AVX-512" if names and "avx512f" in facts.read_text() else ""
    return " ".join(filter(None, [names[0] if names else platform.processor() or platform.machine(), vectors]))


def training_seconds(run: Run) -> float | None:
    """Wall-clock seconds of all stretches of training, evaluation on the way included."""
    lines = run.metric_lines().records
    total = last = 0.0
    for line in lines:
        if line.seconds < last:  # resumed: the clock began anew
            total += last
        last = line.seconds
    return round(total + last, 1) if lines else None


def core_seconds(run: Run, steps: int | None = None) -> float | None:
    """Processor seconds of training after so many steps (None: all); None where they are not recorded."""
    lines = [line for line in run.metric_lines().records if steps is None or line.steps <= steps]
    return getattr(lines[-1], "core_seconds", None) if lines else None


def learning_curve(run: Run, references: References | None) -> Record | None:
    """The evaluations on the way as columns: steps, processor seconds, and mean and std over seeds of each quantity.

    None unless the run was evaluated at two times or more.
    """
    episodes = [e for e in run.episodes().records if e.environment is None and e.steps is not None]
    times = sorted({e.steps for e in episodes if e.steps is not None})
    if len(times) < 2:
        return None
    at = {time: [e for e in episodes if e.steps == time] for time in times}
    curve: Record = {"steps": times, "core_seconds": [_round(core_seconds(run, time)) for time in times]}
    for quantity in CURVE_QUANTITIES:
        found = [trial_values(at[time], quantity, references) for time in times]
        if all(found):
            spreads = [over_seeds(list(values.values())) for values in found]
            curve[quantity] = {
                "mean": [_round(spread.mean) for spread in spreads],
                "std": [_round(spread.std) for spread in spreads],
            }
    return curve


def read_paper() -> list[Record]:
    """The records of the comparison at equal time."""
    return read_all(PAPER_RECORDS)


def read_all(directory: Path = RECORDS) -> list[Record]:
    """The records, in the order of the paper's tasks and of the methods."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))]
    tasks, methods = list(TASKS), list(METHODS)

    def place(record: Record) -> tuple[int, str, int, str]:
        name, method = record["dataset"], record["algorithm"]
        return index(tasks, name), name, index(methods, method), record["preset"]

    return sorted(records, key=place)


def column_of(record: Record) -> str:
    """The name of a record's method in tables, as in ``vem compare``: with its preset, unless it is the default."""
    return record["algorithm"] if record["preset"] == "default" else f"{record['algorithm']}-{record['preset']}"


def to_text(record: Record) -> str:
    """JSON with one line for each list of numbers."""
    text = json.dumps(record, indent=1, allow_nan=False)
    return re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text) + "\n"


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: [*map(_round, v)] if isinstance(v, list | tuple) else _round(v) for name, v in row.items()}


def _round(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def index(names: list[str], name: str) -> int:
    """The place of a name among known ones; unknown ones come last."""
    return names.index(name) if name in names else len(names)
