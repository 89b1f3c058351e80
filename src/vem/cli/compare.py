"""``vem compare``: several methods on several datasets, each trained and evaluated once, as one table and one page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from vem.cli import cells
from vem.cli.reading import add_discrete

EXAMPLES = """examples:
  vem compare pointmaze-umaze --algorithms vem,bc,iql --steps 10000
  vem compare door-human pen-human --data-dir ~/data --algorithms vem,bc,iql --seeds 3 --jobs 2
  vem compare door-human --data-dir ~/data --algorithms vem,bc,iql --minutes 5     equal training time
  vem compare logs.hdf5 --algorithms vem,bc --steps vem=100000,bc=50000 --set vem:expectile=0.5
  vem compare door-human pen-human --algorithms vem,bc --engine ray --out /shared/study     on a Ray cluster
  vem compare paper --data-dir ~/data                the paper's table, what data is here, and our scores beside it
  vem compare paper --data-dir ~/data --run --jobs 2     make what can be made, 20 core-minutes for each cell

The same command goes on after Ctrl-C, a crash or a failure: finished cells are never run again.
"""
RULES = ("task", "teleports", "discrete")
"""Flags that say how the data is read."""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "compare",
        help="train and evaluate several methods on several datasets",
        description="Train and evaluate every method on every dataset, in OUT/DATASET/ALGORITHM, and print one table.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("datasets", nargs="+", metavar="DATA", help="a file, a benchmark name, minari:ID; or paper")
    add("--run", action="store_true", dest="run_present", help="with paper: make the data that can be made, and run")
    add("--official", action="store_true", help="with paper: the official steps of each method, not equal time")
    add(
        "--algorithms",
        default=None,
        metavar="A,B,…",
        help="the methods, also with a preset: vem-paper (default: vem,bc,iql)",
    )
    add("--seeds", default="3", metavar="N|A,B,…", help="how many seeds, or which (default: 3)")
    add("--steps", default=None, metavar="N|A=N,…", help="steps of each policy, by method (default: 100000)")
    add("--minutes", type=float, metavar="M", help="instead of steps: training time, in minutes of one core a cell")
    add("--preset", default="default", metavar="NAME", help="settings of the methods that have it; others: default")
    add("--set", action="append", default=[], metavar="[A:]NAME=X", help="a setting, of one method or of all with it")
    add(
        "--out",
        default="runs/compare",
        metavar="DIR",
        help="directory or address of the cells (default: runs/compare)",
    )
    add("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    add("--task", metavar="NAME", help="the benchmark task that the data belongs to, if its file does not say")
    add("--teleports", choices=("split", "keep"), help="what a jump between two rows means: a new episode, or nothing")
    add(
        "--hold-out",
        type=float,
        default=0.0,
        metavar="X",
        help="share of the recordings that training never sees, for vem select (default: 0)",
    )
    add_discrete(parser)
    cells.add_running_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run what is left of the cells, print the table and write the report."""
    from vem.compare import compare, paper
    from vem.errors import SettingsError, Stopped

    is_paper = options.datasets == ["paper"]
    if not is_paper and (options.run_present or options.official):
        raise SettingsError("--run and --official are for the paper's table: vem compare paper")
    if is_paper and not (options.run_present or options.algorithms is not None):
        return _print_paper(options)
    chosen = options.algorithms or ",".join(paper.METHODS if is_paper else ("vem", "bc", "iql"))
    algorithms = chosen.split(",")
    steps = None if options.steps is None else parse_steps(options.steps, algorithms)
    minutes = options.minutes
    if is_paper:
        steps, minutes = paper_length(algorithms, steps, minutes, options.official)
    parse_settings(options.set, algorithms)  # a mistake is found before any data is made
    unmade = _make_data(options) if options.run_present else {}
    datasets = paper.paper_sources(options.out, options.data_dir) if is_paper else options.datasets
    try:
        comparison = compare(
            datasets,
            algorithms,
            seeds=cells.parse_seeds(options.seeds),
            steps=steps,
            minutes=minutes,
            preset=options.preset,
            settings=parse_settings(options.set, algorithms),
            rules={name: value for name in RULES if (value := getattr(options, name)) is not None},
            data_dir=options.data_dir,
            hold_out=options.hold_out,
            **cells.running_options(options),
        )
    except Stopped as stopped:
        print(stopped, file=cells.progress_stream(options), flush=True)
        return cells.STOPPED
    cells.write_page_and_show(
        comparison,
        options,
        lambda page: _print_paper(options, page) if is_paper else cells.print_results(comparison, options, page),
    )
    for name, error in unmade.items():
        print(f"{name} could not be made: {error}", file=sys.stderr)
    return max(cells.print_failures(comparison), 1 if unmade else 0)


