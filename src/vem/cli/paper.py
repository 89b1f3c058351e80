"""``vem compare paper``: the paper's table 1 beside what was measured here."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

METHODS = ("vem", "bail", "bcq", "cql", "awr")
"""The columns of the paper's table, and the methods that are run by default."""

DIFFERENCE = """paper: D4RL's own files and simulator; BCQ, CQL and AWR as others published them.
ours: the files found on this machine, in vem's environments on today's MuJoCo. The data differ, unless the files are
D4RL's own, and the simulator does: read the columns side by side, not as a replication."""


def run(options: argparse.Namespace, say: Callable[[str], None]) -> int:
    """Run what data is present, if asked to, and print the paper's table beside our scores."""
    from vem.cli.compare import cells_of, finish_cells

    present = files_at_hand(options.data_dir)
    code, report = 0, None
    if options.run_present or options.algorithms is not None:
        names = [name for name, files in present.items() if files]
        if not names:
            raise _no_data(options.data_dir)
        algorithms = METHODS if options.algorithms is None else options.algorithms.split(",")
        code, report = finish_cells(cells_of(options, names, algorithms), options, say)
        if code == 130:
            return code
    ours = read_ours(Path(options.out))
    if options.json:
        print(json.dumps({"tasks": _facts(present, ours), "difference": DIFFERENCE, "report": report}, indent=2))
        return code
    _print_table(present, ours)
    print(DIFFERENCE)
    for name, recipe in recipes(Path(options.out)).items():
        print(f"  {name}: {recipe}")
    if report:
        print(f"report: {report}")
    if not (options.run_present or options.algorithms):
        count = sum(map(bool, present.values()))
        print(f"{count} of {len(present)} datasets are here (vem data list); run them with: vem compare paper --run")
    return code


def files_at_hand(data_dir: str | None) -> dict[str, list[str]]:
    """The paper's 23 tasks, each with its files on this machine."""
    from vem.data.sources import available

    return {entry.name: entry.files for entry in available(data_dir) if entry.kind == "benchmark"}


def read_ours(out: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Task → method → the score's spread over seeds, from the cells below ``out`` that have D4RL's references."""
    from vem.tasks import D4RL_REFERENCES

    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, method, directory in _cells_below(out):
        try:
            summary = json.loads((directory / "evaluation.json").read_text(encoding="utf-8"))
            spread, source = summary["groups"][0]["score"], (summary["references"] or {}).get("source")
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue
        if spread is not None and source == D4RL_REFERENCES:
            found.setdefault(name, {})[method] = spread
    return found


def recipes(out: Path) -> dict[str, str]:
    """Task → how its file says that it was made, for the cells below ``out`` whose files say so."""
    found = {}
    for name, _, directory in _cells_below(out):
        try:
            metadata = json.loads((directory / "config.json").read_text(encoding="utf-8"))["data"]["metadata"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(metadata, dict) and metadata.get("recipe"):
            found[name] = str(metadata["recipe"])
    return found


def _cells_below(out: Path) -> list[tuple[str, str, Path]]:
    from vem.tasks import find_task

    return [
        (task.name, directory.name, directory)
        for directory in sorted(out.glob("*/*/"))
        if (task := find_task(directory.parent.name)) is not None and task.paper_scores
    ]


def _print_table(present: dict[str, list[str]], ours: dict[str, dict[str, dict[str, Any]]]) -> None:
    from vem.cli.evaluate import print_table
    from vem.tasks import TASKS

    found = {method for row in ours.values() for method in row}
    columns = [*(method for method in METHODS if method in found), *sorted(found - set(METHODS))]
    rows = []
    for name, files in present.items():
        paper = TASKS[name].paper_scores
        cells = [_text(score.mean, score.std) if (score := paper.get(method)) else "-" for method in METHODS]
        own = [_text(s["mean"], s["std"]) if (s := ours.get(name, {}).get(method)) else "" for method in columns]
        rows.append([name, "here" if files else "absent", *cells, *own])
    header = ["dataset", "data", *(f"paper {m}" for m in METHODS), *(f"ours {m}" for m in columns)]
    print_table("the paper's table 1: normalized score, mean ± std over seeds", header, rows)


def _text(mean: float, std: float | None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def _facts(present: dict[str, list[str]], ours: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    from vem.tasks import TASKS

    return [
        {
            "name": name,
            "files": files,
            "paper": {m: {"mean": s.mean, "std": s.std} for m, s in TASKS[name].paper_scores.items()},
            "ours": ours.get(name, {}),
        }
        for name, files in present.items()
    ]


def _no_data(data_dir: str | None) -> Exception:
    from vem.data.sources import search_directories
    from vem.errors import DataError

    places = ", ".join(map(str, search_directories(data_dir)))
    return DataError(f"none of the paper's 23 datasets is in {places}; put the files there, or give --data-dir DIR")
