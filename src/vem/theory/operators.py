"""The paper's operators as functions of (values, mdp, behavior, …), and what section 4.3 measures on them.

``functools.partial`` over the named arguments turns each into a map from values to values of shape
(…, states), which the measurements at the end take.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vem.errors import DivergenceError, SettingsError
from vem.losses import effective_expectile, expectile_step
from vem.theory.mdp import MDP, Array, Trajectories, action_values

Operator = Callable[[Array], Array]

# Section 3.1: between the Bellman expectation operator and the Bellman optimality operator.


def evaluation(values: Array, mdp: MDP, behavior: Array) -> Array:
    """(T^μ V)(s) = E_{a∼μ}[r + γV(s′)], the Bellman expectation operator."""
    return (behavior * action_values(values, mdp)).sum(-1)


def optimality(values: Array, mdp: MDP) -> Array:
    """(T* V)(s) = max_a [r + γV(s′)], the Bellman optimality operator."""
    return action_values(values, mdp).max(-1)


def exact_expectile(values: Array, mdp: MDP, behavior: Array, expectile: float) -> Array:
    """argmin_v E_{a∼μ}[τ[δ]₊² + (1−τ)[δ]₋²] (eq. 2), solved exactly; a γ-contraction for every τ."""
    return expectile_of(action_values(values, mdp), behavior, expectile)


def expectile_of(outcomes: Array, probabilities: Array, level: float) -> Array:
    """argmin_v E[τ·[Y−v]₊² + (1−τ)·[Y−v]₋²] over the last axis, without iteration.

    Once it is known which outcomes lie below v, the minimizer is a weighted mean, with weight 1−τ below and
    τ above. Sorting leaves one candidate for each number of outcomes below. The right one is the largest of
    them for τ ≥ ½ and the smallest for τ ≤ ½, since any other split takes weight from the wrong side.
    """
    _check_level(level)
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


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise SettingsError(f"the expectile is {level}; it must lie strictly between 0 and 1")


def gradient_expectile(
    values: Array, mdp: MDP, behavior: Array, expectile: float, step_size: float | None = None
) -> Array:
    """(T_τ V)(s) = V(s) + 2α·E_{a∼μ}[τ[δ]₊ + (1−τ)[δ]₋] (eq. 3); α is the largest permitted unless given."""
    step_size = largest_step_size(expectile) if step_size is None else step_size
    errors = action_values(values, mdp) - values[..., None]
    return values + (behavior * expectile_step(errors, expectile, step_size)).sum(-1)


def outcome_expectile(values: Array, mdp: MDP, behavior: Array, expectile: float) -> Array:
    """argmin_v of the loss of eq. 2 over a∼μ *and* s′∼P, which the loss of eq. 4 estimates.

    It equals ``exact_expectile`` in deterministic processes only: elsewhere it takes a lucky transition for
    a good action.
    """
    targets = mdp.rewards[..., None] + mdp.discount * values[..., None, None, :]
    probabilities = behavior[..., None] * mdp.transitions
    targets = targets.reshape(*targets.shape[:-2], -1)
    return expectile_of(targets, probabilities.reshape(*probabilities.shape[:-2], -1), expectile)


# Section 3.2: backups along trajectories. From a one-step target y_t they take the best over n of
# G_1(t) = y_t, G_n(t) = r_t + γ·G_{n−1}(t+1). The theory's y_t is the expectile-stepped value of s_t itself;
# the authors' program uses r_t + γV(s_{t+1}), for which the best is eq. 5 with plain values.


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


def values_at(values: Array, states: NDArray[np.integer]) -> Array:
    """V(s) for every recorded state; leading axes of ``values`` are matched with those of ``states``."""
    rows = states.reshape(*values.shape[:-1], -1)
    return np.take_along_axis(values, rows, -1).reshape(states.shape)


def bootstrapped_targets(values: Array, trajectories: Trajectories, discount: float) -> Array:
    """r_t + γV(s_{t+1}) for every row: where the authors' plan starts."""
    return trajectories.rewards + discount * values_at(values, trajectories.states[..., 1:])


def stepped_targets(values: Array, trajectories: Trajectories, discount: float, expectile: float) -> Array:
    """V̂(s_t) = V(s_t) + 2α(τ[δ_t]₊ + (1−τ)[δ_t]₋) for every row (eq. 4): where the theory's plan starts."""
    here = values_at(values, trajectories.states[..., :-1])
    errors = bootstrapped_targets(values, trajectories, discount) - here
    return here + expectile_step(errors, expectile, largest_step_size(expectile))


