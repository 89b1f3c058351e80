"""``vem data``: look at datasets, map tables, see which are at hand, record the built-in ones, convert large ones."""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vem.cli.train import add_reading, add_table_roles, given_roles, given_rules

SECONDS_PER_LINE = 10.0

SOURCES = """\
DATASET is one of
  path/to/file.hdf5    a file in D4RL's layout (.hdf5, .h5) or NumPy arrays (.npz)
  log.parquet          a table (.parquet, .arrow, .feather, .csv) or a folder of them, with --map
  path/to/NAME.shards  a folder that vem data convert wrote; opened without being read
  antmaze-umaze        a benchmark name, looked up in --data-dir, $VEM_DATA and ~/.d4rl/datasets
  minari:ID            a Minari dataset on this machine (needs: pip install 'vem[minari]')
  pointmaze-medium     a built-in maze, recorded on the spot (also -umaze, -large)
  pointmaze-medium-discrete   the same with four discrete actions
"""


MAKE_EXAMPLES = """NAME:
  pointmaze-umaze, -medium, -large, each also -discrete     a noisy controller between random cells
  hopper-random, halfcheetah-random, walker2d-random        a Gaussian policy with fresh weights
  door-cloned, hammer-cloned, pen-cloned                    demonstrations (*-human) and roll-outs of their clone
  antmaze-umaze, -umaze-diverse, -medium-play, …            a policy that walks (--walker), led through the maze

examples:
  vem data make pointmaze-medium --rows 50000 --out maze.hdf5
  vem data make hopper-random --rows 200000
  vem data make pen-cloned --from pen-human.hdf5
  vem data make antmaze-medium-play --walker runs/umaze/policies/seed0.safetensors
"""


def register(verbs: Any) -> None:
    """Add ``vem data`` and its verbs to the command line."""
    parser = verbs.add_parser(
        "data",
        help="describe, map, list, record or convert datasets",
        description="Look at recorded data before training on it.",
    )
    actions = parser.add_subparsers(title="verbs", dest="data_verb", required=True, metavar="VERB")

    text = argparse.RawDescriptionHelpFormatter
    describe = actions.add_parser(
        "describe",
        help="say what a dataset holds, and what is odd about it",
        description="Print sizes, episodes, returns, ends, duplicates, coverage and warnings of a dataset.",
        epilog=SOURCES,
        formatter_class=text,
    )
    describe.add_argument("dataset", metavar="DATASET", help="what to describe (see below)")
    describe.add_argument("--plot", metavar="FILE.png", help="also draw returns, lengths, rewards and coverage")
    add_reading(describe)
    _add_common(describe)
    describe.set_defaults(run=run_describe)

    maps = actions.add_parser(
        "map",
        help="propose which column of a table is what, and explain why",
        description="Propose a mapping for a table from the names, types and values of its columns. Flags are taken as "
        "they are and the rest is proposed. Read it, correct it, and pass it as --map to describe and train.",
        epilog="example: vem data map log.parquet --action valve --out map.toml",
    )
    maps.add_argument("table", metavar="FILE", help="a table (.parquet, .arrow, .feather, .csv) or a folder of them")
    maps.add_argument("--out", metavar="FILE.toml", help="write the mapping there instead of printing it")
    add_table_roles(maps)
    maps.set_defaults(run=run_map)

    lists = actions.add_parser(
        "list",
        help="list benchmark and built-in datasets, and which are on this machine",
        description="List the benchmark's datasets, where each was found, and the built-in ones.",
    )
    _add_common(lists)
    lists.set_defaults(run=run_list)

    make = actions.add_parser(
        "make",
        help="record data that needs no foreign file: mazes, random policies, clones of demonstrations",
        description="Record a dataset; the same seed gives the same rows, and an interrupted trajectory goes on.",
        epilog=MAKE_EXAMPLES,
        formatter_class=text,
    )
    make.add_argument("name", metavar="NAME", help="what to record (see below)")
    make.add_argument("--rows", type=_positive, help="steps to record (default: enough to learn from)")
    make.add_argument("--seed", type=int, default=0, help="seed of the trajectory (default 0)")
    make.add_argument("--from", dest="source", metavar="FILE", help="for *-cloned: the demonstrations' file")
    make.add_argument(
        "--walker",
        metavar="FILE",
        help="for antmaze-*: a guided policy (.safetensors), or an ONNX file that takes 29 + 2 numbers",
    )
    make.add_argument("--data-dir", metavar="DIR", help="for *-cloned: where *-human is looked up first")
    where = make.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE.hdf5", help="file to write (default NAME.hdf5 in this directory)")
    where.add_argument("--minari", metavar="ID", help="for a maze: write a local Minari dataset with this id instead")
    make.set_defaults(run=run_make)

    convert = actions.add_parser(
        "convert",
        help="write a dataset as shards, for data larger than memory",
        description="Write NAME.shards, which is opened without being read; an interrupted conversion goes on.",
        epilog=SOURCES + "example: vem data convert logs.hdf5 logs.shards",
        formatter_class=text,
    )
    convert.add_argument("dataset", metavar="DATASET", help="what to convert (see below)")
    convert.add_argument("out", metavar="NAME.shards", help="the folder to write, or to go on with")
    add_reading(convert)
    convert.add_argument("--data-dir", metavar="DIR", help="directory with dataset files, searched first")
    convert.set_defaults(run=run_convert)

    verify = actions.add_parser(
        "verify",
        help="compare every shard with its checksum",
        description="Read all shards and compare them with their checksums; training does so with what it reads.",
    )
    verify.add_argument("shards", metavar="NAME.shards", help="a folder that vem data convert wrote")
    verify.set_defaults(run=run_verify)


