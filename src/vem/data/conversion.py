"""Any source → shards; HDF5 files without ever holding all of their rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.action_columns import choices_of
from vem.data.arrays import Prepared, prepare
from vem.data.bounds import Bounds, known_bounds
from vem.data.checks import located
from vem.data.dataset import RowBlock
from vem.data.files import require_file
from vem.data.hdf5 import open_hdf5
from vem.data.shards import Report, read_index
from vem.data.sources import find_file, load
from vem.data.stretches import whole_episodes
from vem.data.writing import write_shards
from vem.errors import DataError, DataWarning

SEGMENT_ROWS = 1 << 18
"""Recorded rows that are laid out together, at least; recordings are not cut."""


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
    bounds = rules.pop("action_bounds", None)
    require_file(file)
    with ExitStack() as held:
        with located(str(file)):
            columns, facts = held.enter_context(open_hdf5(file))
            prepared = prepare(**columns, source=str(file), **facts, **{**named, **rules})
            discrete = rules.get("discrete")
            _require_numbers(prepared.is_whole_type if discrete is None else discrete is not False)
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

    Rows are laid out a few recordings at a time; only the flags of all rows are held.
    """
    segments = list(whole_episodes(np.flatnonzero(prepared.recording_ends), SEGMENT_ROWS))
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
    _require_numbers(bool(choices_of(dataset.info.action_columns)))
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


def _require_numbers(has_choices: bool) -> None:
    """DataError for actions that are choices, whose labels shards do not hold."""
    if has_choices:
        raise DataError(
            "column 'actions' holds choices (whole numbers), and shards hold numbers only; load the file as a whole, "
            "or say discrete=False (--no-discrete) if they are numbers"
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
