"""``vem sweep``: one method with several values of its settings, each combination trained and evaluated once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from vem.cli import cells, train
from vem.cli.reading import given_rules

EXAMPLES = """examples:
  vem sweep door-human --expectile 0.1,0.3,0.5 --effective-sample 0.1,0.3 --jobs 2
  vem sweep antmaze-umaze.hdf5 --discount 0.99,0.997 --horizon 10,25 --policy guided --steps 50000
  vem sweep logs.hdf5 --algorithm bc --policy-hidden 64,64/256,256        a list of lists: slashes between them
  vem sweep door-human pen-human --expectile 0.1,0.3 --engine ray         on a Ray cluster

Each combination is a cell with a run directory of its own, so any setting can be swept. vem train sweeps expectiles,
temperatures and effective samples in one program. The same command goes on after Ctrl-C, a crash or a failure.
"""


def register(verbs: Any, arguments: Sequence[str]) -> None:
    """Add the verb; its method flags depend on ``--algorithm``, looked up in ``arguments``."""
    parser = verbs.add_parser(
        "sweep",
        help="train and evaluate one method with several settings",
        description="Train and evaluate every combination of settings, in OUT/DATASET/NAME=VALUE,…, and print a table.",
        epilog=EXAMPLES,
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
    train.add_reading_options(parser)
    cells.add_running_options(parser)
    train.add_settings(parser, train.chosen_algorithm(arguments), can_sweep_all=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run what is left of the cells, print the table and write the report."""
    from vem.compare import sweep
    from vem.errors import Stopped

    values, settings = swept_and_fixed(options)
    try:
        comparison = sweep(
            options.datasets,
            values,
            options.algorithm,
            seeds=cells.parse_seeds(options.seeds),
            steps=options.steps,
            preset=options.preset,
            settings=settings,
            rules=given_rules(options),
            data_dir=options.data_dir,
            hold_out=options.hold_out or 0.0,
            **cells.running_options(options),
        )
    except Stopped as stopped:
        print(stopped, file=cells.progress_stream(options), flush=True)
        return cells.STOPPED
    cells.write_page_and_show(comparison, options, lambda page: cells.print_results(comparison, options, page))
    return cells.print_failures(comparison)


def swept_and_fixed(options: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, str]]:
    """The settings with several values, and those with one."""
    from vem.compare.grid import split_values

    given = train.given_texts(options)
    split = {name: split_values(options.algorithm, name, text) for name, text in given.items()}
    several = {name: values for name, values in split.items() if len(values) > 1}
    return several, {name: text for name, text in given.items() if name not in several}
