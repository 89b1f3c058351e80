"""The paper's sections 3.1 and 4.1, statement by statement, measured on random processes."""

from collections.abc import Iterator
from itertools import pairwise

from vem.core.losses import asymmetry, expectile_step
from vem.theory import operators
from vem.theory.analysis import distance, fixed_point
from vem.theory.claim import Claim, verdict
from vem.theory.mdp import action_values, softmax_policy
from vem.theory.processes import Processes


def expectile_learning(processes: Processes, stochastic: Processes) -> Iterator[Claim]:
    """Section 3.1, apart from figure 2."""
    values, discount = processes.pairs[0], processes.mdp.discount
    levels = (0.5, 0.99, 0.9999)
    exact = {tau: processes.operator(operators.exact_expectile, expectile=tau)(values) for tau in levels}
    gap = abs(exact[0.5] - processes.operator(operators.evaluation)(values)).max()
    yield Claim(
        "3.1",
        "At τ = ½ the expectile operator is the Bellman expectation operator.",
        f"largest difference {gap:.1e} (the gradient operator: only at α = 1)",
        verdict(gap < 1e-9),
    )
    gaps = [abs(exact[tau] - operators.optimality(values, processes.mdp)).mean() for tau in levels]
    yield Claim(
        "3.1",
        "As τ → 1 it approaches the Bellman optimality operator.",
        "mean gap to T*V {:.2g}, {:.2g}, {:.2g} at τ = 0.5, 0.99, 0.9999 (μ has full support)".format(*gaps),
        verdict(gaps[0] > 10 * gaps[1] > 100 * gaps[2]),
    )
    errors = action_values(values, processes.mdp) - exact[0.99][..., None]
    slope = abs((processes.behavior * asymmetry(errors, 0.99) * errors).sum(-1)).max()
    yield Claim(
        "3.1",
        "The expectile operator has no closed-form solution, so a gradient step replaces it.",
        f"for finitely many actions sorting and one division solve it: the loss has slope {slope:.1e} there",
        verdict(slope > 1e-9, "in part"),
    )
    kinds = (operators.exact_expectile, operators.outcome_expectile)
    averaged, sampled = (
        stochastic.position(fixed_point(stochastic.operator(kind, expectile=0.9), stochastic.best, discount).values)
        for kind in kinds
    )
    same = distance(*(processes.operator(kind, expectile=0.9)(values) for kind in kinds)).max()
    yield Claim(
        "3.1",
        "With nearly deterministic dynamics the expectation over s′ can be removed.",
        f"difference {same:.1e} in deterministic processes; in uniformly random ones the fixed point at "
        f"τ = 0.9 moves from {averaged:.2f} to {sampled:.2f} (0 = V^μ, 1 = V*)",
        verdict(same < 1e-9),
    )
    rate, step = processes.rate(operators.gradient_expectile, expectile=0.9), operators.largest_step_size(0.9)
    formula = 1 - 2 * (1 - discount) * step * 0.9
    yield Claim(
        "3.1",
        "EVL converges with rate 1 − 2α(1−γ)·max{τ, 1−τ}.",
        f"at τ = 0.9 the formula gives {formula:.4f}, yet a pair of values is stretched by {rate:.4f}; "
        f"with min it gives {operators.contraction_bound(0.9, discount):.4f}",
        verdict(rate <= formula + 1e-9),
    )


