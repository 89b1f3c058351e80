"""``vem compare`` and ``vem sweep``: many runs as one table and one page; and the built-in example, a comparison."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from vem.cli.options import (
    READING,
    Parser,
    add_request,
    add_settings,
    chosen_method,
    flag_of,
    given_settings,
    given_texts,
    given_words,
)
from vem.errors import SettingsError, Stopped, VemError

if TYPE_CHECKING:
    from vem.comparison.results import Comparison
    from vem.evaluation.statistics import Table
    from vem.reports.report import Report

STOPPED = 130
"""The exit code of a command that a signal stopped."""
SAME = "The same command goes on after Ctrl-C, a crash or a failure: finished runs are never done again."


def compare(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = (
        "Train and evaluate every method on every dataset, in OUT/DATASET/ALGORITHM, and print a table."
    )
    parser.epilog = f"""examples:
  vem compare pointmaze-umaze --algorithms vem,bc,iql --steps 10000
  vem compare door-human pen-human --data-dir ~/data --algorithms vem,bc,iql --seeds 3 --jobs 2
  vem compare door-human --data-dir ~/data --algorithms vem,bc,iql --minutes 5     equal training time
  vem compare logs.hdf5 --algorithms vem,bc --steps vem=100000,bc=50000 --set vem:expectile=0.5
  vem compare log.parquet --map map.toml --algorithms vem,bc       no environment: estimates, for vem select
  vem compare door-human pen-human --algorithms vem,bc --engine ray --out /shared/study     on a Ray cluster
  vem compare paper --data-dir ~/data                the paper's table, what data is here, and our scores beside it
  vem compare paper --data-dir ~/data --run --jobs 2     make what can be made, 20 core-minutes for each run

{SAME}"""
    add = parser.add_argument
    add("datasets", nargs="*", metavar="DATASET", help="a file, a benchmark name, minari:ID; or paper")
    add(
        "--algorithms",
        "--algorithm",
        metavar="NAME,…",
        help="the methods, also with a preset: vem-paper (default: vem,bc,iql)",
    )
    add_request(parser, seeds=3, steps="N|NAME=N,…")
    add("--set", action="append", default=[], metavar="[A:]NAME=X", help="a setting, of one method or of all with it")
    _add_running(parser, "runs/compare")
    add("--run", action="store_true", dest="run_present", help="with paper: make the data that can be made, and run")
    add("--official", action="store_true", help="with paper: the official steps of each method, not equal time")
    parser.set_defaults(run=_compare)


def sweep(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options; the flags of settings depend on the method that ``arguments`` name."""
    parser.description = (
        "Train and evaluate every combination of settings, in OUT/DATASET/NAME=VALUE,…, and print a table."
    )
    parser.epilog = f"""examples:
  vem sweep door-human --expectile 0.1,0.3,0.5 --effective-sample 0.1,0.3 --jobs 2
  vem sweep antmaze-umaze.hdf5 --discount 0.99,0.997 --horizon 10,25 --policy guided --steps 50000
  vem sweep logs.hdf5 --algorithm bc --policy-hidden 64,64/256,256        a list of lists: slashes between them
  vem sweep door-human pen-human --expectile 0.1,0.3 --engine ray         on a Ray cluster

Each combination is a run of its own, so any setting can be swept. vem train sweeps expectiles, temperatures and
effective samples in one program. {SAME}"""
    add = parser.add_argument
    add("datasets", nargs="*", metavar="DATASET", help="a file, a benchmark name, or minari:ID")
    add("--algorithm", metavar="NAME", help="the method (default: vem)")
    add_request(parser, seeds=3)
    _add_running(parser, "runs/sweep")
    algorithm, preset = chosen_method(arguments)
    add_settings(parser, algorithm, preset, can_sweep_all=True)
    parser.set_defaults(run=_sweep, method=algorithm)


