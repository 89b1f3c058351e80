"""A Ray cluster on loopback for tests: a head without cores, and worker nodes with one core each."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

LOOPBACK = (
    "import sys; from ray._private import services; services.get_node_ip_address = lambda address=None: '127.0.0.1'; "
    "from ray.scripts.scripts import main; sys.argv[0] = 'ray'; sys.exit(main())"
)
"""Ray replaces 127.0.0.1 by the machine's address and would listen to the network: it must not here."""
VARIABLES = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # what makes a driver stay on loopback
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "5",
}
ATTEMPTS = 5
"""Ray gives a node 30 seconds to start, which a busy machine may exceed."""
START = ["--node-ip-address=127.0.0.1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]


class Cluster:
    """The address of the head, and the processes of the nodes."""

    def __init__(self, address: str, variables: Mapping[str, str], place: Path) -> None:
        self.address, self.variables, self.place = address, dict(variables), place
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str) -> None:
        """Start a node, and wait until it says that it runs; RuntimeError with what it said if it does not."""
        for _ in range(ATTEMPTS):
            node = self._try_to_start(arguments)
            if node is not None:
                self.nodes.append(node)
                return
        raise RuntimeError(f"a node did not start: {self.log_path.read_text()[-2000:]}")

    def _try_to_start(self, arguments: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
        variables = dict(self.variables)
        if "--head" not in arguments:
            variables["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"  # else it refuses to be a second node
        command = [sys.executable, "-c", LOOPBACK, "start", *START, *arguments]
        with self.log_path.open("wb") as log:
            node = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
        while node.poll() is None:
            if b"Ray runtime started" in self.log_path.read_bytes():
                return node
            time.sleep(0.2)
        return None

    @property
    def log_path(self) -> Path:
        """What the node that was started last printed."""
        return self.place / "node.log"

    def kill(self, index: int) -> None:
        """Kill all processes of a node at once, those of its jobs too."""
        kill_tree(self.nodes[index].pid)
        self.nodes[index].wait()

    def has_job(self, index: int) -> bool:
        """Whether a node has the process of a job."""
        for pid in descendants(self.nodes[index].pid):
            with suppress(OSError):
                if b"vem.comparison.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return True
        return False


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def kill_tree(pid: int) -> None:
    """Kill a process and all below it."""
    pids = descendants(pid)
    for one in pids:
        with suppress(OSError):
            os.kill(one, signal.SIGSTOP)  # nothing is started, and nothing saved, while they are killed one by one
    for one in dict.fromkeys([*pids, *descendants(pid)]):
        with suppress(OSError):
            os.kill(one, signal.SIGKILL)


@contextmanager
def running_cluster(num_workers: int) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, with all its processes and files."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as place:
        port = free_port()
        variables = {**os.environ, **VARIABLES, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        cluster = Cluster(f"127.0.0.1:{port}", variables, Path(place))
        head = ["--head", f"--port={port}", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={place}/ray"]
        try:
            cluster.start(*head)
            for _ in range(num_workers):
                cluster.start(f"--address={cluster.address}", "--num-cpus=1")
            yield cluster
        finally:
            for node in reversed(cluster.nodes):
                kill_tree(node.pid)
                node.wait()


def free_port() -> int:
    """A port above those that Ray keeps for workers, and below those that the system gives to clients.

    A client that tries a port of the latter kind may get that port itself, and so talk to itself.
    """
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")
