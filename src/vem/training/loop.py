"""The only training loop: a generator over compiled chunks of steps.

Several trials (seeds, and values of swept settings) train in one program, laid over the devices
(``vem.training.machine``). The keys of an update depend on the seed, the stage and the update's number alone, so the
result does not depend on where the loop was cut into chunks, stopped or resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Split

from vem.algorithms.base import Algorithm, Memory, Metrics, Rows, Stage, State
from vem.errors import DivergenceError
from vem.training.machine import AXIS, Layout, core_clock, lay_out, once_options, over_trials, update_options
from vem.training.request import Trial
from vem.training.rows import draw_batch

LONGEST_CHUNK = 200
"""Updates between two reports at most."""


class Snapshot(NamedTuple):
    """Where a run stands: all that the rest of it depends on. Leading axis of the arrays: trials."""

    stage: int
    done: int
    """Updates done in this stage."""
    state: State
    memory: Memory


class Progress(NamedTuple):
    """What a chunk did. The arrays of ``snapshot`` are given to the next chunk: use or copy them before going on."""

    stage: Stage
    steps: int
    """Updates done in the whole run."""
    num_steps: int
    metrics: dict[str, np.ndarray]
    """Means over the chunk's steps, one entry a trial."""
    layout: Layout
    whole: Snapshot
    """Where the run stands, with the layout's empty slots."""
    core_seconds: float = 0.0
    """Time that training took so far on all cores together, since it was begun or resumed; compiling not counted."""

    @property
    def snapshot(self) -> Snapshot:
        """Where the run stands."""
        whole = self.whole
        return whole._replace(state=self.layout.gather(whole.state), memory=self.layout.gather(whole.memory))


def start(algorithm: Algorithm, trials: Sequence[Trial], swept: dict[str, float]) -> Snapshot:
    """The state before the first update. ``swept`` holds the values of sweepable settings that the trials share."""
    keys = trial_keys(trials)
    settings = [{**swept, **trial.swept} for trial in trials]
    values = {name: jnp.asarray([own[name] for own in settings], jnp.float32) for name in settings[0]}
    own = jax.vmap(lambda key: jax.random.fold_in(key, 2**31 - 1))(keys)
    # Options belong to a program of its own, and this one may be part of another where only shapes are asked for.
    options = None if isinstance(own, Tracer) else once_options()
    state = jax.jit(jax.vmap(algorithm.init), compiler_options=options)(own, values)
    return Snapshot(0, 0, state, empty_memory(algorithm.stages[0], len(trials)))


def train(
    algorithm: Algorithm,
    rows: Rows,
    trials: Sequence[Trial],
    snapshot: Snapshot,
    largest_value: float = float("inf"),
    renew: Callable[[int, int], Rows] | None = None,
    first_program: Callable[[], Any] | None = None,
    next_stop: Callable[[int], int] | None = None,
) -> Iterator[Progress]:
    """Train from ``snapshot`` to the end, yielding after each chunk.

    ``renew`` gives the rows for the chunk that begins after so many steps of a stage, where they change on the way.
    ``first_program`` gives the program of the snapshot's stage, where it was compiled ahead. ``next_stop`` gives, for
    the steps that are done, those after which a chunk has to end.

    Raises DivergenceError when a metric stops being finite, ``value_largest`` exceeds ``largest_value``, or the
    weights of the policy's rows sum to 0.
    """
    # Rows that change on the way are on one device: a copy of all of them for each would have to change too.
    layout = lay_out(len(trials)) if renew is None else lay_out(len(trials), num_devices=1)
    rows, keys = layout.share(rows), trial_keys(trials)
    num_steps = sum(stage.num_steps for stage in algorithm.stages)
    before = sum(stage.num_steps for stage in algorithm.stages[: snapshot.stage])
    first, done, state, memory = snapshot
    state, memory = layout.spread((state, memory))
    core_seconds = 0.0
    for index in range(first, len(algorithm.stages)):
        stage = algorithm.stages[index]
        if index > first:
            done, memory = 0, layout.spread(empty_memory(stage, layout.num_slots))
        stage_keys = layout.spread(stage_keys_of(keys, index))
        if first_program and index == first:
            run_chunk = first_program()
        else:
            run_chunk = compile_chunk(stage, layout.mesh)
            rows = rows if renew is None or done == stage.num_steps else renew(index, done)
            # A chunk of no steps compiles the program and changes nothing.
            state, memory, _ = run_chunk(state, memory, rows, stage_keys, layout.counts(0), done, -1)
        while done < stage.num_steps:
            count, refresh_index = _next_chunk(stage, done)
            if next_stop is not None:
                count = min(count, next_stop(before + done) - before - done)
            started = core_clock()
            if renew is not None:
                rows = renew(index, done)
            counts = layout.counts(count)
            state, memory, metrics = run_chunk(state, memory, rows, stage_keys, counts, done, refresh_index)
            done += count
            metrics = {name: np.asarray(layout.gather(values)) for name, values in metrics.items()}
            core_seconds += core_clock() - started
            _check(metrics, trials, stage, before + done, largest_value)
            whole = Snapshot(index, done, state, memory)
            yield Progress(stage, before + done, num_steps, metrics, layout, whole, core_seconds)
        before += stage.num_steps


