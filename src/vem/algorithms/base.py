"""What a method is: a NamedTuple of pure functions over arrays, run by ``vem.runs.loop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vem.core import memory
from vem.core.heads import Head, make_head
from vem.data.action_columns import choices_of
from vem.data.dataset import Dataset
from vem.data.facts import typical_steps, unrewarded_share

State = Any
"""A pytree of arrays: parameters, targets, optimizer states, and the swept settings under ``swept``."""
Memory = Any
"""A pytree of arrays computed from the state and all rows: what a refresh writes and the steps read."""
Metrics = dict[str, jax.Array]


class Rows(NamedTuple):
    """A Dataset on the device, in the units that networks see."""

    observations: jax.Array
    """As recorded; ``observe`` normalizes them."""
    actions: jax.Array
    """Numbers mapped so that the bounds are ±1; codes of choices as they are."""
    rewards: jax.Array
    continues: jax.Array
    """1, or 0 where the step ended the MDP."""
    valid: jax.Array
    drawable: jax.Array
    """Indices of the rows that training draws."""
    observation_mean: jax.Array
    observation_deviation: jax.Array
    value_unit: jax.Array
    """The reward's unit was divided by this; values times it are in the recorded unit."""

    def observe(self, observations: jax.Array) -> jax.Array:
        """Observations as the networks see them."""
        return (observations - self.observation_mean) / self.observation_deviation


class Batch(NamedTuple):
    """Drawn transitions."""

    rows: jax.Array
    observations: jax.Array
    actions: jax.Array
    rewards: jax.Array
    continues: jax.Array
    next_observations: jax.Array


class Spec(NamedTuple):
    """The static facts of the data that decide shapes."""

    observation_size: int
    action_size: int
    num_rows: int
    typical_steps: int = 1
    """Steps of the episode that the median transition is in."""
    unrewarded: float = 0.0
    """Share of the steps after which their own recording earns nothing more than its smallest reward."""
    choices: tuple[int, ...] = ()
    """Number of choices of each action column, 0 for numbers; empty: numbers only."""

    @property
    def head(self) -> Head:
        """What a policy network's outputs say about such actions."""
        return make_head(self.action_size, self.choices)


