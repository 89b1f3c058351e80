"""``vem select``: runs on the same data, ranked by what their policies are worth, without a simulator."""

from __future__ import annotations

import argparse
import json
from typing import Any

EXAMPLES = """examples:
  vem train logs.npz --expectile 0.1,0.3,0.5,0.7 --seeds 3 --hold-out 0.2 --out runs/logs
  vem select runs/logs                           which expectile?
  vem select runs/logs-vem runs/logs-iql         which method?
  vem select runs/sweep/logs                     all cells of a sweep or a comparison on one dataset
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "select",
        help="choose among runs on the same data, without a simulator",
        description="Rank runs on the same data, and the settings swept inside them, by their estimates on the "
        "recordings that all of them held out, and name the choice. Estimates that the runs keep are used again.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories, or a folder with runs on one dataset below it")
    add("--discount", type=float, metavar="X", help="discount γ of the values (default: the largest of training)")
    add("--steps", type=int, metavar="N", help="steps of fitted Q evaluation (default: by the size of the data)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the networks and of resampling (default: 0)")
    add("--json", action="store_true", help="print the selection as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Select, and print the table."""
    from vem.estimation.select import select

    found = select(
        options.runs, discount=options.discount, steps=options.steps, seed=options.seed, progress=not options.json
    )
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        found.table.print()
