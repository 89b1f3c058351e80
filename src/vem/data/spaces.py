"""Gymnasium's action spaces as columns: what they are, and actions from one form to the other.

A Box has a column for each number, a Discrete one, a MultiDiscrete one for each choice; Tuple and Dict spaces have
those of their parts, a Dict in the order of its sorted keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

from vem.data.actions import MOST_CHOICES, ActionColumn, discrete_column
from vem.errors import DataError


def space_columns(space: Any) -> tuple[ActionColumn, ...]:
    """The columns of an action space; DataError for spaces that have none."""
    columns: list[ActionColumn] = []
    for prefix, leaf in _leaves(space):
        size = _size(leaf)
        names = [prefix] if prefix and size == 1 else [f"{prefix or 'action'} {index}" for index in range(size)]
        if isinstance(leaf, Box):
            bounds = zip(names, leaf.low.ravel().tolist(), leaf.high.ravel().tolist(), strict=True)
            columns += [ActionColumn(name, "box", low, high) for name, low, high in bounds]
        else:
            for name, first, count in zip(names, _starts(leaf).tolist(), _counts(leaf).tolist(), strict=True):
                columns.append(discrete_column(name, [str(first + code) for code in range(count)]))
    return tuple(columns)


def from_space(space: Any, actions: Any) -> np.ndarray:
    """A batch of the space's actions as rows with a value for each column, codes for choices."""
    parts = []
    for leaf, values in _paired(space, actions):
        rows = np.asarray(values).reshape(len(values), -1)
        parts.append(rows if isinstance(leaf, Box) else rows - _starts(leaf))
    return np.concatenate(parts, axis=1)


def to_space(space: Any, action: np.ndarray) -> Any:
    """The action that ``step`` takes, from a value for each column; numbers and codes are kept within bounds."""
    if isinstance(space, Box):
        return np.clip(action, space.low.ravel(), space.high.ravel()).reshape(space.shape).astype(space.dtype)
    if isinstance(space, Dict | Tuple):
        taken, parts = 0, {}
        for key, part in _entries(space):
            size = _size(part)
            parts[key] = to_space(part, action[taken : taken + size])
            taken += size
        return {key: parts[key] for key in space.spaces} if isinstance(space, Dict) else tuple(parts.values())
    codes = np.clip(np.round(action), 0, _counts(space) - 1).astype(np.int64) + _starts(space)
    return codes[0] if isinstance(space, Discrete) else codes.reshape(space.shape).astype(space.dtype)


def _entries(space: Dict | Tuple) -> list[tuple[Any, Any]]:
    return sorted(space.spaces.items()) if isinstance(space, Dict) else list(enumerate(space.spaces))


def _leaves(space: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each part of a nested space, with its path."""
    if isinstance(space, Dict | Tuple):
        for key, part in _entries(space):
            yield from _leaves(part, f"{prefix}/{key}" if prefix else str(key))
        return
    yield prefix, space


def _paired(space: Any, actions: Any) -> Iterator[tuple[Any, Any]]:
    """Each part of a nested space with its part of the actions."""
    if isinstance(space, Dict | Tuple):
        for key, part in _entries(space):
            yield from _paired(part, actions[key])
        return
    yield space, actions


def _size(space: Any) -> int:
    """Number of columns."""
    if isinstance(space, Dict | Tuple):
        return sum(_size(part) for _, part in _entries(space))
    if isinstance(space, Box) and space.dtype.kind == "f":
        return int(np.prod(space.shape))
    if isinstance(space, Discrete | MultiDiscrete) and _counts(space).max() <= MOST_CHOICES:
        return len(_counts(space))
    raise DataError(
        f"actions are {space}; boxes of floats, choices (Discrete, MultiDiscrete) of at most {MOST_CHOICES} values, "
        "and Tuple or Dict of them can be used."
    )


def _counts(space: Discrete | MultiDiscrete) -> np.ndarray:
    return np.atleast_1d(space.n if isinstance(space, Discrete) else space.nvec).ravel().astype(np.int64)


def _starts(space: Discrete | MultiDiscrete) -> np.ndarray:
    return np.atleast_1d(space.start).ravel().astype(np.int64)
