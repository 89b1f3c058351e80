"""Seeded episodes in worker processes: one seed an episode, so that the number of workers changes nothing.

Workers import NumPy and the simulator, never JAX. A worker that crashes or hangs is replaced; its episode is kept as
a failed record.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
import types
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from vem.errors import SettingsError, SimulatorError, require
from vem.evaluation.rollout import (
    Actor,
    ActorFactory,
    Environment,
    SpaceSizes,
    make_environment,
    run_episode,
    space_sizes,
)
from vem.policy import Policy
from vem.training.records import EpisodeRecord

ONE_THREAD: dict[str, str] = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Workers share the cores by episodes; threads inside one would only get in the way of the others."""

START_SECONDS = 300.0
"""How long a worker may take to load the simulator and make its environment."""


def episode_seed(seed: int, episode: int) -> int:
    """The seed of an episode: the same for every policy, and unlike those of any other evaluation seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1)[0])


@dataclass(frozen=True)
class _Task:
    record: EpisodeRecord
    """What is known before the episode."""
    actor: bytes
    is_stochastic: bool
    keeps_path: bool


class Evaluator:
    """Worker processes that run whole episodes in ``environment``; use it in a ``with`` statement.

    The workers start on first use and stay, so that evaluating again costs no start. ``environment`` is a task's
    name, a Gymnasium id, or a picklable function that makes an environment. An episode that takes longer than
    ``episode_seconds`` is given up.
    """

    def __init__(
        self, environment: Environment, num_workers: int | None = None, episode_seconds: float = 600.0
    ) -> None:
        if num_workers is not None and num_workers < 1:
            raise SettingsError(f"the number of workers is {num_workers}; it must be 1 or more")
        require("gymnasium")
        self.num_workers = num_workers or available_cores()
        self._environment = _pickled(environment, "the environment's function")
        self._episode_seconds = episode_seconds
        self._workers: list[_Worker] = []

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def evaluate(
        self,
        actors: Mapping[str, Actor | ActorFactory],
        num_episodes: int,
        seed: int = 0,
        *,
        is_stochastic: bool | None = None,
        num_paths: int = 0,
    ) -> list[EpisodeRecord]:
        """The records of ``episodes``, in the order of the actors and of the episodes."""
        records = self.episodes(actors, num_episodes, seed, is_stochastic=is_stochastic, num_paths=num_paths)
        order = {name: index for index, name in enumerate(actors)}
        return sorted(records, key=lambda record: (order[record.trial], record.episode))

    def episodes(
        self,
        actors: Mapping[str, Actor | ActorFactory],
        num_episodes: int,
        seed: int = 0,
        *,
        is_stochastic: bool | None = None,
        num_paths: int = 0,
    ) -> Iterator[EpisodeRecord]:
        """Run ``num_episodes`` with each actor and yield the records as they finish.

        Episode i has the same seed for every actor, so that differences between actors are paired. Policies sample
        their actions if ``is_stochastic``, or take the mean; None: as each policy says (``Policy.is_drawn``). The
        first ``num_paths`` episodes keep their path.
        """
        if num_episodes < 1 or seed < 0:
            raise SettingsError(f"{num_episodes} episodes from seed {seed}: give 1 or more, from seed 0 or more")
        tasks: deque[_Task] = deque()
        for name, actor in actors.items():
            payload = _pickled(actor, f"the actor {name}")
            is_drawn = isinstance(actor, Policy) and actor.is_drawn if is_stochastic is None else is_stochastic
            for episode in range(num_episodes):
                record = EpisodeRecord(name, episode, episode_seed(seed, episode))
                tasks.append(_Task(record, payload, is_drawn, episode < num_paths))
        while len(self._workers) < min(self.num_workers, len(tasks)):
            self._workers.append(_Worker(self._environment, self._episode_seconds))
        self._check_sizes(actors)
        try:
            yield from self._run(tasks)
        finally:
            # Left early: an answer still on its way must not meet the next evaluation.
            for worker in [worker for worker in self._workers if worker.task is not None]:
                worker.kill()
                self._workers.remove(worker)

    def _run(self, tasks: deque[_Task]) -> Iterator[EpisodeRecord]:
        while tasks or any(worker.task for worker in self._workers):
            for worker in self._workers:
                if worker.sizes is not None and worker.task is None and tasks:
                    worker.give(tasks.popleft())
            for worker in _wait(self._workers):
                if worker.sizes is None:
                    worker.receive_sizes()
                    continue
                task = worker.task
                assert task is not None, "an idle worker is not waited for"
                facts = worker.receive()
                yield replace(task.record, **facts)
                if not worker.is_alive:
                    self._workers[self._workers.index(worker)] = _Worker(self._environment, self._episode_seconds)

    def _check_sizes(self, actors: Mapping[str, Actor | ActorFactory]) -> None:
        """Wait for one worker's environment and compare it with the policies before any episode."""
        while not (sizes := next((w.sizes for w in self._workers if w.sizes is not None), None)):
            for worker in _wait(self._workers):
                worker.receive_sizes()
        for name, actor in actors.items():
            if isinstance(actor, Policy) and (problem := sizes.misfit(actor)):
                raise SimulatorError(
                    f"policy {name} {problem}: evaluate in the environment that the data was recorded in"
                )


