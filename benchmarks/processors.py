"""How many minutes of one core of this machine's processor are worth one minute of another's.

    python benchmarks/processors.py --data-dir DATA

The records at equal time hold the steps that fitted into their minutes on the processor that they name. Here the same
steps of the same methods on the same data are measured in the same way (``vem.training.budget``), in one thread, as
in a job of a comparison. benchmarks/results/processors.json keeps the ratios. So a comparison can go on on another
machine, with as many minutes as are worth those of the first, and every method still has the same time.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import command
from score_records import PAPER_RECORDS, Record, column_of, processor, read_paper, to_text
from table_text import table, unique
from vem.comparison.worker import one_thread_variables
from vem.errors import RunError

RECORD = PAPER_RECORDS.parent / "processors.json"
DATASETS = "antmaze-umaze,door-human,pen-human,hopper-medium,halfcheetah-medium"
"""Small and large files, of all three kinds of task."""


def read_measured() -> dict[str, list[Record]]:
    """Processor → what was measured on it, a row for each method and dataset; the reference has no rows."""
    if not RECORD.exists():
        return {}
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    return {found["reference"]: [], **found["processors"]}


def read_factors() -> dict[str, float]:
    """Processor → its minutes that are worth one minute of the reference: the median over what was measured."""
    return {
        name: round(median(row["ratio"] for row in rows), 2) if rows else 1.0 for name, rows in read_measured().items()
    }


def reference_time(record: Record, time: float) -> float:
    """A time of the record's processor as time of the reference."""
    factors = read_factors()
    if record["processor"] not in factors:
        raise RunError(
            f"{record['dataset']} {column_of(record)} ran on {record['processor']}, which was not compared with "
            f"{next(iter(factors), 'another processor')}; run there: python benchmarks/processors.py"
        )
    return time / factors[record["processor"]]


def processor_table() -> str:
    """How many times as long the same steps take on each processor, by method: median over datasets, and the ends."""
    rows = []
    for name, measured in read_measured().items():
        for method in unique(row["method"] for row in measured):
            ratios = sorted(row["ratio"] for row in measured if row["method"] == method)
            ends = f"{ratios[0]:.2f} to {ratios[-1]:.2f}" if len(ratios) > 1 else ""
            rows.append([name, method, f"{median(ratios):.2f}", ends, str(len(ratios))])
    return table(["processor", "method", "times as long", "from, to", "datasets"], rows)


def measure_cell(record: Record, data_dir: str) -> float:
    """Seconds of one core that the record's steps take here."""
    from vem.algorithms.base import find_method
    from vem.training.budget import measure_costs, training_seconds
    from vem.training.request import make_request
    from vem.training.run import Run

    known = [field.name for field in dataclasses.fields(find_method(record["algorithm"]).config)]
    settings = {name: value for name, value in record["settings"].items() if name in known}  # older records have more
    words = {name: record[name] for name in ("algorithm", "preset", "steps", "seeds")}
    request = make_request(record["dataset"], settings=settings, data_dir=data_dir, **words)
    with tempfile.TemporaryDirectory() as place:
        run = Run.create(Path(place) / "run", request)
        return training_seconds(run.algorithm, measure_costs(run))


def measure(record: Record, data_dir: str) -> Record:
    """What the steps of a record take here, in a process of its own with one thread."""
    name = f"{record['dataset']}-{column_of(record)}"
    variables = {**os.environ, **one_thread_variables()}
    line = [sys.executable, __file__, "--data-dir", data_dir, "--cell", name]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"error: the process that measured {name} ended at once")
    seconds = float(done.stdout.split()[-1])
    ratio = seconds / (60 * record["minutes"])
    print(f"{name}: {record['steps']:,} steps take {seconds:.0f} s here, {ratio:.2f} times as long", flush=True)
    measured = {"steps": record["steps"], "seconds": round(seconds, 1), "ratio": round(ratio, 3)}
    return {"dataset": record["dataset"], "method": column_of(record), **measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--datasets", default=DATASETS, metavar="A,B,…")
    parser.add_argument("--cell", metavar="DATASET-METHOD", help="print the seconds of one record's steps here, alone")
    options = parser.parse_args()
    if options.cell:
        path = PAPER_RECORDS / f"{options.cell}.json"
        print(measure_cell(json.loads(path.read_text(encoding="utf-8")), options.data_dir))
        return
    here, known = processor(), read_measured()
    reference = next(iter(known), read_paper()[0]["processor"])
    chosen = [r for r in read_paper() if r["dataset"] in options.datasets.split(",") and r["processor"] == reference]
    if here == reference or not chosen:
        raise SystemExit(
            f"error: nothing to compare: this is {here}, and there are {len(chosen)} records of {reference}"
        )
    rows = {(row["dataset"], row["method"]): row for row in known.get(here, [])}
    for record in chosen:
        rows[record["dataset"], column_of(record)] = measure(record, options.data_dir)
        others = {name: kept for name, kept in known.items() if name not in (reference, here)}
        found = {"reference": reference, "processors": {**others, here: list(rows.values())}}
        RECORD.write_text(to_text(found), encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
