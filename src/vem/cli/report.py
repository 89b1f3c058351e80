"""``vem report``: run directories in, one HTML page with figures out."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from typing import Any

EXAMPLES = """examples:
  vem report runs/antmaze-umaze-vem                           writes runs/antmaze-umaze-vem/report/report.html
  vem report runs/medium-vem runs/medium-bc --out comparison  several runs side by side
  vem report runs/medium-vem --held-out other.hdf5            guide and executor against other recordings
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "report",
        help="draw runs: one HTML page with tables and figures",
        description="Write one self-contained HTML page about one or more runs, and its figures as PNG and SVG. "
        "Scores, returns and value errors appear once the runs are evaluated (vem evaluate).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run directory; several are compared")
    add("--out", default=None, metavar="DIR", help="where to write (default: the directory report in the first RUN)")
    add("--held-out", default=None, metavar="DATASET", help="recordings to compare guided policies with")
    add("--json", action="store_true", help="print what was written, the scores and the notes as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write the report, and say where it is and what it lacks."""
    from rich.console import Console
    from rich.markup import escape

    from vem.report import write_report
    from vem.terminal import printable

    console = Console(stderr=True)
    with console.status("reading") if console.is_terminal else nullcontext() as status:
        show = (lambda text: status.update(escape(printable(text)))) if status else lambda text: None
        report = write_report(options.runs, options.out, show, held_out=options.held_out)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
        return
    if len(report.groups) > 1:
        print(f"the runs have {len(report.groups)} datasets; each has its own part of the page")
    for group in report.groups:
        for note in group.notes:
            print(f"{group.name}: {note}")
    print(f"report: {report.page}    figures: {report.page.parent / 'figures'} ({len(report.figures)} files)")