class _Worker:
    """One process, the pipe to it, and the task it has."""

    def __init__(self, environment: bytes, episode_seconds: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, environment), daemon=True)
        with _worker_surroundings():
            self.process.start()
        theirs.close()
        self.sizes: SpaceSizes | None = None
        self.task: _Task | None = None
        self.is_alive = True
        self._actor: bytes | None = None
        self._episode_seconds = episode_seconds
        self.deadline = time.monotonic() + START_SECONDS

    def give(self, task: _Task) -> None:
        self.task, self.deadline = task, time.monotonic() + self._episode_seconds
        actor = None if task.actor is self._actor else task.actor
        self._actor = task.actor
        # One that died while idle is found by its closed pipe when it is waited for.
        with suppress(OSError):
            self.connection.send((actor, task.record.seed, task.is_stochastic, task.keeps_path))

    def receive(self) -> dict[str, Any]:
        """The facts of the finished episode, or the error that it ended with."""
        self.task = None
        if not self.connection.poll():
            self.kill()
            return {"error": f"given up after {self._episode_seconds:g} s"}
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.kill()
            return {"error": f"the worker process died (exit code {self.process.exitcode})"}

    def receive_sizes(self) -> None:
        """Take the sizes of the worker's environment; SimulatorError if it could not be made."""
        try:
            answer = self.connection.recv() if self.connection.poll() else f"no environment after {START_SECONDS:g} s"
        except (EOFError, OSError):
            answer = f"a worker process died while making the environment (exit code {self.process.exitcode})"
        if isinstance(answer, str):
            raise SimulatorError(answer)
        self.sizes = answer

    def stop(self) -> None:
        """Ask the process to end, and end it if it does not."""
        if self.is_alive and self.task is None and self.sizes is not None:
            with suppress(OSError):
                self.connection.send(None)
                self.process.join(2)
        self.kill()

    def kill(self) -> None:
        self.is_alive = False
        self.process.kill()
        self.process.join()
        self.connection.close()


def _wait(workers: list[_Worker]) -> list[_Worker]:
    """The workers that have answered, died or run out of time, waiting for at least one."""
    expected = [worker for worker in workers if worker.task is not None or worker.sizes is None]
    left = min(worker.deadline for worker in expected) - time.monotonic()
    answered = wait([worker.connection for worker in expected], max(left, 0))
    now = time.monotonic()
    return [worker for worker in expected if worker.connection in answered or worker.deadline <= now]


def _work(connection: Connection, environment: bytes) -> None:
    """A worker process: make the environment, say its sizes, then run episodes until told to stop."""
    import signal

    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A parent that is gone closes the pipe, and then there is nobody to work for.
    with suppress(EOFError, OSError):
        try:
            make = pickle.loads(environment)
            env = make_environment(make)
            sizes = space_sizes(env)
        except Exception as error:
            known = isinstance(error, SimulatorError)
            connection.send(str(error) if known else f"the environment: {_sentence(error)}")
            return
        connection.send(sizes)
        _serve(connection, make, env)


def _serve(connection: Connection, make: Environment, env: Any) -> None:
    actor: Any = None
    while (message := connection.recv()) is not None:
        payload, seed, is_stochastic, keeps_path = message
        try:
            actor = pickle.loads(payload) if payload is not None else actor
            env = make_environment(make) if env is None else env
            facts = run_episode(env, actor, seed, is_stochastic=is_stochastic, keeps_path=keeps_path)
        except Exception as error:
            facts = {"error": _sentence(error)}
            env = None  # what a crash left behind must not reach the next episode
        connection.send(facts)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


@contextmanager
def _worker_surroundings() -> Iterator[None]:
    """What a new process finds: one thread for linear algebra, and no main module.

    Without the second, a worker would run the caller's script again, training and all.
    """
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    main = sys.modules["__main__"]
    os.environ.update(ONE_THREAD)
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _pickled(value: Any, what: str) -> bytes:
    """The bytes that a worker process makes ``value`` from."""
    try:
        content = pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise SettingsError(f"{what} cannot be sent to worker processes ({error}); define it in a module") from None
    if b"__main__" in content:
        raise SettingsError(
            f"{what} is defined in a script or notebook, which worker processes do not run; move it to a module"
        )
    return content


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
