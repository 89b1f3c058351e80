"""A run: a request and its data in, a run directory (``vem.training.files``) with policies out."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TextIO

import jax
import jax.numpy as jnp
import numpy as np

from vem.algorithms.base import (
    METHODS,
    Algorithm,
    Rows,
    check_actions,
    import_installed_methods,
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
from vem.storage import flatten, read_tensors, unflatten, write_tensors
from vem.training.diagnostics import find_warnings, row_weights
from vem.training.files import RunFiles
from vem.training.loop import LONGEST_CHUNK, Progress, Snapshot, compile_ahead, start, train
from vem.training.machine import check_memory, lay_out, prepare_devices, refusing_to_run_out
from vem.training.pool import Pool, choose_pool_rows
from vem.training.progress import headline, progress_display, stop_requests
from vem.training.records import DataFacts, MetricLine, metric_columns, package_versions
from vem.training.request import ROW_RULES, Request, check_steps, repeated
from vem.training.rows import find_units, put_rows, rows_shape
from vem.training.stages import Plan, has_schedule, make_plan

# The states of a run on disk: the newest few, complete or absent.


FORMAT = "vem-checkpoint"
VERSION = 2
NUM_KEPT = 2
"""How many checkpoints of a run stay: the newest, and one to fall back on."""


def save_checkpoint(directory: Path, steps: int, tree: Any, header: dict[str, Any]) -> Path:
    """Write the checkpoint of ``steps`` and remove all before it but the newest ``NUM_KEPT``.

    Later ones are those that ``load_newest`` passed over: they neither count nor go.
    """
    path = directory / f"{steps:010d}.safetensors"
    header = {"format": FORMAT, "version": VERSION, "steps": steps, **header}
    write_tensors(path, flatten(tree), header)
    for old in [other for other in list_checkpoints(directory) if other.name <= path.name][:-NUM_KEPT]:
        old.unlink(missing_ok=True)
    return path


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoint files, oldest first."""
    return sorted(directory.glob("[0-9]*.safetensors"))


