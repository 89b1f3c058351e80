"""The operators of the paper's sections 3.1 and 4, as functions of (values, mdp, behavior, …).

``functools.partial`` over the named arguments turns each into the ``values → values`` map that
``vem.theory.operators`` takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vem.errors import DivergenceError, SettingsError
from vem.losses import expectile_step
from vem.theory.mdp import MDP, Array, action_values, disturb

# Expectiles and quantiles of finite distributions, exactly.


def check_level(level: float) -> None:
    """Raise unless the expectile or quantile level lies strictly between 0 and 1."""
    if not 0 < level < 1:
        raise SettingsError(f"the expectile is {level}; it must lie strictly between 0 and 1")


def expectile_of(outcomes: Array, probabilities: Array, level: float) -> Array:
    """argmin_v E[τ·[Y−v]₊² + (1−τ)·[Y−v]₋²] over the last axis, without iteration.

    Once it is known which outcomes lie below v, the minimizer is a weighted mean, with weight 1−τ below and
    τ above. Sorting leaves one candidate for each number of outcomes below. The right one is the largest of
    them for τ ≥ ½ and the smallest for τ ≤ ½, since any other split takes weight from the wrong side.
    """
    check_level(level)
    order = np.argsort(outcomes, axis=-1)
    mass = np.take_along_axis(np.broadcast_to(probabilities, outcomes.shape), order, -1)
    moment = mass * np.take_along_axis(outcomes, order, -1)
    total_mass, total_moment = mass.sum(-1, keepdims=True), moment.sum(-1, keepdims=True)
    # Column k has the k+1 smallest outcomes below v; the last one is the plain mean, as is "none below".
    mass_below, moment_below = mass.cumsum(-1), moment.cumsum(-1)
    candidates = (level * total_moment + (1 - 2 * level) * moment_below) / (
        level * total_mass + (1 - 2 * level) * mass_below
    )
    return candidates.max(-1) if level >= 0.5 else candidates.min(-1)


def quantile_of(outcomes: Array, probabilities: Array, level: float) -> Array:
    """Return the smallest y with P(Y ≤ y) ≥ τ over the last axis: a minimizer of the quantile loss."""
    check_level(level)
    order = np.argsort(outcomes, axis=-1)
    mass = np.take_along_axis(np.broadcast_to(probabilities, outcomes.shape), order, -1).cumsum(-1)
    # A hair of slack, so that 0.2 + 0.5 reaches 0.7.
    reached = mass >= level * mass[..., -1:] - 1e-12
    first = reached.argmax(-1)[..., None]
    return np.take_along_axis(np.take_along_axis(outcomes, order, -1), first, -1)[..., 0]


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


# Measurements that take any operator, given as a map from values to values of shape (…, states).


Operator = Callable[[Array], Array]


class FixedPoint(NamedTuple):
    """``values`` lie within ``error_bound`` of the fixed point in the maximum norm."""

    values: Array
    error_bound: float
    num_applications: int


def distance(first: Array, second: Array) -> Array:
    """‖V − V′‖_∞ over the states."""
    return abs(first - second).max(-1)


def fixed_point(operator: Operator, start: Array, rate: float, tolerance: float = 1e-9) -> FixedPoint:
    """Apply a contraction until its fixed point is certified to ``tolerance``, or as far as float64 allows.

    ‖TV − V*‖ ≤ rate/(1−rate)·‖TV − V‖ needs no knowledge of V*; it holds if ``rate`` bounds the operator's
    contraction rate. An operator whose steps do not shrink at that rate is refused.
    """
    if not 0 <= rate < 1:
        raise SettingsError(f"the contraction rate is {rate}; a fixed point needs one in [0, 1)")
    values, allowed = start, math.inf
    num_applications = 0
    while True:
        num_applications += 1
        improved = operator(values)
        step = float(distance(improved, values).max())
        # Float64 rounding of one application, far below any tolerance that can be reached.
        rounding = 64 * np.finfo(np.float64).eps * float(1 + abs(improved).max())
        if not step <= allowed:
            raise DivergenceError(
                f"application {num_applications} moved the values by {step:.3g}, more than {rate:.6g} times "
                f"the one before: the operator does not contract at this rate"
            )
        values, allowed = improved, rate * step + rounding
        bound = (rate * step + rounding) / (1 - rate)
        if bound <= max(tolerance, 2 * rounding / (1 - rate)):
            return FixedPoint(values, bound, num_applications)


def random_pairs(rng: np.random.Generator, num_pairs: int, shape: tuple[int, ...], scale: float) -> tuple[Array, Array]:
    """Pairs of values that search for the supremum: wide and near, shifted by a constant or by noise.

    All operators here are piecewise linear and most are monotone, and a monotone linear map stretches a
    constant shift most; the levels reach ±``scale`` so that every sign pattern of the errors occurs.
    """
    levels = rng.uniform(-scale, scale, size=(num_pairs, *shape[:-1], 1))
    first = levels + rng.choice([1e-3, 1e-1, 1], size=levels.shape) * rng.normal(size=(num_pairs, *shape))
    shifts = rng.normal(size=first.shape)
    shifts[::2] = 1
    return first, first + rng.choice([1e-4, 1e-2, 1], size=levels.shape) * shifts


def contraction_rate(operator: Operator, first: Array, second: Array) -> Array:
    """Supremum over the given pairs of ‖TV − TV′‖_∞/‖V − V′‖_∞ (section 4.3)."""
    return (distance(operator(first), operator(second)) / distance(first, second)).max(0)


def rate_toward(operator: Operator, start: Array, limit: Array) -> Array:
    """‖TV − V*‖_∞/‖V − V*‖_∞ of one application from ``start``: what the toy figure plots, with V = 0."""
    return distance(operator(start), limit) / distance(start, limit)


def update_deviation(targets: Array, states: NDArray[np.integer], exact: Array) -> float:
    """E[‖T̂V − TV‖₂²]^½ (section 4.3's variance), where T̂V(s) is the target of one recorded row in state s.

    ``targets`` and ``states`` are flat; ``exact`` is TV.
    """
    counts = np.bincount(states, minlength=exact.size)
    squares = np.bincount(states, (targets - exact[states]) ** 2, minlength=exact.size)
    return math.sqrt((squares / np.maximum(counts, 1)).sum())
