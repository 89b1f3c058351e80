"""Expectiles and quantiles of finite distributions, exactly."""

import numpy as np

from vem.errors import SettingsError
from vem.theory.mdp import Array


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
