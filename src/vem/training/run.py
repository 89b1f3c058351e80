"""A run: a Config and a dataset in, a run directory (``vem.training.run``) with policies out."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TextIO, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from filelock import FileLock, Timeout

from vem.algorithms.base import (
    Algorithm,
    Rows,
    Spec,
    check_actions,
    find_method,
    find_units,
    put_rows,
    rows_shape,
    spec_of,
    sweepable,
)
from vem.data.actions import choices_of
from vem.data.dataset import DataInfo, Dataset, Parts, part_dataset
from vem.data.shards import resident
from vem.errors import DataError, RunError, SettingsError, Stopped
from vem.policy import Policy, load_policy, make_policy
from vem.policy.kinds import find_problem
from vem.policy.support import measure_support
from vem.storage import flatten, parse_json, read_json, read_tensors, unflatten, write_file, write_json, write_tensors
from vem.training.budget import steps_within
from vem.training.diagnostics import find_warnings
from vem.training.loop import LONGEST_CHUNK, Progress, Snapshot, compile_ahead, start, train
from vem.training.machine import check_memory, lay_out, prepare_devices, refusing_to_run_out
from vem.training.pool import Pool, PoolPlan, choose_pool_rows, plan_pool
from vem.training.progress import headline, progress_display, stop_requests
from vem.training.records import (
    DataFacts,
    EpisodeRecord,
    EstimateSummary,
    EvaluationSummary,
    MetricLine,
    RunWarning,
    Trace,
    metric_columns,
    package_versions,
    read_estimate,
    read_summary,
    read_trace,
    write_trace,
)
from vem.training.request import (
    Config,
    Stored,
    build_settings,
    load_data,
    read_config,
    repeated,
    request_hash,
    write_config,
)

# A run's files, and their one owner.


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
        """Where the states are (``vem.training.run``)."""
        return self.path / "checkpoints"

    @property
    def policy_paths(self) -> list[Path]:
        """Where the policies of the trials are, or will be, in the trials' order."""
        return [self.path / "policies" / f"{trial.name}.safetensors" for trial in self.config.trials]

    @property
    def is_finished(self) -> bool:
        """Whether every trial's policy is written."""
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
        """Add records; they replace older ones of the same trials, steps and environment.

        Of the first record of a trial in the data's own environment that holds observations, they become its trace.
        """
        replaced = {(record.trial, record.steps, record.environment) for record in records}
        kept = [
            record
            for record in self.episodes().records
            if (record.trial, record.steps, record.environment) not in replaced
        ]
        lines = (json.dumps(record.to_json(), allow_nan=False) + "\n" for record in (*kept, *records))
        write_file(self.path / "evaluations.jsonl", "".join(lines).encode())
        traced = [record for record in records if record.observations is not None and record.environment is None]
        self.check_links()
        for record in {record.trial: record for record in reversed(traced)}.values():
            write_trace(self.trace_path(record.trial), record)

    def trace_path(self, trial: str) -> Path:
        """Where the trace of a trial is, if it has one."""
        return self.path / "traces" / f"{trial}.safetensors"

    def trace(self, trial: str) -> Trace | None:
        """What a trial observed in one episode; None if it has no trace, RunError if that is damaged."""
        path = self.trace_path(trial)
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


# The states of a run on disk: the newest few, complete or absent.


FORMAT = "vem-checkpoint"
VERSION = 2
KEPT = 2
"""How many checkpoints of a run stay: the newest, and one to fall back on."""


