"""How many trajectories of ``vem data make antmaze-… --walker`` arrive where they were sent.

    vem data make antmaze-large-play --walker RUN/policies/seed0.safetensors --rows 40040 --out walked.hdf5
    python benchmarks/walkers.py antmaze-medium-play walked.hdf5 [FILE …]

counts the files made with a guided policy that was trained on the dataset named first, and adds them to
benchmarks/results/walkers.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import command
from score_records import Record, to_text
from table_text import table
from vem.collect.benchmark import count_arrivals
from vem.data.load import load
from vem.tasks import task_of

RECORDS = Path(__file__).resolve().parent / "results" / "walkers.json"


def count(trained_on: str, path: Path) -> Record:
    """The record of a file."""
    task = task_of(load(str(path)).info)
    if task is None:
        raise SystemExit(f"error: {path} is no AntMaze trajectory that says its task")
    arrived, total = count_arrivals(path)
    return {"walker": trained_on, "dataset": task.name, "trajectories": total, "arrived": arrived}


def walker_table(path: Path = RECORDS) -> str:
    """Data of the walker, what was recorded with it, and the share that arrived."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = [[r["walker"], r["dataset"], f"{r['arrived']} of {r['trajectories']}"] for r in found]
    return table(["walker trained on", "recorded", "arrived"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained_on", metavar="DATASET")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    found = json.loads(RECORDS.read_text(encoding="utf-8")) if RECORDS.exists() else []
    known = {(record["walker"], record["dataset"]): record for record in found}
    for path in options.files:
        record = count(options.trained_on, path)
        known[record["walker"], record["dataset"]] = record
    RECORDS.write_text(to_text(list(known.values())), encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