def sampled_vem(
    values: Array, trajectories: Trajectories, probabilities: Array, discount: float, expectile: float, max_steps: int
) -> Array:
    """Apply the theory's T_vem on trajectories: expectile step, plan, then the mean over the rollouts from s.

    Trajectories have shape (…, states, rollouts, ·), as ``enumerate_rollouts`` returns them. The maximum is
    taken along each trajectory, so this is at least T_vem, which takes it over expectations.
    """
    targets = stepped_targets(values, trajectories, discount, expectile)
    best = plan(targets, trajectories.rewards, discount, max_steps)[-1, ..., 0]
    return (probabilities * best).sum(-1) / probabilities.sum(-1)


def sampled_authors(
    values: Array, trajectories: Trajectories, probabilities: Array, discount: float, expectile: float, max_steps: int
) -> Array:
    """Apply the backup of the authors' program: plan with plain values, then regress on the planned returns.

    Its loss squares the weights, so the regression estimates ``effective_expectile(τ)`` of the returns.
    """
    targets = bootstrapped_targets(values, trajectories, discount)
    best = plan(targets, trajectories.rewards, discount, max_steps)[-1, ..., 0]
    return expectile_of(best, probabilities, effective_expectile(expectile))


# Section 4.1: the contraction of T_τ.

# T₊V = V + E[δ]₊ and T₋V = V + E[δ]₋ (eq. 8), of which T_τ is a mix.
optimistic = functools.partial(gradient_expectile, expectile=1.0, step_size=0.5)
pessimistic = functools.partial(gradient_expectile, expectile=0.0, step_size=0.5)


def largest_step_size(expectile: float) -> float:
    """1/(2·max{τ,1−τ}): the largest α for which no sample overshoots its target."""
    _check_level(expectile)
    return 1 / (2 * max(expectile, 1 - expectile))


def contraction_bound(expectile: float, discount: float, step_size: float | None = None) -> float:
    """γ_τ = 1 − 2α(1−γ)·min{τ,1−τ} (lemma 1); α is the largest permitted one unless given."""
    step_size = largest_step_size(expectile) if step_size is None else step_size
    return 1 - 2 * step_size * (1 - discount) * min(expectile, 1 - expectile)


# Section 4.2: the memory operator.


def rollout_values(
    values: Array, mdp: MDP, behavior: Array, expectile: float, max_steps: int, step_size: float | None = None
) -> Array:
    """(T^μ)ⁿ⁻¹ T_τ V for n = 1 … n_max, stacked along a new first axis."""
    if max_steps < 1:
        raise SettingsError(f"the largest number of rollout steps is {max_steps}; it must be at least 1")
    unrolled = [gradient_expectile(values, mdp, behavior, expectile, step_size)]
    for _ in range(max_steps - 1):
        unrolled.append(evaluation(unrolled[-1], mdp, behavior))
    return np.stack(unrolled)


def vem(
    values: Array, mdp: MDP, behavior: Array, expectile: float, max_steps: int, step_size: float | None = None
) -> Array:
    """(T_vem V)(s) = max_{1≤n≤n_max} (T^μ)ⁿ⁻¹ T_τ V(s) (eq. 9); n = 1 is the expectile step itself."""
    return rollout_values(values, mdp, behavior, expectile, max_steps, step_size).max(0)


# Section 4.3: fixed points, contraction rates and the deviation of an update, for any operator.


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
    """Supremum over the given pairs of ‖TV − TV′‖_∞/‖V − V′‖_∞."""
    return (distance(operator(first), operator(second)) / distance(first, second)).max(0)


def update_deviation(targets: Array, states: NDArray[np.integer], exact: Array) -> float:
    """E[‖T̂V − TV‖₂²]^½, the paper's "variance", where T̂V(s) is the target of one recorded row in state s.

    ``targets`` and ``states`` are flat; ``exact`` is TV.
    """
    counts = np.bincount(states, minlength=exact.size)
    squares = np.bincount(states, (targets - exact[states]) ** 2, minlength=exact.size)
    return math.sqrt((squares / np.maximum(counts, 1)).sum())
