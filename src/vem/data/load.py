"""One name for all sources: a path, ``minari:ID``, a benchmark name, or a built-in maze."""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vem.data.actions import Bounds, known_bounds
from vem.data.arrays import Prepared, located, prepare
from vem.data.dataset import Dataset, RowBlock, whole_episodes
from vem.data.files import open_hdf5, read_hdf5, read_npz, require_file, user_path
from vem.data.shards import SUFFIX, Report, open_shards, read_index, write_shards
from vem.errors import DataError, DataWarning, SettingsError
from vem.tasks import find_task

READERS = {".hdf5": read_hdf5, ".h5": read_hdf5, ".npz": read_npz}
"""The readers of files with one array for each quantity; tables (``vem.data.tables``) are read by a mapping."""
BUILT_IN = tuple(f"pointmaze-{maze}{kind}" for kind in ("", "-discrete") for maze in ("umaze", "medium", "large"))


def load(source: str | Path, data_dir: str | Path | None = None, **rules: Any) -> Dataset:
    """The Dataset that ``source`` names; ``rules`` are those of ``from_arrays``, ``task=`` among them.

    A source is a path to an ``.hdf5``, ``.h5`` or ``.npz`` file; a table (Parquet, Arrow, Feather, CSV) or a folder of
    them, read by ``mapping=`` (``vem.from_table``); a ``.shards`` folder, which is opened without being read;
    ``minari:ID``; a built-in maze such as ``pointmaze-umaze``, recorded on the spot; or a benchmark name such as
    ``antmaze-umaze``, looked up as a file in ``data_dir``, ``$VEM_DATA`` and ``~/.d4rl/datasets``, under this name or
    D4RL's own file name.
    """
    text = str(source)
    path = user_path(text)
    if path.suffix == SUFFIX:
        return open_shards(path, **rules)
    if _is_table(path):
        from vem.data.tables import from_table

        return from_table(path, **rules)
    _refuse_table_rules(text, rules)
    if text.startswith("minari:"):
        from vem.data.minari import read_minari

        return read_minari(text.removeprefix("minari:"), **rules)
    if text in BUILT_IN:
        from vem.data.mazes import maze_dataset

        return maze_dataset(text, **rules)
    if _is_path(path):
        return READERS.get(path.suffix.lower(), read_hdf5)(path, **rules)
    file = _find_named(text, data_dir)
    return READERS[file.suffix.lower()](file, **{"name": text, **rules})


def find_file(source: str, data_dir: str | Path | None = None) -> Path | None:
    """The file that ``load`` would read for ``source``; None where that is no file."""
    path = user_path(source)
    if source.startswith("minari:") or source in BUILT_IN or path.suffix == SUFFIX or _is_table(path):
        return None
    return path if _is_path(path) else _find_named(source, data_dir)


def _is_table(path: Path) -> bool:
    if path.suffix.lower() in READERS:
        return False
    from vem.data.tables import is_table, table_files

    # A directory that happens to have a benchmark's name, such as a run's, is not meant.
    is_named = path.name in BUILT_IN or find_task(path.name) is not None
    return is_table(path) or (not is_named and path.is_dir() and bool(table_files(path)))


def _is_path(path: Path) -> bool:
    # A directory that happens to have a benchmark's name, such as a run's, is not meant.
    return path.suffix.lower() in READERS or path.is_file() or len(path.parts) > 1


def _refuse_table_rules(source: str, rules: dict[str, Any]) -> None:
    if not rules:
        return
    from vem.data.tables import ENTRIES

    entries = [name for name in ("mapping", *ENTRIES) if rules.get(name) is not None]
    if entries:
        raise SettingsError(f"{entries[0]} is for tables (Parquet, Arrow, CSV), and {source} is none; leave it out.")


