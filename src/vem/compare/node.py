"""What a node of a cluster does: it starts a cell's process and waits for it.

A lost node's cells are given to other nodes by the cluster; they go on from their newest checkpoint, because a cell's
process always does.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import vem
from vem.compare.process import CellProcess, start_process
from vem.errors import RunError

POLL_SECONDS = 0.2
LOOK_SECONDS = 10.0
"""How long a file server may take to show a new file."""


class Order(NamedTuple):
    """What a node needs to know to run a cell."""

    version: str
    """Of vem, on the machine that gave the order."""
    folder: str
    """Where that machine runs: relative paths to data begin there."""
    marker: str | None
    """A file that every node must see; None if runs are at an address."""
    environment: dict[str, str]
    message: dict[str, Any]
    """What the cell's process is told; empty for a check alone."""


class Outcome(NamedTuple):
    """How a cell's process ended."""

    code: int
    host: str
    last_line: str
    """Of the cell's log."""


def check_node(order: Order) -> None:
    """RunError if this node cannot run cells of the order."""
    host = socket.gethostname()
    if vem.__version__ != order.version:
        raise RunError(f"the node {host} has vem {vem.__version__}, not {order.version}; install the same everywhere")
    if order.marker is None:
        return
    marker, end = Path(order.marker), time.monotonic() + LOOK_SECONDS
    while not marker.exists():
        if time.monotonic() > end:
            raise RunError(
                f"the node {host} does not see {marker.parent}: give an --out that all nodes share, or an address such "
                "as s3://bucket/study"
            )
        time.sleep(POLL_SECONDS)


def run_order(order: Order) -> Outcome:
    """Run a cell to its end, or until the cluster cancels it: then it saves first.

    A process that was killed, as a machine does that runs out of memory, is started again once.
    """
    check_node(order)
    environment = {**os.environ, **order.environment}
    folder = order.folder if Path(order.folder).is_dir() else None
    with tempfile.TemporaryDirectory(prefix="vem-log-") as place:
        log = Path(order.message["log"] or Path(place) / "cell.log")
        for is_last in (False, True):
            process = start_process({**order.message, "log": str(log)}, log, environment, folder)
            try:
                code = _wait(process)
            except BaseException:
                process.kill()
                raise
            was_asked = process.is_asked
            process.close()
            if code >= 0 or was_asked or is_last:
                break
        return Outcome(code, socket.gethostname(), _last_line(log))


def only_needed(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that change what a cell computes or where it finds its data."""
    return {name: value for name, value in variables.items() if name.startswith(("JAX_", "XLA_", "VEM_", "MUJOCO_"))}


def _wait(process: CellProcess) -> int:
    while True:
        try:
            while (code := process.process.poll()) is None:
                time.sleep(POLL_SECONDS)
            return code
        except KeyboardInterrupt:  # how Ray cancels a task
            process.ask_to_stop()


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