def load_newest(
    directory: Path, report: Callable[[str], None], requests: Mapping[str | None, int]
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Tensors and header of the newest readable checkpoint, or None; damaged ones are reported and passed over.

    ``requests`` are the digests that it may hold, with the last step of each. RunError if it holds another one: then it
    is of another run, and nothing is taken or removed.
    """
    for path in reversed(list_checkpoints(directory)):
        try:
            tensors, header = read_tensors(path)
        except RunError as error:
            report(f"{error}; falling back to the checkpoint before it")
            continue
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            report(f"{path.name} has format {header.get('format')} {header.get('version')}, which this vem cannot read")
        elif not header["steps"] <= requests.get(header.get("request"), -1):
            raise RunError(
                f"{path} belongs to another run, or config.json was changed since: its settings or its data are not "
                "those of config.json; put the right file back, or move the checkpoint away"
            )
        else:
            return tensors, header
    return None


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


class Run(RunFiles):
    """A run directory and what trains in it: ``Run.create`` makes a new one, ``Run.open`` looks at one."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        prepare_devices()
        self.messages: list[str] = []
        """What creating or resuming the run found worth saying."""
        self.seconds_per_checkpoint = SECONDS_PER_CHECKPOINT
        self.stops_every: float | None = None
        """Chunks end after every so many steps, or that share of all, so that the run can be evaluated there."""
        self.steps_done = 0
        """Steps before the first chunk of ``progress``."""
        self._dataset: Dataset | None = None
        self._parts: Parts | None = None
        self._plan: Plan | None = None
        self._pool: Pool | None = None
        self._has_begun = False
        self._snapshot: Snapshot | None = None
        self._core_seconds: float | None = 0.0
        self._lines: list[MetricLine] = []
        self._policies: dict[Path, Policy] = {}

    @classmethod
    def open(cls, path: str | Path, dataset: Dataset | None = None) -> Self:
        """The run in a directory, to look at or to ``resume``; ``dataset`` is needed if it was made from arrays.

        Nothing is changed and no data is read before it is needed. Data that is given must be the same to the bit.
        """
        run = cls(path)
        _ = run.stored  # RunError if it is no run
        if dataset is not None:
            run.use_data(dataset)
        return run

    @classmethod
    def create(cls, directory: str | Path | Self, request: Request, dataset: Dataset | None = None) -> Self:
        """A new run in an empty or absent directory, which it holds the lock of until training ends.

        ``directory`` may be a run that has reserved its own. The data are ``request.load()`` unless they are given.
        """
        run = cls(directory) if isinstance(directory, str | Path) else directory
        if not run.is_locked:
            run.reserve()
        try:
            run._settle_request(request, request.load() if dataset is None else dataset)
            run.check_memory()
            run.write_config()
        except BaseException:
            run.abandon()
            raise
        run._has_begun = True
        return run

    def _settle_request(self, request: Request, dataset: Dataset) -> None:
        """Decide all that follows from the data."""
        check_bounds(dataset.info)
        check_row_rules(request, dataset)
        facts, packages = DataFacts.of(dataset), package_versions()
        self._dataset, self._parts = dataset, part_dataset(dataset, request.hold_out)
        check_actions(request.algorithm, spec_of(self.training_data))
        request, notes = request.complete(self.training_data)
        pool_rows = choose_pool_rows(request.pool_rows, self.training_data)
        request = dataclasses.replace(request, pool_rows=pool_rows, dataset=None)
        self.settle(request, facts, packages)
        self.messages += notes
        if request.minutes is not None:
            from vem.training.budget import steps_within

            steps, note = steps_within(self, request.minutes)
            self.settle(dataclasses.replace(request, steps=steps), facts, packages)
            self.messages.append(note)
        if (pool := self.plan.pool) is not None:
            self.messages.append(f"pool of {pool.num_rows:,} rows: the others stay where they are and take turns in it")

    def __repr__(self) -> str:
        config, count = self.config, len(self.config.trials)
        state = "finished" if self.is_finished else "not finished"
        return f"<Run {self.directory}: {config.algorithm} on {config.data}, {count} trials, {state}>"

    # The data

    @property
    def dataset(self) -> Dataset:
        """The data, read again as the run was started with it, and checked to be the same."""
        if self._dataset is None:
            if self.facts.info.source == "arrays":
                raise RunError(
                    f"{self.directory} was trained on arrays from Python; give them again: vem.open_run(path, dataset)"
                )
            self.use_data(self.config.load())
        assert self._dataset is not None
        return self._dataset

    def use_data(self, dataset: Dataset) -> None:
        """Take the data from here; RunError unless it is the same as when the run was started."""
        dataset = repeated(dataset, self.config.rules.get("repeat_terminals", False))
        known, found = self.facts.info, dataset.info
        meanings = [[(c.kind, c.labels) for c in info.action_columns] for info in (found, known)]
        is_same = meanings[0] == meanings[1] or not meanings[1]
        if dataset.fingerprint() != self.facts.sha256 or not is_same:
            raise RunError(
                f"the dataset {found.name} is not the one {self.directory} was started with (its rows differ); "
                "restore the old file, or start a new run"
            )
        if (known.action_low, known.action_high) != (found.action_low, found.action_high):
            # Bounds are a fact of the run: its networks were trained in their unit.
            names = ("action_low", "action_high", "bounds_source", "action_columns", "encoder")
            kept = {name: getattr(known, name) for name in names}
            dataset = dataclasses.replace(dataset, info=dataclasses.replace(found, **kept))
        self._dataset, self._parts = dataset, None

    @property
    def parts(self) -> Parts:
        """The data that training sees, and the trajectories that are held out."""
        if self._parts is None:
            self._parts = part_dataset(self.dataset, self.config.hold_out)
        return self._parts

    @property
    def training_data(self) -> Dataset:
        """The data without the trajectories that are held out."""
        return self.parts.training

    # The method

    @cached_property
    def settings(self) -> Any:
        """The complete settings, as the method's configuration object; RunError if the method is not known here."""
        self._require_method()
        return self.config.configuration

    def _require_method(self) -> None:
        import_installed_methods()
        name, imports = self.config.algorithm, self.config.imports
        if name not in METHODS:
            names = " ".join(f"--import {each}" for each in imports) or "--import FILE_OR_MODULE"
            raise RunError(
                f"{self.directory} was trained by {name!r}, a method that is not known here; name what registers it: "
                f"{names}"
            )

    @property
    def plan(self) -> Plan:
        """What trains: the method with its stages, and which rows are held when."""
        if self._plan is None or self._plan.request is not self.config:
            self._require_method()
            self._plan = make_plan(self.config, self.training_data)
        return self._plan

    @property
    def algorithm(self) -> Algorithm:
        """The method, bound to its settings and the data."""
        return self.plan.algorithm

    @property
    def _row_settings(self) -> dict[str, Any]:
        settings = dataclasses.asdict(self.settings)
        return {name: settings[name] for name in ROW_SETTINGS if name in settings}

    @cached_property
    def rows(self) -> Rows:
        """The data on the device, in the units of the method; all of it, also where a run has a pool."""
        place = lay_out(len(self.config.trials)).place
        return put_rows(resident(self.training_data), **self._row_settings, place=place)

    @property
    def pool(self) -> Pool | None:
        """What holds some of the rows where there are too many; None: all are held."""
        plan = self.plan
        if plan.pool is None:
            return None
        if self._pool is None or self._pool.plan is not plan.pool:
            num_steps = [stage.num_steps for stage in plan.algorithm.stages]
            units = find_units(self.training_data, **self._row_settings)
            self._pool = Pool(self.training_data, plan.pool, num_steps, units, self.config.seeds[0])
        return self._pool

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
            held = None if self.plan.pool is None else self.plan.pool.num_rows
            check_memory(self.algorithm, state, len(self.config.trials), self.training_data, held)

    # The policies

    @property
    def policies(self) -> list[Policy]:
        """The trained policies in the trials' order; read once."""
        return [self._policy(path) for path in self.policy_paths]

    @property
    def policy(self) -> Policy:
        """The policy of the first trial."""
        return self._policy(self.policy_paths[0])

    def _policy(self, path: Path) -> Policy:
        if path not in self._policies:
            if not path.exists():
                raise RunError(
                    f"{self.directory} has no policy of {path.stem} yet; finish it with "
                    f"vem train --resume {self.directory}"
                )
            self._policies[path] = load_policy(path)
        return self._policies[path]

    def policies_at(self, steps: int) -> list[Policy]:
        """The policies that were kept after so many steps, in the trials' order (``points`` says which there are)."""
        is_last = self.is_finished and steps == self.config.steps
        if steps not in self.points:
            points = ", ".join(f"{point:,}" for point in self.points) or "none"
            raise RunError(f"{self.directory} kept no policies after {steps:,} steps; it has those after: {points}")
        return self.policies if is_last else [load_policy(path) for path in self.point_paths(steps)]

    def export(self, state: Any, steps: int | None = None) -> list[Policy]:
        """The policies in a state of training after ``steps`` (None: all), in the trials' order."""
        exported = jax.device_get(jax.vmap(self.algorithm.export)(state))
        units = self.rows if self.pool is None else self.pool.units
        normalizer = (np.asarray(units.observation_mean), np.asarray(units.observation_deviation))
        config, info = self.config, self.dataset.info
        bounds = (np.asarray(info.action_low), np.asarray(info.action_high))
        policies = []
        for index, trial in enumerate(config.trials):
            facts = {
                "algorithm": config.algorithm,
                "preset": config.preset,
                "settings": {**config.settings, **trial.swept},
                "seed": trial.seed,
                "trial": trial.name,
                "steps": config.steps if steps is None else steps,
                "dataset": info.name,
                "data_sha256": self.facts.sha256,
                "environment": info.environment,
                "action_columns": [dataclasses.asdict(column) for column in info.action_columns],
                "packages": package_versions(),
                **({"hold_out": config.hold_out} if config.hold_out else {}),
            }
            parameters = jax.tree.map(lambda leaf, index=index: leaf[index], exported)
            parameters["value_unit"] = np.asarray(units.value_unit, np.float32)
            if choices := choices_of(info.action_columns):
                parameters["action_choices"] = np.asarray(choices, np.int32)
            kind = self.algorithm.policy_kind
            policies.append(make_policy(kind, parameters, bounds, normalizer, facts, info.encoder))
        return policies

    def keep_policies(self, progress: Progress) -> list[Policy]:
        """Keep the policies as they are after a chunk in policies/at-STEPS, and return them."""
        policies = self.export(progress.snapshot.state, progress.steps)
        for policy, path in zip(policies, self.point_paths(progress.steps), strict=True):
            policy.save(path)
        return policies

    def _write_policies(self, state: Any) -> None:
        """Write the policies with their support data, and before them what speaks for and against them.

        RunError, and no file, if one of them could not be read again: the run has not ended then.
        """
        policies, support = self.export(state), measure_support(self.training_data)
        if support is not None:
            policies = [policy.with_support(support) for policy in policies]
        for policy, path in zip(policies, self.policy_paths, strict=True):
            if problem := find_problem(policy.kind, policy.tensors):
                raise RunError(
                    f"the policy of {path.stem} cannot act: {problem}; training saw numbers too large or too small, so "
                    "bring observations, actions and rewards to the size of 1 and train again"
                )
        self.write_checks(find_warnings(self.training_data, policies, self._lines, support))
        for policy, path in zip(policies, self.policy_paths, strict=True):
            policy.save(path)
            self._policies[path] = policy

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """What was measured during training, as columns of equal length: ``pandas.DataFrame(run.metrics)`` is a table.

        One row for each logged chunk and trial: ``steps``, ``stage``, ``seconds``, ``trial``, then the metrics,
        NaN where a stage does not have one.
        """
        return metric_columns(self.metric_lines().records)

    # Training

    def begin(self) -> Self:
        """Take the lock, read the newest checkpoint, and return the run; ``messages`` then says where it goes on."""
        if self._has_begun or self.is_finished:
            return self
        self._require_method()
        dataset = self.dataset
        self.acquire()
        try:
            self.check_memory()
            packages = package_versions()
            if self.packages != packages:
                before = self.packages or "packages that config.json does not name"
                self.messages.append(f"the run was started with {before}, now {packages}: bits may differ")
            checkpoint = load_newest(self.checkpoints, self.messages.append, self._digests)
            if checkpoint is not None:
                tensors, header = checkpoint
                self._snapshot = self._restored(tensors, header)
                self.steps_done = header["steps"]
                self._core_seconds = header.get("core_seconds")
            self._lines = self.cut_metrics(self.steps_done)
        except BaseException:
            self.release()
            raise
        self._has_begun = True
        self.messages.append(
            f"resuming {self.directory} on {dataset.info.name} at step {self.steps_done:,} of {self.config.steps:,}"
        )
        return self

    @property
    def digest(self) -> str:
        """What the run's checkpoints are marked with, so that no other run goes on from them."""
        return self.config.digest(self.facts)

    @property
    def _digests(self) -> dict[str | None, int]:
        """The digests that checkpoints may be marked with, those before the run was gone on with among them."""
        earlier: dict[str | None, int] = {self.config.before(end).digest(self.facts): end for end in self.config.ends}
        return {**earlier, self.digest: self.config.steps}

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
                f"{self.checkpoints} is damaged (a checkpoint stands at step {done} of stage {index}, which this "
                "run does not have); move that checkpoint away"
            )
        num_trials = len(self.config.trials)
        state = jax.eval_shape(lambda: self.initial().state)
        memory = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((num_trials, *leaf.shape), leaf.dtype),
            jax.eval_shape(stages[index].empty),
        )
        tree = unflatten({"state": state, "memory": memory}, tensors, str(self.checkpoints))
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
            self._has_begun, self._snapshot, self._core_seconds = False, None, 0.0
            if self._pool is not None:
                self._pool.close()
            self.release()

    def _chunks(self) -> Iterator[Progress]:
        program = self._compile_ahead()
        snapshot = self._snapshot or self.initial()
        rows, renew, largest_reward = self._source(snapshot)
        largest = 5 * (1 + largest_reward / (1 - self.config.settings.get("discount", 0.99)))
        started, saved = time.monotonic(), time.monotonic()
        progress = None
        stop = None if self.stops_every is None else self._next_stop
        for progress in train(self.algorithm, rows, self.config.trials, snapshot, largest, renew, program, stop):
            if _is_metric_line(progress, self.config.steps):
                self._lines.append(self._metric_line(progress, time.monotonic() - started))
                self.write_metrics(self._lines[-1])
            yield progress
            finished_stage = progress.snapshot.done == progress.stage.num_steps
            if finished_stage and progress.stage.weights is not None and renew is None:
                self.write_weights(row_weights(progress.stage.weights, progress.snapshot.memory, rows))
            if finished_stage or time.monotonic() - saved > self.seconds_per_checkpoint:
                self.checkpoint(progress)
                saved = time.monotonic()
        state = (progress.snapshot if progress else snapshot).state
        self._write_policies(state)

    def _next_stop(self, steps: int) -> int:
        """The steps after which the period of ``stops_every`` that begins after ``steps`` is over."""
        every, num_steps = self.stops_every, self.config.steps
        if every is None or isinstance(every, int):
            return num_steps if every is None else steps - steps % every + every
        periods = math.floor(steps / num_steps / every + 1e-9) + 1  # 0.6 / 0.2 is 3
        return max(steps + 1, math.ceil(periods * every * num_steps - 1e-6))

    def _compile_ahead(self) -> Callable[[], Any] | None:
        """Have the first program compiled while the rows are prepared; None where they are in a pool."""
        if self.plan.pool is not None:
            return None
        stage = self.algorithm.stages[self._snapshot.stage if self._snapshot else 0]
        state = jax.eval_shape(lambda: self.initial().state)
        return compile_ahead(stage, state, rows_shape(self.training_data), len(self.config.trials))

    def _source(self, snapshot: Snapshot) -> tuple[Rows, Callable[[int, int], Rows] | None, float]:
        """The rows to begin with, what changes them on the way, and the largest |reward| of all."""
        pool = self.pool
        if pool is None:
            return self.rows, None, float(np.abs(np.asarray(self.rows.rewards)).max())
        pool.close()  # it may stand elsewhere, after a run that was stopped
        return pool.at(snapshot.stage, snapshot.done), pool.at, pool.units.largest_reward

    def train(self, callbacks: Sequence[Callback] = (), progress: bool | TextIO = False) -> Self:
        """Train to the end, or until a callback returns True, and return the run.

        ``progress`` shows the progress on the standard output, or on another stream. Ctrl-C and SIGTERM save the state
        and raise ``vem.errors.Stopped``.
        """
        check_callbacks(callbacks)
        stream, is_shown = (None if isinstance(progress, bool) else progress), progress is not False
        if self.is_finished:
            if is_shown:
                print(f"{self.directory} is finished", file=stream, flush=True)
            return self
        self.begin()
        with stop_requests() as requests:
            if is_shown:
                for text in [*([] if self.steps_done else [headline(self)]), *self.messages]:
                    print(text, file=stream, flush=True)
            is_stopped = self._train(callbacks, is_shown, stream, requests)
        if is_stopped and requests:
            raise Stopped(f"stopped and saved; go on with: vem train --resume {self.directory}")
        if not is_stopped and is_shown:
            for warning in self.warnings:
                print(f"warning: {warning}", file=stream, flush=True)
        return self

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
        self,
        callbacks: Sequence[Callback] = (),
        progress: bool | TextIO = True,
        dataset: Dataset | None = None,
        *,
        steps: int | None = None,
        restart_schedule: bool = False,
    ) -> Self:
        """Go on from the newest checkpoint to the end; ``dataset`` is needed if it was made from arrays.

        With ``steps``, which are more than the run has, it goes on to those (``go_on_to``).
        """
        if dataset is not None:
            self.use_data(dataset)
        self.go_on_to(steps, restart_schedule)
        return self.train(callbacks, progress)

    def go_on_to(self, steps: int | None, restart_schedule: bool = False) -> None:
        """Add steps to the run, up to ``steps`` in all, and hold its lock until they are trained; None adds none.

        All stages are trained again with the networks as they are, and share the added steps as those of a new run;
        schedules of learning rates that have ended begin anew only with ``restart_schedule``. The policies so far are
        kept in policies/at-STEPS. A run that has not ended trains the steps that it has first, as they were planned.
        """
        config, facts, packages = self.stored
        if steps is None:
            if restart_schedule:
                raise SettingsError("--restart-schedule is for a run that goes on to more steps; give --steps, too")
            return
        if check_steps(steps) <= config.steps:
            raise SettingsError(
                f"--steps is {steps:,}, and {self.directory} was started with {config.steps:,}; give the steps in all, "
                "more than those"
            )
        restarts = (*config.restarts, config.steps) if restart_schedule else config.restarts
        more = dataclasses.replace(
            config, steps=steps, ends=(*config.ends, config.steps), restarts=restarts, minutes=None
        )
        num_stages = len(self.algorithm.stages)
        stages = make_plan(more, self.training_data).algorithm.stages[num_stages:]
        self.acquire()
        try:
            if self.is_finished and load_newest(self.checkpoints, self.messages.append, self._digests) is None:
                raise RunError(
                    f"{self.directory} has no readable checkpoint to go on from; start a new run with --steps {steps}"
                )
            self._keep_last_policies()
            self.settle(more, facts, packages)
            self.write_config()
        except BaseException:
            self.release()
            raise
        parts = ", ".join(f"{stage.num_steps:,} of {stage.name}" for stage in stages)
        self.messages.append(
            f"{steps - config.steps:,} steps are added to the {config.steps:,}: {parts}, with the networks as they are"
        )
        if not restart_schedule and has_schedule(jax.eval_shape(lambda: self.initial().state)):
            self.messages.append(
                "the schedule of the learning rate has ended, and the rate stays where it ended (0 after a cosine); "
                "--restart-schedule begins it anew"
            )

    def _keep_last_policies(self) -> None:
        """Move the policies of a finished run, and what was estimated of them, to where those on the way are."""
        if not self.is_finished:
            return
        pairs = list(zip(self.policy_paths, self.point_paths(self.config.steps), strict=True))
        folder = pairs[0][1].parent
        folder.mkdir(exist_ok=True)
        for path in self.directory.glob("estimate*.json"):
            path.replace(folder / path.name)
        for path, place in pairs:
            path.replace(place)
        self._policies = {}

    def checkpoint(self, progress: Progress) -> None:
        """Write the state after ``progress``, so that the run can go on from it."""
        snapshot = progress.snapshot
        header = {
            "request": self.digest,
            "stage": snapshot.stage,
            "done": snapshot.done,
            "core_seconds": self._core_time(progress),
        }
        tree = {"state": snapshot.state, "memory": snapshot.memory}
        save_checkpoint(self.checkpoints, progress.steps, tree, header)

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


