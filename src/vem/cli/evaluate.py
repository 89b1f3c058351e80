"""``vem evaluate``: the policies of a run in their environment, as one table."""

from __future__ import annotations

import argparse
import json
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
        description="Run the policies of a finished run and keep the result in its directory: episodes in "
        "evaluations.jsonl, the summary in evaluation.json (evaluation-ENV.json with --env). "
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
    add(
        "--stochastic",
        action=argparse.BooleanOptionalAction,
        help="sample actions, or take their mean (default: sample those of guided policies)",
    )
    add("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def add_evaluate_every(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the flag for evaluations while a run trains: a number of steps, or a share of them below 1."""

    def period(given: str) -> int | float:
        return int(given) if given.lstrip("-").isdigit() else float(given)

    parser.add_argument("--evaluate-every", type=period, metavar="N|X", help=f"{text} (X: such as 0.2)")


def run(options: argparse.Namespace) -> None:
    """Evaluate, and print the table."""
    from vem.evaluation.evaluate import evaluate

    evaluation = evaluate(
        options.directory, options.env, options.episodes, options.seed, options.workers, options.stochastic
    )
    if options.json:
        print(json.dumps(evaluation.to_json(), indent=2))
    else:
        evaluation.table.print()
        print(f"kept in {options.directory}; draw it with: vem report {options.directory}")
