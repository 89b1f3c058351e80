"""``vem compare``: several methods on several datasets, each trained and evaluated once, as one table and one page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vem.compare.cells import Cell, Result

EXAMPLES = """examples:
  vem compare pointmaze-umaze --algorithms vem,bc,iql --steps 10000
  vem compare door-human pen-human --data-dir ~/data --algorithms vem,bc,iql --seeds 3 --jobs 2
  vem compare logs.hdf5 --algorithms vem,bc --steps vem=100000,bc=50000 --set vem:expectile=0.5
  vem compare paper --data-dir ~/data                the paper's table, what data is here, and our scores beside it
  vem compare paper --data-dir ~/data --run --jobs 2

The same command goes on after Ctrl-C, a crash or a failure: finished cells are never run again.
"""
MARKS = {"best": " *", "close": " ≈", "": "  "}
STOPPED = 130
"""The exit code of a command that a signal stopped."""
SAME_COMMAND = "the same command goes on from here"


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
    add("--run", action="store_true", dest="run_present", help="with paper: run the datasets that are present")
    add("--algorithms", default=None, metavar="A,B,…", help="the methods (default: vem,bc,iql)")
    add("--seeds", default="3", metavar="N|A,B,…", help="how many seeds, or which (default: 3)")
    add("--steps", default="100000", metavar="N|A=N,…", help="steps of each policy, by method (default: 100000)")
    add("--episodes", type=int, default=100, metavar="N", help="evaluation episodes for each policy (default: 100)")
    add("--preset", default="default", metavar="NAME", help="settings of the methods that have it; others: default")
    add("--set", action="append", default=[], metavar="[A:]NAME=X", help="a setting, of one method or of all with it")
    add("--out", default="runs/compare", metavar="DIR", help="directory of the cells (default: runs/compare)")
    add("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    add("--evaluate-every", type=int, metavar="N", help="evaluate 20 episodes after every N steps, for the curves")
    add("--no-report", action="store_true", help="print the table alone")
    add("--jobs", type=int, default=1, metavar="J", help="cells at a time, one thread each (default: 1, all cores)")
    add("--json", action="store_true", help="print the results as JSON, and progress to standard error")
    add("--cores", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run what is left of the cells, print the table and write the report."""
    from vem.compare.cells import read_results
    from vem.errors import SettingsError

    for name in ("jobs", "episodes", "evaluate_every"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise SettingsError(f"--{name.replace('_', '-')} is {value}; it must be 1 or more")
    if options.cores is not None:
        return _run_as_job(options)
    say = lambda text: print(text, file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.datasets == ["paper"]:
        from vem.cli import paper

        return paper.run(options, say)
    cells = cells_of(options, options.datasets, (options.algorithms or "vem,bc,iql").split(","))
    code, report = finish_cells(cells, options, say)
    if code == STOPPED:
        return code
    results = read_results(cells)
    if options.json:
        print(json.dumps({"cells": [_facts(result) for result in results], "report": report}, indent=2))
    else:
        print_results(results, options.episodes)
        if report:
            print(f"report: {report}")
    return code


def finish_cells(
    cells: Sequence[Cell], options: argparse.Namespace, say: Callable[[str], None]
) -> tuple[int, str | None]:
    """Run what is left of the cells and write the report: the exit code, and the page if there is one."""
    from vem.compare.cells import check_cells, read_failure, read_results

    states = check_cells(cells, options.episodes)
    left = [cell for cell in cells if states[cell.name] != "done"]
    say(f"{len(left)} of {len(cells)} cells in {options.out} are left to do")
    if run_cells(left, options, say):
        say(f"stopped and saved; {SAME_COMMAND}")
        return STOPPED, None
    report = None if options.no_report else _write_report(read_results(cells), Path(options.out) / "report", say)
    failures = {cell.name: error for cell in left if (error := read_failure(cell)) is not None}
    for name, error in failures.items():
        print(f"{name} failed: {error}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} of {len(cells)} cells failed; once mended, {SAME_COMMAND}", file=sys.stderr)
    return 1 if failures else 0, report


def cells_of(options: argparse.Namespace, datasets: Sequence[str], algorithms: Sequence[str]) -> list[Cell]:
    """The cells that the options ask for."""
    from vem.algorithms.config import convert
    from vem.compare.cells import make_cells

    seeds = [convert(part, int, "seeds") for part in options.seeds.split(",")]
    return make_cells(
        datasets,
        algorithms,
        options.out,
        seeds=seeds if "," in options.seeds else seeds[0],
        steps=parse_steps(options.steps, algorithms),
        preset=options.preset,
        settings=parse_settings(options.set, algorithms),
        data_dir=options.data_dir,
    )


def run_cells(cells: Sequence[Cell], options: argparse.Namespace, say: Callable[[str], None]) -> bool:
    """Run the cells, in this process or in jobs; True if it was stopped. Failures are recorded, not raised."""
    if options.jobs > 1 and cells:
        from vem.compare.jobs import run_jobs

        return run_jobs(cells, options.jobs, lambda cell, cores: _job_arguments(cell, options, cores), say)
    return any(_run_here(cell, options, say) == STOPPED for cell in cells)


def _run_here(
    cell: Cell, options: argparse.Namespace, say: Callable[[str], None], num_workers: int | None = None
) -> int:
    """Run one cell in this process and return its exit code."""
    from vem.compare.cells import run_cell
    from vem.errors import VemError
    from vem.evaluation.training import evaluating

    def train_run(run: Any) -> bool:
        with evaluating(run, options.evaluate_every) as callbacks:
            run.train(callbacks, not options.json)
        say(f"{cell.name}: evaluating {options.episodes} episodes of each policy")
        return False

    try:
        is_finished = run_cell(cell, options.episodes, num_workers, train_run)
    except VemError as error:
        say(f"{cell.name}: failed: {error}")
        return 1
    except KeyboardInterrupt:
        return STOPPED
    if is_finished:
        say(f"{cell.name}: done")
    return 0 if is_finished else STOPPED


def _run_as_job(options: argparse.Namespace) -> int:
    """The one cell of these options, on the cores that the parent chose."""
    from vem.compare.jobs import enter_job

    enter_job(options.cores)
    (cell,) = cells_of(options, options.datasets, options.algorithms.split(","))
    return _run_here(cell, options, lambda text: print(text, flush=True), num_workers=1)


def _job_arguments(cell: Cell, options: argparse.Namespace, cores: str) -> list[str]:
    """The command that runs one cell, as a user would write it."""
    pairs = {
        "--algorithms": cell.algorithm,
        "--seeds": options.seeds,
        "--steps": str(cell.config.steps),
        "--episodes": str(options.episodes),
        "--preset": cell.config.preset,
        "--out": options.out,
        "--cores": cores,
    }
    if options.data_dir:
        pairs["--data-dir"] = options.data_dir
    if options.evaluate_every:
        pairs["--evaluate-every"] = str(options.evaluate_every)
    chosen = parse_settings(options.set, [cell.algorithm], strict=False)[cell.algorithm]
    settings = [text for name, value in chosen.items() for text in ("--set", f"{name}={value}")]
    return ["compare", cell.config.dataset, *(text for pair in pairs.items() for text in pair), *settings]


def parse_steps(text: str, algorithms: Sequence[str]) -> dict[str, int]:
    """Updates by method from ``N`` or ``A=N,B=N,N``; a number without a name is for the methods not named."""
    from vem.algorithms.config import convert
    from vem.compare.cells import DEFAULT_STEPS
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


def parse_settings(texts: Sequence[str], algorithms: Sequence[str], strict: bool = True) -> dict[str, dict[str, str]]:
    """Settings by method from ``NAME=X`` (all methods that have it) and ``A:NAME=X``."""
    import dataclasses

    from vem.algorithms import find_method
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
            and name in [field.name for field in dataclasses.fields(find_method(algorithm).config)]
        ]
        if strict and not having:
            raise SettingsError(f"--set {text}: none of {', '.join(algorithms)} has this setting")
        for algorithm in having:
            chosen[algorithm][name] = value
    return chosen


def print_results(results: Sequence[Result], num_episodes: int) -> None:
    """Print the table: rows datasets, columns methods."""
    from vem.cli.evaluate import print_table

    algorithms = list(dict.fromkeys(result.cell.algorithm for result in results))
    rows: dict[str, dict[str, str]] = {}
    for result in results:
        rows.setdefault(result.cell.dataset, {})[result.cell.algorithm] = cell_text(result)
    references = sorted({result.references for result in results if result.references})
    quantity = f"score (references: {'; '.join(references)})" if references else "return"
    num_seeds = len(results[0].cell.config.seeds)
    title = f"{quantity}, mean ± std over {num_seeds} seeds [95 %], {num_episodes} episodes a seed"
    table = [[name, *(row.get(algorithm, "-") for algorithm in algorithms)] for name, row in rows.items()]
    print_table(title, ["dataset", *algorithms], table)
    print("* best   ≈ within the best one's interval, which says how exactly the policies were measured, not the seeds")
    if len({result.quantity for result in results if result.spread}) > 1:
        print("rows without reference scores show returns")


def cell_text(result: Result) -> str:
    """A result as the table shows it."""
    if result.spread is None:
        return "failed  " if result.error else "-  "
    mean, std, _, interval = result.spread
    spread = "" if std is None else f" ± {std:.1f}"
    ends = "" if interval is None else f" [{interval[0]:.1f}, {interval[1]:.1f}]"
    return f"{mean:.1f}{spread}{ends}{MARKS[result.mark]}"


def _write_report(results: Sequence[Result], out: Path, say: Callable[[str], None]) -> str | None:
    """The page about all evaluated cells, or None without one."""
    from vem.report import write_report

    directories = [result.cell.directory for result in results if result.spread is not None]
    if not directories:
        return None
    say("writing the report")
    return str(write_report(directories, out).page)


def _facts(result: Result) -> dict[str, Any]:
    cell = result.cell
    return {
        "dataset": cell.dataset,
        "algorithm": cell.algorithm,
        "run": str(cell.directory),
        "quantity": result.quantity,
        "references": result.references,
        **(result.spread._asdict() if result.spread else {}),
        "mark": result.mark,
        "error": result.error,
    }