def _is_metric_line(progress: Progress, num_steps: int) -> bool:
    """Whether this chunk is logged: all of them, or about ``NUM_METRIC_LINES`` in a long run."""
    period = progress.stage.steps_per_refresh or num_steps
    step = max(1, num_steps // NUM_METRIC_LINES)
    chunk = min(period, LONGEST_CHUNK)
    return progress.steps // step != (progress.steps - chunk) // step or progress.steps == progress.num_steps


def check_bounds(info: DataInfo) -> None:
    """DataError if an action column is so wide that float32, which policies act in, cannot hold its width."""
    for index, (low, high) in enumerate(zip(info.action_low, info.action_high, strict=True)):
        if not float(high) - float(low) <= float(np.finfo(np.float32).max):
            raise DataError(
                f"action column {index} goes from {low:g} to {high:g}, which is more than float32 holds; divide the "
                "actions by a constant, or give narrower action bounds"
            )


def check_row_rules(request: Request, dataset: Dataset) -> None:
    """SettingsError if the rows were not read as the request says: the run could not find them again."""
    for rule in ROW_RULES:
        found = dataset.info.rules.get(rule, False)
        said = request.rules.get(rule, False if rule == "repeat_terminals" else found)
        if said != found:
            raise SettingsError(
                f"the rows of {dataset.info.name} were read with {rule}={found!r} and the run's config says {said!r}; "
                "read them by the config's rules"
            )


open_run = Run.open
