"""Numbers as the page writes them."""

from __future__ import annotations

from vem.evaluation.statistics import Spread


def number_text(value: float, digits: int) -> str:
    """A number with a true minus sign and no negative zero."""
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def spread_text(spread: Spread | None, factor: float, digits: int | None) -> str:
    """``mean ± std``; without ``digits`` as many after the point as the size of the numbers asks for."""
    if spread is None:
        return ""
    mean, std = factor * spread.mean, None if spread.std is None else factor * spread.std
    if digits is None:
        largest = max(abs(mean), abs(std or 0.0))
        digits = 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 1 else 3
    return number_text(mean, digits) + ("" if std is None else f" ± {number_text(std, digits)}")


def interval_text(spread: Spread | None, digits: int) -> str:
    """The inter-quartile mean and its interval."""
    if spread is None or spread.interval is None:
        return ""
    ends = " to ".join(number_text(end, digits) for end in spread.interval)
    return f"{number_text(spread.interquartile_mean, digits)} [{ends}]"