def paper_length(
    algorithms: Sequence[str], steps: dict[str, int] | None, minutes: float | None, is_official: bool
) -> tuple[dict[str, int] | None, float | None]:
    """Steps by method, or minutes, of the paper's table: as given, else the official steps, else 20 core-minutes."""
    from vem.algorithms.presets import official_steps
    from vem.compare.paper import MINUTES
    from vem.errors import SettingsError

    if is_official:
        if steps is not None or minutes is not None:
            raise SettingsError("--official says how many steps are trained; leave out --steps and --minutes")
        return {label: official_steps(label) for label in algorithms}, None
    return steps, MINUTES if steps is None and minutes is None else minutes


def _make_data(options: argparse.Namespace) -> dict[str, str]:
    """Make the data of the paper's table that can be made; name → why, for what failed."""
    from vem.cli.data import row_progress
    from vem.compare.paper_data import made_place, make_missing, paper_data

    def say(text: str) -> None:
        print(text, file=cells.progress_stream(options), flush=True)

    with row_progress() as report:
        place = made_place(options.out, options.data_dir)
        return make_missing(paper_data(options.out, options.data_dir), place, say, report)


def _print_paper(options: argparse.Namespace, page: str | None = None) -> int:
    """Print the paper's table beside our scores."""
    from vem.compare.paper import read_paper_comparison

    found = read_paper_comparison(options.out, options.data_dir)
    if options.json:
        print(json.dumps({**found.to_json(), "report": page}, indent=2))
        return 0
    cells.print_tables(found.tables)
    if page:
        print(f"report: {page}")
    if not (options.run_present or options.algorithms):
        states = [entry.state for entry in found.data]
        print(
            f"{states.count('here')} of {len(states)} datasets are here and {states.count('to make')} can be made; "
            "make and run them with: vem compare paper --run"
        )
    return 0


def parse_steps(text: str, algorithms: Sequence[str]) -> dict[str, int]:
    """Steps by method from ``N`` or ``A=N,B=N,N``; a number without a name is for the methods not named."""
    from vem.algorithms.config import convert
    from vem.compare.grid import DEFAULT_STEPS
    from vem.errors import SettingsError

    steps, others = {}, DEFAULT_STEPS
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        if not equals:
            others = convert(number, int, "steps")
        elif name not in algorithms:
            raise SettingsError(f"--steps names {name!r}, which is not among the algorithms {', '.join(algorithms)}")
        else:
            steps[name] = convert(number, int, "steps")
    return {name: steps.get(name, others) for name in algorithms}


def parse_settings(texts: Sequence[str], algorithms: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings by method from ``NAME=X`` (all methods that have it) and ``A:NAME=X``."""
    import dataclasses

    from vem.algorithms import find_method
    from vem.algorithms.presets import split_label
    from vem.errors import SettingsError

    chosen: dict[str, dict[str, str]] = {name: {} for name in algorithms}
    for text in texts:
        left, equals, value = text.partition("=")
        owner, _, name = left.rpartition(":")
        name = name.replace("-", "_")
        if not equals:
            raise SettingsError(f"--set {text} has no value; write --set NAME=VALUE or --set ALGORITHM:NAME=VALUE")
        having = [
            algorithm
            for algorithm in algorithms
            if owner in ("", algorithm)
            and name in [field.name for field in dataclasses.fields(find_method(split_label(algorithm)[0]).config)]
        ]
        if not having:
            raise SettingsError(f"--set {text}: none of {', '.join(algorithms)} has this setting")
        for algorithm in having:
            chosen[algorithm][name] = value
    return chosen
