"""Every statement of the paper's sections 3.1 to 4.3 that can be checked, measured on random processes.

One function a section, in the paper's order. "Implied" marks what the paper does not say in words but a
reader would take from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from vem.losses import asymmetry, expectile_step
from vem.theory import operators, studies
from vem.theory.mdp import Array, action_values, enumerate_rollouts, random_mdps, softmax_policy
from vem.theory.operators import contraction_bound, distance, fixed_point, largest_step_size
from vem.theory.studies import Processes, Sizes, Table, column, draw_processes

Finding = tuple[str, str, str]
"""A statement, what was measured, and the verdict."""


class Claim(NamedTuple):
    """A statement of the paper in our words, what was measured, and the verdict: holds, in part, or fails."""

    section: str
    statement: str
    measured: str
    verdict: str


def measure_claims(tables: dict[str, Table], sizes: Sizes, seed: int) -> list[Claim]:
    """Measure all statements, some on the tables of the studies, the others on processes of their own."""
    rng = np.random.default_rng(seed)
    mdps = [random_mdps(rng, sizes.claim_mdps, stochastic=stochastic) for stochastic in (False, True)]
    deterministic, stochastic = (draw_processes(rng, mdp, num_pairs=200) for mdp in mdps)
    sections = {
        "3.1": expectile_learning(tables["tradeoff"], deterministic, stochastic),
        "3.2": planning(deterministic),
        "4.1": convergence(deterministic, stochastic),
        "4.2": memory(tables, deterministic),
        "4.3": toy_example(tables, deterministic),
    }
    return [Claim(section, *finding) for section, findings in sections.items() for finding in findings]


def verdict(agrees: bool | np.bool, otherwise: str = "fails") -> str:
    """Return ``holds`` if the measurement agrees with the statement."""
    return "holds" if agrees else otherwise


def expectile_learning(tradeoff: Table, processes: Processes, stochastic: Processes) -> Iterator[Finding]:
    """Section 3.1 and its figure 2."""
    lowest, best = tradeoff[0]["behavior_value"], tradeoff[0]["optimal_value"]
    sizes = _series(studies.DATASET_SIZES, "{:.0f}")
    excess = [value - best for value in column(tradeoff, "value", expectile=1)]
    yield (
        "With noise the optimality operator over-estimates severely.",
        f"by {_series(excess)} for N = {sizes} (V* − V^μ is {best - lowest:.2f})",
        verdict(min(excess) > 0 and excess[0] > best - lowest, "in part"),
    )
    by_size = [[row for row in tradeoff if row["dataset_size"] == size] for size in studies.DATASET_SIZES]
    nearest = [min(rows, key=lambda row: (row["expectile"] == 1, row["error"])) for rows in by_size]
    errors, greedy = [row["error"] for row in nearest], column(tradeoff, "error", expectile=1)
    yield (
        "With a proper τ, EVL comes close to the optimal value.",
        f"mean |V − V*| at the best τ {_series(errors)}, with the optimality operator {_series(greedy)}",
        verdict(all(error <= other for error, other in zip(errors, greedy, strict=True))),
    )
    levels = [row["expectile"] for row in nearest]
    yield (
        "Small datasets need a smaller τ, large ones allow a larger τ.",
        f"the τ nearest to V* is {_series(levels)} for N = {sizes}",
        verdict(sorted(levels) == levels and levels[0] < levels[-1]),
    )
    values, discount = processes.pairs[0], processes.mdp.discount
    exact = {tau: processes.operator(operators.exact_expectile, expectile=tau)(values) for tau in (0.5, 0.99, 0.9999)}
    gap = abs(exact[0.5] - processes.operator(operators.evaluation)(values)).max()
    yield (
        "At τ = ½ the expectile operator is the Bellman expectation operator.",
        f"largest difference {gap:.1e} (the gradient operator: only at α = 1)",
        verdict(gap < 1e-9),
    )
    gaps = [float(abs(found - operators.optimality(values, processes.mdp)).mean()) for found in exact.values()]
    yield (
        "As τ → 1 it approaches the Bellman optimality operator.",
        f"mean gap to T*V {_series(gaps, '{:.2g}')} at τ = 0.5, 0.99, 0.9999 (μ has full support)",
        verdict(gaps[0] > 10 * gaps[1] > 100 * gaps[2]),
    )
    errors = action_values(values, processes.mdp) - exact[0.99][..., None]
    slope = abs((processes.behavior * asymmetry(errors, 0.99) * errors).sum(-1)).max()
    yield (
        "The expectile operator has no closed-form solution, so a gradient step replaces it.",
        f"for finitely many actions sorting and one division solve it: the loss has slope {slope:.1e} there",
        verdict(slope > 1e-9, "in part"),
    )
    kinds = (operators.exact_expectile, operators.outcome_expectile)
    maps = [stochastic.operator(kind, expectile=0.9) for kind in kinds]
    limits = [fixed_point(operator, stochastic.best, discount).values for operator in maps]
    averaged, sampled = (stochastic.positions(limit).mean() for limit in limits)
    same = distance(*(processes.operator(kind, expectile=0.9)(values) for kind in kinds)).max()
    yield (
        "With nearly deterministic dynamics the expectation over s′ can be removed.",
        f"difference {same:.1e} in deterministic processes; in uniformly random ones the fixed point at "
        f"τ = 0.9 moves from {averaged:.2f} to {sampled:.2f} (0 = V^μ, 1 = V*)",
        verdict(same < 1e-9),
    )
    rate = processes.rates(operators.gradient_expectile, expectile=0.9).max()
    formula = 1 - 2 * (1 - discount) * largest_step_size(0.9) * 0.9
    yield (
        "EVL converges with rate 1 − 2α(1−γ)·max{τ, 1−τ}.",
        f"at τ = 0.9 the formula gives {formula:.4f}, yet a pair of values is stretched by {rate:.4f}; "
        f"with min it gives {contraction_bound(0.9, discount):.4f}",
        verdict(rate <= formula + 1e-9),
    )


def planning(processes: Processes, max_steps: int = 10) -> Iterator[Finding]:
    """Section 3.2: the recursion of equations 5 and 6."""
    unrolled = processes.operator(operators.rollout_values, expectile=0.7, max_steps=max_steps + 1)

    def recursion(values: Array) -> Array:
        """max_{1≤n≤n_max} (T^μ)ⁿ T_τ V: equation 6 in expectation."""
        return unrolled(values)[1:].max(0)

    target = processes.expectile_values(0.7)
    limit = fixed_point(recursion, target, contraction_bound(0.7, processes.mdp.discount)).values
    planned, analyzed = (processes.positions(values).mean() for values in (limit, target))
    yield (
        "Implied: the plan of equations 5 and 6 is the operator that section 4.2 analyses.",
        "at n = 1, eq. 6 has r + γV̂(s′) where 4.2 has V̂(s); in expectation its fixed point at τ = 0.7 is at "
        f"{planned:.2f} instead of {analyzed:.2f} (0 = V^μ, 1 = V*)",
        verdict(abs(planned - analyzed) < 1e-3),
    )


def convergence(processes: Processes, stochastic: Processes) -> Iterator[Finding]:
    """Section 4.1: lemmas 1 to 3, proposition 1 and remark 1."""
    values, discount = processes.pairs[0], processes.mdp.discount
    levels = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
    rates = {
        tau: max(
            float(drawn.rates(operators.gradient_expectile, expectile=tau).max()) for drawn in (processes, stochastic)
        )
        for tau in levels
    }
    gap = max(abs(rate - contraction_bound(tau, discount)) for tau, rate in rates.items())
    yield (
        "Lemma 1: T_τ contracts at γ_τ = 1 − 2α(1−γ)·min{τ, 1−τ}.",
        f"the largest stretch is γ_τ to {gap:.0e} at {len(levels)} values of τ, in stochastic processes too",
        verdict(gap < 1e-8),
    )
    upper, lower = processes.rates(operators.optimistic).max(), processes.rates(operators.pessimistic).max()
    yield (
        "Implied by “τ ∈ [0, 1)”: lemma 1 includes τ = 0.",
        f"at τ = 0 and α = ½ the operator is T₋, which stretches a pair by {lower:.4f}: no contraction",
        verdict(lower < 1 - 1e-9),
    )
    yield (
        "T₊ and T₋ are non-expansions.",
        f"largest stretch {max(upper, lower):.6f}",
        verdict(max(upper, lower) <= 1 + 1e-9),
    )
    errors = action_values(values, processes.mdp) - values[..., None]
    within, beyond = (
        (abs(expectile_step(errors, 0.9, factor * largest_step_size(0.9))) - abs(errors)).max()
        for factor in (1.0, 1.05)
    )
    yield (
        "α must not exceed 1/(2·max{τ, 1−τ}), or an update passes its own target.",
        f"largest overshoot {within:.1e} at that α and {beyond:.2f} at 1.05 times that α (τ = 0.9)",
        verdict(within < 1e-9 < beyond),
    )
    yield (
        "γ_τ approaches 1 as τ → 0 or τ → 1.",
        f"measured {rates[0.1]:.4f} at τ = 0.1, {rates[0.5]:.4f} at 0.5, {rates[0.99]:.4f} at 0.99",
        verdict(min(rates[0.1], rates[0.99]) > rates[0.5]),
    )
    yield (
        "At τ = 1 the contraction is lost.",
        f"T₊ stretches a pair by {upper:.6f}",
        verdict(upper > 1 - 1e-9),
    )
    steps = [processes.operator(operators.gradient_expectile, expectile=tau, step_size=0.5)(values) for tau in levels]
    growth = min((high - low).min() for low, high in pairwise(steps))
    yield (
        "Lemma 2: T_τ V grows with τ in every state.",
        f"smallest growth from one τ to the next {growth:.1e}",
        verdict(growth > -1e-12),
    )
    growth = min((high - low).min() for low, high in pairwise(map(processes.expectile_values, levels)))
    yield (
        "Proposition 1: the fixed point V*_τ grows with τ in every state.",
        f"smallest growth from one τ to the next {growth:.2f}",
        verdict(growth > -1e-8),
    )
    biases = [_bias(processes, tau) for tau in (0.9, 0.99, 0.999, 0.9999)]
    yield (
        "Lemma 3: V*_τ tends to V* as τ → 1.",
        "mean distance {:.3f}, {:.3f}, {:.4f}, {:.5f} at τ = 0.9, 0.99, 0.999, 0.9999".format(*biases),
        verdict(biases[-1] < 1e-2),
    )
    far = _bias(stochastic, 0.9999)
    yield (
        "Implied: lemma 3 needs a deterministic process.",
        f"mean distance {far:.5f} at τ = 0.9999 in stochastic ones as well, since δ is averaged over s′",
        verdict(far > 1e-2),
    )
    partial = softmax_policy(action_values(processes.best, processes.mdp), num_removed=1)
    limited = _bias(processes._replace(behavior=partial), 0.9999)
    yield (
        "Implied: lemma 3 needs nothing of μ.",
        f"with one action never taken, as in figure 4(a), a mean distance of {limited:.2f} remains at "
        f"τ = 0.9999: the limit is the best value inside the support of μ",
        verdict(limited < 1e-2),
    )
    exact = max(processes.rates(operators.exact_expectile, expectile=tau).max() for tau in levels)
    yield (
        "Remark 1: a larger τ brings a smaller bias and a slower contraction.",
        f"so it is for the gradient step (figure 4a), but the exact expectile operator contracts at "
        f"{exact:.4f} for every τ",
        verdict(exact > discount + 1e-8, "in part"),
    )


def memory(tables: dict[str, Table], processes: Processes, max_steps: int = 10) -> Iterator[Finding]:
    """Section 4.2: lemmas 4 and 5 and remark 2."""
    discount = processes.mdp.discount
    spread = max(max(row) - min(row) for row in _by_level(tables["horizon"], "bias").values())
    yield (
        "Remark 2: n_max adds no bias; τ alone controls it.",
        f"the bias of T_vem changes by at most {spread:.0e} over n_max (but see the plan along trajectories)",
        verdict(spread < 1e-6),
    )
    row = next(row for row in tables["behavior"] if row["expectile"] == 0.8)
    limit = discount ** (row["best_steps"] - 1) * row["rate_bound"]
    yield (
        "For expert data the rate comes near γ^(n*−1)·γ_τ.",
        f"from V = 0 {row['rate_from_zero']:.3f} against {limit:.3f} at temperature {row['temperature']:g}, "
        f"τ = 0.8, mean n* {row['best_steps']:.1f}",
        verdict(abs(row["rate_from_zero"] - limit) < 0.1 * limit, "in part"),
    )
    low, middle = (row for row in tables["readings"] if row["expectile"] in (0.1, 0.5))
    yield (
        "Implied: remark 2 carries over to a plan along each trajectory.",
        f"at τ = 0.5 the maximum along trajectories settles at {middle['memory_sampled']:.2f} and the authors' "
        f"plan at {middle['memory_authors']:.2f} instead of {middle['memory_operator']:.2f}; at τ = 0.1 at "
        f"{low['memory_sampled']:.2f} and {low['memory_authors']:.2f} instead of {low['memory_operator']:.2f} "
        "(0 = V^μ, 1 = V*)",
        verdict(abs(middle["memory_sampled"] - middle["memory_operator"]) < 1e-3),
    )
    levels = (0.1, 0.3, 0.6, 0.9)
    gap = max(
        float(processes.rates(operators.vem, expectile=tau, max_steps=max_steps).max())
        - contraction_bound(tau, discount)
        for tau in levels
    )
    yield (
        "Lemma 4: T_vem contracts at γ_τ.",
        f"largest stretch minus γ_τ {gap:.0e}: the bound is reached",
        verdict(gap < 1e-8),
    )
    moved = {
        tau: distance(processes.memory_values(tau, max_steps), processes.expectile_values(tau)).mean() for tau in levels
    }
    yield (
        "Lemma 4: for τ > ½, T_vem has the same fixed point as T_τ.",
        f"mean distance {max(moved[0.6], moved[0.9]):.0e} at τ = 0.6 and 0.9",
        verdict(max(moved[0.6], moved[0.9]) < 1e-6),
    )
    yield (
        "Implied: lemma 4 needs τ > ½ (17 of the paper's 21 tuned τ lie below).",
        f"mean distance {moved[0.3]:.2f} at τ = 0.3 and {moved[0.1]:.2f} at τ = 0.1",
        verdict(moved[0.3] > 1e-3),
    )
    target = processes.expectile_values(0.7)
    single = processes.operator(operators.gradient_expectile, expectile=0.7)
    planned = processes.operator(operators.vem, expectile=0.7, max_steps=max_steps)
    faster = [
        (distance(planned(start), target) < distance(single(start), target) - 1e-12).mean()
        for start in (0 * target, target + 1)
    ]
    yield (
        "T_vem converges more quickly than T_τ even if μ is random.",
        f"one application at τ = 0.7 brings it nearer in {faster[0]:.0%} of the processes from V = 0 and in "
        f"{faster[1]:.0%} from V = V*_τ + 1: only values that are too low gain",
        verdict(min(faster) == 1, "in part"),
    )
    slack = _lemma_five_slack(processes, 0.7, max_steps)
    yield "Lemma 5's bound.", f"smallest slack {slack:.2g} at τ = 0.7", verdict(slack > -1e-8)
    excess = (planned(0 * target) - target).max()
    yield (
        "From pessimistic values the update is toward a lower bound of V*_τ.",
        f"largest T_vem 0 − V*_τ is {excess:.2f} at τ = 0.7",
        verdict(excess <= 1e-9),
    )
    random = processes._replace(behavior=np.full_like(processes.behavior, 1 / processes.mdp.num_actions))
    unrolled = random.operator(operators.rollout_values, expectile=0.7, max_steps=max_steps)
    starts = [share * random.expectile_values(0.7) for share in (0, 0.5, 0.9, 1)]
    best = [float(1 + unrolled(start).argmax(0).mean()) for start in starts]
    yield (
        "From V = 0 the best number of steps n* is near n_max.",
        f"mean n* {_series(best, '{:.1f}')} at 0, 50, 90, 100 % of V*_τ (n_max = {max_steps}, uniform μ, τ = 0.7)",
        verdict(best[0] > max_steps - 0.5),
    )
    yield (
        "If μ is random, n* is near 1.",
        f"under a uniform μ, mean n* {best[0]:.1f} from V = 0 but {best[-1]:.1f} at V*_τ: V's height decides",
        verdict(best[0] < 1.5, "in part"),
    )


def toy_example(tables: dict[str, Table], processes: Processes) -> Iterator[Finding]:
    """Section 4.3 and its figures 4(a) and 4(b)."""
    # Numbers are shown at τ = 0.8; a statement must hold at every τ.
    steps = f"for n_max = {_series(studies.HORIZONS, '{:.0f}')} at τ = 0.8"
    suprema, speeds = (_by_level(tables["horizon"], name) for name in ("rate_supremum", "rate_from_zero"))
    yield (
        "The contraction rate, a supremum over all pairs, decreases with n_max.",
        f"supremum {_series(suprema[0.8], '{:.4f}')} {steps}: always γ_τ",
        verdict(all(_falls(row, by=1e-6) for row in suprema.values())),
    )
    yield (
        "The contraction rate from V = 0, which the figure plots, decreases with n_max.",
        f"{_series(speeds[0.8], '{:.3f}')} {steps}",
        verdict(all(_falls(row) for row in speeds.values())),
    )
    biases = column(tables["horizon"], "bias", max_steps=studies.HORIZONS[-1])
    yield (
        "The fixed-point bias grows as τ becomes smaller.",
        f"{_series(biases)} for τ = {_series(studies.EXPECTILES)}",
        verdict(_falls(biases)),
    )
    deviations = _by_level(tables["horizon"], "deviation")
    yield (
        "The variance is positively correlated with n_max.",
        f"{_series(deviations[0.8], '{:.3f}')} {steps}, V = 0",
        verdict(all(_falls(row[::-1]) for row in deviations.values())),
    )
    steps = f"for temperatures {_series(studies.TEMPERATURES)} at τ = 0.8"
    suprema, speeds = (_by_level(tables["behavior"], name) for name in ("rate_supremum", "rate_from_zero"))
    slower = all(_falls(row[::-1]) for row in speeds.values())
    yield (
        "Better data give a lower contraction rate.",
        f"from V = 0 {_series(speeds[0.8], '{:.3f}')} {steps}; the supremum stays {_series(suprema[0.8], '{:.4f}')}",
        verdict(all(_falls(row[::-1], by=1e-6) for row in suprema.values()), "in part" if slower else "fails"),
    )
    deviations = _by_level(tables["behavior"], "deviation")
    yield (
        "Better data give a lower variance.",
        f"{_series(deviations[0.8], '{:.3f}')} {steps}",
        verdict(all(_falls(row[::-1]) for row in deviations.values())),
    )
    sampled = [_deviation(processes, 0.7, n) for n in studies.HORIZONS]
    yield (
        "Implied: the variance grows with n_max at the fixed point as well as at V = 0.",
        f"{_series(sampled, '{:.2f}')} for n_max = {_series(studies.HORIZONS, '{:.0f}')} at V*_τ, τ = 0.7",
        verdict(_falls(sampled[::-1])),
    )


def _bias(processes: Processes, expectile: float) -> float:
    return float(distance(processes.expectile_values(expectile), processes.best).mean())


def _lemma_five_slack(processes: Processes, expectile: float, max_steps: int) -> float:
    """Right-hand side minus left-hand side of lemma 5 (eq. 10), the smallest over values, processes and states."""
    discount, target = processes.mdp.discount, processes.expectile_values(expectile)
    values = np.concatenate([0 * target[None], processes.pairs[0]])
    unrolled = processes.operator(operators.rollout_values, expectile=expectile, max_steps=max_steps)
    outcomes = unrolled(values)
    bounds = []
    for n in range(max_steps):
        rate = discount**n * contraction_bound(expectile, discount)
        limit = fixed_point(lambda v, n=n: unrolled(v)[n], target, rate).values
        bounds.append(rate * distance(values, limit) + distance(limit, target))
    bound = np.take_along_axis(np.stack(bounds, -1), outcomes.argmax(0), -1)
    return float((bound - abs(outcomes.max(0) - target)).min())


def _deviation(processes: Processes, expectile: float, max_steps: int) -> float:
    """E[‖T̂V − T_vem V‖₂²]^½ at V*_τ with every rollout enumerated, the mean over processes."""
    values = processes.expectile_values(expectile)
    recorded, probabilities = enumerate_rollouts(processes.mdp, processes.behavior, max_steps)
    targets = operators.stepped_targets(values, recorded, processes.mdp.discount, expectile)
    best = operators.plan(targets, recorded.rewards, processes.mdp.discount, max_steps)[-1, ..., 0]
    exact = processes.operator(operators.vem, expectile=expectile, max_steps=max_steps)(values)
    return float(np.sqrt((probabilities * (best - exact[..., None]) ** 2).sum((-1, -2))).mean())


def _by_level(table: Table, measure: str) -> dict[float, list[float]]:
    """For every τ, a measure along n_max or temperature."""
    return {tau: column(table, measure, expectile=tau) for tau in studies.EXPECTILES}


def _series(numbers: Sequence[float], form: str = "{:.3g}") -> str:
    return ", ".join(form.format(number) for number in numbers)


def _falls(numbers: Sequence[float], by: float = 0.0) -> bool:
    return all(first - second > by for first, second in pairwise(numbers))