def _add_running(parser: Parser, out: str) -> None:
    """Add the options that say how runs are done and shown."""
    add = parser.add_argument
    add("--out", default=out, metavar="DIR", help=f"directory or address of the runs (default: {out})")
    add("--episodes", type=int, default=100, metavar="N", help="evaluation episodes for each policy (default: 100)")
    add("--jobs", type=int, default=1, metavar="N", help="runs at a time, one thread each (default: 1)")
    add("--engine", default="local", metavar="local|ray", help="this machine, or a Ray cluster (default: local)")
    add(
        "--address",
        metavar="HOST:PORT",
        help="with --engine ray: the cluster (default: RAY_ADDRESS, or this machine's)",
    )
    add("--no-report", action="store_true", help="print the table alone")
    add("--json", action="store_true", help="print the results as JSON, and progress to standard error")


def _running(options: argparse.Namespace) -> dict[str, Any]:
    """The words of ``compare`` and ``sweep`` that say how runs are done."""
    names = ("out", "episodes", "jobs", "engine", "address", "checkpoint_seconds")
    return {**{name: getattr(options, name) for name in names}, "progress": _stream(options)}


def _stream(options: argparse.Namespace) -> TextIO:
    """Where progress goes: not among the JSON."""
    return sys.stderr if options.json else sys.stdout


def _datasets(options: argparse.Namespace) -> list[str] | None:
    if not options.datasets and options.config is None:
        raise SettingsError("no data is named; give a file, a benchmark name or minari:ID")
    return options.datasets or None


def _compare(options: argparse.Namespace) -> int:
    """Do what is left of the runs, print the table and write the report."""
    from vem.algorithms.base import import_methods
    from vem.comparison import paper
    from vem.comparison.compare import compare

    import_methods(options.imports or ())
    is_paper = options.datasets == ["paper"]
    if not is_paper and (options.run_present or options.official):
        raise SettingsError("--run and --official are for the paper's table: vem compare paper")
    if is_paper and not (options.run_present or options.algorithms is not None):
        return _print_paper(options)
    labels = (options.algorithms or ",".join(paper.METHODS if is_paper else ("vem", "bc", "iql"))).split(",")
    words = given_words(options)
    if "steps" in words:
        words["steps"] = parse_steps(options.steps, labels)
    if is_paper:
        words |= paper_length(labels, words.get("steps"), words.get("minutes"), options.official)
    settings = parse_settings(options.set, labels)  # a mistake is found before any data is made
    unmade = _make_data(options) if options.run_present else {}
    data = paper.paper_sources(options.out, options.data_dir) if is_paper else _datasets(options)
    try:
        comparison = compare(data, labels, settings=settings, **words, **_running(options))
    except Stopped as stopped:
        return _say_stopped(stopped, options)
    if is_paper:
        _write_page_and_show(comparison, options, lambda page: _print_paper(options, page))
    else:
        _write_page_and_show(comparison, options, lambda page: print_results(comparison, options, page))
    for name, error in unmade.items():
        print(f"{name} could not be made: {error}", file=sys.stderr)
    return max(_print_failures(comparison), 1 if unmade else 0)


def _sweep(options: argparse.Namespace) -> int:
    """Do what is left of the runs, print the table and write the report."""
    from vem.comparison.compare import split_values, sweep

    texts = given_texts(options)
    split = {name: split_values(options.method, name, text) for name, text in texts.items()}
    values = {name: several for name, several in split.items() if len(several) > 1}
    fixed = {name: text for name, text in texts.items() if name not in values}
    try:
        comparison = sweep(
            _datasets(options), values, options.algorithm, **given_words(options), **fixed, **_running(options)
        )
    except Stopped as stopped:
        return _say_stopped(stopped, options)
    _write_page_and_show(comparison, options, lambda page: print_results(comparison, options, page))
    return _print_failures(comparison)


def _say_stopped(stopped: Stopped, options: argparse.Namespace) -> int:
    print(stopped, file=_stream(options), flush=True)
    return STOPPED


def print_results(comparison: Comparison, options: argparse.Namespace, page: Report | None) -> None:
    """Print the table and, with several datasets, that over all of them; or the results as JSON."""
    if options.json:
        over, written = comparison.over_datasets, page and str(page.page)
        runs = [result.to_json() for result in comparison.results]
        print(json.dumps({"runs": runs, "over_datasets": over and over.to_json(), "report": written}, indent=2))
        return
    _print_tables(comparison.tables)
    if page:
        print(f"report: {page.page}")


