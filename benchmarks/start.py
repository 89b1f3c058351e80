"""Seconds from the command ``vem train FILE`` to its first update, with and without kept programs, and their parts.

    python benchmarks/start.py antmaze-medium-play.hdf5 --out benchmarks/results/start.json

Each repetition is a process of its own. Cold: the folder of compiled programs is empty; warm: an earlier process of
the same command has filled it. The file itself is in the system's cache both times. Refreshes are set to one update
apart, so that the first chunk of updates is one update: its program is that of any other distance.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CHILD = """
import json, os, sys, time
marks = {}
def mark(name):
    marks.setdefault(name, time.time())
def after(module, name, label):
    inner = getattr(module, name)
    def outer(*given, **named):
        result = inner(*given, **named)
        mark(label)
        return result
    setattr(module, name, outer)
from vem.cli import main
import vem.cli.train
from vem import api
mark("imported")
from vem.training import request, run
after(request, "load", "read")
after(run.Run, "create", "prepared")
after(run, "start", "started")
train = run.train
def watched(*given):
    mark("placed")
    for progress in train(*given):
        mark("updated")
        print("MARKS" + json.dumps(marks), flush=True)
        os._exit(0)
run.train = watched
sys.exit(main(sys.argv[1:]))
"""


def measure_once(file: Path, cache: Path, folder: Path, algorithm: str) -> dict[str, float]:
    """Mark → seconds after the process was started."""
    command = [sys.executable, "-c", CHILD, "train", str(file), "--algorithm", algorithm, "--out", str(folder)]
    command += ["--steps", "1000"] + (["--steps-per-refresh", "1"] if algorithm == "vem" else [])
    started = time.time()
    environment = {**os.environ, "VEM_CACHE": str(cache)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("MARKS")), None)
    if line is None:
        raise SystemExit(f"the command failed:\n{done.stdout}\n{done.stderr}")
    return {name: at - started for name, at in json.loads(line[5:]).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--algorithm", default="vem")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
    with tempfile.TemporaryDirectory() as folder:
        number = 0
        for repetition in range(options.repetitions):
            for kind in found:
                number += 1
                cache, out = Path(folder) / f"cache{repetition}", Path(folder) / f"run{number}"
                found[kind].append(measure_once(options.file, cache, out, options.algorithm))
                print(kind, {name: round(value, 2) for name, value in found[kind][-1].items()}, flush=True)
    figures: dict[str, Any] = {
        kind: {
            "seconds_to_first_update": statistics.median(marks["updated"] for marks in runs),
            "least": min(marks["updated"] for marks in runs),
            "most": max(marks["updated"] for marks in runs),
            "marks": {name: statistics.median(marks[name] for marks in runs) for name in runs[0]},
        }
        for kind, runs in found.items()
    }
    about = {
        "file": options.file.name,
        "algorithm": options.algorithm,
        "repetitions": options.repetitions,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
    }
    text = json.dumps({"about": about, **figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
