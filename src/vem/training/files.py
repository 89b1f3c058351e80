"""The files of a run, and their one owner.

RUN/config.json         the request, the data's facts, the versions of the packages
RUN/checkpoints/        the newest states of training
RUN/metrics.jsonl       a line for each logged chunk
RUN/policies/           the policies at the end; those on the way in at-STEPS
RUN/warnings.json       what was looked for when training ended
RUN/weights.json        how much the rows counted for the policies
RUN/evaluation*.json, evaluations.jsonl, estimate*.json    what evaluations and estimates found
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from filelock import FileLock, Timeout

from vem.errors import DataError, RunError, SettingsError
from vem.storage import parse_json, read_json, write_file, write_json
from vem.training.records import (
    DataFacts,
    EpisodeRecord,
    EstimateSummary,
    EvaluationSummary,
    MetricLine,
    PointEstimate,
    RowWeights,
    RunWarning,
    read_estimate,
    read_summary,
)
from vem.training.request import Request

CONFIG_VERSION = 3
Record = TypeVar("Record")


class Stored(NamedTuple):
    """What config.json holds."""

    config: Request
    facts: DataFacts
    packages: dict[str, str]
    """Versions that the run was started with; empty where they are not recorded."""


def read_config(directory: Path) -> Stored:
    """What the config.json in ``directory`` holds, checked as a new run is; RunError if it is no run."""
    path = directory / "config.json"
    if not os.path.lexists(path):
        found = "has no config.json" if directory.is_dir() else "is a file" if directory.exists() else "does not exist"
        raise RunError(f"{directory} is not a run directory: it {found}; make one with vem train --out")
    try:
        stored = read_json(path, dict)
    except RunError as error:
        raise RunError(f"{error}; start the run again in another directory") from None
    if stored.get("version") != CONFIG_VERSION:
        packages = stored.get("packages")
        version = packages.get("vem") if isinstance(packages, dict) else None
        raise RunError(
            f"{path} was written by another vem ({str(version)[:20] if version else 'its version is not recorded'}), "
            f"and this one reads layout {CONFIG_VERSION}; use that version, or train again"
        )
    try:
        config, facts = Request.from_json(stored["config"]), DataFacts.from_json(stored["data"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, DataError, SettingsError) as error:
        raise RunError(f"{path} does not describe a run ({error}); it was edited or written by another vem") from None
    packages = stored.get("packages")
    return Stored(config, facts, packages if isinstance(packages, dict) else {})


class Point(NamedTuple):
    """The policies after some steps of training, and how good they are."""

    steps: int
    value: float
    """Their mean return, or the mean of their estimates."""
    kind: Literal["return", "estimate"]
    paths: list[Path]
    """Where they are, in the trials' order."""


class Lines(NamedTuple, Generic[Record]):
    """The readable lines of a file."""

    records: list[Record]
    num_damaged: int = 0
    problem: str | None = None
    """One sentence about what could not be read, if anything."""


