"""Jobs on the nodes of a Ray cluster: one task each, which Ray starts again elsewhere when a node is lost."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import vem
from vem.comparison.job import Job
from vem.comparison.launch import View, finish
from vem.comparison.worker import STOPPED, RunProcess, explain_end, one_thread_variables, start_process
from vem.errors import RunError
from vem.training.progress import stop_requests

POLL_SECONDS = 0.5
CONNECT_SECONDS = 40.0
CHECK_SECONDS = 120.0
MOST_LOSSES = 20
"""How many nodes a job may lose."""
LOCK_SECONDS = 180.0
"""How long a job waits for the lock of a process that was lost with its node."""
SECONDS_PER_LOOK = 0.2
LOOK_SECONDS = 10.0
"""How long a file server may take to show a new file."""
CONNECT = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"


def run_on_ray(jobs: Sequence[Job], view: View, address: str | None = None) -> bool:
    """Run the jobs on the cluster, as many at a time as it has cores; True if a signal stopped them (after saving).

    A job that fails leaves its failure beside its run, and the others go on.
    """
    with _connected(address) as ray, _marker(jobs) as marker, stop_requests() as requests:
        _check_nodes(ray, marker)
        run = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(run_on_node)
        variables, folder = _variables(), str(Path.cwd())
        tasks = {run.remote(*_place(job), variables, folder): job for job in jobs}
        cores = sum(node["Resources"].get("CPU", 0) for node in _alive(ray))
        view.say(f"Ray cluster: {len(_alive(ray))} nodes, {cores:g} cores for jobs")
        started, is_asked = time.monotonic(), False
        try:
            while tasks:
                ended, _ = ray.wait(list(tasks), timeout=POLL_SECONDS)
                for task in ended:
                    end, seconds = _end_of(ray, task), time.monotonic() - started
                    _finish(tasks.pop(task), end, seconds, bool(requests), view)
                if requests and not is_asked:
                    is_asked = True
                    for task in tasks:
                        ray.cancel(task)
                view.update(list(tasks.values()))
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
    if not jobs or jobs[0].remote is not None:
        yield None
        return
    path = jobs[0].directory.parents[1].absolute() / f".cluster-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def _variables() -> dict[str, str]:
    """What changes the numbers that a job computes, or where it finds its data."""
    needed = {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "VEM_", "MUJOCO_"))}
    # NPROC: threads of JAX itself; a node is shared by as many jobs as it has cores.
    return {**needed, **one_thread_variables(), "NPROC": "1"}


def _place(job: Job) -> tuple[dict[str, Any], str | None]:
    """The job as a node is told it, and where its log goes; None: to a file of the node's own."""
    job = job.at(job.directory.absolute())
    return job.to_json(), None if job.remote else str(job.log_path)


def _check_nodes(ray: Any, marker: str | None) -> None:
    """RunError, before any work, if a node cannot do jobs."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    checks = {}
    for node in _alive(ray):
        if node["Resources"].get("CPU"):
            strategy = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            check = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=strategy)(check_node)
            checks[check.remote(vem.__version__, marker)] = node["NodeManagerHostname"]
    ended, late = ray.wait(list(checks), num_returns=len(checks), timeout=CHECK_SECONDS) if checks else ([], [])
    for check in ended:
        try:
            ray.get(check)
        except Exception as error:
            raise RunError(_reason(error)) from None
    if late:
        raise RunError(f"the node {checks[late[0]]} did not answer within {CHECK_SECONDS:.0f} s; look at ray status")


def _end_of(ray: Any, task: Any) -> tuple[int, str, str] | Exception:
    try:
        return ray.get(task)
    except Exception as error:
        return error


def _finish(job: Job, end: tuple[int, str, str] | Exception, seconds: float, is_stopping: bool, view: View) -> None:
    if isinstance(end, Exception):
        is_cancelled = type(end).__name__ == "TaskCancelledError"
        finish(job, STOPPED if is_cancelled else 1, seconds, is_stopping, view, _reason(end))
        return
    code, host, last_line = end
    place = job.log_path if job.remote is None else f"{job.remote}/{job.dataset}/{job.log_path.name}"
    why = f"{explain_end(code, f'its process on {host}')}: {last_line}; see {place}"
    finish(job, code, seconds, is_stopping, view, why)


def _reason(error: Exception) -> str:
    """One line about an error of a task: of what the task raised, if it did."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return str(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"Ray: {lines[0] if lines else type(error).__name__}"


def _alive(ray: Any) -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


# What a node of the cluster does: it starts a job's process and waits for it.


def check_node(version: str, marker: str | None) -> None:
    """RunError if this node cannot do jobs that vem ``version`` gives; ``marker`` is a file that it must see."""
    host = socket.gethostname()
    if vem.__version__ != version:
        raise RunError(f"the node {host} has vem {vem.__version__}, not {version}; install the same everywhere")
    end = time.monotonic() + LOOK_SECONDS
    while marker is not None and not Path(marker).exists():
        if time.monotonic() > end:
            raise RunError(
                f"the node {host} does not see {Path(marker).parent}: give an --out that all nodes share, or an "
                "address such as s3://bucket/study"
            )
        time.sleep(SECONDS_PER_LOOK)


def run_on_node(job: dict[str, Any], log: str | None, variables: dict[str, str], folder: str) -> tuple[int, str, str]:
    """Do a job to its end, or until the cluster cancels it: then it saves first.

    Returns the exit code of its process, this host, and the last line of the log. ``folder`` is where relative paths
    begin, if it is here. A process that was killed, as a machine does that runs out of memory, is started again once.
    """
    environment = {**os.environ, **variables}
    place = folder if Path(folder).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="vem-log-") as own:
        path = Path(log or f"{own}/run.log")
        for is_last in (False, True):
            process = start_process(job, path, environment, lock_seconds=LOCK_SECONDS, folder=place)
            try:
                code = _wait(process)
            except BaseException:
                process.kill()
                raise
            was_asked = process.is_asked
            process.close()
            if code >= 0 or was_asked or is_last:
                break
        return code, socket.gethostname(), _last_line(path)


def _wait(process: RunProcess) -> int:
    while True:
        try:
            while (code := process.process.poll()) is None:
                time.sleep(SECONDS_PER_LOOK)
            return code
        except KeyboardInterrupt:  # how Ray cancels a task
            process.ask_to_stop()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