def compile_chunk(stage: Stage, mesh: Mesh | None = None) -> Any:
    """The stage's one program: (state, memory, rows, keys, counts, done, refresh or −1) → (state, memory, metrics).

    State, memory, keys and counts have one entry a trial; one with a count of 0 stays as it is.
    """

    def chunk(
        state: State, memory: Memory, rows: Rows, keys: jax.Array, counts: jax.Array, done: Any, refresh_index: Any
    ) -> tuple[State, Memory, Metrics]:
        def trial_chunk(state: State, memory: Memory, key: jax.Array, count: jax.Array) -> Any:
            refresh_key = jax.random.fold_in(jax.random.fold_in(key, 1), done)
            state, memory = jax.lax.cond(
                (refresh_index >= 0) & (count > 0),
                lambda state, memory: stage.refresh(state, memory, rows, refresh_index, refresh_key),
                lambda state, memory: (state, memory),
                state,
                memory,
            )
            update_key = jax.random.fold_in(key, 0)

            def step(index: jax.Array, carry: tuple[State, Metrics]) -> tuple[State, Metrics]:
                state, sums = carry
                draw_key, key = jax.random.split(jax.random.fold_in(update_key, done + index))
                batch = draw_batch(stage, memory, rows, draw_key)
                state, metrics = stage.update(state, memory, batch, key)
                return state, jax.tree.map(jnp.add, sums, metrics)

            shapes = jax.eval_shape(lambda: stage.update(state, memory, draw_batch(stage, memory, rows, key), key)[1])
            zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
            state, sums = jax.lax.fori_loop(0, count, step, (state, zeros))
            return state, memory, jax.tree.map(lambda total: total / jnp.maximum(count, 1), sums)

        return over_trials(trial_chunk, state, memory, keys, counts)

    options = update_options()
    if mesh is not None:
        own, shared = Split(AXIS), Split()
        specs = (own, own, shared, own, own, shared, shared)
        chunk = jax.shard_map(chunk, mesh=mesh, in_specs=specs, out_specs=own, check_vma=False)
        # Said again for arrays without elements, which XLA would return whole: log σ where all actions are choices.
        spread = NamedSharding(mesh, own)
        return jax.jit(chunk, donate_argnums=(0, 1), out_shardings=spread, compiler_options=options)
    return jax.jit(chunk, donate_argnums=(0, 1), compiler_options=options)


def compile_ahead(stage: Stage, state: State, rows: Rows, num_trials: int) -> Callable[[], Any]:
    """Begin to compile the stage's program for arrays of these shapes in a thread; what is returned waits for it."""
    layout = lay_out(num_trials)
    memory = jax.eval_shape(lambda: empty_memory(stage, num_trials))
    keys, counts = jax.eval_shape(lambda: (trial_keys([Trial(0, {})] * num_trials), jnp.zeros(num_trials, jnp.int32)))
    own, shared = layout.shapes((state, memory, keys, counts), True), layout.shapes(rows, False)
    program = compile_chunk(stage, layout.mesh)
    executor = ThreadPoolExecutor(1, thread_name_prefix="compile")
    compiled = executor.submit(lambda: program.lower(*own[:2], shared, *own[2:], 0, 0).compile())
    executor.shutdown(wait=False)
    return compiled.result


def _next_chunk(stage: Stage, done: int) -> tuple[int, int]:
    """How many steps the chunk at ``done`` has, and the number of its refresh, or −1 for none."""
    period = stage.steps_per_refresh or stage.num_steps
    refresh_index = done // period if done % period == 0 else -1
    in_period = done % period
    until = min(in_period + LONGEST_CHUNK - in_period % LONGEST_CHUNK, period)
    return min(until - in_period, stage.num_steps - done), refresh_index


def trial_keys(trials: Sequence[Trial]) -> jax.Array:
    """One key for each trial, from its seed."""
    return jnp.stack([jax.random.key(trial.seed) for trial in trials])


def stage_keys_of(keys: jax.Array, index: int) -> jax.Array:
    """The trials' keys in a stage."""
    return jax.vmap(lambda key: jax.random.fold_in(key, index))(keys)


def empty_memory(stage: Stage, num_trials: int) -> Memory:
    """The trials' memories before the first refresh."""
    return jax.tree.map(lambda leaf: jnp.zeros((num_trials, *leaf.shape), leaf.dtype), jax.eval_shape(stage.empty))


def _check(metrics: dict[str, np.ndarray], trials: Sequence[Trial], stage: Stage, steps: int, largest: float) -> None:
    unweighted = np.flatnonzero(np.isnan(metrics.get("effective_share", np.ones(1))))
    if unweighted.size:
        raise DivergenceError(
            f"the policy of {trials[int(unweighted[0])].name} has no row to learn from at update {steps}: all "
            "weights are 0; set --drop-below lower or leave it out, or raise the temperature"
        )
    for name, values in metrics.items():
        broken = np.flatnonzero(~np.isfinite(values) | ((values > largest) if name == "value_largest" else False))
        if broken.size:
            trial = trials[int(broken[0])]
            raise DivergenceError(
                f"training diverged: {name} of {trial.name} is {values[broken[0]]:.4g} at update {steps} "
                f"(stage {stage.name}; values stay below {largest:.4g}); try a smaller --expectile, a smaller "
                "learning rate, or a smaller --target-rate, and look at the rewards with `vem data describe`"
            )
