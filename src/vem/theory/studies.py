"""The paper's toy figures as tables: one function a figure, the paper's settings by default.

Every study draws many random processes and reports, for each measure, its mean over them with a 95 %
interval: columns ``<measure>``, ``<measure>_low`` and ``<measure>_high``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from vem.errors import SettingsError
from vem.theory.examples import (
    Table,
    Toy,
    enumerate_rollouts,
    interval,
    plan,
    rollouts,
    sampled_authors,
    sampled_vem,
    stepped_targets,
)
from vem.theory.mdp import MDP, Array, disturb, expectile_values, optimal_values, policy_values, softmax_policy
from vem.theory.operators import (
    contraction_bound,
    contraction_rate,
    distance,
    fixed_point,
    random_pairs,
    rate_toward,
    rollout_values,
    update_deviation,
    vem,
)

TRADEOFF_EXPECTILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)


def horizon_study(
    toy: Toy = Toy(),  # noqa: B008 - immutable
    *,
    expectiles: Sequence[float] = (0.6, 0.7, 0.8, 0.9),
    max_steps: Sequence[int] = (1, 2, 3, 4),
    temperature: float = 1.0,
    num_removed: int = 1,
) -> Table:
    """Figure 4(a): one row for each n_max and τ; μ = softmax(Q*/temperature) without the first action."""
    toy.check(expectiles, max_steps)
    mdp, best, best_actions, rng = toy.draw()
    behavior = softmax_policy(best_actions, temperature, num_removed=num_removed)
    measured = _measure(toy, mdp, best, behavior, expectiles, max_steps, rng)
    return sorted(measured, key=lambda row: (row["max_steps"], row["expectile"]))


def behavior_study(
    toy: Toy = Toy(),  # noqa: B008 - immutable
    *,
    expectiles: Sequence[float] = (0.6, 0.7, 0.8, 0.9),
    temperatures: Sequence[float] = (0.1, 0.3, 1.0, 3.0),
    max_steps: int = 10,
) -> Table:
    """Figure 4(b): one row for each behavior temperature and τ; μ = softmax(Q*/temperature)."""
    toy.check(expectiles, [max_steps])
    mdp, best, best_actions, rng = toy.draw()
    return [
        {"temperature": temperature, **row}
        for temperature in temperatures
        for row in _measure(toy, mdp, best, softmax_policy(best_actions, temperature), expectiles, [max_steps], rng)
    ]


def _measure(
    toy: Toy,
    mdp: MDP,
    best: Array,
    behavior: Array,
    expectiles: Sequence[float],
    max_steps: Sequence[int],
    rng: np.random.Generator,
) -> Table:
    """Contraction, bias and variance of T_vem for every τ and n_max under one behavior."""
    reachable = optimal_values(mdp, behavior)
    zero = np.zeros_like(best)
    pairs = random_pairs(rng, toy.num_pairs, zero.shape, scale=2 / (1 - mdp.discount))
    deviations = _deviations(toy, mdp, behavior, expectiles, max_steps, rng)
    table: Table = []
    for expectile in expectiles:
        rate = contraction_bound(expectile, mdp.discount, toy.step_size)
        nearby = expectile_values(mdp, behavior, expectile)
        for steps in max_steps:
            operator = functools.partial(
                vem,
                mdp=mdp,
                behavior=behavior,
                expectile=expectile,
                max_steps=steps,
                step_size=toy.step_size,
            )
            limit = fixed_point(operator, nearby, rate).values
            winners = rollout_values(zero, mdp, behavior, expectile, steps, toy.step_size).argmax(0)
            table.append(
                {"max_steps": steps, "expectile": expectile}
                | interval("rate_from_zero", rate_toward(operator, zero, limit))
                | interval("rate_supremum", contraction_rate(operator, *pairs))
                | {"rate_bound": rate}
                | interval("bias", distance(limit, best))
                | interval("bias_in_support", distance(limit, reachable))
                | interval("deviation", deviations[expectile, steps])
                | interval("best_steps", 1 + winners.mean(-1))
            )
    return table


def _deviations(
    toy: Toy,
    mdp: MDP,
    behavior: Array,
    expectiles: Sequence[float],
    max_steps: Sequence[int],
    rng: np.random.Generator,
) -> Mapping[tuple[float, int], Array]:
    """For every (τ, n_max) and process: how far one sampled update from V = 0 lies from T_vem."""
    longest = max(max_steps)
    deviations = {(tau, steps): np.empty(toy.num_mdps) for tau in expectiles for steps in max_steps}
    zero = np.zeros(mdp.num_states)
    for index in range(toy.num_mdps):
        single, policy = mdp.take(index), behavior[index]
        starts = rng.integers(mdp.num_states, size=toy.num_rollouts)
        recorded = rollouts(single, policy, starts, toy.rollout_steps, rng)
        # Rows too close to the end cannot look n_max steps ahead and would mix several operators.
        rows = np.s_[:, : toy.rollout_steps - longest + 1]
        states = recorded.states[rows].ravel()
        for expectile in expectiles:
            targets = stepped_targets(zero, recorded, mdp.discount, expectile, toy.step_size)
            best = plan(targets, recorded.rewards, mdp.discount, longest)
            for steps in max_steps:
                exact = vem(zero, single, policy, expectile, steps, toy.step_size)
                found = update_deviation(best[steps - 1][rows].ravel(), states, exact)
                deviations[expectile, steps][index] = found
    return deviations


def standard_error(behavior: Array, dataset_size: float, noise: float) -> Array:
    """σ/√n(s,a) with n(s,a) = max(1, N·μ(a|s)/states): the error a dataset of N transitions leaves in (s,a).

    The mean of n samples of standard deviation σ has this error. Visits are spread evenly over the states
    and follow μ over the actions, so actions the behavior avoids are the least known.
    """
    return noise / np.sqrt(np.maximum(1, dataset_size * behavior / behavior.shape[-2]))


def tradeoff_study(
    toy: Toy = Toy(num_mdps=20),  # noqa: B008 - immutable
    *,
    expectiles: Sequence[float] = TRADEOFF_EXPECTILES,
    dataset_sizes: Sequence[int] = (30, 100, 300, 1000, 10000),
    noise: float = 1.0,
    num_datasets: int = 50,
    temperature: float = 1.0,
) -> Table:
    """Figure 2: the fixed point of the noisy expectile operator against τ, for datasets of several sizes.

    One row for each size and τ, and one with τ = 1 for the optimality operator. ``value`` is the mean over
    states, datasets and processes; its interval is that of the paired difference to V*, ``error`` the mean
    of |V − V*|. ``behavior_value`` and ``optimal_value`` are V^μ and V* without noise.
    """
    toy.check(expectiles, [1])
    if min(dataset_sizes) < 1 or num_datasets < 1 or not 0 <= noise < np.inf:
        raise SettingsError("dataset sizes and their number must be at least 1, and the noise finite and at least 0")
    mdp, best, best_actions, rng = toy.draw()
    behavior = softmax_policy(best_actions, temperature)
    frame = {
        "behavior_value": float(policy_values(mdp, behavior).mean()),
        "optimal_value": float(best.mean()),
    }
    seen_behavior = np.broadcast_to(behavior, (num_datasets, *behavior.shape))
    copies = MDP(
        np.repeat(mdp.rewards[None], num_datasets, 0),
        np.broadcast_to(mdp.transitions, (num_datasets, *mdp.transitions.shape)),
        toy.discount,
    )
    errors_seed = int(rng.integers(2**32))
    table: Table = []
    for size in dataset_sizes:
        # The same standard normal draws for every size, so that curves differ by size alone.
        error = standard_error(behavior, size, noise)
        seen = disturb(copies, error, np.random.default_rng(errors_seed))
        fixed = {tau: expectile_values(seen, seen_behavior, tau) for tau in expectiles}
        for tau, values in (fixed | {1.0: optimal_values(seen)}).items():
            excess = interval("value", (values - best).mean((0, 2)))
            table.append(
                {"dataset_size": size, "expectile": tau}
                | {name: shift + frame["optimal_value"] for name, shift in excess.items()}
                | interval("error", abs(values - best).mean((0, 2)))
                | frame
            )
    return table


def check_enumeration(toy: Toy, max_steps: int) -> None:
    """Raise if the rollouts of ``readings_study`` are too many to enumerate, or leave nothing to choose."""
    if toy.num_actions < 2:
        raise SettingsError(f"the number of actions is {toy.num_actions}; V^μ and V* differ from 2 actions on")
    if toy.num_mdps * toy.num_states * toy.num_actions**max_steps > 10**7:
        raise SettingsError(
            f"{toy.num_actions} actions over {max_steps} steps make too many rollouts to enumerate: use fewer"
        )


def readings_study(
    toy: Toy = Toy(num_mdps=50),  # noqa: B008 - immutable
    *,
    expectiles: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    max_steps: int = 4,
    temperature: float = 1.0,
) -> Table:
    """Where four readings of the memory operator settle, as (V − V^μ)/(V* − V^μ): 0 is V^μ and 1 is V*.

    ``expectile_operator`` is the fixed point of T_τ, ``memory_operator`` that of T_vem, ``memory_sampled``
    that of T_vem with the maximum taken along each trajectory, ``memory_authors`` that of the authors'
    program. All rollouts are enumerated, so there is no sampling noise.
    """
    toy.check(expectiles, [max_steps])
    check_enumeration(toy, max_steps)
    mdp, best, best_actions, _ = toy.draw()
    behavior = softmax_policy(best_actions, temperature)
    lowest = policy_values(mdp, behavior)
    recorded, probabilities = enumerate_rollouts(mdp, behavior, max_steps)

    def place(values: Array) -> Array:
        return (values - lowest).mean(-1) / (best - lowest).mean(-1)

    table: Table = []
    for expectile in expectiles:
        rate = contraction_bound(expectile, mdp.discount, toy.step_size)
        exact = {"mdp": mdp, "behavior": behavior, "expectile": expectile}
        sampled = {
            "trajectories": recorded,
            "probabilities": probabilities,
            "discount": mdp.discount,
            "expectile": expectile,
            "max_steps": max_steps,
        }
        steps = {"step_size": toy.step_size}
        maps = {
            "memory_operator": (
                functools.partial(vem, max_steps=max_steps, **exact, **steps),
                rate,
            ),
            "memory_sampled": (functools.partial(sampled_vem, **sampled, **steps), rate),
            "memory_authors": (functools.partial(sampled_authors, **sampled), mdp.discount),
        }
        values = expectile_values(mdp, behavior, expectile)
        row: dict[str, float] = {"expectile": expectile, "max_steps": max_steps}
        row |= interval("expectile_operator", place(values))
        for name, (operator, bound) in maps.items():
            values = fixed_point(operator, values, bound, tolerance=1e-4).values
            row |= interval(name, place(values))
        table.append(row)
    return table
