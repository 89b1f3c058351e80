"""Seeded episodes in worker processes: one seed an episode, so that the number of workers changes nothing.

A worker is ``python -m vem.evaluation.workers``: it reads what to do from its standard input and writes what came of it
to its standard output. Workers import NumPy and the simulator, never JAX, and not the caller's script. One that
crashes or hangs is replaced; its episode is kept as a failed record.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
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
STOP_SECONDS = 2.0


def episode_seed(seed: int, episode: int) -> int:
    """The seed of an episode: the same for every policy, and unlike those of any other evaluation seed."""
    return int(np.random.SeedSequence(seed, spawn_key=(episode,)).generate_state(1)[0])


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
        show: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[EpisodeRecord]:
        """Run ``num_episodes`` with each actor: the records in the order of the actors and of the episodes.

        Episode i has the same seed for every actor, so that differences between actors are paired. Policies sample
        their actions if ``is_stochastic``, or take the mean; None: as each policy says (``Policy.is_drawn``). The
        first ``num_paths`` episodes keep their path in mazes. ``show`` is called with the episodes done and to do.
        """
        if num_episodes < 1 or seed < 0:
            raise SettingsError(f"{num_episodes} episodes from seed {seed}: give 1 or more, from seed 0 or more")
        tasks = []
        for name, actor in actors.items():
            content = _pickled(actor, f"the actor {name}")
            is_drawn = isinstance(actor, Policy) and actor.is_drawn if is_stochastic is None else is_stochastic
            for episode in range(num_episodes):
                record = EpisodeRecord(name, episode, episode_seed(seed, episode))
                tasks.append((record, content, is_drawn, episode < num_paths))
        while len(self._workers) < min(self.num_workers, len(tasks)):
            self._workers.append(_Worker(self._environment, self._episode_seconds))
        sizes = self._workers[0].sizes()
        for name, actor in actors.items():
            if isinstance(actor, Policy) and (problem := sizes.misfit(actor)):
                raise SimulatorError(
                    f"policy {name} {problem}: evaluate in the environment that the data was recorded in"
                )
        idle: SimpleQueue[_Worker] = SimpleQueue()
        for worker in self._workers:
            idle.put(worker)

        def run(record: EpisodeRecord, *how: Any) -> EpisodeRecord:
            worker = idle.get()
            try:
                return replace(record, **worker.run(record.seed, *how))
            finally:
                idle.put(worker)

        with ThreadPoolExecutor(len(self._workers)) as threads:
            futures = [threads.submit(run, *task) for task in tasks]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    future.result()
                    show(done, len(futures))
            except BaseException:
                # An answer still on its way must not meet the next evaluation.
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in self._workers:
                    worker.kill()
                raise
        return [future.result() for future in futures]


class _BrokenError(Exception):
    """A worker process is gone."""


class _Worker:
    """One process and the pipes to it; a process that broke is replaced when the next task comes."""

    def __init__(self, environment: bytes, episode_seconds: float) -> None:
        self._environment, self._episode_seconds = environment, episode_seconds
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "vem.evaluation.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                **ONE_THREAD,
                "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            },
        )
        self._sizes: SpaceSizes | None = None
        self._actor: bytes | None = None
        self._send(self._environment)

    def sizes(self) -> SpaceSizes:
        """The sizes of the worker's environment, once it is made; SimulatorError if it cannot be."""
        if self._sizes is not None:
            return self._sizes
        try:
            answer = self._receive(START_SECONDS)
        except _BrokenError as error:
            answer = f"the environment cannot be made: {error}"
        if isinstance(answer, str):
            raise SimulatorError(answer)
        self._sizes = answer
        return answer

    def run(self, seed: int, actor: bytes, is_stochastic: bool, keeps_path: bool) -> dict[str, Any]:
        """The facts of the finished episode, or the error that it ended with."""
        if self._process.returncode is not None:
            self._close()
            self._start()
        self.sizes()
        self._send((None if actor is self._actor else actor, seed, is_stochastic, keeps_path))
        self._actor = actor
        try:
            return self._receive(self._episode_seconds)
        except _BrokenError as error:
            return {"error": str(error)}

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # a process that is gone is found by its missing answer
            pickle.dump(message, self._process.stdin)
            self._process.stdin.flush()

    def _receive(self, seconds: float) -> Any:
        """What the process answers; _BrokenError if it ends before, or has to be ended after so many seconds."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            self.kill()
            if time.monotonic() >= deadline:
                raise _BrokenError(f"given up after {seconds:g} s") from None
            raise _BrokenError(f"the worker process died (exit code {self._process.returncode})") from None
        finally:
            timer.cancel()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process: of itself if it is idle."""
        self._close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                if pipe is not None:
                    pipe.close()


def main() -> None:
    """A worker process: make the environment, say its sizes, then run episodes until the input ends."""
    # Ctrl-C reaches the whole process group; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a simulator prints is no answer

    def answer(message: Any) -> None:
        pickle.dump(message, answers)
        answers.flush()

    # A parent that is gone closes the pipes, and then there is nobody to work for.
    with suppress(EOFError, OSError):
        content = pickle.load(sys.stdin.buffer)
        try:
            make = pickle.loads(content)
            env = make_environment(make)
            sizes = space_sizes(env)
        except Exception as error:
            known = isinstance(error, SimulatorError)
            answer(str(error) if known else f"the environment: {_sentence(error)}")
            return
        answer(sizes)
        actor: Any = None
        while True:
            payload, seed, is_stochastic, keeps_path = pickle.load(sys.stdin.buffer)
            try:
                actor = pickle.loads(payload) if payload is not None else actor
                env = make_environment(make) if env is None else env
                facts = run_episode(env, actor, seed, is_stochastic=is_stochastic, keeps_path=keeps_path)
            except Exception as error:
                facts = {"error": _sentence(error)}
                env = None  # what a crash left behind must not reach the next episode
            answer(facts)


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


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


if __name__ == "__main__":
    main()