def convergence(processes: Processes, stochastic: Processes) -> Iterator[Claim]:
    """Section 4.1."""
    discount, values = processes.mdp.discount, processes.pairs[0]
    levels = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
    bounds = [operators.contraction_bound(tau, discount) for tau in levels]
    rates = [
        max(place.rate(operators.gradient_expectile, expectile=tau) for place in (processes, stochastic))
        for tau in levels
    ]
    gap = max(abs(rate - bound) for rate, bound in zip(rates, bounds, strict=True))
    yield Claim(
        "4.1",
        "Lemma 1: T_τ contracts at γ_τ = 1 − 2α(1−γ)·min{τ, 1−τ}.",
        f"the largest stretch is γ_τ to {gap:.0e} at {len(levels)} values of τ, in stochastic processes too",
        verdict(gap < 1e-8),
    )
    optimistic, pessimistic = processes.rate(operators.optimistic), processes.rate(operators.pessimistic)
    yield Claim(
        "4.1",
        "Implied by “τ ∈ [0, 1)”: lemma 1 includes τ = 0.",
        f"at τ = 0 and α = ½ the operator is T₋, which stretches a pair by {pessimistic:.4f}: no contraction",
        verdict(pessimistic < 1 - 1e-9),
    )
    yield Claim(
        "4.1",
        "T₊ and T₋ are non-expansions.",
        f"largest stretch {max(optimistic, pessimistic):.6f}",
        verdict(max(optimistic, pessimistic) <= 1 + 1e-9),
    )
    within, beyond = (_overshoot(processes, 0.9, factor) for factor in (1.0, 1.05))
    yield Claim(
        "4.1",
        "α must not exceed 1/(2·max{τ, 1−τ}), or an update passes its own target.",
        f"largest overshoot {within:.1e} at that α and {beyond:.2f} at 1.05 times that α (τ = 0.9)",
        verdict(within < 1e-9 < beyond),
    )
    yield Claim(
        "4.1",
        "γ_τ approaches 1 as τ → 0 or τ → 1.",
        f"measured {rates[0]:.4f} at τ = 0.1, {rates[2]:.4f} at 0.5, {rates[-1]:.4f} at 0.99",
        verdict(min(rates[0], rates[-1]) > rates[2]),
    )
    yield Claim(
        "4.1",
        "At τ = 1 the contraction is lost.",
        f"T₊ stretches a pair by {optimistic:.6f}",
        verdict(optimistic > 1 - 1e-9),
    )
    steps = [processes.operator(operators.gradient_expectile, expectile=tau, step_size=0.5)(values) for tau in levels]
    growth = min((high - low).min() for low, high in pairwise(steps))
    yield Claim(
        "4.1",
        "Lemma 2: T_τ V grows with τ in every state.",
        f"smallest growth from one τ to the next {growth:.1e}",
        verdict(growth > -1e-12),
    )
    fixed = {tau: processes.expectile_values(tau) for tau in (*levels, 0.999, 0.9999)}
    growth = min((fixed[high] - fixed[low]).min() for low, high in pairwise(levels))
    yield Claim(
        "4.1",
        "Proposition 1: the fixed point V*_τ grows with τ in every state.",
        f"smallest growth from one τ to the next {growth:.2f}",
        verdict(growth > -1e-8),
    )
    biases = [float(distance(fixed[tau], processes.best).mean()) for tau in (0.9, 0.99, 0.999, 0.9999)]
    yield Claim(
        "4.1",
        "Lemma 3: V*_τ tends to V* as τ → 1.",
        "mean distance {:.3f}, {:.3f}, {:.4f}, {:.5f} at τ = 0.9, 0.99, 0.999, 0.9999".format(*biases),
        verdict(biases[-1] < 1e-2),
    )
    far = float(distance(stochastic.expectile_values(0.9999), stochastic.best).mean())
    yield Claim(
        "4.1",
        "Implied: lemma 3 needs a deterministic process.",
        f"mean distance {far:.5f} at τ = 0.9999 in stochastic ones as well, since δ is averaged over s′",
        verdict(far > 1e-2),
    )
    partial = softmax_policy(action_values(processes.best, processes.mdp), num_removed=1)
    limited = distance(processes._replace(behavior=partial).expectile_values(0.9999), processes.best).mean()
    yield Claim(
        "4.1",
        "Implied: lemma 3 needs nothing of μ.",
        f"with one action never taken, as in figure 4(a), a mean distance of {limited:.2f} remains at "
        f"τ = 0.9999: the limit is the best value inside the support of μ",
        verdict(limited < 1e-2),
    )
    exact = max(processes.rate(operators.exact_expectile, expectile=tau) for tau in levels)
    yield Claim(
        "4.1",
        "Remark 1: a larger τ brings a smaller bias and a slower contraction.",
        f"so it is for the gradient step (figure 4a), but the exact expectile operator contracts at "
        f"{exact:.4f} for every τ",
        verdict(exact > discount + 1e-8, "in part"),
    )


def _overshoot(processes: Processes, expectile: float, factor: float) -> float:
    """How far past its own target the update of one sample goes, at ``factor`` times the largest α."""
    values = processes.pairs[0]
    errors = action_values(values, processes.mdp) - values[..., None]
    steps = expectile_step(errors, expectile, factor * operators.largest_step_size(expectile))
    return float((abs(steps) - abs(errors)).max())
