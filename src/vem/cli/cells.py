"""What ``vem compare`` and ``vem sweep`` share: how cells are run, and how their results are printed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vem.cli.evaluate import add_evaluate_every
from vem.errors import VemError

if TYPE_CHECKING:
    from vem.compare import Comparison
    from vem.evaluation.table import Table

STOPPED = 130
"""The exit code of a command that a signal stopped."""


def add_running_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how cells are run and shown."""
    add = parser.add_argument
    add("--episodes", type=int, default=100, metavar="N", help="evaluation episodes for each policy (default: 100)")
    add_evaluate_every(parser, "evaluate 20 episodes after every N steps, or share X of them, for the curves")
    add("--no-report", action="store_true", help="print the table alone")
    add("--jobs", type=int, default=1, metavar="J", help="cells at a time, one thread each (default: 1, all cores)")
    add("--engine", default="local", metavar="local|ray", help="this machine, or a Ray cluster (default: local)")
    add("--address", metavar="A", help="with --engine ray: the cluster (default: RAY_ADDRESS, or that of this machine)")
    add(
        "--checkpoint-seconds",
        type=float,
        default=60.0,
        metavar="S",
        help="how often a cell's state is saved (default: 60)",
    )
    add("--json", action="store_true", help="print the results as JSON, and progress to standard error")


def running_options(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of ``compare`` and ``sweep`` that say how cells are run."""
    names = ("out", "episodes", "evaluate_every", "jobs", "engine", "address", "checkpoint_seconds")
    return {**{name: getattr(options, name) for name in names}, "progress": progress_stream(options)}


def progress_stream(options: argparse.Namespace) -> TextIO:
    """Where progress goes: not among the JSON."""
    return sys.stderr if options.json else sys.stdout


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds, or a list of them with commas."""
    from vem.algorithms.config import convert

    seeds = [convert(part, int, "seeds") for part in text.split(",")]
    return seeds if "," in text else seeds[0]


def print_results(comparison: Comparison, options: argparse.Namespace, page: str | None) -> None:
    """Print the table and, with several datasets, that over all of them; or the results as JSON."""
    if options.json:
        over = comparison.over_datasets
        cells = [result.to_json() for result in comparison.results]
        print(json.dumps({"cells": cells, "over_datasets": over and over.to_json(), "report": page}, indent=2))
        return
    print_tables(comparison.tables)
    if page:
        print(f"report: {page}")


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables with a line between them."""
    for number, table in enumerate(tables):
        if number:
            print()
        table.print()


def print_failures(comparison: Comparison) -> int:
    """Say which cells failed, and return the exit code."""
    from vem.compare.execution import SAME_COMMAND

    failures = comparison.failures
    for name, error in failures.items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if failures:
        print(
            f"{len(failures)} of {len(comparison.results)} cells failed; once mended, {SAME_COMMAND}",
            file=sys.stderr,
        )
    return 1 if failures else 0


def write_page_and_show(
    comparison: Comparison, options: argparse.Namespace, show: Callable[[str | None], object]
) -> None:
    """Write the page and call ``show`` with it; also where it cannot be written, before that error is raised."""
    try:
        page = _write_page(comparison, options)
    except VemError:
        show(None)
        raise
    show(page)


def _write_page(comparison: Comparison, options: argparse.Namespace) -> str | None:
    """The page about all evaluated cells, or None without one or if none is wanted."""
    from vem.compare.mirror import Mirror, copy_place, is_address
    from vem.report import write_report

    if options.no_report or not comparison.evaluated:
        return None
    print("writing the report", file=progress_stream(options), flush=True)
    if not is_address(options.out):
        return str(write_report(comparison.evaluated, Path(options.out) / "report").page)
    page = Path(write_report(comparison.evaluated, copy_place(options.out) / "report").page)
    Mirror(options.out).put_folder(page.parent, "report")
    return str(page)
