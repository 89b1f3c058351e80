"""The paper's toy figures as tables: random processes, and one function a figure.

Every study draws many processes and reports, for each measure, its mean over them with a 95 % interval:
columns ``<measure>``, ``<measure>_low`` and ``<measure>_high``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from vem.theory import operators
from vem.theory.mdp import (
    MDP,
    Array,
    action_values,
    enumerate_rollouts,
    expectile_values,
    optimal_values,
    policy_values,
    random_mdps,
    rollouts,
    softmax_policy,
)
from vem.theory.operators import contraction_bound, contraction_rate, distance, fixed_point

# The paper's settings where it gives them: all processes have 5 states, 3 actions and this discount.
DISCOUNT = 0.9
DATASET_SIZES = (30, 100, 300, 1000, 10000)
TRADEOFF_EXPECTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
NOISE = 1.0
EXPECTILES = (0.6, 0.7, 0.8, 0.9)
HORIZONS = (1, 2, 3, 4)
TEMPERATURES = (0.1, 0.3, 1.0, 3.0)
BEHAVIOR_HORIZON = 10
READINGS_EXPECTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
READINGS_HORIZON = 4

Table = list[dict[str, float]]


@dataclass(frozen=True)
class Sizes:
    """How much is drawn; the defaults take about half a minute of one core."""

    tradeoff_mdps: int = 20
    datasets: int = 50
    mdps: int = 200
    pairs: int = 50
    rollouts: int = 1000
    rollout_steps: int = 100
    readings_mdps: int = 50
    claim_mdps: int = 50


SMALL = Sizes(
    tradeoff_mdps=3, datasets=3, mdps=3, pairs=5, rollouts=20, rollout_steps=12, readings_mdps=2, claim_mdps=3
)
"""A second's worth, to see that all works."""


class Processes(NamedTuple):
    """Random processes, the behavior μ on them, their V*, and pairs of values that search for suprema."""

    mdp: MDP
    behavior: Array
    best: Array
    pairs: tuple[Array, Array]

    def operator(self, kind: Callable[..., Array], **settings: float) -> operators.Operator:
        """Bind an operator of ``vem.theory.operators`` to these processes."""
        return functools.partial(kind, mdp=self.mdp, behavior=self.behavior, **settings)

    def rates(self, kind: Callable[..., Array], **settings: float) -> Array:
        """Return the largest stretch of any pair on each process."""
        return contraction_rate(self.operator(kind, **settings), *self.pairs)

    def expectile_values(self, expectile: float) -> Array:
        """V*_τ on these processes."""
        return expectile_values(self.mdp, self.behavior, expectile)

    def memory_values(self, expectile: float, max_steps: int) -> Array:
        """Return the fixed point of T_vem."""
        operator = self.operator(operators.vem, expectile=expectile, max_steps=max_steps)
        rate = contraction_bound(expectile, self.mdp.discount)
        return fixed_point(operator, self.expectile_values(expectile), rate).values

    def positions(self, values: Array) -> Array:
        """Mean (V − V^μ)/(V* − V^μ) of each process: 0 is the behavior's value, 1 the optimal one."""
        lowest = policy_values(self.mdp, self.behavior)
        return (values - lowest).mean(-1) / (self.best - lowest).mean(-1)


def draw_processes(
    rng: np.random.Generator, mdp: MDP, num_pairs: int, temperature: float = 1.0, num_removed: int = 0
) -> Processes:
    """Add μ = softmax(Q*/temperature) without the first ``num_removed`` actions, and pairs of values."""
    best = optimal_values(mdp)
    behavior = softmax_policy(action_values(best, mdp), temperature, num_removed=num_removed)
    pairs = operators.random_pairs(rng, num_pairs, best.shape, scale=2 / (1 - mdp.discount))
    return Processes(mdp, behavior, best, pairs)


def column(table: Table, name: str, **where: float) -> list[float]:
    """The numbers of one column, in the rows that have the given values."""
    return [row[name] for row in table if all(row[key] == value for key, value in where.items())]