def draw_uniformly(memory: Memory, rows: Rows, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows with an action, all equally likely, with replacement."""
    return rows.drawable[jax.random.randint(key, (count,), 0, rows.drawable.size)]


class Stage(NamedTuple):
    """A phase of training: refreshes of the memory and, between them, steps of the state."""

    name: str
    num_steps: int
    steps_per_refresh: int | None
    """None: one refresh, at the start of the stage."""
    batch_size: int
    empty: Callable[[], Memory]
    """A memory of the right shapes, before the first refresh."""
    refresh: Callable[[State, Memory, Rows, jax.Array, jax.Array], tuple[State, Memory]]
    """(state, memory, rows, number of refreshes so far in this stage, key) → (state, memory)."""
    update: Callable[[State, Memory, Batch, jax.Array], tuple[State, Metrics]]
    draw: Callable[[Memory, Rows, int, jax.Array], jax.Array] = draw_uniformly
    """(memory, rows, batch size, key) → indices of the rows of an update."""
    successor: Callable[[Memory, jax.Array, jax.Array], jax.Array] | None = None
    """(memory, drawn rows, key) → the rows whose observations are ``next_observations``; None: the rows after."""
    trains_policy: bool = True
    """False where the policy stays as it is, so that evaluating it on the way would show nothing."""
    fresh_rows: int | None = None
    """Rows, in whole slices, that each refresh after the first values anew, in turn; None: it computes all anew."""


class Algorithm(NamedTuple):
    """A method bound to its settings and to the sizes of the data."""

    name: str
    init: Callable[[jax.Array, dict[str, jax.Array]], State]
    """(key, swept settings) → state."""
    stages: tuple[Stage, ...]
    export: Callable[[State], dict[str, Any]]
    """state → the pytree that the policy file holds."""
    policy_kind: str
    """How ``vem.policy`` acts with it."""


def spec_of(dataset: Dataset) -> Spec:
    """The facts of a dataset that decide shapes and plans."""
    sizes = (dataset.observation_size, dataset.action_size, dataset.num_rows)
    choices = choices_of(dataset.info.action_columns)
    if dataset.shards is not None:
        facts = dataset.shards.facts
        return Spec(*sizes, facts.typical_steps, facts.unrewarded, choices)
    return Spec(*sizes, typical_steps(dataset.episode_lengths), unrewarded_share(dataset), choices)


def no_memory() -> Memory:
    """The memory of methods that have none."""
    return ()


def no_refresh(state: State, memory: Memory, rows: Rows, index: jax.Array, key: jax.Array) -> tuple[State, Memory]:
    """The refresh of methods that have no memory."""
    return state, memory


def put_rows(
    dataset: Dataset,
    normalize_observations: bool = False,
    normalize_rewards: bool = False,
    reward_scale: float = 1.0,
    reward_shift: float = 0.0,
    return_span: float | None = None,
    discount: float = 0.99,
    place: Callable[[np.ndarray], jax.Array] = jnp.asarray,
) -> Rows:
    """The dataset on the device, where ``place`` puts each array.

    Numbers among the actions are mapped to ±1, codes of choices stay as they are. Rewards become scale·r + shift, and
    are then, if normalized, divided by the largest discounted return recorded, so that values are of order 1 whatever
    the task's unit; or, with a return span, divided so that the episodes' undiscounted returns are this far apart at
    most.
    """
    low, high = (
        np.asarray(dataset.info.action_low, np.float32),
        np.asarray(dataset.info.action_high, np.float32),
    )
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-6)
    if choices := choices_of(dataset.info.action_columns):
        is_choice = np.asarray(choices) > 0
        middle, half = np.where(is_choice, np.float32(0), middle), np.where(is_choice, np.float32(1), half)
    actions = dataset.actions
    if not (np.all(middle == 0) and np.all(half == 1)):
        actions = np.where(dataset.valid[:, None], (actions - middle) / half, 0).astype(np.float32)
    rewards = dataset.rewards
    if (reward_scale, reward_shift) != (1.0, 0.0):
        rewards = np.where(dataset.valid, rewards * reward_scale + reward_shift, 0).astype(np.float32)
    unit = 1.0
    if normalize_rewards:
        unit = float(np.abs(discounted_returns(rewards, dataset.valid, discount)).max()) or 1.0
    elif return_span is not None:
        returns = np.add.reduceat(rewards.astype(np.float64), dataset.episode_starts)
        unit = float(np.ptp(returns)) / return_span or 1.0
    rewards = rewards / np.float32(unit)
    mean, deviation = (
        np.zeros(dataset.observation_size, np.float32),
        np.ones(dataset.observation_size, np.float32),
    )
    if normalize_observations:
        mean, deviation = observation_statistics(dataset.observations)
    drawable = np.flatnonzero(dataset.valid)
    return Rows(
        observations=place(dataset.observations),
        actions=place(actions),
        rewards=place(rewards),
        continues=place(np.where(dataset.terminal, 0, 1).astype(np.float32)),
        valid=place(dataset.valid),
        drawable=place(drawable.astype(np.int32)),
        observation_mean=place(mean),
        observation_deviation=place(deviation),
        value_unit=place(np.asarray(unit, np.float32)),
    )


def rows_shape(dataset: Dataset) -> Rows:
    """The shapes of what ``put_rows`` makes of a dataset."""
    count, observed, number = dataset.num_rows, dataset.observation_size, jnp.float32
    shape: Any = jax.ShapeDtypeStruct
    return Rows(
        observations=shape((count, observed), number),
        actions=shape((count, dataset.action_size), number),
        rewards=shape((count,), number),
        continues=shape((count,), number),
        valid=shape((count,), jnp.bool_),
        drawable=shape((dataset.num_transitions,), jnp.int32),
        observation_mean=shape((observed,), number),
        observation_deviation=shape((observed,), number),
        value_unit=shape((), number),
    )


def observation_statistics(observations: np.ndarray, block: int = 65536) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of each dimension, at least 10⁻³, in blocks: float64 would double the data."""
    blocks = [observations[start : start + block] for start in range(0, len(observations), block)]
    mean = np.sum([rows.sum(0, dtype=np.float64) for rows in blocks], axis=0) / len(observations)
    variance = np.sum([np.square(rows - mean).sum(0) for rows in blocks], axis=0) / len(observations)
    return mean.astype(np.float32), np.maximum(np.sqrt(variance), 1e-3).astype(np.float32)


def discounted_returns(
    rewards: np.ndarray, valid: np.ndarray, discount: float, continues: np.ndarray | None = None
) -> np.ndarray:
    """Σ γⁱ·r_{t+i} to the end of each row's episode; ``continues`` holds other factors than γ, one for each row."""
    zeros = jnp.zeros((1, rewards.size))
    factors = np.full(rewards.size, discount, np.float32) if continues is None else continues.astype(np.float32)
    steps = memory.Steps(jnp.asarray(rewards), jnp.asarray(factors), jnp.asarray(valid))
    return np.asarray(jax.jit(memory.monte_carlo)(zeros, steps))[0]


def gather(rows: Rows, index: jax.Array, successor: jax.Array | None = None) -> Batch:
    """The transitions of these rows, or their moves to the rows ``successor``."""
    return Batch(
        rows=index,
        observations=rows.observe(rows.observations[index]),
        actions=rows.actions[index],
        rewards=rows.rewards[index],
        continues=rows.continues[index],
        next_observations=rows.observe(rows.observations[index + 1 if successor is None else successor]),
    )


def draw_batch(stage: Stage, memory: Memory, rows: Rows, key: jax.Array) -> Batch:
    """The transitions of an update, drawn as the stage draws them."""
    index = stage.draw(memory, rows, stage.batch_size, key)
    if stage.successor is None:
        return gather(rows, index)
    return gather(rows, index, stage.successor(memory, index, jax.random.fold_in(key, 1)))
