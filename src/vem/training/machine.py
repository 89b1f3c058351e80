"""How the trials of a run are laid over devices: the cores of the machine, or its accelerators.

On a CPU each core is a device of its own and trains its trials one after another, each alone: one thread a trial
wastes less than several threads on one small matrix product, and a trial's numbers do not depend on the others or on
the number of cores. On accelerators the trials of a device are one vectorized program.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Split

from vem.algorithms.base import Algorithm
from vem.data.arrays import aligned
from vem.data.dataset import Dataset
from vem.errors import SettingsError
from vem.storage import cache_directory

AXIS = "trials"


def prepare_devices() -> None:
    """Make each core that this process may use a device, if JAX has not started yet and nobody chose otherwise."""
    if jax.config.values["jax_num_cpu_devices"] > 0 or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # JAX has started: its devices are used as they are
        return


def once_options() -> dict[str, bool | int | float | str] | None:
    """What to tell XLA about a program that runs once: on a CPU that its speed does not matter, but compiling does."""
    return {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None


def core_clock() -> float:
    """Seconds of all cores that this process has used; where accelerators compute, those of the clock on the wall."""
    return time.process_time() if jax.default_backend() == "cpu" else time.perf_counter()


@functools.cache
def update_options() -> dict[str, bool | int | float | str] | None:
    """What to tell XLA about a program of updates: None, or on a CPU to leave matrix products to Eigen.

    Newer versions give them to YNNPACK, which does each on one thread: half of two cores wait while a single trial
    trains. On one thread both take the same time. Versions that do not know the option get none.
    """
    if jax.default_backend() != "cpu":
        return None
    options: dict[str, bool | int | float | str] = {"xla_cpu_experimental_ynn_fusion_type": ""}
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(np.float32(0)).compile()
    except RuntimeError:  # "No such compile option"
        return None
    return options


class Layout(NamedTuple):
    """Trials over devices: as many of them on each, and slots without a trial where that does not come out even."""

    num_trials: int
    num_slots: int
    mesh: Mesh | None
    """None: all trials are on JAX's default device."""

    def spread(self, tree: Any) -> Any:
        """Arrays with a leading axis of trials, on their devices, with empty slots at the end."""
        missing = self.num_slots - self.num_trials

        def place(leaf: Any) -> Any:
            if missing and leaf.shape[0] == self.num_trials:
                leaf = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)])
            if self.mesh is None:
                return leaf
            return jax.device_put(leaf, NamedSharding(self.mesh, Split(AXIS)))

        return jax.tree.map(place, tree)

    def share(self, tree: Any) -> Any:
        """Arrays that every trial reads, on all devices."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, Split())
        return jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), tree)

    def gather(self, tree: Any) -> Any:
        """What ``spread`` made, without the empty slots."""
        if self.num_slots == self.num_trials:
            return tree
        return jax.tree.map(lambda leaf: leaf[: self.num_trials], tree)

    def place(self, array: np.ndarray) -> jax.Array:
        """An array of the host for all trials to read; the cores share it with NumPy if it is aligned."""
        return jax.device_put(aligned(array), None if self.mesh is None else NamedSharding(self.mesh, Split()))

    def shapes(self, tree: Any, is_own: bool) -> Any:
        """The shapes that ``spread`` makes of arrays with an axis of trials, or, if not their own, ``share``."""

        def shape(leaf: Any) -> jax.ShapeDtypeStruct:
            size = (self.num_slots, *leaf.shape[1:]) if is_own else leaf.shape
            if self.mesh is None:
                return jax.ShapeDtypeStruct(size, leaf.dtype)
            split = Split(AXIS) if is_own else Split()
            return jax.ShapeDtypeStruct(size, leaf.dtype, sharding=NamedSharding(self.mesh, split))

        return jax.tree.map(shape, tree)

    def counts(self, count: int) -> jax.Array:
        """``count`` for each trial and 0 for each empty slot."""
        return self.spread(jnp.asarray([count] * self.num_trials + [0] * (self.num_slots - self.num_trials), jnp.int32))


def lay_out(num_trials: int, num_devices: int | None = None) -> Layout:
    """The layout of so many trials over ``jax.devices()``, or the first ``num_devices`` of them."""
    devices = jax.devices()[:num_devices]
    rounds = -(-num_trials // len(devices))
    num_used = -(-num_trials // rounds)
    if num_used == 1:
        return Layout(num_trials, num_trials, None)
    return Layout(num_trials, rounds * num_used, Mesh(np.asarray(devices[:num_used]), (AXIS,)))


def over_trials(one: Callable[..., Any], *own: Any) -> Any:
    """``one`` of every trial on this device: one by one on a CPU, else vectorized."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda leaves: one(*leaves), own)
    return jax.vmap(one)(*own)


# Whether a run fits into the machine's memory: refused before an allocation that would kill the process.


REMEDY = "use a smaller --batch-size, smaller networks, or fewer seeds"


def check_memory(
    algorithm: Algorithm, state: Any, num_trials: int, dataset: Dataset, num_rows: int | None = None
) -> None:
    """SettingsError if training surely needs more memory than there is.

    ``state`` holds the shapes of all trials' states. The estimate is a lower bound: the states, the memory of the
    largest stage, one batch and its widest hidden layer for each trial, and ``num_rows`` rows of the data, or all.
    """
    available = available_bytes() if jax.default_backend() == "cpu" else None
    if available is None:
        return
    states = tree_bytes(state)
    memory = num_trials * max(tree_bytes(jax.eval_shape(stage.empty)) for stage in algorithm.stages)
    widest = max((leaf.shape[-1] for leaf in jax.tree.leaves(state) if leaf.ndim > 1), default=1)
    row = 4 * (2 * dataset.observation_size + dataset.action_size + widest)
    batches = num_trials * row * max(stage.batch_size for stage in algorithm.stages)
    data = dataset.num_bytes if num_rows is None else dataset.num_bytes * num_rows // dataset.num_rows
    needed = states + memory + batches + data
    if needed > available:
        raise SettingsError(
            f"training needs at least {_readable(needed)} of memory and {_readable(available)} are available: "
            f"{_readable(states)} for the parameters of {num_trials} {'policy' if num_trials == 1 else 'policies'}, "
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


# Compiled programs are kept in the user's cache folder, so that the next run of the same shapes starts at once.


LARGEST_BYTES = 512 * 2**20
"""Programs beyond this are deleted, the longest unused first."""
SHORTEST_SECONDS = 0.2
"""Programs that compile faster are not kept."""


def keep_programs() -> Path | None:
    """Have JAX keep what it compiles, and return the folder; None where the user has chosen one for JAX already.

    The folder can be deleted at any time. One that cannot be written costs nothing but the time to compile.
    """
    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return None
    folder = cache_directory() / "programs" / _processor()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", LARGEST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SHORTEST_SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    jax.config.update("jax_raise_persistent_cache_errors", False)
    return folder


def _processor() -> str:
    """A name for this kind of processor: a program compiled for one may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        text = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        text = platform.processor()
    return hashlib.sha256(f"{platform.machine()} {text}".encode()).hexdigest()[:12]