class RunFiles:
    """The files of one run. Nothing is read before it is asked for, and nothing written but by ``write_…``."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self._stored: Stored | None = None
        self._checks: list[RunWarning] | None = None
        self._lock: FileLock | None = None
        self._made: list[Path] = []

    def __fspath__(self) -> str:
        return str(self.directory)

    # What the run is

    @property
    def stored(self) -> Stored:
        """What config.json holds, or will hold; RunError if this is not a run directory."""
        if self._stored is None:
            self._stored = read_config(self.directory)
        return self._stored

    @property
    def is_run(self) -> bool:
        """Whether a run was started here."""
        return (self.directory / "config.json").exists()

    @property
    def config(self) -> Request:
        """All that decides the run; RunError if this is not a run directory."""
        return self.stored.config

    @property
    def facts(self) -> DataFacts:
        """The data that the run was started with."""
        return self.stored.facts

    @property
    def packages(self) -> dict[str, str]:
        """Versions of the packages that the run was started with; empty where they are not recorded."""
        return self.stored.packages

    def settle(self, config: Request, facts: DataFacts, packages: dict[str, str]) -> None:
        """Say what the run is; ``write_config`` writes it."""
        self._stored = Stored(config, facts, packages)

    def write_config(self) -> None:
        """Write config.json: from now on this is a run."""
        config, facts, packages = self.stored
        data = facts.to_json()
        content = {"version": CONFIG_VERSION, "config": config.to_json(), "data": data, "packages": packages}
        write_json(self.directory / "config.json", content)
        self._made = []

    # Training

    @property
    def checkpoints(self) -> Path:
        """Where the states are (``vem.training.run``)."""
        return self.directory / "checkpoints"

    @property
    def policy_paths(self) -> list[Path]:
        """Where the policies of the trials are, or will be, in the trials' order."""
        return [self.directory / "policies" / f"{trial.name}.safetensors" for trial in self.config.trials]

    @property
    def is_finished(self) -> bool:
        """Whether every trial's policy is written."""
        return all(path.exists() for path in self.policy_paths)

    def point_paths(self, steps: int) -> list[Path]:
        """Where the policies are that were kept after ``steps`` steps, in the trials' order."""
        return [path.parent / f"at-{steps}" / path.name for path in self.policy_paths]

    @property
    def points(self) -> list[int]:
        """The numbers of steps after which policies were kept, the last ones of a finished run among them."""
        names = (path.name.removeprefix("at-") for path in (self.directory / "policies").glob("at-*"))
        kept = {
            int(name) for name in names if name.isdecimal() and all(p.exists() for p in self.point_paths(int(name)))
        }
        return sorted(kept | ({self.config.steps} if self.is_finished else set()))

    @property
    def best(self) -> Point | None:
        """The point whose policies are best by their evaluations or, without those, by their held-out estimates.

        The mean over the trials is taken; None where nothing was evaluated on the way.
        """
        episodes: dict[int, list[float]] = {}
        for record in self.episodes().records:
            if record.environment is None and record.steps is not None and record.episode_return is not None:
                episodes.setdefault(record.steps, []).append(record.episode_return)
        means = {steps: sum(returns) / len(returns) for steps, returns in episodes.items()}
        estimates = {line.steps: line.mean for line in self.point_estimates().records}
        kind, values = ("return", means) if means else ("estimate", estimates)
        values = {steps: values[steps] for steps in self.points if steps in values and values[steps] == values[steps]}
        if not values:
            return None
        steps = max(values, key=lambda steps: values[steps])
        is_last = self.is_finished and steps == self.config.steps
        return Point(steps, values[steps], kind, self.policy_paths if is_last else self.point_paths(steps))

    def point_estimates(self) -> Lines[PointEstimate]:
        """The held-out estimates of policies on the way."""
        return _read_lines(self.directory / "estimates.jsonl", PointEstimate.from_json)

    def write_point_estimate(self, line: PointEstimate) -> None:
        """Add a held-out estimate; it replaces that of the same steps."""
        lines = [old for old in self.point_estimates().records if old.steps != line.steps]
        text = "".join(json.dumps(dataclasses.asdict(each)) + "\n" for each in (*lines, line))
        write_file(self.directory / "estimates.jsonl", text.encode())

    def metric_lines(self) -> Lines[MetricLine]:
        """The training metrics."""
        return _read_lines(self.directory / "metrics.jsonl", MetricLine.from_json)

    def newest_metrics(self) -> MetricLine | None:
        """The newest line of training metrics, or None before the first."""
        lines = self.metric_lines().records
        return lines[-1] if lines else None

    @property
    def core_seconds(self) -> float | None:
        """Time that training took so far on all cores together, over all resumes; None if it is not recorded."""
        line = self.newest_metrics()
        return None if line is None else line.core_seconds

    def write_metrics(self, line: MetricLine) -> None:
        """Add one line of training metrics."""
        path = self.directory / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(dataclasses.asdict(line)) + "\n")
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from None

    def cut_metrics(self, steps: int) -> list[MetricLine]:
        """Drop the metric lines after ``steps``, which a resumed run writes again, and return the others."""
        path = self.directory / "metrics.jsonl"
        if not path.is_file():
            return []
        lines, texts = [], []
        for text in _raw_lines(path):
            line = _parse(text, MetricLine.from_json)
            if line is None or line.steps > steps:
                break
            lines.append(line)
            texts.append(text + b"\n")
        write_file(path, b"".join(texts))
        return lines

    def checks(self) -> list[RunWarning] | None:
        """What was looked for when training ended, found or not; None before that, or if the file is damaged."""
        if self._checks is not None:
            return self._checks
        try:
            checks = [RunWarning.from_json(record) for record in read_json(self.directory / "warnings.json", list)]
        except RunError:
            return None
        return None if None in checks else [check for check in checks if check is not None]

    @property
    def warnings(self) -> list[RunWarning]:
        """What speaks against the policies, found when training ended; empty before that."""
        return [check for check in self.checks() or [] if check.verdict == "found"]

    def write_checks(self, checks: Sequence[RunWarning]) -> None:
        """Write what was looked for when training ended, in place of what was there."""
        self._checks = list(checks)
        write_json(self.directory / "warnings.json", [dataclasses.asdict(check) for check in checks])

    def weights(self) -> dict[str, RowWeights]:
        """How much the rows counted, by trial; empty where the method weighs none, or if the file is damaged."""
        try:
            stored = read_json(self.directory / "weights.json", dict)
        except RunError:
            return {}
        needed = RowWeights.__required_keys__
        return stored if all(isinstance(each, dict) and needed <= each.keys() for each in stored.values()) else {}

    def write_weights(self, weights: Sequence[RowWeights]) -> None:
        """Write how much the rows counted, in the trials' order."""
        names = [trial.name for trial in self.config.trials]
        write_json(self.directory / "weights.json", dict(zip(names, weights, strict=True)))

    # Evaluation

    def episodes(self) -> Lines[EpisodeRecord]:
        """All evaluated episodes, those in other environments than the data's own among them."""
        return _read_lines(self.directory / "evaluations.jsonl", EpisodeRecord.from_json)

    def write_episodes(self, records: Sequence[EpisodeRecord]) -> None:
        """Add records; they replace older ones of the same trials, steps and environment."""
        replaced = {(record.trial, record.steps, record.environment) for record in records}
        kept = [
            record
            for record in self.episodes().records
            if (record.trial, record.steps, record.environment) not in replaced
        ]
        lines = (json.dumps(record.to_json(), allow_nan=False) + "\n" for record in (*kept, *records))
        write_file(self.directory / "evaluations.jsonl", "".join(lines).encode())

    def summary_path(self, environment: str | None = None) -> Path:
        """Where the summary is of an evaluation in ``environment``; None: in that of the data."""
        if environment is None:
            return self.directory / "evaluation.json"
        return self.directory / f"evaluation-{_file_name(environment)}.json"

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
        return self.directory / ("estimate.json" if data is None else f"estimate-{_file_name(data)}.json")

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
        for name in ("checkpoints", "policies", "metrics.jsonl"):
            if (self.directory / name).is_symlink():
                raise RunError(
                    f"{self.directory / name} is a link, and a run writes to its own directory alone; put what it "
                    "leads to in its place"
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
        lock = FileLock(self.directory / ".lock", thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise RunError(f"another process is training in {self.directory}; wait for it, or stop it first") from None
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or error
            raise RunError(
                f"cannot write to {self.directory}: {reason}; copy the run to a place that can be written, or change "
                "the permissions"
            ) from None
        self._lock = lock

    def wait_for_lock(self, seconds: float) -> None:
        """Wait until no other process holds the lock; after ``seconds``, ``acquire`` says who is in the way.

        A file server may keep the lock of a machine that was lost for a minute or two.
        """
        if seconds > 0 and self.directory.is_dir():
            with suppress(Timeout, OSError, NotImplementedError), FileLock(self.directory / ".lock", timeout=seconds):
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
        absent = _absent_parts(self.directory)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            for path in absent:
                with suppress(OSError, ValueError):
                    path.rmdir()
            reason = getattr(error, "strerror", None) or error
            raise RunError(
                f"cannot make the run directory {_shortened(self.directory)}: {reason}; choose another --out"
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
            is_empty = all(path.name == ".lock" or path.name.endswith(".tmp") for path in self.directory.iterdir())
        except OSError as error:
            raise RunError(f"cannot read {self.directory}: {error.strerror or error}; choose another --out") from None
        if not is_empty:
            raise RunError(
                f"{self.directory} exists and is not empty; choose another --out, "
                f"or go on with vem train --resume {self.directory}"
            )

    def abandon(self) -> None:
        """Release the lock and, unless config.json was written, remove what ``reserve`` made."""
        if self.is_locked and not (self.directory / "config.json").exists():
            with suppress(OSError):
                (self.directory / ".lock").unlink()
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
