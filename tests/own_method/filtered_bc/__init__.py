"""A method in a package of its own: behavior cloning of the rows with the largest rewards."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import vem
from vem.algorithms import bc
from vem.algorithms.base import Algorithm, Spec, setting


@dataclass(frozen=True)
class FilteredBC(bc.BC):
    """BC, and how many rows it clones."""

    kept: float = setting(0.5, "Share of the rows that is cloned, those with the largest rewards", "positive share")


def make(config: FilteredBC, spec: Spec, num_steps: int) -> Algorithm:
    """Behavior cloning that draws its rows among the best."""
    algorithm = bc.make(config, spec, num_steps)

    def draw(memory, rows, count, key):
        rewards = jnp.where(rows.valid, rows.rewards, -jnp.inf)
        number = max(1, int(config.kept * len(rows.rewards)))
        return jax.random.choice(key, jax.lax.top_k(rewards, number)[1], (count,))

    return algorithm._replace(stages=tuple(stage._replace(draw=draw) for stage in algorithm.stages))


vem.register("filtered-bc", FilteredBC, make, "behavior cloning of the rows with the largest rewards")
