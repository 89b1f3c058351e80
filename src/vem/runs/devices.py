"""How the members of a run are laid over devices: the cores of the machine, or its accelerators.

On a CPU each core is a device of its own and trains its members one after another, each alone: one thread a member
wastes less than several threads on one small matrix product, and a member's numbers do not depend on the others or on
the number of cores. On an accelerator the members of a device are one vectorized program.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Split

from vem.data.alignment import aligned

AXIS = "members"


def prepare_devices() -> None:
    """Make each core that this process may use a device, if JAX has not started yet and nobody chose otherwise."""
    if jax.config.values["jax_num_cpu_devices"] > 0 or "device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:  # JAX has started: its devices are used as they are
        return


class Layout(NamedTuple):
    """Members over devices: as many of them on each, and slots without a member where that does not come out even."""

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
            return leaf if self.mesh is None else jax.device_put(leaf, NamedSharding(self.mesh, Split(AXIS)))

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

    def counts(self, count: int) -> jax.Array:
        """``count`` for each member and 0 for each empty slot."""
        return self.spread(
            jnp.asarray([count] * self.num_members + [0] * (self.num_slots - self.num_members), jnp.int32)
        )


def lay_out(num_members: int, num_devices: int | None = None) -> Layout:
    """The layout of so many members over ``jax.devices()``, or the first ``num_devices`` of them."""
    devices = jax.devices()[:num_devices]
    rounds = -(-num_members // len(devices))
    num_used = -(-num_members // rounds)
    if num_used == 1:
        return Layout(num_members, num_members, None)
    return Layout(num_members, rounds * num_used, Mesh(np.asarray(devices[:num_used]), (AXIS,)))


def over_members(one: Callable[..., Any], *own: Any) -> Any:
    """``one`` of every member on this device: one by one on a CPU, else vectorized."""
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda leaves: one(*leaves), own)
    return jax.vmap(one)(*own)