def save_checkpoint(directory: Path, steps: int, tree: Any, header: dict[str, Any]) -> Path:
    """Write the checkpoint of ``steps`` and remove all before it but the newest ``KEPT``.

    Later ones are those that ``load_newest`` passed over: they neither count nor go.
    """
    path = directory / f"{steps:010d}.safetensors"
    header = {"format": FORMAT, "version": VERSION, "steps": steps, **header}
    write_tensors(path, flatten(tree), header)
    for old in [other for other in list_checkpoints(directory) if other.name <= path.name][:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoint files, oldest first."""
    return sorted(directory.glob("[0-9]*.safetensors"))


def load_newest(
    directory: Path, report: Callable[[str], None], request: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Tensors and header of the newest readable checkpoint, or None; damaged ones are reported and passed over.

    RunError if it holds another ``request`` than this: then it is of another run, and nothing is taken or removed.
    """
    for path in reversed(list_checkpoints(directory)):
        try:
            tensors, header = read_tensors(path)
        except RunError as error:
            report(f"{error}; falling back to the checkpoint before it")
            continue
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            report(f"{path.name} has format {header.get('format')} {header.get('version')}, which this vem cannot read")
        elif header.get("request") != request:
            raise RunError(
                f"{path} belongs to another run, or config.json was changed since: its settings or its data are not "
                "those of config.json; put the right file back, or move the checkpoint away"
            )
        else:
            return tensors, header
    return None


# From the state of a run to the policies of its trials, in memory and as files.


def make_policies(run: Run, state: Any) -> list[Policy]:
    """The policies in a state of training, in the trials' order."""
    exported = jax.device_get(jax.vmap(run.algorithm.export)(state))
    units = run.pool.units if run.pool is not None else run.rows
    normalizer = (np.asarray(units.observation_mean), np.asarray(units.observation_deviation))
    config, info = run.config, run.dataset.info
    bounds = (np.asarray(info.action_low), np.asarray(info.action_high))
    kind, policies = run.algorithm.policy_kind, []
    for index, trial in enumerate(config.trials):
        facts = {
            "algorithm": config.algorithm,
            "preset": config.preset,
            "settings": {**config.settings, **trial.swept},
            "seed": trial.seed,
            "trial": trial.name,
            "steps": config.steps,
            "dataset": info.name,
            "data_sha256": run.files.facts.sha256,
            "environment": info.environment,
            "action_columns": [dataclasses.asdict(column) for column in info.action_columns],
            "packages": package_versions(),
            **({"hold_out": config.hold_out} if config.hold_out else {}),
        }
        parameters = jax.tree.map(lambda leaf, index=index: leaf[index], exported)
        parameters["value_unit"] = np.asarray(units.value_unit, np.float32)
        if choices := choices_of(info.action_columns):
            parameters["action_choices"] = np.asarray(choices, np.int32)
        policies.append(make_policy(kind, parameters, bounds, normalizer, facts, info.encoder))
    return policies


def write_policies(run: Run, state: Any) -> None:
    """Write the policies with their support data, and before them what speaks against them.

    RunError, and no file, if one of them could not be read again: the run has not ended then.
    """
    policies, support = make_policies(run, state), measure_support(run.training_data)
    if support is not None:
        policies = [policy.with_support(support) for policy in policies]
    for policy, path in zip(policies, run.policy_paths, strict=True):
        if problem := find_problem(policy.kind, policy.tensors):
            raise RunError(
                f"the policy of {path.stem} cannot act: {problem}; training saw numbers too large or too small, so "
                "bring observations, actions and rewards to the size of 1 and train again"
            )
    run.files.write_warnings(find_warnings(run.training_data, policies, run.files.metrics().records, support))
    for policy, path in zip(policies, run.policy_paths, strict=True):
        policy.save(path)


SECONDS_PER_CHECKPOINT = 60.0
NUM_METRIC_LINES = 1000
ROW_SETTINGS = (
    "normalize_observations",
    "normalize_rewards",
    "reward_scale",
    "reward_shift",
    "return_span",
    "discount",
)
"""Settings of a method that change the rows it sees."""

Callback = Callable[["Run", Progress], Any]
"""Called after each chunk with the run and what the chunk did; returning True saves and stops the run.

One with a method ``close`` is told by it that training has ended or stopped.
"""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """SettingsError unless all are functions, or objects that can be called."""
    wrong = [callback for callback in callbacks if not callable(callback) or isinstance(callback, type)]
    if wrong:
        raise SettingsError(f"callbacks hold {wrong[0]!r}; give functions of the run and its progress")


class Run:
    """A run directory and what trains in it."""

    def __init__(self, files: RunDirectory, config: Config, dataset: Dataset | None = None) -> None:
        prepare_devices()
        self.files = files
        self.config = config
        self.messages: list[str] = []
        """What resuming found worth saying."""
        self.seconds_per_checkpoint = SECONDS_PER_CHECKPOINT
        self.steps_done = 0
        """Steps before the first chunk of ``progress``."""
        self.settings = build_settings(config.algorithm, config.settings)
        self._begun = False
        self._snapshot: Snapshot | None = None
        self._core_seconds: float | None = 0.0
        self._policies: dict[Path, Policy] = {}
        if dataset is not None:
            self.dataset = dataset

    def __fspath__(self) -> str:
        return str(self.directory)

    def __repr__(self) -> str:
        count = len(self.config.trials)
        state = "finished" if self.is_finished else "not finished"
        return f"<Run {self.directory}: {self.config.algorithm} on {self.config.dataset}, {count} trials, {state}>"

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.files.path

    @cached_property
    def dataset(self) -> Dataset:
        """The data, read again as the run was started with it, and checked to be the same."""
        if self.files.facts.info.source == "arrays":
            raise RunError(
                f"{self.directory} was trained on arrays from Python; give them again: vem.open_run(path, dataset)"
            )
        return self._checked(load_data(self.config))

    @cached_property
    def parts(self) -> Parts:
        """The data that training sees, and the trajectories that are held out."""
        return part_dataset(self.dataset, self.config.hold_out)

    @property
    def training_data(self) -> Dataset:
        """The data without the trajectories that are held out."""
        return self.parts.training

    def _checked(self, dataset: Dataset) -> Dataset:
        dataset = repeated(dataset, self.config.rules.get("repeat_terminals", False))
        facts = self.files.facts
        meanings = [[(c.kind, c.labels) for c in info.action_columns] for info in (dataset.info, facts.info)]
        is_same = meanings[0] == meanings[1] or not meanings[1]
        if dataset.fingerprint() != facts.sha256 or not is_same:
            raise RunError(
                f"the dataset {dataset.info.name} is not the one {self.directory} was started with (its rows differ); "
                "restore the old file, or start a new run"
            )
        known, found = self.files.facts.info, dataset.info
        if (known.action_low, known.action_high) == (found.action_low, found.action_high):
            return dataset
        # Bounds are a fact of the run: its networks were trained in their unit.
        names = ("action_low", "action_high", "bounds_source", "action_columns", "encoder")
        kept = {name: getattr(known, name) for name in names}
        return dataclasses.replace(dataset, info=dataclasses.replace(found, **kept))

    @cached_property
    def request(self) -> str:
        """What the run's checkpoints are marked with, so that no other run goes on from them."""
        return request_hash(self.config, self.files.facts)

    @cached_property
    def algorithm(self) -> Algorithm:
        """The method, bound to its settings and the data."""
        return self._planned[0]

    @cached_property
    def _planned(self) -> tuple[Algorithm, PoolPlan | None]:
        return self.plan(self.config.steps)

    def plan(self, steps: int) -> tuple[Algorithm, PoolPlan | None]:
        """The method with so many steps, and the plan of its pool, if it has one."""

        def make(spec: Spec) -> Algorithm:
            return find_method(self.config.algorithm).make(self.settings, spec, steps)

        if self.config.pool_rows is None:
            return make(spec_of(self.training_data)), None
        return plan_pool(self.training_data, self.config.pool_rows, make)

    @property
    def _row_settings(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self.settings)
        return {name: settings[name] for name in ROW_SETTINGS if name in settings}

    @cached_property
    def rows(self) -> Rows:
        """The data on the device, in the units of the method; all of it, also where a run has a pool."""
        place = lay_out(len(self.config.trials)).place
        return put_rows(resident(self.training_data), **self._row_settings, place=place)

    @cached_property
    def pool(self) -> Pool | None:
        """What holds some of the rows where there are too many; None: all are held."""
        algorithm, plan = self._planned
        if plan is None:
            return None
        num_steps = [stage.num_steps for stage in algorithm.stages]
        units = find_units(self.training_data, **self._row_settings)
        return Pool(self.training_data, plan, num_steps, units, self.config.seeds[0])

    @property
    def policy_paths(self) -> list[Path]:
        """Where the policies of the trials are, or will be, in the trials' order."""
        return self.files.policy_paths

    @property
    def is_finished(self) -> bool:
        """Whether every trial's policy is written."""
        return self.files.is_finished

    @property
    def policies(self) -> list[Policy]:
        """The trained policies in the trials' order; read once."""
        return [self._policy(path) for path in self.policy_paths]

    @property
    def policy(self) -> Policy:
        """The first trial's policy; read once."""
        return self._policy(self.policy_paths[0])

    def _policy(self, path: Path) -> Policy:
        if path not in self._policies:
            if not path.exists():
                raise RunError(f"{self.directory} has no policy of {path.stem} yet; go on with its resume()")
            self._policies[path] = load_policy(path)
        return self._policies[path]

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """The training metrics as columns of equal length: ``pandas.DataFrame(run.metrics)`` is a table.

        One row for each logged chunk and trial: ``steps``, ``stage``, ``seconds``, ``trial``, then the metrics,
        NaN where a stage does not have one.
        """
        return metric_columns(self.files.metrics().records)

    def initial(self) -> Snapshot:
        """The state before the first update."""
        swept = {
            name: value
            for name in sweepable(type(self.settings))
            if (value := getattr(self.settings, name)) is not None
        }
        return start(self.algorithm, self.config.trials, swept)

    def check_memory(self) -> None:
        """SettingsError if training surely needs more memory than there is."""
        with refusing_to_run_out():
            state = jax.eval_shape(lambda: self.initial().state)
            plan = self._planned[1]
            held = None if plan is None else plan.num_rows
            check_memory(self.algorithm, state, len(self.config.trials), self.training_data, held)

    def begin(self) -> None:
        """Take the lock and read the newest checkpoint; afterwards ``messages`` says where training goes on."""
        if self._begun or self.is_finished:
            return
        dataset = self.dataset
        self.files.acquire()
        try:
            self.check_memory()
            packages = package_versions()
            if self.files.packages != packages:
                before = self.files.packages or "packages that config.json does not name"
                self.messages.append(f"the run was started with {before}, now {packages}: bits may differ")
            found = load_newest(self.files.checkpoints, self.messages.append, self.request)
            if found is not None:
                tensors, header = found
                self._snapshot = self._restored(tensors, header)
                self.steps_done = header["steps"]
                self._core_seconds = header.get("core_seconds")
            self.files.cut_metrics(self.steps_done)
        except BaseException:
            self.files.release()
            raise
        self._begun = True
        self.messages.append(
            f"resuming {self.directory} on {dataset.info.name} at step {self.steps_done:,} of {self.config.steps:,}"
        )

    def _restored(self, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> Snapshot:
        """The snapshot of a checkpoint, checked against the stages and the shapes that this run has."""
        stages = self.algorithm.stages
        index: Any = header.get("stage")
        done: Any = header.get("done")
        is_place = (
            type(index) is type(done) is int and 0 <= index < len(stages) and 0 <= done <= stages[index].num_steps
        )
        if not is_place or header.get("steps") != sum(stage.num_steps for stage in stages[:index]) + done:
            raise RunError(
                f"{self.files.checkpoints} is damaged (a checkpoint stands at step {done} of stage {index}, which this "
                "run does not have); move that checkpoint away"
            )
        stage = stages[index]
        num_trials = len(self.config.trials)
        state = jax.eval_shape(lambda: self.initial().state)
        memory = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_trials, *leaf.shape), leaf.dtype), jax.eval_shape(stage.empty)
        )
        tree = unflatten({"state": state, "memory": memory}, tensors, str(self.files.checkpoints))
        tree = jax.tree.map(jnp.asarray, tree)
        return Snapshot(index, done, tree["state"], tree["memory"])

    def progress(self) -> Generator[Progress, None, None]:
        """Train, yielding after each chunk; writes metrics and checkpoints on the way and policies at the end."""
        self.begin()
        if self.is_finished:
            return
        try:
            with refusing_to_run_out():
                yield from self._chunks()
        finally:
            self._begun, self._snapshot, self._core_seconds = False, None, 0.0
            if (pool := self.__dict__.get("pool")) is not None:  # made, if training came that far
                pool.close()
            self.files.release()

    def _chunks(self) -> Iterator[Progress]:
        program = self._compile_ahead()
        snapshot = self._snapshot or self.initial()
        rows, renew, largest_reward = self._source(snapshot)
        largest = 5 * (1 + largest_reward / (1 - self.config.settings.get("discount", 0.99)))
        started, saved = time.monotonic(), time.monotonic()
        progress = None
        for progress in train(self.algorithm, rows, self.config.trials, snapshot, largest, renew, program):
            if _is_metric_line(progress, self.config.steps):
                self.files.write_metrics(self._metric_line(progress, time.monotonic() - started))
            yield progress
            finished_stage = progress.snapshot.done == progress.stage.num_steps
            if finished_stage or time.monotonic() - saved > self.seconds_per_checkpoint:
                self.checkpoint(progress)
                saved = time.monotonic()
        state = (progress.snapshot if progress else snapshot).state
        write_policies(self, state)

    def _compile_ahead(self) -> Callable[[], Any] | None:
        """Have the first program compiled while the rows are prepared; None where they are in a pool."""
        if self._planned[1] is not None:
            return None
        stage = self.algorithm.stages[self._snapshot.stage if self._snapshot else 0]
        state = jax.eval_shape(lambda: self.initial().state)
        return compile_ahead(stage, state, rows_shape(self.training_data), len(self.config.trials))

    def _source(self, snapshot: Snapshot) -> tuple[Rows, Callable[[int, int], Rows] | None, float]:
        """The rows to begin with, what changes them on the way, and the largest |reward| of all."""
        if self.pool is None:
            return self.rows, None, float(np.abs(np.asarray(self.rows.rewards)).max())
        self.pool.close()  # it may stand elsewhere, after a run that was stopped
        return self.pool.at(snapshot.stage, snapshot.done), self.pool.at, self.pool.units.largest_reward

    def train(self, callbacks: Sequence[Callback] = (), progress: bool | TextIO = False) -> Run:
        """Train to the end, or until a callback returns True, and return the run.

        ``progress`` shows the progress on the standard output, or on another stream. Ctrl-C and SIGTERM save the state
        and raise ``vem.errors.Stopped``.
        """
        check_callbacks(callbacks)
        stream = None if isinstance(progress, bool) else progress
        if self.is_finished:
            if progress is not False:
                print(f"{self.directory} is finished", file=stream, flush=True)
            return self
        self.begin()
        with stop_requests() as requests:
            if progress is not False:
                for text in [*([] if self.steps_done else [headline(self)]), *self.messages]:
                    print(text, file=stream, flush=True)
            is_stopped = self._train(callbacks, progress is not False, stream, requests)
        if is_stopped and requests:
            raise Stopped(f"stopped and saved; go on with: vem train --resume {self.directory}")
        if not is_stopped and progress is not False:
            for warning in self.warnings:
                print(f"warning: {warning}", file=stream, flush=True)
        return self

    @property
    def warnings(self) -> list[RunWarning]:
        """What speaks against the policies, found when training ended; empty before that and for older runs."""
        return self.files.warnings() or []

    def _train(self, callbacks: Sequence[Callback], is_shown: bool, stream: TextIO | None, requests: list[int]) -> bool:
        """Train, and return whether it was stopped before the end."""
        chunks = self.progress()
        try:
            with progress_display(stream, is_shown) as show:
                for chunk in chunks:
                    show(chunk)
                    answers = [callback(self, chunk) for callback in callbacks]
                    is_asked = bool(requests) or any(isinstance(a, bool | np.bool_) and a for a in answers)
                    if is_asked and chunk.steps < chunk.num_steps:
                        self.checkpoint(chunk)
                        return True
        finally:
            chunks.close()
            for callback in callbacks:
                if callable(close := getattr(callback, "close", None)):
                    close()
        return False

    def resume(
        self, callbacks: Sequence[Callback] = (), progress: bool | TextIO = True, dataset: Dataset | None = None
    ) -> Run:
        """Go on from the newest checkpoint to the end; ``dataset`` is needed if it was made from arrays."""
        if dataset is not None:
            self.dataset = self._checked(dataset)
        return self.train(callbacks, progress)

    def checkpoint(self, progress: Progress) -> None:
        """Write the state after ``progress``, so that the run can go on from it."""
        snapshot = progress.snapshot
        header = {
            "request": self.request,
            "stage": snapshot.stage,
            "done": snapshot.done,
            "core_seconds": self._core_time(progress),
        }
        tree = {"state": snapshot.state, "memory": snapshot.memory}
        save_checkpoint(self.files.checkpoints, progress.steps, tree, header)

    def _metric_line(self, progress: Progress, seconds: float) -> MetricLine:
        trials = {
            trial.name: {name: float(values[i]) for name, values in progress.metrics.items()}
            for i, trial in enumerate(self.config.trials)
        }
        core_seconds = self._core_time(progress)
        return MetricLine(progress.steps, progress.stage.name, round(seconds, 3), trials, core_seconds)

    def _core_time(self, progress: Progress) -> float | None:
        """Time that training took, that before the run was resumed included; None where that is not known."""
        return None if self._core_seconds is None else round(self._core_seconds + progress.core_seconds, 3)

    def export(self, state: Any) -> list[Policy]:
        """The policies in a state of training, in the trials' order."""
        return make_policies(self, state)


