"""Action bounds: given by the user, known from the task or its environment, or the data's own range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vem.errors import SettingsError

UNIT_TOLERANCE = 1e-4


class Bounds(NamedTuple):
    """Lower and upper bounds of each action, and where they come from."""

    low: np.ndarray
    high: np.ndarray
    source: str
    """``given``, ``task``, ``environment``, ``data``, or ``given and data`` where only some were given."""
    warning: str | None = None
    """One sentence if the data leave bounds that were given."""


def action_limits(
    actions: np.ndarray,
    valid: np.ndarray,
    given: tuple[object, object] | None = None,
    known: Bounds | None = None,
    names: Sequence[str] = (),
) -> Bounds:
    """The bounds of the actions: those given, else the task's or the environment's, else the data's own range.

    ``known`` are those of the task or the environment; if the data leave them they are not used, since the recording
    was made elsewhere. The data's range is its minimum and maximum in each dimension, c ± 1 where the
    action is always c. A given bound that is None or not finite counts as not given.
    """
    # Final rows hold zeros for an action, which must not widen the bounds.
    minimum = np.min(actions, axis=0, where=valid[:, None], initial=np.inf)
    maximum = np.max(actions, axis=0, where=valid[:, None], initial=-np.inf)
    constant = minimum == maximum
    margin = np.maximum(1, np.abs(minimum) * np.float32(1e-6))
    low, high = np.where(constant, minimum - margin, minimum), np.where(constant, maximum + margin, maximum)
    source = "data"
    if known is not None and _within(minimum, maximum, known.low, known.high).all():
        low, high = (
            np.where(np.isfinite(known.low), known.low, low),
            np.where(np.isfinite(known.high), known.high, high),
        )
        finite = np.isfinite([known.low, known.high])
        source = known.source if finite.all() else f"{known.source} and data" if finite.any() else "data"
    if given is None:
        return Bounds(low, high, source)
    bounds = override_bounds(given, low, high, source, names)
    return bounds._replace(warning=_beyond(actions, valid, (minimum, maximum), bounds, names))


def override_bounds(
    given: tuple[object, object], low: Any, high: Any, source: str | None, names: Sequence[str] = ()
) -> Bounds:
    """The bounds (low, high) from ``source`` with what is given on top."""
    given_low, given_high = (_bound(value, len(low)) for value in given)
    has_low, has_high = np.isfinite(given_low), np.isfinite(given_high)
    if has_low.any() or has_high.any():
        source = "given" if (has_low & has_high).all() or source == "given" else f"given and {source or 'data'}"
    low, high = np.where(has_low, given_low, low), np.where(has_high, given_high, high)
    if not (low < high).all():
        dimension = int(np.argmin(low < high))
        raise SettingsError(
            f"action_bounds: in {_called(dimension, names)} the lower bound {low[dimension]:g} is not below the "
            f"upper bound {high[dimension]:g}; swap or widen them."
        )
    return Bounds(low, high, source or "data")


def _beyond(
    actions: np.ndarray,
    valid: np.ndarray,
    extremes: tuple[np.ndarray, np.ndarray],
    bounds: Bounds,
    names: Sequence[str],
) -> str | None:
    """One sentence if the data, whose minimum and maximum are given, leave the bounds."""
    low, high = bounds.low, bounds.high
    outside = ~_within(*extremes, low, high)
    if not outside.any():
        return None
    dimension = int(np.argmax(outside))
    tolerance = UNIT_TOLERANCE * (high - low)[dimension]
    values = actions[:, dimension]
    beyond = valid & ((values < low[dimension] - tolerance) | (values > high[dimension] + tolerance))
    row = int(np.argmax(beyond))
    return (
        f"column 'actions' leaves its bounds in {int(outside.sum())} of {actions.shape[1]} dimensions: "
        f"{_called(dimension, names)} holds {values[row]:g} at row {row} of the dataset ({int(beyond.sum())} such "
        f"rows), bounds [{low[dimension]:g}, {high[dimension]:g}]. The policy stays inside the bounds; clip the "
        "actions or widen action_bounds."
    )


def known_bounds(task: str | None, environment: str | None, size: int) -> Bounds | None:
    """The bounds of the task, [−1, 1] in the benchmark, or of the environment if it can be made here.

    ``environment`` is one that the user named. One that a file names is not made: that would run what it names.
    """
    if task is not None:
        return Bounds(-np.ones(size, np.float32), np.ones(size, np.float32), "task")
    if environment is None:
        return None
    try:
        import gymnasium

        made = gymnasium.make(environment)
        space = made.action_space
        made.close()
    except Exception:  # an environment that cannot be made here says nothing; evaluating in it will say why
        return None
    is_fitting = isinstance(space, gymnasium.spaces.Box) and int(np.prod(space.shape)) == size
    return space_bounds(space) if is_fitting else None


def space_bounds(space: Any) -> Bounds:
    """The bounds of a Gymnasium Box; infinite ones leave the choice to the data."""
    return Bounds(space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32), "environment")


def _within(minimum: np.ndarray, maximum: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        tolerance = np.nan_to_num(UNIT_TOLERANCE * (high - low), nan=0.0, posinf=0.0)
    return (minimum >= low - tolerance) & (maximum <= high + tolerance)


def _called(dimension: int, names: Sequence[str]) -> str:
    return f"column '{names[dimension]}'" if names else f"dimension {dimension}"


def _bound(value: object, size: int) -> np.ndarray:
    try:
        if isinstance(value, list | tuple):
            value = [np.inf if entry is None else entry for entry in value]
        bound = np.broadcast_to(np.asarray(np.inf if value is None else value, np.float32), (size,))
    except (ValueError, TypeError):
        raise SettingsError(
            f"action_bounds: {value!r} does not fit actions of size {size}; give (low, high), each a "
            f"number or {size} numbers."
        ) from None
    if np.isnan(bound).any():
        raise SettingsError("action_bounds: a bound is NaN; give numbers, or leave action_bounds out.")
    return bound


def bounds_to_json(given: tuple[Any, Any], size: int) -> list[list[float | None]]:
    """Given bounds as a run's config.json holds them; None where a bound is left to the data."""
    return [[float(bound) if np.isfinite(bound) else None for bound in _bound(value, size)] for value in given]