def _print_tables(tables: Sequence[Table]) -> None:
    """Print tables with a line between them."""
    for number, table in enumerate(tables):
        if number:
            print()
        table.print()


def _print_failures(comparison: Comparison) -> int:
    """Say which runs failed, and return the exit code."""
    from vem.comparison.compare import SAME_COMMAND

    failures = comparison.failures
    for name, error in failures.items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if failures:
        count = f"{len(failures)} of {len(comparison.results)} runs"
        print(f"{count} failed; once mended, {SAME_COMMAND}", file=sys.stderr)
    return 1 if failures else 0


def _write_page_and_show(
    comparison: Comparison, options: argparse.Namespace, show: Callable[[Report | None], object]
) -> None:
    """Write the page and call ``show`` with it; also where it cannot be written, before that error is raised."""
    try:
        page = None if options.no_report or not comparison.evaluated else _write_page(comparison, options)
    except VemError:
        show(None)
        raise
    show(page)


def _write_page(comparison: Comparison, options: argparse.Namespace) -> Report:
    """The page about all runs that have a result."""
    from vem.comparison.remote import Remote, copy_place, is_address
    from vem.reports.report import write_report

    print("writing the report", file=_stream(options), flush=True)
    if not is_address(options.out):
        return write_report(comparison.evaluated, Path(options.out) / "report")
    page = write_report(comparison.evaluated, copy_place(options.out) / "report")
    Remote(options.out).put_folder(Path(page.page).parent, "report")
    return page


# The paper's table.


def paper_length(
    labels: Sequence[str], steps: dict[str, int] | None, minutes: float | None, is_official: bool
) -> dict[str, Any]:
    """Steps by method, or minutes, of the paper's table: as given, else the official steps, else 20 core-minutes."""
    from vem.algorithms.base import official_steps
    from vem.comparison.paper import MINUTES

    if is_official:
        if steps is not None or minutes is not None:
            raise SettingsError("--official says how many steps are trained; leave out --steps and --minutes")
        return {"steps": {label: official_steps(label) for label in labels}}
    return {"minutes": MINUTES} if steps is None and minutes is None else {}


def _make_data(options: argparse.Namespace) -> dict[str, str]:
    """Make the data of the paper's table that can be made; name → why, for what failed."""
    from vem.cli.data import row_progress
    from vem.comparison.paper import made_place, make_missing, paper_data

    def say(text: str) -> None:
        print(text, file=_stream(options), flush=True)

    with row_progress() as show:
        place = made_place(options.out, options.data_dir)
        return make_missing(paper_data(options.out, options.data_dir), place, say, show)


def _print_paper(options: argparse.Namespace, page: Report | None = None) -> int:
    """Print the paper's table beside our scores."""
    from vem.comparison.paper import read_paper_comparison

    comparison = read_paper_comparison(options.out, options.data_dir)
    if options.json:
        print(json.dumps({**comparison.to_json(), "report": page and str(page.page)}, indent=2))
        return 0
    _print_tables(comparison.tables)
    if page:
        print(f"report: {page.page}")
    if not (options.run_present or options.algorithms):
        states = [entry.state for entry in comparison.data]
        place = f" --data-dir {options.data_dir}" if options.data_dir else ""
        print(
            f"{states.count('here')} of {len(states)} datasets are here and {states.count('to make')} can be made; "
            f"make and run them with: vem compare paper{place} --run"
        )
    return 0


def parse_steps(text: str, labels: Sequence[str]) -> dict[str, int]:
    """Steps by method from ``N`` or ``NAME=N,NAME=N,N``; a number without a name is for the methods not named."""
    from vem.algorithms.base import convert
    from vem.training.request import DEFAULT_STEPS

    steps, others = {}, DEFAULT_STEPS
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        if not equals:
            others = convert(number, int, "steps")
        elif name not in labels:
            raise SettingsError(f"--steps names {name!r}, which is not among the algorithms {', '.join(labels)}")
        else:
            steps[name] = convert(number, int, "steps")
    return {name: steps.get(name, others) for name in labels}