def search_directories(data_dir: str | Path | None = None) -> list[Path]:
    """Where benchmark names are looked up, in this order; directories that do not exist included."""
    places = [data_dir, os.environ.get("VEM_DATA"), Path("~/.d4rl/datasets")]
    return list(dict.fromkeys(user_path(place) for place in places if place))


def dataset_files(data_dir: str | Path | None = None) -> list[Path]:
    """All files that look like datasets in the search directories, those found first first."""
    return [
        path
        for directory in search_directories(data_dir)
        if directory.is_dir()
        for path in sorted(directory.iterdir())
        if path.suffix.lower() in READERS and path.is_file()
    ]


def matches(name: str, path: Path) -> bool:
    """Whether the file is the dataset of this name: by its own name, or as D4RL names its files."""
    if _plain(path.stem) == _plain(name):
        return True
    wanted, offered = find_task(name), find_task(path.name)
    if wanted is None or offered is None or wanted.name != offered.name:
        return False
    versions = {match.group() for text in (name, path.stem) if (match := re.search(r"-v\d+$", _plain(text)))}
    return len(versions) < 2


class Available(NamedTuple):
    """A dataset by name, and the files that hold it on this machine."""

    name: str
    kind: str
    """``benchmark``, ``file`` or ``built-in``."""
    environment: str | None
    files: list[str]
    remark: str


def available(data_dir: str | Path | None = None) -> list[Available]:
    """All datasets that ``load`` knows by name: the benchmark's, other files at hand, the built-in mazes."""
    from vem.tasks import TASKS

    files = dataset_files(data_dir)
    entries = []
    for name, task in TASKS.items():
        if name not in BUILT_IN:
            found = [str(path) for path in files if matches(name, path)]
            entries.append(Available(name, "benchmark", task.environment, found, "not on this machine"))
    for path in files:
        if find_task(path.name) is None:
            entries.append(Available(path.stem, "file", None, [str(path)], ""))
    for name in BUILT_IN:
        entries.append(Available(name, "built-in", TASKS[name].environment, [], "recorded when asked for"))
    return entries


def _find_named(name: str, data_dir: str | Path | None) -> Path:
    for directory in search_directories(data_dir):
        candidates = [path for path in dataset_files(data_dir) if path.parent == directory and matches(name, path)]
        exact = [path for path in candidates if _plain(path.stem) == _plain(name)]
        found = exact or candidates
        if len(found) > 1:
            raise DataError(
                f"'{name}' could be any of {', '.join(map(str, found))}; give the path of the one you mean."
            )
        if found:
            return found[0]
    raise DataError(_not_found(name, data_dir))


def _not_found(name: str, data_dir: str | Path | None) -> str:
    from vem.tasks import TASKS

    places = ", ".join(
        f"{directory}{'' if directory.is_dir() else ' (absent)'}" for directory in search_directories(data_dir)
    )
    present = [path.stem for path in dataset_files(data_dir)]
    close = difflib.get_close_matches(name, dict.fromkeys([*present, *BUILT_IN, *TASKS]), n=3, cutoff=0.75)
    sentence = f"no dataset '{name}' in {places}"
    if find_task(name):
        sentence += ": the benchmark is known, its file is not there; put it there or pass --data-dir / data_dir"
    elif close:
        sentence += f"; did you mean {' or '.join(close)}?"
    available = ", ".join([*present[:20], *BUILT_IN])
    return f"{sentence.rstrip('?.')}{'?' if sentence.endswith('?') else '.'} Available: {available}."


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


# Any source → shards; HDF5 files without ever holding all of their rows.


SEGMENT_ROWS = 1 << 18
"""Recorded rows that are laid out together, at least; trajectories are not cut."""


