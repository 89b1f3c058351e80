"""Tables and numbers as the documents write them, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from vem.evaluation.statistics import Spread


def table(header: list[str], rows: list[list[str]]) -> str:
    """The table, columns of numbers to the right; empty without rows."""
    if not rows:
        return ""
    numeric = [all(re.match(r"[-–*\d]|$", row[i]) for row in rows) for i in range(len(header))]
    lines = [header, ["---:" if is_number else "---" for is_number in numeric], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean_std(spread: Spread | None, is_bold: bool = False) -> str:
    """``mean ± std`` of a score; empty without one."""
    return "" if spread is None else spread_text(spread, lambda number: f"{number:.1f}", is_bold)


def spread_text(spread: Spread, shown: Callable[[float], str], is_bold: bool = False) -> str:
    """``mean ± std``, each number as ``shown`` writes it."""
    mean = f"**{shown(spread.mean)}**" if is_bold else shown(spread.mean)
    return mean if spread.std is None else f"{mean} ± {shown(spread.std)}"


def short(number: float) -> str:
    """A number in two digits, or whole."""
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2g}"


def paper_text(score: Any) -> str:
    """A score of the paper; empty without one."""
    return "" if score is None else mean_std(Spread(score.mean, score.std, score.mean, None))


def unique(names: Iterable[str]) -> list[str]:
    """Each name once, in order."""
    return list(dict.fromkeys(names))
