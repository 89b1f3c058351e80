"""V of VEM over the floor of the mazes: records of trained runs, and the figure of docs/results.md.

    python benchmarks/landscapes.py RUN [RUN …]        runs of VEM in mazes → benchmarks/results/landscapes/*.json

``python benchmarks/figures.py`` draws those records.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import command
from score_records import Record, read_all, to_text
from vem.envs.mazes import maze_layout
from vem.policy import load_policy
from vem.reports.mazes import draw_floor, draw_places, floor_shape, sort_rows, tile_values
from vem.tasks import TASKS, task_of
from vem.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "landscapes"

FAINT = 0.4
"""Power of the color scale: values fall by the discount with the distance, and far ones are to be told apart too."""


def record_landscape(run: Run, out: Path = RECORDS) -> Path:
    """Write the mean of V over the seeds of a run, for each tile of the floor that has data."""
    config, dataset = run.config, run.config.load()
    task = task_of(dataset.info)
    if task is None:
        raise SystemExit(f"{run.directory}: its data belong to no maze that is known")
    policies = [load_policy(path) for path in run.policy_paths]
    floor = sort_rows(dataset, maze_layout(task.environment))
    values = tile_values(floor, dataset, policies)
    rows = [[None if np.isnan(v) else float(f"{v:.3g}") for v in row] for row in values]
    record: Record = {
        "dataset": task.name,
        "algorithm": config.algorithm,
        "preset": config.preset,
        "seeds": list(config.seeds),
        "steps": config.steps,
        "minutes": config.minutes,
        "data": {"sha256": run.facts.sha256, "num_rows": run.facts.num_rows},
        "values": rows,
    }
    path = out / f"{task.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_text(record), encoding="utf-8")
    return path


def read_landscapes() -> list[Record]:
    """The records, in the order of the paper's tasks."""
    return read_all(RECORDS)


def draw(records: Sequence[Record]) -> Figure:
    """V over the floor of each maze, with walls, start and goal; each maze has its own scale of colors."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    layouts = [maze_layout(TASKS[record["dataset"]].environment) for record in records]
    height = max(floor_shape(layout) for layout in layouts)
    figure = Figure(figsize=(3.4 * len(records), 3.0 * height + 0.5), layout="constrained")
    panels = figure.subplots(1, len(records), squeeze=False)[0]
    for axes, layout, record in zip(panels, layouts, records, strict=True):
        values = np.array(record["values"], float)
        low, high = float(np.nanmin(values)), float(np.nanmax(values))
        mesh = draw_floor(axes, layout, values, (low, high))
        mesh.set_norm(PowerNorm(FAINT, low, high))
        draw_places(axes, layout, 0.7)
        axes.set_title(record["dataset"], loc="left")
        axes.set(xticks=[], yticks=[])
        figure.colorbar(mesh, ax=axes, shrink=0.7, pad=0.02).outline.set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for path in parser.parse_args().runs:
        print(record_landscape(Run(path)).relative_to(ROOT))


if __name__ == "__main__":
    command.run(main)
