"""Measurements that take any operator, given as a map from values to values of shape (…, states)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vem.errors import DivergenceError, SettingsError
from vem.theory.mdp import Array

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
