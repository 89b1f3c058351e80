"""What one column of the actions means: a number within bounds, or a choice among labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class ActionColumn:
    """One column of ``Dataset.actions``."""

    name: str
    kind: Literal["box", "discrete"]
    """``discrete``: the array holds codes 0 … n − 1, one for each label."""
    low: float
    high: float
    labels: tuple[str, ...] = ()
    """What each code of a discrete column stands for."""


def action_columns_from_json(stored: Iterable[Mapping[str, Any]]) -> tuple[ActionColumn, ...]:
    """The columns as ``dataclasses.asdict`` and JSON leave them."""
    return tuple(ActionColumn(**{**entry, "labels": tuple(entry.get("labels", ()))}) for entry in stored)
