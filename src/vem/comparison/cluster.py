"""Cells on the nodes of a Ray cluster: one task each, which Ray starts again elsewhere when a node is lost."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import vem
from vem.comparison.launch import Job, View, finish_cell, one_thread_variables
from vem.comparison.worker import STOPPED, Order, Outcome, check_node, explain_end, only_needed, run_order
from vem.errors import RunError
from vem.training.progress import stop_requests

POLL_SECONDS = 0.5
CONNECT_SECONDS = 40.0
CHECK_SECONDS = 120.0
SECONDS_PER_ROLL_CALL = 5.0
MOST_LOSSES = 20
"""How many nodes a cell may lose."""
LOCK_SECONDS = 180.0
"""How long a cell waits for the lock of a process that was lost with its node."""
CONNECT = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


def run_on_ray(jobs: Sequence[Job], view: View, address: str | None = None) -> bool:
    """Run the jobs on the cluster, as many at a time as it has cores; True if a signal stopped them (after saving).

    A job that fails leaves its failure beside its run, and the others go on.
    """
    with _connected(address) as ray, _marker(jobs) as marker, stop_requests() as requests:
        order = Order(vem.__version__, str(Path.cwd()), marker, _variables(), {})
        _check_nodes(ray, order)
        run = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(run_order)
        tasks = {run.remote(order._replace(message=_message(job))): job for job in jobs}
        roll, started, is_asked = _RollCall(ray, view), time.monotonic(), False
        try:
            while tasks:
                ended, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
                for task in ended:
                    outcome = _outcome(ray, task)
                    seconds = time.monotonic() - started
                    _finish(tasks.pop(task), outcome, seconds, bool(requests), view)
                if requests and not is_asked:
                    is_asked = True
                    for task in tasks:
                        ray.cancel(task)
                roll.call()
                view.update([job.cell for job in tasks.values()])
        finally:
            for task in tasks:
                with suppress(Exception):
                    ray.cancel(task, force=True)
    return bool(requests)


def find_ray() -> Any:
    """The module, or RunError if it is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise RunError("Ray is not installed: pip install 'vem[ray]', or leave out --engine ray") from None


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Ray, connected to the cluster at ``address``; None: to that of RAY_ADDRESS, or of this machine."""
    ray = find_ray()
    where = address or os.environ.get("RAY_ADDRESS") or "auto"
    if where.startswith("ray://"):
        raise RunError(f"{where} is an address of Ray Client; run the command on a machine of the cluster instead")
    if ray.is_initialized():
        yield ray  # of the program that called: its connection is not ours to end
        return
    _try_to_connect(where)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        ray.init(address=where, log_to_driver=False, logging_level="ERROR")
    except Exception as error:
        raise RunError(_unreachable(where, str(error))) from None
    finally:
        with suppress(ValueError):  # not the main thread
            for number, handler in handlers.items():
                signal.signal(number, handler)
    try:
        yield ray
    finally:
        ray.shutdown()


def _try_to_connect(where: str) -> None:
    """Connect in another process: Ray itself waits for minutes and then ends the process."""
    host, _, port = where.rpartition(":")
    if where != "auto" and not (host and port.isdigit()):
        raise RunError(f"--address is {where!r}; give HOST:PORT, as ray start --head prints it")
    try:
        if host:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(_unreachable(where, str(error))) from None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", CONNECT, where], capture_output=True, text=True, timeout=CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RunError(_unreachable(where, f"no answer within {CONNECT_SECONDS:.0f} s")) from None
    if tried.returncode:
        lines = [line for line in tried.stderr.splitlines() if line.strip()]
        raise RunError(_unreachable(where, lines[-1] if lines else f"exit code {tried.returncode}"))


def _unreachable(where: str, why: str) -> str:
    place = "on this machine" if where == "auto" else f"at {where}"
    why = " ".join(why.split())
    return f"no Ray cluster was found {place} ({why}); start one with ray start --head, or give its --address"


@contextmanager
def _marker(jobs: Sequence[Job]) -> Iterator[str | None]:
    """A file beside the datasets' folders that every node must see, or None if the runs are at an address."""
    if not jobs or jobs[0].mirror is not None:
        yield None
        return
    path = jobs[0].cell.directory.parents[1].absolute() / f".cluster-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _variables() -> dict[str, str]:
    # NPROC: threads of JAX itself; a node is shared by as many cells as it has cores.
    return {**only_needed(os.environ), **one_thread_variables(), "NPROC": "1"}


def _message(job: Job) -> dict[str, Any]:
    job = job._replace(cell=job.cell.at(job.cell.directory.absolute()))
    log = str(job.cell.log_path) if job.mirror is None else None
    return {**job.to_message(), "cores": None, "log": log, "lock_seconds": LOCK_SECONDS}


def _check_nodes(ray: Any, order: Order) -> None:
    """RunError, before any work, if a node cannot run cells."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    checks = {}
    for node in _alive(ray):
        if node["Resources"].get("CPU"):
            strategy = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            check = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(check_node)
            checks[check.remote(order)] = node["NodeManagerHostname"]
    ended, late = ray.wait(list(checks), num_returns=len(checks), timeout=CHECK_SECONDS) if checks else ([], [])
    for check in ended:
        try:
            ray.get(check)
        except Exception as error:
            raise RunError(_reason(error)) from None
    if late:
        raise RunError(f"the node {checks[late[0]]} did not answer within {CHECK_SECONDS:.0f} s; look at ray status")


def _outcome(ray: Any, task: Any) -> Outcome | Exception:
    try:
        return ray.get(task)
    except Exception as error:
        return error


def _finish(job: Job, outcome: Outcome | Exception, seconds: float, is_stopping: bool, view: View) -> None:
    cell = job.cell
    if not isinstance(outcome, Outcome):
        is_cancelled = type(outcome).__name__ == "TaskCancelledError"
        finish_cell(cell, STOPPED if is_cancelled else 1, seconds, is_stopping, view, _reason(outcome))
        return
    place = cell.log_path if job.mirror is None else f"{job.mirror}/{cell.dataset}/{cell.log_path.name}"
    why = f"{explain_end(outcome.code, f'its process on {outcome.host}')}: {outcome.last_line}; see {place}"
    finish_cell(cell, outcome.code, seconds, is_stopping, view, why)


def _reason(error: Exception) -> str:
    """One line about an error of a task: of what the task raised, if it did."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return str(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"Ray: {lines[0] if lines else type(error).__name__}"


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


class _RollCall:
    """Says which nodes there are, and which come and go."""

    def __init__(self, ray: Any, view: View) -> None:
        self.ray, self.view = ray, view
        self.nodes = self._nodes()
        self.called = time.monotonic()
        cores = sum(node["Resources"].get("CPU", 0) for node in _alive(ray))
        view.say(f"Ray cluster: {len(self.nodes)} nodes, {cores:g} cores for cells")

    def _nodes(self) -> dict[str, str]:
        return {node["NodeID"]: node["NodeManagerHostname"] for node in _alive(self.ray)}

    def call(self) -> None:
        """Look at the nodes, if it is time to."""
        if time.monotonic() - self.called < SECONDS_PER_ROLL_CALL:
            return
        self.called, before, self.nodes = time.monotonic(), self.nodes, self._nodes()
        for node in before.keys() - self.nodes.keys():
            self.view.say(f"the node {before[node]} was lost; its cells go on elsewhere from their newest checkpoint")
        for node in self.nodes.keys() - before.keys():
            self.view.say(f"the node {self.nodes[node]} joined")
