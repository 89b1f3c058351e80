"""How many steps fit into some minutes of one core: the cost of a step is measured before the run begins.

Every stage is run for some chunks on a state that is thrown away, with the run's own data, trials and programs. The
time is that of the processor, which other work on the machine changes less than the clock's; compiling is not counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from vem.errors import SettingsError
from vem.training.loop import LONGEST_CHUNK, compile_chunk, empty_memory, stage_keys_of, trial_keys
from vem.training.machine import Layout, core_clock, lay_out, refusing_to_run_out
from vem.training.stages import make_plan

if TYPE_CHECKING:
    from vem.algorithms.base import Algorithm
    from vem.training.run import Run


CHUNK_SECONDS = 0.4
"""A measured chunk takes about this long; less where that many steps are more than a chunk has."""
STAGE_SECONDS = 1.2
"""Steps of each stage are measured for so long, in ``FEWEST_CHUNKS`` to ``MOST_CHUNKS`` chunks."""
FEWEST_CHUNKS, MOST_CHUNKS = 3, 12
FEWEST_STEPS, MOST_STEPS = 10, 10**9
DIGITS = 2
"""Of the number of steps: it is not known better."""


class StageCost(NamedTuple):
    """What the parts of a stage take, for all trials together, in seconds of one core."""

    step: float
    first_refresh: float = 0.0
    refresh: float = 0.0
    """Each later one, and the change of the rows where a pool holds them."""
    period: int | None = None
    """Steps between refreshes; None: the first is the only one."""

    def seconds(self, num_steps: int) -> float:
        """What so many steps take with the refreshes that come with them."""
        num_later = 0 if self.period is None else math.ceil(num_steps / self.period) - 1
        return num_steps * self.step + self.first_refresh + num_later * self.refresh


def steps_within(run: Run, minutes: float) -> tuple[int, str]:
    """The steps of a new run that fit into ``minutes`` of one core, to 2 digits, and a sentence that says so."""
    with refusing_to_run_out():
        run.check_memory()
        costs = measure_costs(run)
    algorithm = run.config.algorithm
    make = lambda steps: make_plan(dataclasses.replace(run.config, steps=steps), run.training_data).algorithm
    try:
        steps = fit_steps(make, costs, 60 * minutes)
    except SettingsError as error:
        raise SettingsError(f"--minutes {minutes:g} is too short for {algorithm}: {error}") from None
    each = 1000 * training_seconds(make(steps), costs) / steps
    plural = "" if minutes == 1 else "s"
    return steps, f"{algorithm}: {steps:,} steps fit into {minutes:g} core-minute{plural} ({each:.3g} ms a step)"


def fit_steps(make: Callable[[int], Algorithm], costs: Mapping[str, StageCost], seconds: float) -> int:
    """The largest number of steps, to 2 digits, that takes no longer; ``make`` gives the method with so many.

    SettingsError if hardly any fit.
    """
    least = training_seconds(make(FEWEST_STEPS), costs)
    if least > seconds:
        raise SettingsError(f"its first {FEWEST_STEPS} steps take {least / 60:.2g} core-minutes")
    low, high = FEWEST_STEPS, MOST_STEPS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if training_seconds(make(middle), costs) <= seconds else (low, middle)
    return round(low, DIGITS - len(str(low)))


def training_seconds(algorithm: Algorithm, costs: Mapping[str, StageCost]) -> float:
    """What all stages of a method take together."""
    return sum(costs[stage.name].seconds(stage.num_steps) for stage in algorithm.stages)


def measure_costs(run: Run) -> dict[str, StageCost]:
    """Stage → what its steps and refreshes take, measured on a state of the run that is thrown away."""
    pool, num_trials = run.pool, len(run.config.trials)
    layout = lay_out(num_trials) if pool is None else lay_out(num_trials, num_devices=1)
    state, costs = layout.spread(run.initial().state), {}
    rows = None if pool is not None else layout.share(run.rows)
    try:
        for index, stage in enumerate(run.algorithm.stages):
            if pool is not None:
                pool.close()
                rows = pool.at(index, 0)
            costs[stage.name], state = _measure_stage(run, index, layout, state, rows)
    finally:
        if pool is not None:
            pool.close()
    return costs


def _measure_stage(run: Run, index: int, layout: Layout, state: Any, rows: Any) -> tuple[StageCost, Any]:
    """What a stage costs, and the state after it."""
    stage, pool = run.algorithm.stages[index], run.pool
    memory = layout.spread(empty_memory(stage, layout.num_slots))
    keys = layout.spread(stage_keys_of(trial_keys(run.config.trials), index))
    program = compile_chunk(stage, layout.mesh)
    renewal = None if pool is None else pool.plan.renewals[index].period
    period = stage.steps_per_refresh or renewal

    def chunk(count: int, number: int = -1, done: int = 0) -> float:
        """The seconds of a chunk of ``count`` steps with refresh ``number``, or without one."""
        nonlocal state, memory, rows
        started = core_clock()
        if pool is not None:
            rows = pool.at(index, done)
        given = (state, memory, rows, keys, layout.counts(count))
        state, memory, metrics = program(*given, done, number)
        jax.block_until_ready((state, memory, metrics))
        return core_clock() - started

    chunk(0)  # compiles it
    first = chunk(1, 0)
    step = median(_step_seconds(chunk, min(period or LONGEST_CHUNK, LONGEST_CHUNK)))
    refresh = 0.0
    if period is not None:
        # A pool changes its rows with some of the refreshes only: those between two changes are measured, too.
        count = FEWEST_CHUNKS if renewal is None else FEWEST_CHUNKS * max(1, renewal // period)
        count = min(count, max(1, (stage.num_steps - 1) // period))
        numbers = range(1, count + 1) if stage.steps_per_refresh else [-1] * count
        taken = [chunk(1, number, k * period) - step for k, number in enumerate(numbers, 1)]
        refresh = median(taken) if renewal is None else sum(taken) / count
    return StageCost(step, max(0.0, first - step), max(0.0, refresh), period), state


def _step_seconds(chunk: Callable[[int], float], longest: int) -> Iterator[float]:
    """Measurements of a step, each the mean over a chunk."""
    count = min(4, longest)
    count = max(1, min(longest, int(count * CHUNK_SECONDS / max(chunk(count), 1e-6))))
    total = 0.0
    for number in range(MOST_CHUNKS):
        seconds = chunk(count)
        yield seconds / count
        total += seconds
        if total >= STAGE_SECONDS and number + 1 >= FEWEST_CHUNKS:
            return
