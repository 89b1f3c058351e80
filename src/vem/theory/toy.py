"""The random processes of the paper's toy example, and the tables that studies of them return."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from vem.errors import SettingsError
from vem.theory import operators
from vem.theory.mdp import (
    MDP,
    Array,
    Transitions,
    action_values,
    deterministic_transitions,
    optimal_values,
    random_mdps,
)

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
            operators.largest_step_size(expectile)
            if self.step_size is not None:
                operators.check_step_size(expectile, self.step_size)
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
