"""What the trajectories themselves score, as long as they are and within the time that an evaluation gives a policy.

    python benchmarks/behavior.py --data-dir DATA       files of the benchmark → benchmarks/results/behavior.json

Files that are not there keep their record. Mazes are left out: their trajectories neither start nor end as an
evaluation does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import command
import vem
from vem.tasks import TASKS, normalized_score

OUT = Path(__file__).resolve().parent / "results" / "behavior.json"


def measure(path: Path) -> dict[str, Any]:
    """Scores of a file's trajectories: whole, and their first steps up to the limit of an evaluation."""
    dataset, task = vem.load(path), TASKS[path.stem]
    pairs = zip(dataset.episode_starts, dataset.episode_ends, strict=True)
    rewards = [dataset.rewards[start:end].astype(np.float64) for start, end in pairs]
    whole = normalized_score(task, np.asarray([r.sum() for r in rewards]))
    within = normalized_score(task, np.asarray([r[: task.max_steps].sum() for r in rewards]))
    summary = lambda scores: {
        "mean": round(float(scores.mean()), 2),
        "median": round(float(np.median(scores)), 2),
        "best": round(float(scores.max()), 2),
    }
    return {
        "episodes": len(rewards),
        "mean_steps": round(float(np.mean([len(r) for r in rewards])), 1),
        "limit": task.max_steps,
        "whole": summary(whole),
        "within_limit": summary(within),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    options = parser.parse_args()
    names = [name for name in TASKS if "maze" not in name and (options.data_dir / f"{name}.hdf5").exists()]
    if not names:
        parser.error(f"{options.data_dir} has no file of the benchmark, such as door-human.hdf5")
    known = json.loads(OUT.read_text(encoding="utf-8")) if OUT.exists() else {}
    known |= {name: measure(options.data_dir / f"{name}.hdf5") for name in names}
    found = {name: known[name] for name in TASKS if name in known}
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command.run(main)
