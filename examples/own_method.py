"""A method of your own in one file: percentile cloning, behavior cloning of the best episodes alone.

Run with: python examples/own_method.py
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import vem
from vem.algorithms.base import Algorithm, Configuration, Stage, register, setting
from vem.networks import Network, cumulate, descend, draw_rows, empty_shares, init_network, policy_mean


@dataclass(frozen=True)
class PercentileBC(Configuration):
    """The choices of the method, with their meaning and limits."""

    kept: float = setting(0.1, "Share of the rows that is cloned, from the best episodes", "positive share", sweep=True)
    policy_hidden: tuple[int, ...] = setting((256, 256), "Hidden layers of the actor", "positive")
    policy_lr: float = setting(1e-3, "Adam's learning rate for the actor", "positive")
    batch_size: int = setting(256, "Rows in an update", "positive")
    normalize_observations: bool = setting(True, "Standardize observations; the policy does it too")


class State(NamedTuple):
    """All that training changes, as arrays, and the swept settings."""

    actor: Network
    opt_state: Any
    swept: dict[str, jax.Array]


def episode_returns(rows):
    """The return of each row's episode. The last row of an episode is its final observation, without an action."""
    is_last = ~rows.valid
    episode = jnp.cumsum(is_last) - is_last
    return jax.ops.segment_sum(rows.rewards, episode, num_segments=rows.rewards.size)[episode]


def make(config: PercentileBC, spec, num_steps: int) -> Algorithm:
    """Percentile cloning for data of the given sizes."""
    optimizer = optax.adam(config.policy_lr)

    def init(key, swept):
        actor = init_network(key, (spec.observation_size, *config.policy_hidden, spec.action_size))
        return State(actor, optimizer.init(actor), swept)

    def refresh(state, memory, rows, index, key):
        returns = episode_returns(rows)
        border = jnp.quantile(returns[rows.drawable], 1 - state.swept["kept"])
        return state, cumulate((rows.valid & (returns >= border)).astype(jnp.float32))

    def update(state, memory, batch, key):
        compute_loss = lambda actor: jnp.mean((policy_mean(actor, batch.observations) - batch.actions) ** 2)
        loss, grads = jax.value_and_grad(compute_loss)(state.actor)
        actor, opt_state = descend(optimizer, grads, state.opt_state, state.actor)
        return State(actor, opt_state, state.swept), {"policy_loss": loss}

    draw = lambda memory, rows, count, key: draw_rows(memory, count, key)
    empty = lambda: empty_shares(spec.num_rows)
    stage = Stage("policy", num_steps, None, config.batch_size, empty, refresh, update, draw)
    return Algorithm("percentile-bc", init, (stage,), lambda state: {"actor": state.actor}, "deterministic")


register("percentile-bc", PercentileBC, make, "behavior cloning of the best episodes")

if __name__ == "__main__":
    # One trajectory in five answers a state s with s/2, the others with −s/2; the reward prefers s/2.
    generator = np.random.default_rng(0)
    states = generator.uniform(-1, 1, (100, 10, 1))
    actions = np.where(np.arange(100) % 5 == 0, 0.5, -0.5)[:, None, None] * states
    ends = np.tile(np.arange(10) == 9, 100)
    rewards = -((actions - states / 2) ** 2).reshape(-1)
    dataset = vem.from_arrays(states.reshape(-1, 1), actions.reshape(-1, 1), rewards, ends, action_bounds=([-1], [1]))
    for algorithm, settings in (("bc", {}), ("percentile-bc", {"kept": 0.2})):
        run = vem.train(dataset, algorithm, steps=300, batch_size=64, policy_hidden=(32,), progress=False, **settings)
        print(f"{algorithm}: {run.policy.act(np.array([0.8], np.float32))[0]:.2f} at s = 0.80; the best is 0.40")
