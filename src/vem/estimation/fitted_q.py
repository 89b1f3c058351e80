"""Fitted Q evaluation: Q of a fixed policy from recorded steps, as an Algorithm of the training loop.

    plain              Q(s, a, h) ← r + γ·Q̄(s′, π(s′), h − 1),  nothing after a terminal or the horizon's last step
    support-weighted   the same with w·Q̄(s′, π(s′), h − 1) + (1 − w)·L(h − 1) instead of Q̄

h is the number of steps left. w is 1 where the log holds actions like the policy's and falls to 0 where it holds none
(``importance.py``), and L is what poor steps earn: the second Q takes for lost what no trajectory shows. Both are
outputs of one network. Every trial is fitted to trajectories drawn with replacement: their spread says how far the
answer depends on the trajectories that happen to be there. Two stages: the first regresses on the returns of the log,
the value of the behavior, and the second replaces the behavior by the policy. Starting from the log's values, rather
than from zero, leaves the second stage only the difference to learn.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vem.algorithms.base import Algorithm, Batch, Metrics, Rows, Spec, Stage, spec_of
from vem.estimation.log import Log
from vem.networks import Network, Shares, apply_network, cumulate, descend, draw_rows, empty_shares, init_network
from vem.training.loop import start, train
from vem.training.request import Trial
from vem.training.rows import put_rows

HIDDEN = (128, 128)
BATCH_SIZE = 128
LEARNING_RATE = 1e-3
TARGET_RATE = 0.05
RETURNS_STEPS = 500
LEAST_STEPS, MOST_STEPS = 3000, 5000
EPOCHS = 4
NUM_TRIALS = 5
VALUED_ROWS = 8192
POOR_SHARE = 0.01


class FQEState(NamedTuple):
    """A network, its target and its optimizer."""

    critic: Network
    target: Network
    opt_state: Any
    key: jax.Array
    """Decides the trajectories that the trial is fitted to."""
    swept: dict[str, jax.Array]


class Unit(NamedTuple):
    """Q = middle·m + spread·network, where m is the share of the horizon's discounted steps that is left."""

    middle: float
    spread: float
    going: tuple[float, float]
    """The least and the most that H steps can earn which go on, with the rewards of the log."""
    ending: tuple[float, float]
    """The least and the most that a step can earn which ends the task."""
    poor: float
    """What H steps earn with a reward that all but a hundredth of the log's steps reach."""
    may_end: bool
    """Whether the log has steps that end the task."""

    def clip(self, q: Any, mass: Any) -> Any:
        """Q within what the steps that are left can earn: in all of them, or by ending the task."""
        (low, high), (least, most) = self.going, self.ending
        return q.clip((mass * low).clip(max=least), (mass * high).clip(min=most))

    def lost(self, mass: Any) -> Any:
        """L: what is left to earn where the policy has left the data."""
        poor = mass * self.poor
        return poor.clip(max=self.ending[0]) if self.may_end else poor


