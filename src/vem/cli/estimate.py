"""``vem estimate``: what the policies of a run are worth, from recordings alone."""

from __future__ import annotations

import argparse
import json
from typing import Any

EXAMPLES = """examples:
  vem train logs.npz --hold-out 0.2 --out runs/logs      keep a fifth of the recordings apart
  vem estimate runs/logs                                 is it better than what the log did?
  vem estimate runs/logs --data june.npz                 on recordings that were made later
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "estimate",
        help="value the policies of a run on held-out recordings, without a simulator",
        description="Estimate the discounted return of a run's policies by fitted Q evaluation, and by importance "
        "sampling where that can be used, beside what the recordings earned, with 95 % intervals and a verdict. The "
        "result is kept in RUN/estimate.json. Train with --hold-out first.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="RUN", help="a run directory")
    add("--data", metavar="DATA", help="other recordings, read as the run's own were (default: those held out)")
    add("--discount", type=float, metavar="X", help="discount γ of the values (default: that of training, or 0.99)")
    add("--steps", type=int, metavar="N", help="steps of fitted Q evaluation (default: by the size of the data)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the networks and of resampling (default: 0)")
    add("--json", action="store_true", help="print the estimate as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Estimate, and print the table."""
    from vem.estimation.estimate import estimate

    found = estimate(
        options.directory,
        options.data,
        discount=options.discount,
        steps=options.steps,
        seed=options.seed,
        progress=not options.json,
    )
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
        return
    found.table.print()
    print(f"kept in {options.directory}; choose among several runs with: vem select")