def convert(
    source: str | Path,
    out: str | Path,
    data_dir: str | Path | None = None,
    report: Report | None = None,
    **rules: Any,
) -> Path:
    """Write the shards of ``source``, whatever ``vem.load`` takes, to the folder ``out`` and return its path.

    ``rules`` are those of ``from_arrays``; they are applied here, once. An interrupted conversion is gone on with.
    """
    file = find_file(str(source), data_dir)
    if file is None or file.suffix.lower() not in (".hdf5", ".h5"):
        return _convert_loaded(source, out, data_dir, report, rules)
    named = {"name": file.stem if Path(str(source)).suffix else str(source)}
    given, bounds = dict(rules), rules.pop("action_bounds", None)
    require_file(file)
    with ExitStack() as held:
        with located(str(file)):
            columns, facts = held.enter_context(open_hdf5(file))
            prepared = prepare(**columns, source=str(file), **facts, **{**named, **rules})
            discrete = rules.get("discrete")
        if prepared.is_whole_type if discrete is None else discrete is not False:
            return _convert_loaded(source, out, data_dir, report, given)  # all rows decide what the choices are
        key = {**_identity(file), "rules": prepared.info.rules, "action_bounds": _listed(bounds)}
        known = known_bounds(prepared.info.task, rules.get("environment"), prepared.moves.shape[1])
        path = write_columns(out, prepared, key, bounds, report, known)
    _warn(path)
    return path


def write_columns(
    out: str | Path,
    prepared: Prepared,
    key: dict[str, Any],
    action_bounds: tuple[Any, Any] | None = None,
    report: Report | None = None,
    known: Bounds | None = None,
) -> Path:
    """Write the shards of recorded columns that slice by rows, such as those of an open file.

    Rows are laid out a few trajectories at a time; only the flags of all rows are held.
    """
    segments = list(whole_episodes(np.flatnonzero(prepared.trajectory_ends), SEGMENT_ROWS))
    layouts = (prepared.layout(segment.start, segment.stop) for segment in segments)
    counts, num_valid = np.zeros(len(segments), np.int64), 0
    for number, layout in enumerate(layouts):
        counts[number], num_valid = len(layout.rows), num_valid + int(layout.valid.sum())
    if not num_valid:
        with located(prepared.info.source):
            raise prepared.nothing_valid()
    firsts = np.cumsum(counts) - counts

    def blocks(first: int) -> Iterator[RowBlock]:
        for segment, begin, count in zip(segments, firsts.tolist(), counts.tolist(), strict=True):
            if begin + count > first:
                with located(prepared.info.source):
                    block = prepared.gather(segment.start, segment.stop)
                yield RowBlock(*(values[max(0, first - begin) :] for values in block))

    return write_shards(
        out,
        blocks,
        prepared.info,
        observation_size=prepared.states.shape[1],
        action_size=prepared.moves.shape[1],
        num_rows=int(counts.sum()),
        action_bounds=action_bounds,
        known=known,
        key=key,
        report=report,
    )


def _convert_loaded(
    source: str | Path, out: str | Path, data_dir: str | Path | None, report: Report | None, rules: dict[str, Any]
) -> Path:
    """Sources that are no HDF5 file are loaded first."""
    dataset = load(source, data_dir, **rules)
    return write_shards(
        out,
        lambda first: [dataset.block(first, dataset.num_rows)] if first < dataset.num_rows else [],
        dataset.info,
        observation_size=dataset.observation_size,
        action_size=dataset.action_size,
        num_rows=dataset.num_rows,
        key={"source": str(source), "fingerprint": dataset.fingerprint()},
        report=report,
    )


def _identity(file: Path) -> dict[str, Any]:
    facts = file.stat()
    return {"file": file.name, "bytes": facts.st_size, "modified": facts.st_mtime_ns}


def _listed(bounds: tuple[Any, Any] | None) -> list[Any] | None:
    return None if bounds is None else [np.asarray(bound, np.float64).tolist() for bound in bounds]


def _warn(path: Path) -> None:
    info = read_index(path).info
    for message in info.warnings:
        warnings.warn(f"{info.name}: {message}", DataWarning, stacklevel=3)
