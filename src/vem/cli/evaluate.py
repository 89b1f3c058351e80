"""``vem evaluate``: the policies of a run in their environment, as one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

EXAMPLES = """examples:
  vem evaluate runs/antmaze-umaze-vem                      100 episodes for each policy
  vem evaluate runs/door-human-vem --episodes 20 --workers 4
  vem evaluate runs/logs-vem --env vem/Hopper-v0 --json    in an environment that the data does not name
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "evaluate",
        help="run the policies of a run in their environment",
        description="Run the policies of a finished run and write RUN/evaluations.jsonl and RUN/evaluation.json. "
        "Episode i has the same seed for every policy; the number of workers changes nothing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="RUN", help="a run directory")
    add("--episodes", type=int, default=100, metavar="N", help="episodes for each policy (default: 100)")
    add("--seed", type=int, default=0, metavar="N", help="decides the episodes' seeds (default: 0)")
    add("--workers", type=int, default=None, metavar="N", help="processes (default: one a core)")
    add("--env", default=None, metavar="ID", help="a Gymnasium id or a benchmark task (default: the data's own)")
    add("--stochastic", action="store_true", help="sample actions instead of taking their mean")
    add("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Evaluate, and print the table."""
    from vem.evaluation.evaluate import evaluate_run

    with _progress() as show:
        summary = evaluate_run(
            options.directory,
            options.episodes,
            options.seed,
            options.workers,
            options.env,
            options.stochastic,
            show,
        )
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        print_summary(summary)
        print(f"records: {options.directory}/evaluations.jsonl, summary: {options.directory}/evaluation.json")


@contextmanager
def _progress() -> Iterator[Any]:
    """A function that shows the episodes done, on a terminal."""
    is_terminal = sys.stderr.isatty()

    def show(done: int, total: int) -> None:
        if is_terminal:
            print(f"\r{done} of {total} episodes", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def print_summary(summary: Mapping[str, Any], extra_rows: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Print a summary as one table, ``extra_rows`` (name → means, such as the behavior's) below the members."""
    references = summary["references"]
    actions = "mean actions" if summary["actions"] == "mean" else "sampled actions"
    title = (
        f"{summary['environment']}: {summary['num_episodes']} episodes a policy, {actions}, "
        f"after {summary['steps']:,} steps"
    )
    names = [name for name in COLUMNS if any(row.get(name) is not None for row in summary["members"].values())]
    rows = [
        [name, *(_number(row.get(column), column) for column in names)]
        for name, row in (*summary["members"].items(), *(extra_rows or {}).items())
    ]
    for group in summary["groups"]:
        count = len(group["members"])
        label = " ".join(f"{name} {value:g}" for name, value in group["settings"].items())
        if count > 1:
            rows.append([f"{label} mean ± std, {count} seeds".strip(), *(_spread(group[n], n) for n in names)])
        rows.append([f"{label} IQM [95 %]".strip(), *(_interval(group[n], n) for n in names)])
    print_table(title, ["policy", *(COLUMNS[name] for name in names)], rows)
    if references:
        print(
            f"score: 0 at return {references['minimum']:g}, 100 at {references['maximum']:g} ({references['source']})"
        )
    else:
        print("score: no reference scores are known for this environment")
    if "value_error" in names:
        print("V − G: value minus the discounted return that followed, at the start and over all steps")
    for name, row in summary["members"].items():
        if row["num_failed"]:
            print(f"{name}: {row['num_failed']} episodes failed and are left out, first: {row['first_error']}")


COLUMNS = {
    "return": "return",
    "score": "score",
    "success": "success %",
    "length": "length",
    "value_start": "V(s0)",
    "value_error_start": "V − G at s0",
    "value_error": "V − G",
}
INTERVAL_COLUMNS = ("return", "score", "success")
"""The others' intervals are in the JSON; the table would grow too wide."""


def _number(value: float | None, column: str) -> str:
    if value is None:
        return "-"
    value = 100 * value if column == "success" else value
    return f"{value:.1f}" if abs(value) >= 100 or column in ("success", "score", "length") else f"{value:.3g}"


def _spread(spread: Mapping[str, Any] | None, column: str) -> str:
    if spread is None:
        return "-"
    return f"{_number(spread['mean'], column)} ± {_number(spread['std'], column)}"


def _interval(spread: Mapping[str, Any] | None, column: str) -> str:
    if spread is None or column not in INTERVAL_COLUMNS:
        return ""
    middle = _number(spread["interquartile_mean"], column)
    if spread["interval"] is None:
        return middle
    return f"{middle} [{', '.join(_number(end, column) for end in spread['interval'])}]"


def print_table(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print rows under a header: drawn on a terminal, aligned text elsewhere."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title, title_justify="left")
        for index, name in enumerate(header):
            table.add_column(name, justify="right" if index else "left", no_wrap=not index)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    print(title)
    for line in (header, *rows):
        cells = [text.rjust(width) for text, width in zip(line, widths, strict=True)]
        print("  ".join([line[0].ljust(widths[0]), *cells[1:]]).rstrip())
