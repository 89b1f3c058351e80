"""``vem compare``: several methods on several datasets, each trained and evaluated once, as one table and one page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vem.cli.runs import add_evaluate_every
from vem.cli.train import add_discrete, add_reading_options, add_settings, chosen_algorithm, given_rules, given_texts
from vem.errors import VemError

if TYPE_CHECKING:
    from vem.comparison.results import Comparison
    from vem.evaluation.statistics import Table


# What ``vem compare`` and ``vem sweep`` share: how cells are run, and how their results are printed.


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
    from vem.algorithms.base import convert

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
    from vem.comparison.compare import SAME_COMMAND

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
    from vem.comparison.remote import Mirror, copy_place, is_address
    from vem.reports.report import write_report

    if options.no_report or not comparison.evaluated:
        return None
    print("writing the report", file=progress_stream(options), flush=True)
    if not is_address(options.out):
        return str(write_report(comparison.evaluated, Path(options.out) / "report").page)
    page = Path(write_report(comparison.evaluated, copy_place(options.out) / "report").page)
    Mirror(options.out).put_folder(page.parent, "report")
    return str(page)


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
        help="share of the trajectories that training never sees, for vem select (default: 0)",
    )
    add_discrete(parser)
    add_running_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run what is left of the cells, print the table and write the report."""
    from vem.comparison import paper
    from vem.comparison.compare import compare
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
            seeds=parse_seeds(options.seeds),
            steps=steps,
            minutes=minutes,
            preset=options.preset,
            settings=parse_settings(options.set, algorithms),
            rules={name: value for name in RULES if (value := getattr(options, name)) is not None},
            data_dir=options.data_dir,
            hold_out=options.hold_out,
            **running_options(options),
        )
    except Stopped as stopped:
        print(stopped, file=progress_stream(options), flush=True)
        return STOPPED
    write_page_and_show(
        comparison,
        options,
        lambda page: _print_paper(options, page) if is_paper else print_results(comparison, options, page),
    )
    for name, error in unmade.items():
        print(f"{name} could not be made: {error}", file=sys.stderr)
    return max(print_failures(comparison), 1 if unmade else 0)


def paper_length(
    algorithms: Sequence[str], steps: dict[str, int] | None, minutes: float | None, is_official: bool
) -> tuple[dict[str, int] | None, float | None]:
    """Steps by method, or minutes, of the paper's table: as given, else the official steps, else 20 core-minutes."""
    from vem.algorithms.base import official_steps
    from vem.comparison.paper import MINUTES
    from vem.errors import SettingsError

    if is_official:
        if steps is not None or minutes is not None:
            raise SettingsError("--official says how many steps are trained; leave out --steps and --minutes")
        return {label: official_steps(label) for label in algorithms}, None
    return steps, MINUTES if steps is None and minutes is None else minutes


def _make_data(options: argparse.Namespace) -> dict[str, str]:
    """Make the data of the paper's table that can be made; name → why, for what failed."""
    from vem.cli.data import row_progress
    from vem.comparison.paper import made_place, make_missing, paper_data

    def say(text: str) -> None:
        print(text, file=progress_stream(options), flush=True)

    with row_progress() as report:
        place = made_place(options.out, options.data_dir)
        return make_missing(paper_data(options.out, options.data_dir), place, say, report)


def _print_paper(options: argparse.Namespace, page: str | None = None) -> int:
    """Print the paper's table beside our scores."""
    from vem.comparison.paper import read_paper_comparison

    found = read_paper_comparison(options.out, options.data_dir)
    if options.json:
        print(json.dumps({**found.to_json(), "report": page}, indent=2))
        return 0
    print_tables(found.tables)
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
    from vem.algorithms.base import convert
    from vem.comparison.grid import DEFAULT_STEPS
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

    from vem.algorithms.base import find_method, split_label
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


# ``vem sweep``: one method with several values of its settings, each combination trained and evaluated once.


SWEEP_EXAMPLES = """examples:
  vem sweep door-human --expectile 0.1,0.3,0.5 --effective-sample 0.1,0.3 --jobs 2
  vem sweep antmaze-umaze.hdf5 --discount 0.99,0.997 --horizon 10,25 --policy guided --steps 50000
  vem sweep logs.hdf5 --algorithm bc --policy-hidden 64,64/256,256        a list of lists: slashes between them
  vem sweep door-human pen-human --expectile 0.1,0.3 --engine ray         on a Ray cluster

Each combination is a cell with a run directory of its own, so any setting can be swept. vem train sweeps expectiles,
temperatures and effective samples in one program. The same command goes on after Ctrl-C, a crash or a failure.
"""


def register_sweep(verbs: Any, arguments: Sequence[str]) -> None:
    """Add the verb; its method flags depend on ``--algorithm``, looked up in ``arguments``."""
    parser = verbs.add_parser(
        "sweep",
        help="train and evaluate one method with several settings",
        description="Train and evaluate every combination of settings, in OUT/DATASET/NAME=VALUE,…, and print a table.",
        epilog=SWEEP_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("datasets", nargs="+", metavar="DATA", help="a file, a benchmark name, or minari:ID")
    add("--algorithm", default="vem", metavar="NAME", help="the method (default: vem)")
    add("--preset", default="default", metavar="NAME", help="settings to start from")
    add("--seeds", default="3", metavar="N|A,B,…", help="how many seeds, or which (default: 3)")
    add("--steps", type=int, default=100_000, metavar="N", help="steps of each policy (default: 100000)")
    add("--out", default="runs/sweep", metavar="DIR", help="directory or address of the cells (default: runs/sweep)")
    add_reading_options(parser)
    add_running_options(parser)
    add_settings(parser, chosen_algorithm(arguments), can_sweep_all=True)
    parser.set_defaults(run=run_sweep)


def run_sweep(options: argparse.Namespace) -> int:
    """Run what is left of the cells, print the table and write the report."""
    from vem.comparison.compare import sweep
    from vem.errors import Stopped

    values, settings = swept_and_fixed(options)
    try:
        comparison = sweep(
            options.datasets,
            values,
            options.algorithm,
            seeds=parse_seeds(options.seeds),
            steps=options.steps,
            preset=options.preset,
            settings=settings,
            rules=given_rules(options),
            data_dir=options.data_dir,
            hold_out=options.hold_out or 0.0,
            **running_options(options),
        )
    except Stopped as stopped:
        print(stopped, file=progress_stream(options), flush=True)
        return STOPPED
    write_page_and_show(comparison, options, lambda page: print_results(comparison, options, page))
    return print_failures(comparison)


def swept_and_fixed(options: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The settings with several values, and those with one."""
    from vem.comparison.grid import split_values

    given = given_texts(options)
    split = {name: split_values(options.algorithm, name, text) for name, text in given.items()}
    several = {name: values for name, values in split.items() if len(values) > 1}
    return several, {name: text for name, text in given.items() if name not in several}