def parse_settings(texts: Sequence[str], labels: Sequence[str]) -> dict[str, dict[str, str]]:
    """Settings by method from ``NAME=X`` (all methods that have it) and ``A:NAME=X``."""
    from vem.algorithms.base import find_method, split_label, type_hints

    chosen: dict[str, dict[str, str]] = {label: {} for label in labels}
    known = {label: type_hints(find_method(split_label(label)[0]).config) for label in labels}
    for text in texts:
        left, equals, value = text.partition("=")
        owner, _, name = left.rpartition(":")
        name = name.replace("-", "_")
        if not equals:
            raise SettingsError(f"--set {text} has no value; write --set NAME=VALUE or --set ALGORITHM:NAME=VALUE")
        having = [label for label in labels if owner in ("", label) and name in known[label]]
        if not having:
            raise SettingsError(f"--set {text}: none of {', '.join(labels)} has this setting")
        for label in having:
            chosen[label][name] = value
    return chosen


# The built-in example: ``vem train`` without data.


MAZE = "pointmaze-medium"
EXAMPLE = "runs/first"
EXAMPLE_EPISODES = 100
EXAMPLE_STEPS = {"vem": 24_000, "bc": 6_000}
"""Until values have settled; behavior cloning has one network of VEM's three."""


def run_example(options: argparse.Namespace) -> int:
    """Compare the chosen method and behavior cloning on the built-in maze, beside what was recorded there."""
    from vem.comparison.compare import compare
    from vem.errors import require

    require("jax", "gymnasium", "gymnasium_robotics", "mujoco", "matplotlib", "jinja2")
    unused = [
        name for name in ("data_dir", "hold_out", "pool_rows", "log", *READING) if getattr(options, name) is not None
    ]
    if unused:
        flags = ", ".join(map(flag_of, unused))
        raise SettingsError(f"without a dataset the built-in {MAZE} is used; leave out {flags}, or give a dataset")
    settings = given_settings(options, options.method)
    if several := [name for name, value in settings.items() if isinstance(value, list)]:
        raise SettingsError(f"several values are compared by: vem sweep {MAZE} {flag_of(several[0])} …")
    words = given_words(options)
    if "steps" not in words and "minutes" not in words:
        words["steps"] = {label: EXAMPLE_STEPS.get(label, EXAMPLE_STEPS["vem"]) for label in (options.method, "bc")}
    out = options.out or EXAMPLE
    stream = _stream(options)
    print(f"no dataset given: the built-in {MAZE}, recorded by a noisy walker that seldom solves it", file=stream)
    try:
        comparison = compare(
            MAZE,
            list(dict.fromkeys((options.method, "bc"))),
            settings={options.method: settings},
            out=out,
            episodes=EXAMPLE_EPISODES,
            progress=stream,
            checkpoint_seconds=options.checkpoint_seconds,
            **words,
        )
    except Stopped as stopped:
        return _say_stopped(stopped, options)
    if code := _print_failures(comparison):
        return code
    options.out, options.no_report = out, False
    comparison = dataclasses.replace(comparison, columns="dataset")
    _write_page_and_show(comparison, options, lambda page: _print_example(comparison, options, page))
    return 0


def _print_example(comparison: Comparison, options: argparse.Namespace, page: Report | None) -> None:
    """One table with the recorded episodes as its last row, the page, and what to do next."""
    if options.json or page is None:
        print_results(comparison, options, page)
        return
    table = comparison.table
    recorded = [row for row in page.groups[0].rows if row.kind == "behavior" and "score" in row.quantities]
    rows = [*table.rows, *([row.label, f"{row.quantities['score'].mean:.1f}  "] for row in recorded)]
    table._replace(rows=rows, notes=()).print()
    print(f"report: {page.page}")
    print("next: vem train FILE, with data of yours (vem data describe FILE says what it holds)")