def interval(name: str, samples: Array) -> dict[str, float]:
    """Return the mean of independent samples and its 95 % Student interval, as three columns."""
    mean = float(samples.mean())
    half = float(stats.t.ppf(0.975, len(samples) - 1) * samples.std(ddof=1) / np.sqrt(len(samples)))
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


def tradeoff_study(sizes: Sizes, seed: int) -> Table:
    """Figure 2 (section 3.1): the fixed point of the noisy expectile operator, for datasets of several sizes.

    One row for each size and τ, and one with τ = 1 for the optimality operator. ``value`` is the mean over
    states, datasets and processes; its interval is that of the paired difference to V*, ``error`` the mean
    of |V − V*|. ``behavior_value`` and ``optimal_value`` are V^μ and V* without noise.

    The noise stands for the errors of a dataset: it lies on the one-step targets r + γPV, and it is drawn
    once and stays, so the noisy operator keeps its contraction rate and has a fixed point.
    """
    rng = np.random.default_rng(seed)
    mdp = random_mdps(rng, sizes.tradeoff_mdps)
    best = optimal_values(mdp)
    behavior = softmax_policy(action_values(best, mdp))
    frame = {"behavior_value": float(policy_values(mdp, behavior).mean()), "optimal_value": float(best.mean())}
    transitions = np.broadcast_to(mdp.transitions, (sizes.datasets, *mdp.transitions.shape))
    policies = np.broadcast_to(behavior, (sizes.datasets, *behavior.shape))
    # The same standard normal draws for every size, so that curves differ by size alone.
    errors = np.random.default_rng(int(rng.integers(2**32))).standard_normal(policies.shape)
    table: Table = []
    for size in DATASET_SIZES:
        seen = MDP(mdp.rewards + standard_error(behavior, size) * errors, transitions, mdp.discount)
        fixed = {tau: expectile_values(seen, policies, tau) for tau in TRADEOFF_EXPECTILES}
        for tau, values in (fixed | {1.0: optimal_values(seen)}).items():
            excess = interval("value", (values - best).mean((0, 2)))
            table.append(
                {"dataset_size": size, "expectile": tau}
                | {name: shift + frame["optimal_value"] for name, shift in excess.items()}
                | interval("error", abs(values - best).mean((0, 2)))
                | frame
            )
    return table


def standard_error(behavior: Array, dataset_size: float) -> Array:
    """σ/√n(s,a) with n(s,a) = max(1, N·μ(a|s)/states): the error a dataset of N transitions leaves in (s,a).

    The mean of n samples of standard deviation σ has this error. Visits are spread evenly over the states
    and follow μ over the actions, so actions the behavior avoids are the least known.
    """
    return NOISE / np.sqrt(np.maximum(1, dataset_size * behavior / behavior.shape[-2]))


def horizon_study(sizes: Sizes, seed: int) -> Table:
    """Figure 4(a): one row for each n_max and τ; μ = softmax(Q*) without the first action."""
    rng = np.random.default_rng(seed)
    processes = draw_processes(rng, random_mdps(rng, sizes.mdps), sizes.pairs, num_removed=1)
    return sorted(_indicators(sizes, processes, HORIZONS, rng), key=lambda row: row["max_steps"])


def behavior_study(sizes: Sizes, seed: int) -> Table:
    """Figure 4(b): one row for each behavior temperature and τ; μ = softmax(Q*/temperature)."""
    rng = np.random.default_rng(seed)
    mdp = random_mdps(rng, sizes.mdps)
    table: Table = []
    for temperature in TEMPERATURES:
        processes = draw_processes(rng, mdp, sizes.pairs, temperature=temperature)
        rows = _indicators(sizes, processes, (BEHAVIOR_HORIZON,), rng)
        table += [{"temperature": temperature, **row} for row in rows]
    return table


