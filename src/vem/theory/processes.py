"""Random processes that the paper's statements are measured on."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vem.theory import operators
from vem.theory.analysis import contraction_rate, fixed_point, random_pairs
from vem.theory.mdp import (
    MDP,
    Array,
    action_values,
    deterministic_transitions,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
    softmax_policy,
    stochastic_transitions,
)


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
        operator = self.operator(operators.vem, expectile=expectile, max_steps=max_steps)
        rate = operators.contraction_bound(expectile, self.mdp.discount)
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
