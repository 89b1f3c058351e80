"""A run: a Config and a dataset in, a run directory (``vem.runs.directory``) with policies out."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from vem import storage
from vem.algorithms import find_method
from vem.algorithms.base import Algorithm, Rows, Spec, put_rows, rows_shape, spec_of
from vem.algorithms.config import sweepable
from vem.algorithms.units import find_units
from vem.data import Dataset
from vem.data.hold_out import Parts, part_dataset
from vem.data.shards import resident
from vem.errors import RunError, SettingsError, Stopped
from vem.policy import Policy, load_policy
from vem.runs import checkpoints
from vem.runs.capacity import check_memory, refusing_to_run_out
from vem.runs.config import Config, build_settings
from vem.runs.config_file import request_hash
from vem.runs.devices import lay_out, prepare_devices
from vem.runs.directory import RunDirectory
from vem.runs.loop import LONGEST_CHUNK, Progress, Snapshot, compile_ahead, start, train
from vem.runs.policies import make_policies, write_policies
from vem.runs.pool import Pool
from vem.runs.pool_plan import PoolPlan, plan_pool
from vem.runs.progress import headline, progress_display, stop_requests
from vem.runs.reading import load_data, repeated
from vem.runs.records import MetricLine, RunWarning, metric_columns, package_versions

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
        count = len(self.config.members)
        state = "finished" if self.is_finished else "not finished"
        return f"<Run {self.directory}: {self.config.algorithm} on {self.config.dataset}, {count} members, {state}>"

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
        """The data that training sees, and the recordings that are held out."""
        return part_dataset(self.dataset, self.config.hold_out)

    @property
    def training_data(self) -> Dataset:
        """The data without the recordings that are held out."""
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
        place = lay_out(len(self.config.members)).place
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
        """Where the policies of the members are, or will be, in the members' order."""
        return self.files.policy_paths

    @property
    def is_finished(self) -> bool:
        """Whether every member's policy is written."""
        return self.files.is_finished

    @property
    def policies(self) -> list[Policy]:
        """The trained policies in the members' order; read once."""
        return [self._policy(path) for path in self.policy_paths]

    @property
    def policy(self) -> Policy:
        """The first member's policy; read once."""
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

        One row for each logged chunk and member: ``steps``, ``stage``, ``seconds``, ``member``, then the metrics,
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
        return start(self.algorithm, self.config.members, swept)

    def check_memory(self) -> None:
        """SettingsError if training surely needs more memory than there is."""
        with refusing_to_run_out():
            state = jax.eval_shape(lambda: self.initial().state)
            plan = self._planned[1]
            held = None if plan is None else plan.num_rows
            check_memory(self.algorithm, state, len(self.config.members), self.training_data, held)

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
            found = checkpoints.load_newest(self.files.checkpoints, self.messages.append, self.request)
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
        num_members = len(self.config.members)
        state = jax.eval_shape(lambda: self.initial().state)
        memory = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_members, *leaf.shape), leaf.dtype), jax.eval_shape(stage.empty)
        )
        tree = storage.unflatten({"state": state, "memory": memory}, tensors, str(self.files.checkpoints))
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
        for progress in train(self.algorithm, rows, self.config.members, snapshot, largest, renew, program):
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
        return compile_ahead(stage, state, rows_shape(self.training_data), len(self.config.members))

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
        checkpoints.save_checkpoint(self.files.checkpoints, progress.steps, tree, header)

    def _metric_line(self, progress: Progress, seconds: float) -> MetricLine:
        members = {
            member.name: {name: float(values[i]) for name, values in progress.metrics.items()}
            for i, member in enumerate(self.config.members)
        }
        core_seconds = self._core_time(progress)
        return MetricLine(progress.steps, progress.stage.name, round(seconds, 3), members, core_seconds)

    def _core_time(self, progress: Progress) -> float | None:
        """Time that training took, that before the run was resumed included; None where that is not known."""
        return None if self._core_seconds is None else round(self._core_seconds + progress.core_seconds, 3)

    def export(self, state: Any) -> list[Policy]:
        """The policies in a state of training, in the members' order."""
        return make_policies(self, state)


def _is_metric_line(progress: Progress, num_steps: int) -> bool:
    """Whether this chunk is logged: all of them, or about ``NUM_METRIC_LINES`` in a long run."""
    period = progress.stage.steps_per_refresh or num_steps
    step = max(1, num_steps // NUM_METRIC_LINES)
    chunk = min(period, LONGEST_CHUNK)
    return progress.steps // step != (progress.steps - chunk) // step or progress.steps == progress.num_steps
