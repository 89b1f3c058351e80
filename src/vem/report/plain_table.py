"""A table of text for the page, and numbers as such tables write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlainTable:
    """A heading for each column, rows of text, and a sentence about them."""

    head: list[str]
    rows: list[list[str]]
    caption: str = ""


def cell_text(value: Any) -> str:
    """A value in three or four digits, labels as they are."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value + 0.0:,.4g}".replace("-", "−")
    return str(value)
