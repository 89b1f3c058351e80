"""What trains: the stages of a method for a request, and those that are added when a run goes on."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vem.algorithms.base import Algorithm, Rows, Spec, Stage, find_method, spec_of
from vem.data.dataset import Dataset
from vem.training.pool import PoolPlan, plan_pool
from vem.training.request import Request


class Plan(NamedTuple):
    """A method bound to the data and the steps of a request."""

    request: Request
    algorithm: Algorithm
    pool: PoolPlan | None


def make_plan(request: Request, dataset: Dataset) -> Plan:
    """The plan for the rows that training sees."""
    make = partial(make_rounds, request)
    if request.pool_rows is None:
        return Plan(request, make(spec_of(dataset)), None)
    return Plan(request, *plan_pool(dataset, request.pool_rows, make))


def make_rounds(request: Request, spec: Spec) -> Algorithm:
    """The method with its stages once for each time that the run was gone on with.

    A later round trains all stages but those of a first start again, with the steps that were added shared as in a run
    of so many; they go on with the networks and optimizers of the round before. Schedules of learning rates that have
    ended stay at their end, unless the request restarts them there.
    """
    method = find_method(request.algorithm)
    make = partial(method.make, request.configuration, spec)
    if not request.ends:
        return make(request.steps)
    algorithm = make(request.ends[0])
    stages, programs = list(algorithm.stages), [stage for stage in algorithm.stages if not stage.only_first]
    for before, after in zip(request.ends, (*request.ends[1:], request.steps), strict=True):
        added, skipped = [], 0
        for stage in make(after - before).stages:
            if stage.only_first:
                skipped += stage.num_steps
            else:
                added.append(stage._replace(num_steps=stage.num_steps + skipped))
                skipped = 0
        if before in request.restarts:
            programs = added
            added = [added[0]._replace(refresh=partial(_restarting, added[0])), *added[1:]]
        else:
            lengths = [stage.num_steps for stage in added]
            added = [stage._replace(num_steps=count) for stage, count in zip(programs, lengths, strict=True)]
        stages += added
    return algorithm._replace(stages=tuple(stages))


def _restarting(stage: Stage, state: Any, memory: Any, rows: Rows, index: jax.Array, key: jax.Array) -> Any:
    """The refresh of a stage whose first one also sets the schedules of learning rates to their beginning."""

    def restarted(part: Any) -> Any:
        if not _is_schedule(part):
            return part
        return part._replace(count=jnp.where(index == 0, jnp.zeros_like(part.count), part.count))

    return stage.refresh(jax.tree.map(restarted, state, is_leaf=_is_schedule), memory, rows, index, key)


def _is_schedule(part: Any) -> bool:
    return isinstance(part, optax.ScaleByScheduleState)


def has_schedule(state: Any) -> bool:
    """Whether a learning rate of this state follows a schedule."""
    return any(map(_is_schedule, jax.tree.leaves(state, is_leaf=_is_schedule)))
