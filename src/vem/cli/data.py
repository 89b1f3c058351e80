"""``vem data``: look at datasets, map tables, see which are at hand, record the built-in ones, convert large ones."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vem.cli.options import Parser, add_reading, add_table_roles, given_roles, given_rules

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


def data_describe(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = "Print sizes, episodes, returns, ends, duplicates, coverage and warnings of a dataset."
    parser.epilog = SOURCES
    parser.add_argument("dataset", metavar="DATASET", help="what to describe (see below)")
    parser.add_argument("--plot", metavar="FILE.png", help="also draw returns, lengths, rewards and coverage")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_reading(parser)
    parser.set_defaults(run=_describe)


def data_map(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Propose a mapping for a table from the names, types and values of its columns. Flags are taken as
they are and the rest is proposed. Read it, correct it, and pass it as --map to describe and train."""
    parser.epilog = "example: vem data map log.parquet --action valve --out map.toml"
    parser.add_argument("table", metavar="FILE", help="a table (.parquet, .arrow, .feather, .csv) or a folder of them")
    parser.add_argument("--out", metavar="FILE.toml", help="write the mapping there instead of printing it")
    add_table_roles(parser)
    parser.topics.clear()  # these are all that it has
    parser.set_defaults(run=_map)


def data_list(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.add_argument("--data-dir", metavar="DIR", help="directory with dataset files, searched first")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=_list)


def data_make(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = "Record a dataset; the same seed gives the same rows, and an interrupted recording goes on."
    parser.epilog = MAKE_EXAMPLES
    add = parser.add_argument
    add("name", metavar="NAME", help="what to record (see below)")
    add("--rows", type=_positive, metavar="N", help="steps to record (default: enough to learn from)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the recording (default: 0)")
    add("--from", dest="source", metavar="FILE", help="for *-cloned: the demonstrations' file")
    add("--walker", metavar="FILE", help="for antmaze-*: a policy that walks (.safetensors, or ONNX of 29 + 2 numbers)")
    add("--data-dir", metavar="DIR", help="for *-cloned: where *-human is looked up first")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", metavar="FILE.hdf5", help="file to write (default: NAME.hdf5 in this directory)")
    where.add_argument("--minari", metavar="ID", help="for a maze: write a local Minari dataset with this id instead")
    parser.set_defaults(run=_make)


def data_convert(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = "Write NAME.shards, which is opened without being read; an interrupted conversion goes on."
    parser.epilog = SOURCES + "example: vem data convert logs.hdf5 logs.shards"
    parser.add_argument("dataset", metavar="DATASET", help="what to convert (see below)")
    parser.add_argument("out", metavar="NAME.shards", help="the folder to write, or to go on with")
    add_reading(parser)
    parser.set_defaults(run=_convert)


def data_verify(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = "Read all shards and compare them with their checksums; training does so with what it reads."
    parser.add_argument("shards", metavar="NAME.shards", help="a folder that vem data convert wrote")
    parser.set_defaults(run=_verify)


def _describe(options: argparse.Namespace) -> None:
    """Print what a dataset holds."""
    from vem.data.description import describe
    from vem.data.load import load
    from vem.errors import DataWarning, printable

    with warnings.catch_warnings():
        # The description lists them.
        warnings.simplefilter("ignore", DataWarning)
        dataset = load(options.dataset, options.data_dir, **given_rules(options))
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


def _map(options: argparse.Namespace) -> None:
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


def _list(options: argparse.Namespace) -> None:
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


def _make(options: argparse.Namespace) -> None:
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
    from vem.data.load import BUILT_IN
    from vem.data.mazes import write_maze, write_minari
    from vem.errors import SettingsError
    from vem.tasks import find_task

    task = find_task(options.name)
    name = options.name if task is None else task.name
    if name not in (known := (*BUILT_IN, *RANDOM_TASKS, *CLONED_TASKS, *WALKED_TASKS)):
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "see vem data make --help"
        raise SettingsError(f"{name!r} is not among the datasets that can be made; {hint}")
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


def _convert(options: argparse.Namespace) -> None:
    """Write a dataset as shards."""
    from vem.data.load import convert

    with row_progress() as report:
        path = convert(options.dataset, options.out, options.data_dir, report, **given_rules(options))
    print(path)


def _verify(options: argparse.Namespace) -> None:
    """Check the shards of a folder."""
    from vem.data.shards import open_shards
    from vem.errors import DataError

    if Path(options.shards).exists() and not Path(options.shards).is_dir():
        raise DataError(f"{options.shards} is no folder of shards, which alone have checksums; see vem data convert")
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

    from vem.errors import printable

    table = Table(*header, title=Text(printable(title)), show_header=any(header), title_justify="left")
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in row))
    Console(highlight=False, markup=False).print(table)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
