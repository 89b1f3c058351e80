"""Whether a run fits into the machine's memory: refused before an allocation that would kill the process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from vem.algorithms.base import Algorithm
from vem.data import Dataset
from vem.errors import SettingsError

REMEDY = "use a smaller --batch-size, smaller networks, or fewer seeds"


def check_memory(
    algorithm: Algorithm, state: Any, num_members: int, dataset: Dataset, num_rows: int | None = None
) -> None:
    """SettingsError if training surely needs more memory than there is.

    ``state`` holds the shapes of all members' states. The estimate is a lower bound: the states, the memory of the
    largest stage, one batch and its widest hidden layer for each member, and ``num_rows`` rows of the data, or all.
    """
    available = available_bytes() if jax.default_backend() == "cpu" else None
    if available is None:
        return
    states = tree_bytes(state)
    memory = num_members * max(tree_bytes(jax.eval_shape(stage.empty)) for stage in algorithm.stages)
    widest = max((leaf.shape[-1] for leaf in jax.tree.leaves(state) if leaf.ndim > 1), default=1)
    row = 4 * (2 * dataset.observation_size + dataset.action_size + widest)
    batches = num_members * row * max(stage.batch_size for stage in algorithm.stages)
    data = dataset.num_bytes if num_rows is None else dataset.num_bytes * num_rows // dataset.num_rows
    needed = states + memory + batches + data
    if needed > available:
        raise SettingsError(
            f"training needs at least {_readable(needed)} of memory and {_readable(available)} are available: "
            f"{_readable(states)} for the parameters of {num_members} {'policy' if num_members == 1 else 'policies'}, "
            f"{_readable(batches)} for their batches, {_readable(memory + data)} for the data; {REMEDY}"
            + ("; or hold fewer rows at a time with --pool-rows" if memory + data > needed // 2 else "")
        )


def fits(dataset: Dataset) -> bool:
    """Whether all rows can be held, with as much again for what is computed from them."""
    available = available_bytes()
    return available is None or 2 * dataset.num_bytes <= available


@contextmanager
def refusing_to_run_out() -> Iterator[None]:
    """Turn a failed allocation into a SettingsError."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        text = str(error)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
            first = text.splitlines()[0] if text else type(error).__name__
            raise SettingsError(f"the memory does not suffice ({first[:200]}); {REMEDY}") from None
        raise


def tree_bytes(tree: Any) -> int:
    """Bytes of all leaves, which may be shapes only."""
    return sum(int(np.prod(leaf.shape, dtype=object)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def available_bytes() -> int | None:
    """Memory that this process can still take on the host, or None where that is not known."""
    found = [bytes_ for read in (_meminfo, _cgroup) if (bytes_ := read()) is not None]
    if found:
        return min(found)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _meminfo() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup() -> int | None:
    try:
        return int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):  # no such limit
        return None


def _readable(count: int) -> str:
    value, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:,.0f} {units[0]}" if value >= 10 else f"{value:.1f} {units[0]}"
