"""Finite decision processes: their exact values, random ones (paper, section 4.3), and their trajectories.

Every array may carry leading axes: ``rewards`` of shape (batch, states, actions) is a batch of processes,
and all of ``vem.theory`` works on the last axes only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vem.errors import SettingsError
from vem.losses import asymmetry

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MDP:
    """r(s,a) of shape (…, states, actions), P(s′|s,a) of shape (…, states, actions, states), and γ."""

    rewards: Array
    transitions: Array
    discount: float

    def __post_init__(self) -> None:
        expected = (*self.rewards.shape, self.rewards.shape[-2]) if self.rewards.ndim >= 2 else None
        if expected is None or 0 in expected or self.transitions.shape != expected:
            raise SettingsError(
                f"rewards have shape {self.rewards.shape} and transitions {self.transitions.shape}; "
                "an MDP needs (…, states, actions) and (…, states, actions, states)"
            )
        if not np.isfinite(self.rewards).all():
            raise SettingsError("a reward is not a finite number")
        if not 0 <= self.discount < 1:
            raise SettingsError(f"the discount is {self.discount}; it must lie in [0, 1)")
        if (self.transitions < 0).any() or not np.allclose(self.transitions.sum(-1), 1):
            raise SettingsError("transitions[s, a] is not a distribution over next states: it must sum to 1")

    @property
    def num_states(self) -> int:
        """How many states there are."""
        return self.rewards.shape[-2]

    @property
    def num_actions(self) -> int:
        """How many actions each state has."""
        return self.rewards.shape[-1]

    def take(self, index: int) -> MDP:
        """Process number ``index`` of a batch."""
        return MDP(self.rewards[index], self.transitions[index], self.discount)


def random_mdps(
    rng: np.random.Generator,
    num_mdps: int,
    *,
    num_states: int = 5,
    num_actions: int = 3,
    discount: float = 0.9,
    stochastic: bool = False,
) -> MDP:
    """Draw a batch of processes with rewards from U(0,1); the defaults are the paper's toy example (4.3).

    Every (s,a) leads to one state, drawn uniformly, or with ``stochastic`` to all of them, with
    probabilities drawn uniformly from the simplex.
    """
    shape = (num_mdps, num_states, num_actions)
    rewards = rng.uniform(size=shape)
    if stochastic:
        return MDP(rewards, rng.dirichlet(np.ones(num_states), size=shape), discount)
    return MDP(rewards, np.eye(num_states)[rng.integers(num_states, size=shape)], discount)


def softmax_policy(action_values: Array, temperature: float = 1.0, *, num_removed: int = 0) -> Array:
    """softmax(Q/temperature) over all actions but the first ``num_removed``, which get probability 0."""
    exponents = (action_values - action_values.max(-1, keepdims=True)) / temperature
    exponents[..., :num_removed] = -np.inf
    weights = np.exp(exponents - exponents.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def action_values(values: Array, mdp: MDP) -> Array:
    """Q(s,a) = r(s,a) + γ·Σ_s′ P(s′|s,a)·V(s′)."""
    return mdp.rewards + mdp.discount * np.einsum("...sat,...t->...sa", mdp.transitions, values)


def policy_values(mdp: MDP, policy: Array) -> Array:
    """V^π = (I − γP^π)⁻¹ r^π."""
    rewards = (policy * mdp.rewards).sum(-1)
    transitions = np.einsum("...sa,...sat->...st", policy, mdp.transitions)
    system = np.eye(mdp.num_states) - mdp.discount * transitions
    return np.linalg.solve(system, rewards[..., None])[..., 0]


def optimal_values(mdp: MDP, behavior: Array | None = None) -> Array:
    """V* by policy iteration; with ``behavior``, the best value among policies inside its support."""
    supported = np.ones(mdp.rewards.shape) if behavior is None else behavior

    def greedy(values: Array) -> Array:
        chosen = np.where(supported > 0, action_values(values, mdp), -np.inf).argmax(-1)
        return np.eye(mdp.num_actions)[chosen]

    return _policy_iteration(mdp, greedy, supported / supported.sum(-1, keepdims=True))


def expectile_values(mdp: MDP, behavior: Array, expectile: float) -> Array:
    """V*_τ, the fixed point of the expectile operators (eq. 2 and 3), by policy iteration.

    An expectile is the mean under weights τ above it and 1−τ below it, so V*_τ is the value of the policy
    that reweights μ in this way: the best of all such policies for τ ≥ ½, the worst for τ ≤ ½.
    """

    def reweighted(values: Array) -> Array:
        weights = behavior * asymmetry(action_values(values, mdp) - values[..., None], expectile)
        return weights / weights.sum(-1, keepdims=True)

    return _policy_iteration(mdp, reweighted, behavior)


def _policy_iteration(mdp: MDP, improve: Callable[[Array], Array], policy: Array) -> Array:
    """Evaluate and improve until the values stand still, which ties between policies cannot prevent."""
    values = policy_values(mdp, policy)
    while True:
        improved = policy_values(mdp, improve(values))
        if np.allclose(improved, values, rtol=1e-12, atol=1e-12):
            return improved
        values = improved


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