def _is_metric_line(progress: Progress, num_steps: int) -> bool:
    """Whether this chunk is logged: all of them, or about ``NUM_METRIC_LINES`` in a long run."""
    period = progress.stage.steps_per_refresh or num_steps
    step = max(1, num_steps // NUM_METRIC_LINES)
    chunk = min(period, LONGEST_CHUNK)
    return progress.steps // step != (progress.steps - chunk) // step or progress.steps == progress.num_steps


# Runs from directories: a new one, one to look at, one to go on with.


ROW_RULES = ("split", "time_limit", "teleports", "repeat_terminals")
"""The reading rules that decide which rows a run trains on."""


def create_run(
    directory: str | Path | RunDirectory, config: Config, dataset: Dataset, evaluate_every: float | None = None
) -> Run:
    """A new run in an empty or absent directory, which it holds the lock of until training ends.

    ``evaluate_every`` is kept with it, for resuming.
    """
    files = directory if isinstance(directory, RunDirectory) else RunDirectory(directory)
    if not files.is_locked:
        files.reserve()
    try:
        check_bounds(dataset.info)
        _check_rules(config, dataset)
        parts = part_dataset(dataset, config.hold_out)
        spec = spec_of(parts.training)
        check_actions(config.algorithm, spec)
        full, notes = build_settings(config.algorithm, config.settings).complete(spec)
        pool_rows = choose_pool_rows(config.pool_rows, parts.training)
        config = dataclasses.replace(config, settings=dataclasses.asdict(full), pool_rows=pool_rows)
        if config.minutes is not None:
            attempt = _run_on(files, config, dataset, parts)
            steps, note = steps_within(attempt, config.minutes)
            run = _run_on(files, dataclasses.replace(config, steps=steps), dataset, parts)
            run.__dict__ |= {name: attempt.__dict__[name] for name in ("rows",) if name in attempt.__dict__}
            config, notes = run.config, [*notes, note]
        else:
            run = _run_on(files, config, dataset, parts)
        run.messages += notes
        if pool_rows is not None:
            held = run._planned[1]
            assert held is not None
            run.messages.append(f"pool of {held.num_rows:,} rows: the others stay where they are and take turns in it")
        run.check_memory()
        files.write_config(config, DataFacts.of(dataset), package_versions(), evaluate_every)
    except BaseException:
        files.abandon()
        raise
    run._begun = True
    return run


def check_bounds(info: DataInfo) -> None:
    """DataError if an action column is so wide that float32, which policies act in, cannot hold its width."""
    for index, (low, high) in enumerate(zip(info.action_low, info.action_high, strict=True)):
        if not float(high) - float(low) <= float(np.finfo(np.float32).max):
            raise DataError(
                f"action column {index} goes from {low:g} to {high:g}, which is more than float32 holds; divide the "
                "actions by a constant, or give narrower action bounds"
            )


def _check_rules(config: Config, dataset: Dataset) -> None:
    """SettingsError if the rows were not read as the config says: the run could not find them again."""
    for rule in ROW_RULES:
        found = dataset.info.rules.get(rule, False)
        said = config.rules.get(rule, False if rule == "repeat_terminals" else found)
        if said != found:
            raise SettingsError(
                f"the rows of {dataset.info.name} were read with {rule}={found!r} and the run's config says {said!r}; "
                "read them by the config's rules"
            )


def _run_on(files: RunDirectory, config: Config, dataset: Dataset, parts: Parts) -> Run:
    run = Run(files, config, dataset)
    run.parts = parts
    return run


def open_run(path: str | Path, dataset: Dataset | None = None) -> Run:
    """The run in a directory, to look at or to ``resume``; ``dataset`` is needed if it was made from arrays.

    Nothing is changed and no data is read before it is needed. Data that is given must be the same to the bit.
    """
    files = RunDirectory(path)
    run = Run(files, files.config)
    if dataset is not None:
        run.dataset = run._checked(dataset)
    return run


def resume_run(directory: str | Path, dataset: Dataset | None = None) -> Run:
    """The run in a directory, locked and ready to go on from its newest readable checkpoint."""
    run = open_run(directory, dataset)
    run.begin()
    return run