def run_describe(options: argparse.Namespace) -> None:
    """Print what a dataset holds."""
    from vem.data.description import describe
    from vem.data.load import load
    from vem.errors import DataWarning, printable

    with warnings.catch_warnings():
        # The description lists them.
        warnings.simplefilter("ignore", DataWarning)
        dataset = load(
            options.dataset,
            options.data_dir,
            **given_rules(options),
        )
    description = describe(dataset)
    if options.plot:
        from vem.data.description import draw

        draw(dataset, description, options.plot)
    if options.json:
        print(json.dumps(description.to_dict(), indent=2))
        return
    if sys.stdout.isatty():
        _draw_table(printable(description.name), ("", ""), description.table())
        print("\n".join(description.messages()), end="\n" if description.messages() else "")
    else:
        print(description)
    if options.plot:
        print(f"picture: {options.plot}")


def run_map(options: argparse.Namespace) -> None:
    """Print or write the proposed mapping, with the reasons as comments."""
    from vem.data.mapping import make_map, to_toml
    from vem.data.proposal import propose
    from vem.data.tables import open_table
    from vem.errors import DataError

    if options.out and Path(options.out).exists():
        raise DataError(f"{options.out} exists; choose another --out, or remove it.")
    table = open_table(options.table)
    proposal = propose(table, make_map(options.map, **given_roles(options)))
    text = to_toml(proposal.mapping.to_json(), proposal.remarks, proposal.heading(table))
    if not options.out:
        print(text, end="")
        return
    from vem.storage import write_file

    write_file(Path(options.out), text.encode())
    print("\n".join(proposal.explanation()))
    print(f"mapping: {options.out}")


