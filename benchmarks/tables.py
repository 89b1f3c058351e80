"""Records of measured scores, and the tables in the documents that are made from them.

    python benchmarks/tables.py collect runs/compare              run directories → benchmarks/results/scores/*.json
    python benchmarks/tables.py collect runs/paper --into paper   those at equal time → benchmarks/results/paper/*.json
    python benchmarks/tables.py write                             records → the tables of README.md and docs/
    python benchmarks/figures.py                                  records → the figures of the documents

The parts of a document between <!-- NAME --> and <!-- /NAME --> are made anew; the rest is prose.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import command
import figures
from basis import basis_text
from drawn import drawn_table
from processors import processor_table
from score_records import RECORDS, Record, collect, read_all, read_paper
from score_tables import (
    ablation_table,
    data_table,
    equal_time_table,
    gap_table,
    longer_table,
    on_all_datasets,
    paper_table,
    readme_table,
    regression_table,
    run_table,
    score_table,
    steps_table,
    value_table,
)
from speed_tables import cell_table, peers_table, scale_table, seeds_table, speed_table
from trial_tables import (
    behavior_table,
    large_data_text,
    regularization_table,
    support_table,
    temperature_table,
    trial_table,
)
from walkers import walker_table

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = tuple(
    ROOT / name
    for name in (
        "README.md",
        *(f"docs/{name}.md" for name in ("results", "choices", "scaling", "data")),
        "benchmarks/results/tables.md",
    )
)
FOLDERS = ("scores", "paper", "trials/temperature")
"""Where records of runs are kept, below benchmarks/results."""
NOTHING = "No measurement is recorded yet."

Records = Sequence[Record]


def write(
    documents: Iterable[Path] = DOCUMENTS, records: Records | None = None, paper: Records | None = None
) -> list[Path]:
    """Fill the marked parts of the documents that exist and return those that changed."""
    records = read_all() if records is None else records
    paper = read_paper() if paper is None else paper
    changed = []
    for path in documents:
        if path.exists() and (new := filled(old := path.read_text(encoding="utf-8"), records, paper)) != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


def filled(text: str, records: Records, paper: Records = ()) -> str:
    """The text with every marked part made anew from the records; ``paper``: those at equal time."""
    for name, make in PARTS.items():
        pattern = re.compile(f"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
        if pattern.search(text):
            content = make(records, paper) or NOTHING
            text = pattern.sub(lambda match, content=content: f"{match[1]}\n\n{content}\n\n{match[2]}", text)
    return text


PARTS: dict[str, Callable[[Records, Records], str]] = {
    "results": lambda records, paper: readme_table(records),
    "basis": lambda records, paper: basis_text(on_all_datasets(paper)),
    "equal-time": lambda records, paper: equal_time_table(paper),
    "equal-time-intervals": lambda records, paper: score_table(paper),
    "equal-time-runs": lambda records, paper: steps_table(paper),
    "longer": lambda records, paper: longer_table(records),
    "scores": lambda records, paper: score_table(records),
    "runs": lambda records, paper: run_table(records),
    "paper": lambda records, paper: paper_table(on_all_datasets(paper)),
    "gaps": lambda records, paper: gap_table(records, paper),
    "values": lambda records, paper: value_table(on_all_datasets(paper)),
    "data": lambda records, paper: data_table([*records, *paper]),
    "behavior": lambda records, paper: behavior_table(),
    "processors": lambda records, paper: processor_table(),
    "ablations": lambda records, paper: ablation_table(),
    "regression": lambda records, paper: regression_table(records),
    "expectiles": lambda records, paper: figures.expectiles_text(),
    "landscapes": lambda records, paper: figures.landscapes_text(),
    "walkers": lambda records, paper: walker_table(),
    "drawn": lambda records, paper: drawn_table(),
    "trials": lambda records, paper: trial_table(),
    "temperature": lambda records, paper: temperature_table(paper),
    "regularization": lambda records, paper: regularization_table(),
    "speed": lambda records, paper: speed_table(),
    "peers": lambda records, paper: peers_table(),
    "seeds": lambda records, paper: seeds_table(),
    "scale": lambda records, paper: scale_table(),
    "cells": lambda records, paper: cell_table(),
    "support-states": lambda records, paper: support_table("state"),
    "support-actions": lambda records, paper: support_table("action"),
    "large-data": lambda records, paper: large_data_text(),
}
"""Name of a marked part → what fills it, from the records of scores and those at equal time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    collecting = verbs.add_parser("collect", help="run directories → records")
    collecting.add_argument("directories", nargs="+", type=Path)
    collecting.add_argument(
        "--into",
        default=RECORDS.name,
        choices=FOLDERS,
        help="folder of benchmarks/results; paper: the comparison at equal time (default: scores)",
    )
    verbs.add_parser("write", help="records → tables")
    options = parser.parse_args()
    if options.verb == "collect":
        if missing := [path for path in options.directories if not path.is_dir()]:
            parser.error(f"{missing[0]} is not a directory; give run directories, or one above them")
        paths = collect(options.directories, RECORDS.parent / options.into)
    else:
        paths = write()
    for path in paths:
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    command.run(main)
