"""Recorded trajectories and the two backups that plan along them.

A backup along a trajectory starts from a one-step target y_t at every row and takes the best over n of
    G_1(t) = y_t,    G_n(t) = r_t + γ·G_{n−1}(t+1).
The theory's y_t is the expectile-stepped value of s_t itself; the authors' program uses r_t + γV(s_{t+1}),
for which the maximum is the recursion R_t = r_t + γ·max(R_{t+1}, V(s_{t+1})).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from vem.errors import SettingsError
from vem.losses import effective_expectile, expectile_step
from vem.theory.mdp import (
    MDP,
    Array,
    Transitions,
    action_values,
    deterministic_transitions,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
    softmax_policy,
    stochastic_transitions,
)
from vem.theory.operators import (
    check_step_size,
    contraction_bound,
    contraction_rate,
    expectile_of,
    fixed_point,
    largest_step_size,
    random_pairs,
    vem,
)


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


# The random processes of the paper's toy example, and the tables that studies of them return.


Table = list[dict[str, float]]


@dataclass(frozen=True)
class Toy:
    """The random processes of the paper's section 4.3 and how they are measured."""

    num_mdps: int = 200
    num_states: int = 5
    num_actions: int = 3
    discount: float = 0.9
    transitions: Transitions = deterministic_transitions
    step_size: float | None = None
    num_rollouts: int = 1000
    rollout_steps: int = 100
    num_pairs: int = 50
    seed: int = 0

    def draw(self) -> tuple[MDP, Array, Array, np.random.Generator]:
        """Return the processes, their V*, their Q*, and the generator for everything after."""
        rng = np.random.default_rng(self.seed)
        mdp = random_mdps(
            rng,
            self.num_mdps,
            num_states=self.num_states,
            num_actions=self.num_actions,
            discount=self.discount,
            transitions=self.transitions,
        )
        best = optimal_values(mdp)
        return mdp, best, action_values(best, mdp), rng

    def check(self, expectiles: Sequence[float], max_steps: Sequence[int]) -> None:
        """Raise on settings that mean nothing, before anything is computed."""
        for expectile in expectiles:
            largest_step_size(expectile)
            if self.step_size is not None:
                check_step_size(expectile, self.step_size)
        if min(max_steps) < 1:
            raise SettingsError(f"the largest number of rollout steps is {min(max_steps)}; it must be at least 1")
        if self.num_rollouts < 1 or self.rollout_steps < max(max_steps):
            raise SettingsError(
                f"{self.num_rollouts} rollouts of {self.rollout_steps} steps cannot be planned over "
                f"{max(max_steps)} steps: use at least 1 rollout, at least as long as the plan"
            )
        if self.seed < 0:
            raise SettingsError(f"the seed is {self.seed}; it must be at least 0")
        if self.num_pairs < 1:
            raise SettingsError(f"the number of pairs is {self.num_pairs}; it must be at least 1")


def interval(name: str, samples: Array) -> dict[str, float]:
    """Return the mean of independent samples and its 95 % Student interval, as three columns."""
    mean = float(samples.mean())
    if len(samples) < 2:
        return {name: mean, f"{name}_low": mean, f"{name}_high": mean}
    half = float(stats.t.ppf(0.975, len(samples) - 1) * samples.std(ddof=1) / np.sqrt(len(samples)))
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


# Random processes that the paper's statements are measured on.


class Processes(NamedTuple):
    """Random processes with μ = softmax(Q*), which has full support, and pairs of values on them."""

    mdp: MDP
    behavior: Array
    best: Array
    pairs: tuple[Array, Array]

    def operator(self, kind: Callable[..., Array], **settings: float) -> Callable[[Array], Array]:
        """Bind an operator of ``vem.theory.operators`` to these processes."""
        return functools.partial(kind, mdp=self.mdp, behavior=self.behavior, **settings)

    def rate(self, kind: Callable[..., Array], **settings: float) -> float:
        """Return the largest stretch of any pair on any process."""
        return float(contraction_rate(self.operator(kind, **settings), *self.pairs).max())

    def expectile_values(self, expectile: float) -> Array:
        """V*_τ on these processes."""
        return expectile_values(self.mdp, self.behavior, expectile)

    def memory_values(self, expectile: float, max_steps: int) -> Array:
        """Return the fixed point of T_vem."""
        operator = self.operator(vem, expectile=expectile, max_steps=max_steps)
        rate = contraction_bound(expectile, self.mdp.discount)
        return fixed_point(operator, self.expectile_values(expectile), rate).values

    def position(self, values: Array) -> float:
        """Mean (V − V^μ)/(V* − V^μ): 0 is the behavior's value, 1 the optimal one."""
        lowest = policy_values(self.mdp, self.behavior)
        return float(((values - lowest).mean(-1) / (self.best - lowest).mean(-1)).mean())


def draw_processes(num_mdps: int = 50, discount: float = 0.9, seed: int = 1) -> tuple[Processes, Processes]:
    """Draw deterministic and stochastic processes of the toy example's size."""
    rng = np.random.default_rng(seed)

    def with_behavior(mdp: MDP) -> Processes:
        best = optimal_values(mdp)
        pairs = random_pairs(rng, 200, best.shape, scale=2 / (1 - discount))
        return Processes(mdp, softmax_policy(action_values(best, mdp)), best, pairs)

    deterministic = random_mdps(rng, num_mdps, discount=discount, transitions=deterministic_transitions)
    stochastic = random_mdps(rng, num_mdps, discount=discount, transitions=stochastic_transitions)
    return with_behavior(deterministic), with_behavior(stochastic)
