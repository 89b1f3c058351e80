"""The operators of the paper's sections 3.1 and 4, as functions of (values, mdp, behavior, …).

``functools.partial`` over the named arguments turns each into the ``values → values`` map that
``vem.theory.analysis`` takes.
"""

from collections.abc import Callable

import numpy as np

from vem.core.losses import expectile_step
from vem.errors import SettingsError
from vem.theory.expectiles import check_level, expectile_of, quantile_of
from vem.theory.mdp import MDP, Array, action_values, disturb


def evaluation(values: Array, mdp: MDP, behavior: Array) -> Array:
    """(T^μ V)(s) = E_{a∼μ}[r + γV(s′)], the Bellman expectation operator."""
    return (behavior * action_values(values, mdp)).sum(-1)


def optimality(values: Array, mdp: MDP) -> Array:
    """(T* V)(s) = max_a [r + γV(s′)], the Bellman optimality operator."""
    return action_values(values, mdp).max(-1)


def optimistic(values: Array, mdp: MDP, behavior: Array) -> Array:
    """(T₊V)(s) = V(s) + E_{a∼μ}[δ]₊ (paper, proof of lemma 1)."""
    errors = action_values(values, mdp) - values[..., None]
    return values + (behavior * np.maximum(errors, 0)).sum(-1)


def pessimistic(values: Array, mdp: MDP, behavior: Array) -> Array:
    """(T₋V)(s) = V(s) + E_{a∼μ}[δ]₋ (paper, proof of lemma 1)."""
    errors = action_values(values, mdp) - values[..., None]
    return values + (behavior * np.minimum(errors, 0)).sum(-1)


def largest_step_size(expectile: float) -> float:
    """1/(2·max{τ,1−τ}): the largest α for which no sample overshoots its target (paper, section 4.1)."""
    check_level(expectile)
    return 1 / (2 * max(expectile, 1 - expectile))


def check_step_size(expectile: float, step_size: float) -> None:
    """Raise unless 0 < α ≤ 1/(2·max{τ,1−τ})."""
    limit = largest_step_size(expectile)
    if not 0 < step_size <= limit * (1 + 1e-12):
        raise SettingsError(
            f"the step size is {step_size}; at expectile {expectile} it must be above 0 and at most "
            f"1/(2·max(τ, 1−τ)) = {limit:.6g}, or an update overshoots its own target"
        )


def contraction_bound(expectile: float, discount: float, step_size: float | None = None) -> float:
    """γ_τ = 1 − 2α(1−γ)·min{τ,1−τ} (lemma 1); α is the largest permitted one unless given."""
    step_size = largest_step_size(expectile) if step_size is None else step_size
    return 1 - 2 * step_size * (1 - discount) * min(expectile, 1 - expectile)


def gradient_expectile(
    values: Array, mdp: MDP, behavior: Array, expectile: float, step_size: float | None = None
) -> Array:
    """(T_τ V)(s) = V(s) + 2α·E_{a∼μ}[τ[δ]₊ + (1−τ)[δ]₋] (eq. 3); α is the largest permitted unless given."""
    step_size = largest_step_size(expectile) if step_size is None else step_size
    errors = action_values(values, mdp) - values[..., None]
    return values + (behavior * expectile_step(errors, expectile, step_size)).sum(-1)


def exact_expectile(values: Array, mdp: MDP, behavior: Array, expectile: float) -> Array:
    """argmin_v E_{a∼μ}[τ[δ]₊² + (1−τ)[δ]₋²] (eq. 2), solved exactly; a γ-contraction for every τ."""
    return expectile_of(action_values(values, mdp), behavior, expectile)


def outcome_expectile(values: Array, mdp: MDP, behavior: Array, expectile: float) -> Array:
    """argmin_v of the same loss over a∼μ *and* s′∼P, which the loss of eq. 4 estimates.

    It equals ``exact_expectile`` in deterministic processes only: elsewhere it takes a lucky transition for
    a good action.
    """
    targets = mdp.rewards[..., None] + mdp.discount * values[..., None, None, :]
    probabilities = behavior[..., None] * mdp.transitions
    targets = targets.reshape(*targets.shape[:-2], -1)
    return expectile_of(targets, probabilities.reshape(*probabilities.shape[:-2], -1), expectile)


def exact_quantile(values: Array, mdp: MDP, behavior: Array, quantile: float) -> Array:
    """Return the τ-quantile of r + γV(s′) under a∼μ, which VEM(abs) estimates; a γ-contraction."""
    return quantile_of(action_values(values, mdp), behavior, quantile)


def n_step(values: Array, mdp: MDP, behavior: Array, num_steps: int) -> Array:
    """((T^μ)ⁿ V)(s)."""
    for _ in range(num_steps):
        values = evaluation(values, mdp, behavior)
    return values


def rollout_values(
    values: Array,
    mdp: MDP,
    behavior: Array,
    expectile: float,
    max_steps: int,
    step_size: float | None = None,
) -> Array:
    """(T^μ)ⁿ⁻¹ T_τ V for n = 1 … n_max, stacked along a new first axis."""
    if max_steps < 1:
        raise SettingsError(f"the largest number of rollout steps is {max_steps}; it must be at least 1")
    rollouts = [gradient_expectile(values, mdp, behavior, expectile, step_size)]
    for _ in range(max_steps - 1):
        rollouts.append(evaluation(rollouts[-1], mdp, behavior))
    return np.stack(rollouts)


def vem(
    values: Array,
    mdp: MDP,
    behavior: Array,
    expectile: float,
    max_steps: int,
    step_size: float | None = None,
) -> Array:
    """(T_vem V)(s) = max_{1≤n≤n_max} (T^μ)ⁿ⁻¹ T_τ V(s); n = 1 is the expectile step itself (section 4.2)."""
    return rollout_values(values, mdp, behavior, expectile, max_steps, step_size).max(0)


def noisy(
    operator: Callable[[Array, MDP], Array], mdp: MDP, standard_error: Array | float, rng: np.random.Generator
) -> Callable[[Array], Array]:
    """V ↦ operator(V, mdp) with fresh Gaussian noise on every one-step target at every application."""
    return lambda values: operator(values, disturb(mdp, standard_error, rng))
