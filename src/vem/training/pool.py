"""The resident pool: some of the rows on the device, replaced by others from the disk while training goes on.

The pool is sections of equal length, each filled with stretches of whole episodes in an order that is random once an
epoch, so that all rows are in the pool equally long. A section is replaced as a whole, between two chunks; the next
ones are read by a thread of their own meanwhile. What the pool holds depends on the seed and on the steps done alone:
a resumed run finds the same rows.

Methods see a pool as they see a dataset, and its memory is theirs. So sections are replaced only where a refresh
values them anew: with a rolling refresh, exactly the rows that are next in turn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vem.algorithms.base import Algorithm, Rows, Spec, Stage, spec_of
from vem.data.dataset import Dataset, RowBlock, Stretch, cut_stretches, pack
from vem.errors import SettingsError
from vem.training.loop import LONGEST_CHUNK
from vem.training.machine import fits
from vem.training.rows import Units, put_rows

# Which rows a pool holds at a time, and when each part of it is replaced: a function of the steps done.


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


STRETCH_ROWS = 8192
"""Rows that are read together, at least; fewer in small sections."""
STRETCHES_PER_SECTION = 8
PREFETCHED = 2
"""Sections that are read ahead."""


class _Section(NamedTuple):
    """The rows of a section, filled up with rows that are not valid; or those of the whole pool on the device."""

    observations: Any
    actions: Any
    rewards: Any
    continues: Any
    valid: Any


class Pool:
    """The rows on the device. ``at`` gives them for a chunk; those given before must not be used any more."""

    def __init__(self, dataset: Dataset, plan: PoolPlan, num_steps: Sequence[int], units: Units, seed: int) -> None:
        self.plan = plan
        self.units = units
        self._dataset = dataset
        self._num_steps = tuple(num_steps)
        self._seed = seed
        self._ends = dataset.episode_ends
        longest = int(np.diff(self._ends, prepend=-1).max())
        most = max(longest, min(STRETCH_ROWS, plan.section_rows // STRETCHES_PER_SECTION))
        self._stretches = cut_stretches(self._ends, min(most, plan.section_rows))
        first = self._contents()
        self._num_drawable = sum(self._count_valid(next(first)) for _ in range(plan.num_sections))
        self._valid = np.zeros(plan.num_rows, np.bool_)
        self._rows: Rows | None = None
        self._position: tuple[int, int] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._jobs: Iterator[tuple[int, list[Stretch]]] = iter(())
        self._reading: deque[tuple[int, Future[_Section]]] = deque()

    @property
    def normalizer(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the observations of all data."""
        return self.units.observation_mean, self.units.observation_deviation

    def at(self, stage: int, done: int) -> Rows:
        """The rows for the chunk that begins after ``done`` steps of a stage."""
        is_new, self._position = self._position != (stage, done), (stage, done)
        if self._rows is None:
            self._rows = self._filled(stage, done)
        elif is_new and (renewed := self.plan.renewed(stage, done)):
            columns = _columns(self._rows)
            for section in renewed:
                expected, read = self._reading.popleft()
                assert section == expected, "sections are read in the order in which they are replaced"
                columns = self._put(columns, section, read.result())
                self._num_fills += 1
                self._read_ahead()
            self._rows = self._assembled(columns)
        return self._rows

    def close(self) -> None:
        """Stop reading, and give the memory back."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._thread, self._rows = None, None
        self._reading.clear()

    def _contents(self) -> Iterator[list[Stretch]]:
        return pack(self._stretches, self._ends, self.plan.section_rows, self._seed)

    def _filled(self, stage: int, done: int) -> Rows:
        """The whole pool as it is at a chunk, and the thread that reads what comes next."""
        contents, held, self._num_fills = self._contents(), {}, 0
        for section in self.plan.fills(stage, done, self._num_steps):
            held[section] = next(contents)
            self._num_fills += 1
        num_rows, dataset = self.plan.num_rows, self._dataset
        columns = _Section(
            observations=jnp.zeros((num_rows, dataset.observation_size), jnp.float32),
            actions=jnp.zeros((num_rows, dataset.action_size), jnp.float32),
            rewards=jnp.zeros(num_rows, jnp.float32),
            continues=jnp.zeros(num_rows, jnp.float32),
            valid=jnp.zeros(num_rows, jnp.bool_),
        )
        for section, stretches in held.items():
            columns = self._put(columns, section, self._read(stretches))
        self._thread = ThreadPoolExecutor(1, "vem-pool")
        self._jobs = self._upcoming(contents, stage, done)
        for _ in range(PREFETCHED):
            self._read_ahead()
        return self._assembled(columns)

    def _upcoming(
        self, contents: Iterator[list[Stretch]], stage: int, done: int
    ) -> Iterator[tuple[int, list[Stretch]]]:
        """The sections that are replaced after a chunk, with what they will hold."""
        for index in range(stage, len(self._num_steps)):
            period = self.plan.renewals[index].period
            after = done if index == stage else 0
            for at in range(after // period * period + period, self._num_steps[index], period):
                for section in self.plan.renewed(index, at):
                    yield section, next(contents)

    def _read_ahead(self) -> None:
        job = next(self._jobs, None)
        if job is not None and self._thread is not None:
            self._reading.append((job[0], self._thread.submit(self._read, job[1])))

    def _read(self, stretches: list[Stretch]) -> _Section:
        """A section in the units of the method."""
        dataset, units, length = self._dataset, self.units, self.plan.section_rows
        rows = RowBlock(
            observations=np.empty((length, dataset.observation_size), np.float32),
            actions=np.zeros((length, dataset.action_size), np.float32),
            rewards=np.zeros(length, np.float32),
            valid=np.zeros(length, np.bool_),
            terminal=np.zeros(length, np.bool_),
        )
        end = 0
        for stretch in stretches:
            start, end = end, end + stretch.num_rows
            for column, values in zip(rows, dataset.block(stretch.start, stretch.stop), strict=True):
                column[start:end] = values
            if stretch.is_cut:
                for column in (rows.actions, rows.rewards, rows.valid, rows.terminal):
                    column[end - 1] = 0
        # Networks see the rows that fill up, too, so they get an observation that exists.
        rows.observations[end:] = rows.observations[end - 1]
        held = Dataset(*(column[:end] for column in rows), info=dataset.info)
        on_host: Any = np.asarray
        scaled = put_rows(held, reward_scale=units.reward_scale, reward_shift=units.reward_shift, place=on_host)
        rows.actions[:end] = scaled.actions
        rows.rewards[:end] = scaled.rewards / np.float32(units.value_unit)
        continues = np.zeros(length, np.float32)
        continues[:end] = scaled.continues
        return _Section(rows.observations, rows.actions, rows.rewards, continues, rows.valid)

    def _put(self, columns: _Section, section: int, content: _Section) -> _Section:
        start = section * self.plan.section_rows
        self._valid[start : start + self.plan.section_rows] = content.valid
        return _replace_rows(columns, content, start)

    def _assembled(self, columns: _Section) -> Rows:
        mean, deviation = self.normalizer
        return Rows(
            *columns,
            drawable=jnp.asarray(self._drawable()),
            observation_mean=jnp.asarray(mean),
            observation_deviation=jnp.asarray(deviation),
            value_unit=jnp.asarray(self.units.value_unit, jnp.float32),
        )

    def _drawable(self) -> np.ndarray:
        """Valid rows, always as many: some chosen at random are left out or listed twice, so that all are alike."""
        rows = np.flatnonzero(self._valid).astype(np.int32)
        surplus = len(rows) - self._num_drawable
        random = np.random.default_rng((self._seed, self._num_fills))
        if surplus >= 0:
            return np.delete(rows, random.choice(len(rows), surplus, replace=False))
        return np.concatenate([rows, rows[random.choice(len(rows), -surplus)]])

    def _count_valid(self, stretches: list[Stretch]) -> int:
        bounds = np.array([(stretch.start, stretch.stop) for stretch in stretches])
        num_ends = np.diff(np.searchsorted(self._ends, bounds)).sum()
        return int(np.diff(bounds).sum() - num_ends - sum(stretch.is_cut for stretch in stretches))


def _columns(rows: Rows) -> _Section:
    return _Section(*rows[: len(_Section._fields)])


@partial(jax.jit, donate_argnums=0)
def _replace_rows(columns: _Section, content: _Section, start: int) -> _Section:
    """The columns with the rows from ``start`` on replaced, in place."""
    return jax.tree.map(lambda rows, new: jax.lax.dynamic_update_slice_in_dim(rows, new, start, 0), columns, content)
