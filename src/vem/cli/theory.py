"""``vem theory``: the paper's toy figures and every checkable statement of its theory, measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

DESCRIPTION = """Draw figures 2, 4(a) and 4(b) of the paper from many random decision processes, measure every
statement of its sections 3.1, 3.2 and 4 that can be checked, and write PNG, SVG, CSV and one HTML page. The
settings are the paper's where it gives them."""


def theory(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = DESCRIPTION
    parser.set_defaults(run=run)
    parser.add_argument("--out", type=Path, default=Path("theory"), help="directory to write (default: theory)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all tables and verdicts as JSON")
    parser.add_argument("--seed", type=int, default=0, help="of the random processes (default: 0)")
    parser.add_argument("--small", action="store_true", help="few processes: quick, and too rough to read much from")


def run(options: argparse.Namespace) -> int:
    """Compute, write, and print every verdict and where the page is."""
    from vem.theory import output

    for claim in output.run(options.out, options.json, seed=options.seed, small=options.small):
        print(f"{claim.verdict:8} {claim.section}  {claim.statement}\n             {claim.measured}")
    print(f"figures, tables and the page: {options.out / 'index.html'}")
    return 0
