"""A run's files, and their one owner.

RUN/config.json         everything the run depends on, with fingerprints of the data and the packages
RUN/metrics.jsonl       training metrics, one line a chunk
RUN/warnings.json       what was found when training ended that speaks against the policies, and what to do
RUN/evaluations.jsonl   one line an episode; the newest evaluation of each member, number of steps and environment
RUN/evaluation.json     the summary of the newest evaluation in the data's own environment
RUN/evaluation-X.json   that in another environment, X
RUN/estimate.json       what the policies are worth by the held-out recordings
RUN/estimate-X.json     the same by other data, X
RUN/traces/             what the members with a guide observed in one of those episodes, in mazes
RUN/checkpoints/        the newest two states; a resumed run ends with the same bits as one never stopped
RUN/policies/           one file for each member (seed and swept setting)
RUN/.lock               held by the process that trains
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from vem.errors import RunError
from vem.runs.config import Config
from vem.runs.config_file import Stored, read_config, write_config
from vem.runs.records import (
    DataFacts,
    EpisodeRecord,
    EstimateSummary,
    EvaluationSummary,
    MetricLine,
    RunWarning,
    read_estimate,
    read_summary,
)
from vem.runs.traces import Trace, read_trace, write_trace
from vem.storage import parse_json, read_json, write_file, write_json

Record = TypeVar("Record")
NEWEST_BYTES = 65_536
"""How much of the end of a file is read first to find its newest line."""


class Lines(NamedTuple, Generic[Record]):
    """The readable lines of a file."""

    records: list[Record]
    num_damaged: int = 0
    problem: str | None = None
    """One sentence about what could not be read, if anything."""


class RunDirectory:
    """The files of one run. Nothing is read before it is asked for, and nothing written but by ``write_…``."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: FileLock | None = None
        self._made: list[Path] = []

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    # What the run is

    @cached_property
    def _stored(self) -> Stored:
        return read_config(self.path)

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return (self.path / "config.json").exists()

    @property
    def config(self) -> Config:
        """The settings of the run; RunError if this is not a run directory."""
        return self._stored.config

    @property
    def facts(self) -> DataFacts:
        """The data that the run was started with."""
        return self._stored.facts

    @property
    def packages(self) -> dict[str, str]:
        """Versions of the packages that the run was started with; empty where they are not recorded."""
        return self._stored.packages

    @property
    def evaluate_every(self) -> float | None:
        """Steps between two evaluations on the way, or a share of all steps; None: no evaluation."""
        return self._stored.evaluate_every

    def write_config(
        self, config: Config, facts: DataFacts, packages: dict[str, str], evaluate_every: float | None = None
    ) -> None:
        """Write config.json: from now on this is a run."""
        write_config(self.path / "config.json", Stored(config, facts, packages, evaluate_every))
        self._made = []
        self.__dict__.pop("_stored", None)

    # Training

    @property
    def checkpoints(self) -> Path:
        """Where the states are (``vem.runs.checkpoints``)."""
        return self.path / "checkpoints"

    @property
    def policy_paths(self) -> list[Path]:
        """Where the policies of the members are, or will be, in the members' order."""
        return [self.path / "policies" / f"{member.name}.safetensors" for member in self.config.members]

    @property
    def is_finished(self) -> bool:
        """Whether every member's policy is written."""
        return all(path.exists() for path in self.policy_paths)

    def metrics(self) -> Lines[MetricLine]:
        """The training metrics."""
        return _read_lines(self.path / "metrics.jsonl", MetricLine.from_json)

    def newest_metrics(self) -> MetricLine | None:
        """The newest line of training metrics, or None before the first; only the end of the file is read."""
        size = NEWEST_BYTES
        with suppress(OSError), (self.path / "metrics.jsonl").open("rb") as file:
            length = file.seek(0, os.SEEK_END)
            while True:
                file.seek(max(0, length - size))
                for text in reversed(file.read().split(b"\n")):
                    if (line := _parse(text, MetricLine.from_json)) is not None:
                        return line
                if size >= length:
                    break
                size *= 8
        return None

    @property
    def core_seconds(self) -> float | None:
        """Time that training took so far on all cores together, over all resumes; None if it is not recorded."""
        line = self.newest_metrics()
        return None if line is None else line.core_seconds

    def write_metrics(self, line: MetricLine) -> None:
        """Add one line of training metrics."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(line)) + "\n")
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from None

    def cut_metrics(self, steps: int) -> None:
        """Drop the metric lines after ``steps``: a resumed run writes them again."""
        path = self.path / "metrics.jsonl"
        if not path.is_file():
            return
        kept = []
        for text in _raw_lines(path):
            line = _parse(text, MetricLine.from_json)
            if line is None or line.steps > steps:
                break
            kept.append(text + b"\n")
        write_file(path, b"".join(kept))

    def warnings(self) -> list[RunWarning] | None:
        """What was found when training ended; None before that, for runs of earlier versions, or if damaged."""
        try:
            found = [RunWarning.from_json(record) for record in read_json(self.path / "warnings.json", list)]
        except RunError:
            return None
        return None if None in found else [warning for warning in found if warning is not None]

    def write_warnings(self, warnings: Sequence[RunWarning]) -> None:
        """Write what was found when training ended, in place of what was there."""
        write_json(self.path / "warnings.json", [dataclasses.asdict(warning) for warning in warnings])

    # Evaluation

    def episodes(self) -> Lines[EpisodeRecord]:
        """All evaluated episodes, those in other environments than the data's own among them."""
        return _read_lines(self.path / "evaluations.jsonl", EpisodeRecord.from_json)

    def write_episodes(self, records: Sequence[EpisodeRecord]) -> None:
        """Add records; they replace older ones of the same members, steps and environment.

        Of the first record of a member in the data's own environment that holds observations, they become its trace.
        """
        replaced = {(record.member, record.steps, record.environment) for record in records}
        kept = [
            record
            for record in self.episodes().records
            if (record.member, record.steps, record.environment) not in replaced
        ]
        lines = (json.dumps(record.to_json(), allow_nan=False) + "\n" for record in (*kept, *records))
        write_file(self.path / "evaluations.jsonl", "".join(lines).encode())
        traced = [record for record in records if record.observations is not None and record.environment is None]
        self.check_links()
        for record in {record.member: record for record in reversed(traced)}.values():
            write_trace(self.trace_path(record.member), record)

    def trace_path(self, member: str) -> Path:
        """Where the trace of a member is, if it has one."""
        return self.path / "traces" / f"{member}.safetensors"

    def trace(self, member: str) -> Trace | None:
        """What a member observed in one episode; None if it has no trace, RunError if that is damaged."""
        path = self.trace_path(member)
        return read_trace(path) if path.exists() else None

    def summary_path(self, environment: str | None = None) -> Path:
        """Where the summary is of an evaluation in ``environment``; None: in that of the data."""
        if environment is None:
            return self.path / "evaluation.json"
        return self.path / f"evaluation-{_file_name(environment)}.json"

    def summary(self, environment: str | None = None) -> EvaluationSummary | None:
        """The newest evaluation in ``environment``; None before the first, or if its file is damaged."""
        try:
            return read_summary(read_json(self.summary_path(environment), dict))
        except RunError:
            return None

    def write_summary(self, summary: EvaluationSummary, environment: str | None = None) -> None:
        """Write the summary of an evaluation in ``environment``; None: in that of the data."""
        write_json(self.summary_path(environment), summary)

    # Estimates

    def estimate_path(self, data: str | None = None) -> Path:
        """Where the estimate on other ``data`` is; None: on the run's own."""
        return self.path / ("estimate.json" if data is None else f"estimate-{_file_name(data)}.json")

    def estimate(self, data: str | None = None) -> EstimateSummary | None:
        """The newest estimate on other ``data`` (None: on the run's own); None before the first, or if damaged."""
        try:
            return read_estimate(read_json(self.estimate_path(data), dict))
        except RunError:
            return None

    def write_estimate(self, summary: EstimateSummary, data: str | None = None) -> None:
        """Write the estimate on other ``data``; None: on the run's own."""
        write_json(self.estimate_path(data), summary)

    def check_links(self) -> None:
        """RunError if a part of the run that is written to, or tidied, is a link: it may lead out of the directory."""
        for name in ("checkpoints", "policies", "traces", "metrics.jsonl"):
            if (self.path / name).is_symlink():
                raise RunError(
                    f"{self.path / name} is a link, and a run writes to its own directory alone; put what it leads to "
                    "in its place"
                )

    # The lock

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the run's lock."""
        return self._lock is not None

    def acquire(self) -> None:
        """Take the run's lock; RunError if another process, or another object of this one, holds it.

        The operating system releases it when the process ends, however it ends.
        """
        if self._lock is not None:
            return
        self.check_links()
        # The lock belongs to this object, whichever thread trains.
        lock = FileLock(self.path / ".lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"another process is training in {self.path}; wait for it, or stop it first") from None
        except (OSError, NotImplementedError) as error:
            raise RunError(
                f"cannot write to {self.path}: {getattr(error, 'strerror', None) or error}; copy the run to a place "
                "that can be written, or change the permissions"
            ) from None
        self._lock = lock

    def wait_for_lock(self, seconds: float) -> None:
        """Wait until no other process holds the lock; after ``seconds``, ``acquire`` says who is in the way.

        A file server may keep the lock of a machine that was lost for a minute or two.
        """
        if seconds > 0 and self.path.is_dir():
            with suppress(Timeout, OSError, NotImplementedError), FileLock(self.path / ".lock", timeout=seconds):
                pass

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock; inside another ``lock`` of the same object this does nothing."""
        if self._lock is not None:
            yield
            return
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def reserve(self) -> None:
        """Make the directory of a new run and take its lock; RunError if it is in use or cannot be made."""
        absent = _absent_parts(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            for path in absent:
                with suppress(OSError, ValueError):
                    path.rmdir()
            raise RunError(
                f"cannot make the run directory {_shortened(self.path)}: {getattr(error, 'strerror', None) or error}; "
                "choose another --out"
            ) from None
        self._made = absent
        try:
            self._check_empty()  # before the lock's file is made in a directory that is not ours
            self.acquire()
            self._check_empty()
        except BaseException:
            self.abandon()
            raise

    def _check_empty(self) -> None:
        try:
            # A process that was killed while it wrote config.json leaves a temporary file.
            is_empty = all(path.name == ".lock" or path.name.endswith(".tmp") for path in self.path.iterdir())
        except OSError as error:
            raise RunError(f"cannot read {self.path}: {error.strerror or error}; choose another --out") from None
        if not is_empty:
            raise RunError(
                f"{self.path} exists and is not empty; choose another --out, "
                f"or go on with vem train --resume {self.path}"
            )

    def abandon(self) -> None:
        """Release the lock and, unless config.json was written, remove what ``reserve`` made."""
        if self.is_locked and not (self.path / "config.json").exists():
            with suppress(OSError):
                (self.path / ".lock").unlink()
        self.release()
        for path in self._made:
            with suppress(OSError):
                path.rmdir()
        self._made = []


def _absent_parts(path: Path) -> list[Path]:
    """The directories that making ``path`` would make, innermost first."""
    absent = []
    for part in (path, *path.parents):
        try:
            if part.exists():
                break
        except (OSError, ValueError):
            pass
        absent.append(part)
    return absent


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text)[:100]


def _shortened(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-50:]}"


def _read_lines(path: Path, parse: Callable[[Any], Record | None]) -> Lines[Record]:
    if not path.exists():
        return Lines([])
    if not path.is_file():
        return Lines([], 0, f"{path.name} cannot be read (it is no regular file).")
    try:
        texts = _raw_lines(path)
    except OSError as error:
        return Lines([], 0, f"{path.name} cannot be read ({error.strerror}).")
    records = [record for text in texts if (record := _parse(text, parse)) is not None]
    count = len(texts) - len(records)
    problem = f"{count} of {len(texts)} lines of {path.name} {'is' if count == 1 else 'are'} damaged and left out."
    return Lines(records, count, problem if count else None)


def _raw_lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line.strip()]


def _parse(text: bytes, parse: Callable[[Any], Record | None]) -> Record | None:
    try:
        return parse(parse_json(text))
    except ValueError:
        return None
