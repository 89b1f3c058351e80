"""VEM with one choice changed at a time: runs, their records, the table and the figure of docs/choices.md.

    python benchmarks/ablations.py run pen-human --data-dir DATA --out runs/ablations        all variants of a dataset
    python benchmarks/ablations.py run antmaze-umaze --variants expectile-0.1,one-step ...   some of them
    python benchmarks/ablations.py collect runs/ablations       evaluated runs → benchmarks/results/ablations/*.json

``python benchmarks/figures.py`` draws those records.

Every variant of a dataset has the same number of steps, seeds and episodes. ``run`` goes on after a stop.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import command
from score_records import Record, make_record, read_all, runs_below, to_text
from vem.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "ablations"
EXPECTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
DEFAULT_EXPECTILE = 0.3
STEPS = {"pen-human": 16_000}
"""Steps of a dataset's variants; of the others ``MAZE_STEPS``."""
MAZE_STEPS = 20_000

VARIANTS: dict[str, dict[str, str]] = {
    "default": {},
    "guided": {"policy": "guided"},
    "regression": {"policy": "regression"},
    "one-step": {"plan": "one-step"},
    "n-step": {"plan": "n-step", "num-plan-steps": "10"},
    "monte-carlo": {"plan": "monte-carlo"},
    "quantile": {"value-loss": "quantile"},
    "one-critic": {"num-critics": "1"},
    "full-refresh": {"refresh": "full"},
    **{f"expectile-{level}": {"expectile": str(level)} for level in EXPECTILES if level != DEFAULT_EXPECTILE},
}
"""Name → settings that differ from the default."""
MEANINGS = {
    "default": "VEM as it is",
    "guided": "guided policy",
    "regression": "weighted regression of actions",
    "one-step": "no memory: one-step targets (VEM-1step)",
    "n-step": "10-step returns instead of the maximum (VEM-nstep)",
    "monte-carlo": "recorded returns instead of the maximum",
    "quantile": "quantile instead of expectile loss",
    "one-critic": "one critic instead of two",
    "full-refresh": "all values anew at each refresh instead of rolling",
}


def run(dataset: str, variants: Sequence[str], data_dir: str, out: Path, steps: int | None, episodes: int) -> None:
    """Train and evaluate the variants of a dataset, each below ``out``."""
    for name in variants:
        changes = [word for key, value in VARIANTS[name].items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "vem", "compare", dataset, "--algorithms", "vem", "--seeds", "3", *changes]
        command += ["--steps", str(steps or STEPS.get(dataset, MAZE_STEPS)), "--episodes", str(episodes)]
        command += ["--data-dir", data_dir, "--out", str(out / name), "--no-report", "--jobs", "1"]
        subprocess.run(command, check=True)


def collect(folder: Path, out: Path = RECORDS) -> list[Path]:
    """Write a record of every evaluated variant below the folder."""
    written = []
    for name in VARIANTS:
        for directory in runs_below(folder / name) if (folder / name).is_dir() else []:
            if (record := make_record(directory)) is not None:
                record = {"variant": name, "value_mean": final_values(directory), **record}
                path = out / f"{record['dataset']}-{name}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(to_text(record), encoding="utf-8")
                written.append(path)
    return written


def final_values(run: Run) -> dict[str, float]:
    """Mean of V over the last tenth of the value stage, for each trial, in the unit that VEM learns in."""
    lines = [line for line in run.metric_lines().records if line.stage in ("value", "joint")]
    last = lines[-max(1, len(lines) // 10) :]
    names = last[-1].trials
    return {name: float(f"{np.mean([line.trials[name]['value_mean'] for line in last]):.5g}") for name in names}


def read_ablations() -> list[Record]:
    """The records, in the order of the paper's tasks and of the variants."""
    records, names = read_all(RECORDS), list(VARIANTS)
    return sorted(records, key=lambda record: names.index(record["variant"]))


def draw(records: Sequence[Record]) -> Figure:
    """τ against score (above) and against the mean value (below), each seed a point, a column a dataset."""
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(record["dataset"] for record in records))
    figure = Figure(figsize=(3.2 * len(datasets), 4.6), layout="constrained")
    axes = figure.subplots(2, len(datasets), sharex=True, squeeze=False)
    for column, dataset in enumerate(datasets):
        own = {r["variant"]: r for r in records if r["dataset"] == dataset}
        found = [(tau, own[name]) for tau in EXPECTILES if (name := variant_of(tau)) in own]
        scores = [[row["score"] for row in record["evaluation"]["trials"].values()] for _, record in found]
        values = [list(record["value_mean"].values()) for _, record in found]
        for axis, numbers in zip(axes[:, column], (scores, values), strict=True):
            levels = [tau for tau, _ in found]
            axis.plot(levels, [np.mean(seeds) for seeds in numbers], color="#1f5fa8", marker="o", markersize=4)
            for level, seeds in zip(levels, numbers, strict=True):
                axis.plot([level] * len(seeds), seeds, ".", color="#8a8a8a", markersize=4, zorder=0)
            axis.set_xticks(EXPECTILES)
            axis.set_ylim(bottom=min(0.0, axis.get_ylim()[0]))
        axes[0, column].set_title(dataset)
        axes[1, column].set_xlabel("expectile τ")
    axes[0, 0].set_ylabel("normalized score")
    axes[1, 0].set_ylabel("mean of V over the data")
    return figure


def variant_of(expectile: float) -> str:
    """The variant that has this expectile."""
    return "default" if expectile == DEFAULT_EXPECTILE else f"expectile-{expectile}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="train and evaluate variants")
    running.add_argument("dataset")
    running.add_argument("--variants", default=",".join(VARIANTS), help="some of them, with commas")
    running.add_argument("--data-dir", required=True)
    running.add_argument("--out", type=Path, default=Path("runs/ablations"))
    running.add_argument("--steps", type=int)
    running.add_argument("--episodes", type=int, default=100)
    collecting = verbs.add_parser("collect", help="evaluated runs → records")
    collecting.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "run":
        names = options.variants.split(",")
        if unknown := [name for name in names if name not in VARIANTS]:
            parser.error(f"there is no variant {unknown[0]!r}; choose from {', '.join(VARIANTS)}")
        run(options.dataset, names, options.data_dir, options.out, options.steps, options.episodes)
    else:
        for path in collect(options.folder):
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    command.run(main)
