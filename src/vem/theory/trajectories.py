"""Recorded trajectories and the two backups that plan along them.

A backup along a trajectory starts from a one-step target y_t at every row and takes the best over n of
    G_1(t) = y_t,    G_n(t) = r_t + γ·G_{n−1}(t+1).
The theory's y_t is the expectile-stepped value of s_t itself; the authors' program uses r_t + γV(s_{t+1}),
for which the maximum is the recursion R_t = r_t + γ·max(R_{t+1}, V(s_{t+1})).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vem.core.losses import effective_expectile, expectile_step
from vem.errors import SettingsError
from vem.theory.expectiles import expectile_of
from vem.theory.mdp import MDP, Array
from vem.theory.operators import largest_step_size


class Trajectories(NamedTuple):
    """Equally long rollouts: ``states`` of shape (…, steps + 1) and ``rewards`` of shape (…, steps)."""

    states: NDArray[np.integer]
    rewards: Array


def rollouts(
    mdp: MDP, behavior: Array, starts: NDArray[np.integer], num_steps: int, rng: np.random.Generator
) -> Trajectories:
    """One rollout of the behavior in a single (unbatched) process from each of ``starts``."""
    joint = (behavior[..., None] * mdp.transitions).reshape(mdp.num_states, -1)
    cumulative = joint.cumsum(-1) / joint.sum(-1, keepdims=True)
    states = np.empty((*starts.shape, num_steps + 1), dtype=np.intp)
    rewards = np.empty((*starts.shape, num_steps))
    states[..., 0] = starts
    for t in range(num_steps):
        here = states[..., t]
        outcome = (cumulative[here] <= rng.uniform(size=starts.shape)[..., None]).sum(-1)
        action, states[..., t + 1] = np.divmod(outcome, mdp.num_states)
        rewards[..., t] = mdp.rewards[here, action]
    return Trajectories(states, rewards)


def enumerate_rollouts(mdp: MDP, behavior: Array, num_steps: int) -> tuple[Trajectories, Array]:
    """Every action sequence from every state of a deterministic process, and its probability under μ.

    Arrays have shape (…, states, actionsⁿ, ·) and the probabilities (…, states, actionsⁿ).
    """
    if ((mdp.transitions > 0) & (mdp.transitions < 1)).any():
        raise SettingsError("trajectories can be enumerated in deterministic processes only")
    successors = mdp.transitions.argmax(-1)
    sequences = np.indices((mdp.num_actions,) * num_steps).reshape(num_steps, -1)
    shape = (*mdp.rewards.shape[:-1], sequences.shape[1])
    batch = np.indices((*shape[:-2], 1, 1))[: len(shape) - 2]
    here = np.broadcast_to(np.arange(mdp.num_states)[:, None], shape)
    states, rewards, probabilities = [here], [], np.ones(shape)
    for action in sequences:
        row = (*batch, here, action)
        rewards.append(mdp.rewards[row])
        probabilities = probabilities * behavior[row]
        here = successors[row]
        states.append(here)
    return Trajectories(np.stack(states, -1), np.stack(rewards, -1)), probabilities


def values_at(values: Array, states: NDArray[np.integer]) -> Array:
    """V(s) for every recorded state; leading axes of ``values`` are matched with those of ``states``."""
    rows = states.reshape(*values.shape[:-1], -1)
    return np.take_along_axis(values, rows, -1).reshape(states.shape)


def bootstrapped_targets(values: Array, trajectories: Trajectories, discount: float) -> Array:
    """r_t + γV(s_{t+1}) for every row: where the authors' plan starts."""
    return trajectories.rewards + discount * values_at(values, trajectories.states[..., 1:])


def stepped_targets(
    values: Array,
    trajectories: Trajectories,
    discount: float,
    expectile: float,
    step_size: float | None = None,
) -> Array:
    """V̂(s_t) = V(s_t) + 2α(τ[δ_t]₊ + (1−τ)[δ_t]₋) for every row (eq. 4): where the theory's plan starts."""
    step_size = largest_step_size(expectile) if step_size is None else step_size
    here = values_at(values, trajectories.states[..., :-1])
    errors = bootstrapped_targets(values, trajectories, discount) - here
    return here + expectile_step(errors, expectile, step_size)


def plan(targets: Array, rewards: Array, discount: float, max_steps: int) -> Array:
    """max_{n′≤n} G_n′(t) for n = 1 … n_max along a new first axis; n never exceeds the steps left."""
    best = np.empty((max_steps, *targets.shape))
    best[0] = rollout = targets
    for n in range(1, max_steps):
        rollout = discount * rollout[..., 1:]
        reach = rollout.shape[-1]
        rollout += rewards[..., :reach]
        np.maximum(best[n - 1, ..., :reach], rollout, out=best[n, ..., :reach])
        best[n, ..., reach:] = best[n - 1, ..., reach:]
    return best


def sampled_vem(
    values: Array,
    trajectories: Trajectories,
    probabilities: Array,
    discount: float,
    expectile: float,
    max_steps: int,
    step_size: float | None = None,
) -> Array:
    """Apply the theory's T_vem on trajectories: expectile step, plan, then the mean over the rollouts from s.

    Trajectories have shape (…, states, rollouts, ·), as ``enumerate_rollouts`` returns them. The maximum is
    taken along each trajectory, so this is at least T_vem, which takes it over expectations.
    """
    targets = stepped_targets(values, trajectories, discount, expectile, step_size)
    best = plan(targets, trajectories.rewards, discount, max_steps)[-1, ..., 0]
    return (probabilities * best).sum(-1) / probabilities.sum(-1)


def sampled_authors(
    values: Array,
    trajectories: Trajectories,
    probabilities: Array,
    discount: float,
    expectile: float,
    max_steps: int,
) -> Array:
    """Apply the backup of the authors' program: plan with plain values, then regress on the planned returns.

    Its loss squares the weights, so the regression estimates ``effective_expectile(τ)`` of the returns.
    """
    targets = bootstrapped_targets(values, trajectories, discount)
    best = plan(targets, trajectories.rewards, discount, max_steps)[-1, ..., 0]
    return expectile_of(best, probabilities, effective_expectile(expectile))