def run_list(options: argparse.Namespace) -> None:
    """Print which datasets are known and where they are."""
    from vem.data.description import aligned
    from vem.data.load import available, search_directories

    entries = available(options.data_dir)
    directories = search_directories(options.data_dir)
    if options.json:
        places = [{"path": str(path), "exists": path.is_dir()} for path in directories]
        print(json.dumps({"directories": places, "datasets": [entry._asdict() for entry in entries]}, indent=2))
        return
    header = ("name", "kind", "where")
    rows = [(entry.name, entry.kind, ", ".join(entry.files) or entry.remark) for entry in entries]
    if sys.stdout.isatty():
        _draw_table("datasets", header, rows)
    else:
        print("\n".join(aligned([header, *rows])))
    print("searched: " + ", ".join(f"{path}{'' if path.is_dir() else ' (absent)'}" for path in directories))


def run_make(options: argparse.Namespace) -> None:
    """Record a dataset."""
    from vem.collect.benchmark import (
        CLONED_TASKS,
        RANDOM_TASKS,
        WALKED_TASKS,
        count_arrivals,
        write_cloned,
        write_random,
        write_walked,
    )
    from vem.data.mazes import write_maze, write_minari
    from vem.errors import SettingsError
    from vem.tasks import find_task

    task = find_task(options.name)
    name = options.name if task is None else task.name
    path, given = options.out or f"{options.name}.hdf5", {"num_rows": options.rows} if options.rows else {}
    given["seed"] = options.seed
    if options.minari and name in (*RANDOM_TASKS, *CLONED_TASKS, *WALKED_TASKS):
        raise SettingsError(f"--minari is for the built-in mazes; {name} is written to a file")
    if (options.source or options.data_dir) and name not in CLONED_TASKS:
        raise SettingsError(f"--from and --data-dir are for cloned data; {name} is recorded without any file")
    if options.walker and name not in WALKED_TASKS:
        raise SettingsError(f"--walker is for AntMaze data; {name} is recorded without it")
    if name in WALKED_TASKS and not options.walker:
        raise SettingsError(f"{name} is recorded with a policy that walks an ant; give its file with --walker FILE")
    if options.minari:
        write_minari(options.minari, options.name, **given)
        print(f"minari:{options.minari}")
        return
    with row_progress() as report:
        if name in RANDOM_TASKS:
            written = write_random(path, name, **given, report=report)
        elif name in CLONED_TASKS:
            written = write_cloned(path, name, options.source, **given, data_dir=options.data_dir, report=report)
        elif name in WALKED_TASKS:
            written = write_walked(path, name, options.walker, **given, report=report)
        else:
            written = write_maze(path, options.name, **given)
    print(written)
    if name in WALKED_TASKS:
        arrived, count = count_arrivals(written)
        print(f"{arrived} of {count} trajectories came within 0.5 m of where they were sent")


def run_convert(options: argparse.Namespace) -> None:
    """Write a dataset as shards."""
    from vem.data.load import convert

    with row_progress() as report:
        path = convert(options.dataset, options.out, options.data_dir, report, **given_rules(options))
    print(path)


def run_verify(options: argparse.Namespace) -> None:
    """Check the shards of a folder."""
    from vem.data.shards import open_shards

    dataset = open_shards(options.shards)
    assert dataset.shards is not None
    with row_progress() as report:
        dataset.shards.verify(report)
    print(f"{options.shards}: all {dataset.num_rows:,} rows are as they were written")


@contextmanager
def row_progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function that shows how many rows are done: a bar on a terminal, a line every ten seconds elsewhere."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def show_line(what: str, done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= SECONDS_PER_LINE:
                last = time.monotonic()
                print(f"{what:>6}  {done:,} / {total:,} rows", file=sys.stderr, flush=True)

        yield show_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description:>6}"),
        BarColumn(),
        TextColumn("{task.fields[rows]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as bar:
        task = bar.add_task("write", total=None, rows="")

        def show_bar(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total, rows=f"{done:,} / {total:,} rows")

        yield show_bar


def _draw_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table with lines, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from vem.terminal import printable

    table = Table(*header, title=Text(printable(title)), show_header=any(header), title_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    Console(highlight=False, markup=False).print(table)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", metavar="DIR", help="directory with dataset files, searched first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
