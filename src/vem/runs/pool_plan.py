"""Which rows a pool holds at a time, and when each part of it is replaced: a function of the steps done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np

from vem.algorithms.base import Algorithm, Spec, Stage, spec_of
from vem.data.dataset import Dataset
from vem.errors import SettingsError
from vem.runs.capacity import fits
from vem.runs.loop import LONGEST_CHUNK

POOL_ROWS = 1 << 20
"""Rows of the pool, unless told otherwise."""
NUM_SECTIONS = 8
REFRESH_SHARE = 0.1
"""Share of the time that refreshes may take in stages which need none without a pool."""


class Renewal(NamedTuple):
    """When a stage replaces which sections: after every ``period`` steps the next ``num_sections`` in turn."""

    period: int
    num_sections: int


class PoolPlan(NamedTuple):
    """Sections, and what the stages do with them."""

    section_rows: int
    num_sections: int
    renewals: tuple[Renewal, ...]
    """One for each stage."""

    @property
    def num_rows(self) -> int:
        """Rows of the pool."""
        return self.section_rows * self.num_sections

    def renewed(self, stage: int, done: int) -> list[int]:
        """The sections that are replaced before the chunk that begins after ``done`` steps of a stage."""
        period, count = self.renewals[stage]
        if done == 0 or done % period:
            return []
        first = (done // period - 1) * count
        return [(first + offset) % self.num_sections for offset in range(count)]

    def fills(self, stage: int, done: int, num_steps: Sequence[int]) -> Iterator[int]:
        """The sections in the order in which they were filled, up to the chunk after ``done`` steps of ``stage``."""
        yield from range(self.num_sections)
        for index in range(stage + 1):
            period = self.renewals[index].period
            # A stage's last step ends it; nothing is replaced after that.
            last = done if index == stage else num_steps[index] - 1
            for at in range(period, last + 1, period):
                yield from self.renewed(index, at)


def choose_pool_rows(pool_rows: int | None, dataset: Dataset) -> int | None:
    """Rows of the pool that a new run gets: as asked for, else a pool only for shards that are too many to hold."""
    if pool_rows is None:
        pool_rows = POOL_ROWS if dataset.shards is not None and not fits(dataset) else dataset.num_rows
    return None if pool_rows >= dataset.num_rows else pool_rows


def plan_pool(dataset: Dataset, pool_rows: int, make: Callable[[Spec], Algorithm]) -> tuple[Algorithm, PoolPlan]:
    """The method for a pool of about ``pool_rows`` rows, and the plan of the pool.

    ``make`` gives the method for data of the given sizes. Stages whose memory was computed once get a period.
    """
    spec = spec_of(dataset)._replace(num_rows=pool_rows)
    windows = {stage.fresh_rows for stage in make(spec).stages if stage.fresh_rows is not None}
    if len(windows) > 1:
        raise SettingsError("the stages of this method refresh different numbers of rows; train it without a pool")
    window = windows.pop() if windows else None
    if window is not None and pool_rows >= 2 * window:
        section_rows, num_sections = window, pool_rows // window
    else:
        # Here a refresh computes all rows anew, so that any section may be replaced.
        longest = int(np.diff(dataset.episode_ends, prepend=-1).max())
        num_sections = int(np.clip(pool_rows // longest, 2, NUM_SECTIONS))
        section_rows, window = min(pool_rows, window or pool_rows) // num_sections, None
    num_rows = section_rows * num_sections
    algorithm = make(spec._replace(num_rows=num_rows))
    renewals = [_renewal(stage, section_rows, num_sections, window is not None) for stage in algorithm.stages]
    stages = tuple(
        stage._replace(steps_per_refresh=renewal.period)
        if stage.steps_per_refresh is None and _has_memory(stage)
        else stage
        for stage, renewal in zip(algorithm.stages, renewals, strict=True)
    )
    return algorithm._replace(stages=stages), PoolPlan(section_rows, num_sections, tuple(renewals))


def _renewal(stage: Stage, section_rows: int, num_sections: int, is_rolling: bool) -> Renewal:
    """As many rows as the stage draws are replaced, as far as refreshes allow."""
    period = stage.steps_per_refresh
    if period is None and _has_memory(stage):
        # A refresh values each row about twice; a step costs about three times its rows.
        steps = 2 * section_rows * num_sections / (3 * stage.batch_size * REFRESH_SHARE)
        return Renewal(_whole_chunks(steps), num_sections)
    if period is None:
        return Renewal(_whole_chunks(section_rows / stage.batch_size), 1)
    if is_rolling and stage.fresh_rows is not None:
        return Renewal(period, 1)
    drawn = period * stage.batch_size
    return Renewal(period * math.ceil(section_rows / drawn), int(np.clip(drawn // section_rows, 1, num_sections)))


def _whole_chunks(steps: float) -> int:
    return LONGEST_CHUNK * max(1, math.ceil(steps / LONGEST_CHUNK))


def _has_memory(stage: Stage) -> bool:
    return bool(jax.tree.leaves(jax.eval_shape(stage.empty)))