def _indicators(sizes: Sizes, processes: Processes, horizons: Sequence[int], rng: np.random.Generator) -> Table:
    """Contraction, bias and variance of T_vem (section 4.3) for every τ and n_max."""
    mdp, behavior, best, _ = processes
    reachable, zero = optimal_values(mdp, behavior), np.zeros_like(best)
    deviations = _deviations(sizes, processes, horizons, rng)
    table: Table = []
    for tau in EXPECTILES:
        for steps in horizons:
            settings = {"expectile": tau, "max_steps": steps}
            limit = processes.memory_values(tau, steps)
            updated = processes.operator(operators.vem, **settings)(zero)
            winners = processes.operator(operators.rollout_values, **settings)(zero).argmax(0)
            table.append(
                {"max_steps": steps, "expectile": tau}
                | interval("rate_from_zero", distance(updated, limit) / distance(zero, limit))
                | interval("rate_supremum", processes.rates(operators.vem, **settings))
                | {"rate_bound": contraction_bound(tau, mdp.discount)}
                | interval("bias", distance(limit, best))
                | interval("bias_in_support", distance(limit, reachable))
                | interval("deviation", deviations[tau, steps])
                | interval("best_steps", 1 + winners.mean(-1))
            )
    return table


def _deviations(
    sizes: Sizes, processes: Processes, horizons: Sequence[int], rng: np.random.Generator
) -> dict[tuple[float, int], Array]:
    """For every (τ, n_max) and process: how far one sampled update from V = 0 lies from T_vem."""
    longest = max(horizons)
    deviations = {(tau, steps): np.empty(sizes.mdps) for tau in EXPECTILES for steps in horizons}
    zero = np.zeros(processes.mdp.num_states)
    for index in range(sizes.mdps):
        mdp, behavior = processes.mdp.take(index), processes.behavior[index]
        starts = rng.integers(mdp.num_states, size=sizes.rollouts)
        recorded = rollouts(mdp, behavior, starts, sizes.rollout_steps, rng)
        # Rows too close to the end cannot look n_max steps ahead and would mix several operators.
        rows = np.s_[:, : sizes.rollout_steps - longest + 1]
        states = recorded.states[rows].ravel()
        for tau in EXPECTILES:
            targets = operators.stepped_targets(zero, recorded, mdp.discount, tau)
            best = operators.plan(targets, recorded.rewards, mdp.discount, longest)
            for steps in horizons:
                exact = operators.vem(zero, mdp, behavior, tau, steps)
                deviations[tau, steps][index] = operators.update_deviation(best[steps - 1][rows].ravel(), states, exact)
    return deviations


def readings_study(sizes: Sizes, seed: int) -> Table:
    """Where four readings of the memory settle, as (V − V^μ)/(V* − V^μ): 0 is V^μ and 1 is V* (remark 2).

    ``expectile_operator`` is the fixed point of T_τ, ``memory_operator`` that of T_vem, ``memory_sampled``
    that of T_vem with the maximum taken along each trajectory, ``memory_authors`` that of the authors'
    program. All rollouts are enumerated, so there is no sampling noise.
    """
    rng = np.random.default_rng(seed)
    processes = draw_processes(rng, random_mdps(rng, sizes.readings_mdps), num_pairs=1)
    recorded, probabilities = enumerate_rollouts(processes.mdp, processes.behavior, READINGS_HORIZON)
    table: Table = []
    for tau in READINGS_EXPECTILES:
        settings = {"expectile": tau, "max_steps": READINGS_HORIZON}
        sampled = {"trajectories": recorded, "probabilities": probabilities, "discount": DISCOUNT, **settings}
        rate = contraction_bound(tau, DISCOUNT)
        readings = {
            "memory_operator": (processes.operator(operators.vem, **settings), rate),
            "memory_sampled": (functools.partial(operators.sampled_vem, **sampled), rate),
            "memory_authors": (functools.partial(operators.sampled_authors, **sampled), DISCOUNT),
        }
        values = processes.expectile_values(tau)
        row = {"expectile": tau, "max_steps": READINGS_HORIZON}
        row |= interval("expectile_operator", processes.positions(values))
        for name, (operator, bound) in readings.items():
            values = fixed_point(operator, values, bound, tolerance=1e-4).values
            row |= interval(name, processes.positions(values))
        table.append(row)
    return table


STUDIES = {
    "tradeoff": tradeoff_study,
    "horizon": horizon_study,
    "behavior": behavior_study,
    "readings": readings_study,
}
"""What ``vem theory`` draws."""