class FittedQ(NamedTuple):
    """Fitted networks of one policy."""

    critics: Network
    """Stacked, one for each trial."""
    unit: Unit
    observation_mean: np.ndarray
    observation_deviation: np.ndarray
    spec: Spec

    def values(self, observations: np.ndarray, mass: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Q of each trial in each row, (plain and support-weighted, trials, rows); actions in the networks' units."""
        parts = []
        for at in range(0, len(observations), VALUED_ROWS):
            rows = slice(at, at + VALUED_ROWS)
            observed = (observations[rows] - self.observation_mean) / self.observation_deviation
            encoded = np.asarray(self.spec.head.encode(jnp.asarray(actions[rows])))
            inputs = np.concatenate([observed, mass[rows, None], encoded], axis=1)
            # Whole blocks, so that one program values them all.
            padded = np.pad(inputs, ((0, VALUED_ROWS - len(inputs)), (0, 0)))
            found = _apply_all(self.critics, jnp.asarray(padded))[:, : len(inputs)]
            parts.append(np.moveaxis(np.asarray(found, np.float64), 2, 0))
        scaled = np.concatenate(parts, axis=2)
        q = self.unit.middle * mass + self.unit.spread * scaled
        return self.unit.clip(q, mass)


@jax.jit
def _apply_all(critics: Network, inputs: jax.Array) -> jax.Array:
    return jax.lax.map(lambda critic: apply_network(critic, inputs), critics)


def fit(
    log: Log,
    policy_actions: np.ndarray,
    support: np.ndarray,
    num_steps: int | None = None,
    num_trials: int = NUM_TRIALS,
    seed: int = 0,
) -> FittedQ:
    """The networks of a policy whose action in each row of the log is given, in the networks' units.

    ``support`` holds w of these actions.
    """
    spec, unit = spec_of(log.dataset), find_unit(log)
    rows, mean, deviation = _put(log, policy_actions, support, spec)
    steps = num_steps or choose_steps(log)
    algorithm = make(spec, unit, log, steps)
    trials = [Trial(seed + index, {}) for index in range(num_trials)]
    chunks = train(algorithm, rows, trials, start(algorithm, trials, {"discount": log.discount}))
    critics = jax.device_get(deque(chunks, maxlen=1).pop().snapshot.state.critic)
    return FittedQ(critics, unit, mean, deviation, spec)


def choose_steps(log: Log) -> int:
    """Steps of the second stage: four times through the data, within limits."""
    return int(np.clip(EPOCHS * log.dataset.num_transitions // BATCH_SIZE, LEAST_STEPS, MOST_STEPS))


def find_unit(log: Log) -> Unit:
    """The unit in which the log's values are of order 1, and what H steps can earn at least and at most."""
    rewards = log.dataset.rewards[log.dataset.valid].astype(np.float64)
    known = log.is_known if log.is_known.any() else log.dataset.valid
    returns, mass = log.returns[known].astype(np.float64), log.mass[known].astype(np.float64)
    middle = float(returns @ mass / (mass @ mass))
    spread = float((returns - middle * mass).std()) or float(np.abs(returns).max()) or 1.0
    total = log.horizon if log.discount == 1 else (1 - log.discount**log.horizon) / (1 - log.discount)
    is_last = log.dataset.terminal[log.dataset.valid]
    going, ending = (_extremes(part) for part in (total * rewards[~is_last], rewards[is_last]))
    poor = float(total * np.quantile(rewards, POOR_SHARE))
    return Unit(middle, spread, going, ending, poor, bool(is_last.any()))


def _extremes(values: np.ndarray) -> tuple[float, float]:
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)


def _put(log: Log, policy_actions: np.ndarray, support: np.ndarray, spec: Spec) -> tuple[Rows, np.ndarray, np.ndarray]:
    """The rows with more beside the observations: [s, m, π(s), w, trajectory, return, is it whole]."""
    rows = put_rows(log.dataset, normalize_observations=True)
    mean, deviation = np.asarray(rows.observation_mean), np.asarray(rows.observation_deviation)
    encoded = np.asarray(spec.head.encode(jnp.asarray(policy_actions)))
    extra = [
        log.mass[:, None],
        encoded,
        support[:, None],
        log.episode[:, None],
        log.returns[:, None],
        log.is_known[:, None].astype(np.float32),
    ]
    observations = np.concatenate([log.dataset.observations, *extra], axis=1, dtype=np.float32)
    num_extra = observations.shape[1] - len(mean)
    goes_on = ~log.dataset.terminal & (log.remaining > 1)
    rows = rows._replace(
        observations=jnp.asarray(observations),
        continues=jnp.asarray(goes_on.astype(np.float32)),
        observation_mean=jnp.asarray(np.pad(mean, (0, num_extra))),
        observation_deviation=jnp.asarray(np.pad(deviation, (0, num_extra), constant_values=1)),
    )
    return rows, mean, deviation


def make(spec: Spec, unit: Unit, log: Log, num_steps: int) -> Algorithm:
    """Fitted Q evaluation of rows as ``_put`` lays them out."""
    head, observed = spec.head, spec.observation_size
    num_inputs = observed + 1 + head.num_inputs
    optimizer = optax.adam(optax.cosine_decay_schedule(LEARNING_RATE, RETURNS_STEPS + num_steps, 0.02))
    num_trajectories, has_returns = int(log.episode.max()) + 1, bool(log.is_known.any())

    def init(key: jax.Array, swept: dict[str, jax.Array]) -> FQEState:
        critic = init_network(jax.random.fold_in(key, 0), (num_inputs, *HIDDEN, 2))
        return FQEState(critic, critic, optimizer.init(critic), jax.random.fold_in(key, 1), swept)

    def refresh(needs_return: bool) -> Any:
        """Draws the trial's trajectories: all of its stages see the same."""

        def draw(state: FQEState, memory: Shares, rows: Rows, index: jax.Array, key: jax.Array) -> Any:
            drawn = jax.random.randint(state.key, (num_trajectories,), 0, num_trajectories)
            counts = jnp.zeros(num_trajectories).at[drawn].add(1.0)
            trajectory, _, is_known = jnp.moveaxis(rows.observations[:, -3:], 1, 0)
            usable = is_known if needs_return and has_returns else rows.valid.astype(jnp.float32)
            return state, cumulate(counts[trajectory.astype(jnp.int32)] * usable)

        return draw

    def value(critic: Network, inputs: jax.Array) -> jax.Array:
        """Both Q in units of the spread, (rows, 2)."""
        return inputs[:, observed, None] * (unit.middle / unit.spread) + apply_network(critic, inputs)

    def regress(state: FQEState, inputs: jax.Array, targets: jax.Array) -> tuple[FQEState, Metrics]:
        def compute_loss(critic: Network) -> tuple[jax.Array, jax.Array]:
            q = value(critic, inputs)
            return jnp.mean((q - targets) ** 2), q.mean()

        (loss, mean), grads = jax.value_and_grad(compute_loss, has_aux=True)(state.critic)
        critic, opt_state = descend(optimizer, grads, state.opt_state, state.critic)
        return state._replace(critic=critic, opt_state=opt_state), {"critic_loss": loss, "value_mean": mean}

    def pairs(batch: Batch) -> jax.Array:
        return jnp.concatenate([batch.observations[:, : observed + 1], head.encode(batch.actions)], axis=1)

    def to_returns(state: FQEState, memory: Shares, batch: Batch, key: jax.Array) -> tuple[FQEState, Metrics]:
        state, metrics = regress(state, pairs(batch), batch.observations[:, -2, None] / unit.spread)
        return state._replace(target=state.critic), metrics

    def evaluate(state: FQEState, memory: Shares, batch: Batch, key: jax.Array) -> tuple[FQEState, Metrics]:
        following = batch.next_observations[:, :num_inputs]
        mass, weight = following[:, observed, None], batch.next_observations[:, num_inputs, None]
        plain, weighted = jnp.split(unit.clip(value(state.target, following) * unit.spread, mass), 2, axis=1)
        weighted = weight * weighted + (1 - weight) * unit.lost(mass)
        next_q = jnp.concatenate([plain, weighted], axis=1) / unit.spread
        target_q = batch.rewards[:, None] / unit.spread + log.discount * batch.continues[:, None] * next_q
        state, metrics = regress(state, pairs(batch), target_q)
        return state._replace(target=optax.incremental_update(state.critic, state.target, TARGET_RATE)), metrics

    def stage(name: str, count: int, update: Any) -> Stage:
        return Stage(
            name,
            count,
            None,
            BATCH_SIZE,
            lambda: empty_shares(spec.num_rows),
            refresh(name == "returns"),
            update,
            lambda memory, rows, number, key: draw_rows(memory, number, key),
        )

    stages = (stage("returns", RETURNS_STEPS, to_returns), stage("evaluation", num_steps, evaluate))
    return Algorithm("fitted-q", init, stages, lambda state: {"critic": state.critic}, "fitted-q")
