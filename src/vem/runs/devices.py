"""How the members of a run are laid over devices: the cores of the machine, or its accelerators.

On a CPU each core is a device of its own and trains its members one after another, each alone: one thread a member
wastes less than several threads on one small matrix product, and a member's numbers do not depend on the others or on
the number of cores. On accelerators the members of a device are one vectorized program, and a single member has its
batch spread over all of them; on a CPU that gained nothing.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Split

from vem.data.alignment import aligned

AXIS = "members"
BATCH = "batch"


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

    Newer versions give them to YNNPACK, which does each on one thread: half of two cores wait while a single member
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
    """Members over devices: as many of them on each, and slots without a member where that does not come out even.

    Or one member on all devices, each with its part of every batch.
    """

    num_members: int
    num_slots: int
    mesh: Mesh | None
    """None: all members are on JAX's default device."""

    def spread(self, tree: Any) -> Any:
        """Arrays with a leading axis of members, on their devices, with empty slots at the end."""
        missing = self.num_slots - self.num_members

        def place(leaf: Any) -> Any:
            if missing and leaf.shape[0] == self.num_members:
                leaf = jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, axis=0)])
            if self.mesh is None:
                return leaf
            split = Split(AXIS) if self.mesh.axis_names == (AXIS,) else Split()
            return jax.device_put(leaf, NamedSharding(self.mesh, split))

        return jax.tree.map(place, tree)

    def share(self, tree: Any) -> Any:
        """Arrays that every member reads, on all devices."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, Split())
        return jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), tree)

    def gather(self, tree: Any) -> Any:
        """What ``spread`` made, without the empty slots."""
        if self.num_slots == self.num_members:
            return tree
        return jax.tree.map(lambda leaf: leaf[: self.num_members], tree)

    def place(self, array: np.ndarray) -> jax.Array:
        """An array of the host for all members to read; the cores share it with NumPy if it is aligned."""
        return jax.device_put(aligned(array), None if self.mesh is None else NamedSharding(self.mesh, Split()))

    def shapes(self, tree: Any, is_own: bool) -> Any:
        """The shapes that ``spread`` makes of arrays with an axis of members, or, if not their own, ``share``."""

        def shape(leaf: Any) -> jax.ShapeDtypeStruct:
            size = (self.num_slots, *leaf.shape[1:]) if is_own else leaf.shape
            if self.mesh is None:
                return jax.ShapeDtypeStruct(size, leaf.dtype)
            split = Split(AXIS) if is_own and self.mesh.axis_names == (AXIS,) else Split()
            return jax.ShapeDtypeStruct(size, leaf.dtype, sharding=NamedSharding(self.mesh, split))

        return jax.tree.map(shape, tree)

    def counts(self, count: int) -> jax.Array:
        """``count`` for each member and 0 for each empty slot."""
        return self.spread(
            jnp.asarray([count] * self.num_members + [0] * (self.num_slots - self.num_members), jnp.int32)
        )


def lay_out(num_members: int, num_devices: int | None = None, split_batch: bool | None = None) -> Layout:
    """The layout of so many members over ``jax.devices()``, or the first ``num_devices`` of them.

    ``split_batch`` says whether a single member's batches are spread over them; by default not on a CPU.
    """
    devices = jax.devices()[:num_devices]
    if split_batch is None:
        split_batch = jax.default_backend() != "cpu"
    if num_members == 1 and len(devices) > 1 and split_batch:
        return Layout(1, 1, Mesh(np.asarray(devices), (BATCH,)))
    rounds = -(-num_members // len(devices))
    num_used = -(-num_members // rounds)
    if num_used == 1:
        return Layout(num_members, num_members, None)
    return Layout(num_members, rounds * num_used, Mesh(np.asarray(devices[:num_used]), (AXIS,)))


def spread_batch(batch: Any, mesh: Mesh | None) -> Any:
    """A batch with its rows spread over the devices, where the mesh is one of batches and the rows come out even."""
    if mesh is None or mesh.axis_names != (BATCH,):
        return batch
    sharding = NamedSharding(mesh, Split(BATCH))
    is_even = lambda leaf: leaf.shape[0] % mesh.size == 0
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, sharding) if is_even(leaf) else leaf, batch)


def over_members(one: Callable[..., Any], *own: Any) -> Any:
    """``one`` of every member on this device: one by one on a CPU, else vectorized."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda leaves: one(*leaves), own)
    return jax.vmap(one)(*own)
