"""Statistics over seeds and episodes, on scipy: spread, inter-quartile mean, bootstrap intervals, and who is best.

The unit of comparison is the training run (seed), whose result is the mean of its episodes. Two uncertainties differ
and are reported apart: the spread between seeds (standard deviation) says what another training would give, the
bootstrap interval, stratified over seeds, says how exactly these policies were measured by their episodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

NUM_RESAMPLES = 2000
CONFIDENCE = 0.95

Mark = Literal["", "best", "close"]
SIGNS: dict[Mark, str] = {"best": " *", "close": " ≈", "": "  "}


class Spread(NamedTuple):
    """A quantity over seeds."""

    mean: float
    """Mean over seeds of the seeds' means."""
    std: float | None
    """Standard deviation over seeds, with n − 1; None for one seed."""
    interquartile_mean: float
    """Mean of the middle half of the seeds; with fewer than four, of all of them."""
    interval: tuple[float, float] | None
    """95 % interval of ``interquartile_mean``, episodes resampled within each seed; None for single episodes."""


def over_seeds(episodes: Sequence[np.ndarray]) -> Spread:
    """The Spread of a quantity; ``episodes`` holds one array a seed, one entry an episode."""
    means = np.array([values.mean() for values in episodes])
    return Spread(
        mean=float(means.mean()),
        std=float(means.std(ddof=1)) if len(means) > 1 else None,
        interquartile_mean=float(interquartile_mean(means)),
        interval=stratified_interval(episodes, _interquartile_mean_of_means),
    )


def interquartile_mean(values: np.ndarray, axis: int = -1) -> Any:
    """Mean of what is left when a quarter of the values, rounded down, is cut off at each end."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis)


def stratified_interval(
    strata: Sequence[np.ndarray],
    statistic: Callable[..., np.ndarray],
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> tuple[float, float] | None:
    """The percentile bootstrap interval of ``statistic(*strata, axis=-1)``, resampling within each stratum.

    Strata may be seeds with their episodes (``over_seeds``) or tasks with the scores of their seeds. None where a
    stratum has fewer than two values.
    """
    if not strata or min(map(len, strata)) < 2:
        return None
    low, high = stratified_bounds(strata, statistic, confidence, num_resamples, seed)
    return float(low), float(high)


def stratified_bounds(
    strata: Sequence[np.ndarray],
    statistic: Callable[..., np.ndarray],
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Both ends of the percentile bootstrap interval of each number that ``statistic(*strata, axis=-1)`` gives.

    A statistic of several numbers puts them on leading axes.
    """
    from scipy.stats import bootstrap

    result = bootstrap(
        tuple(np.asarray(values, np.float64) for values in strata),
        statistic,
        n_resamples=num_resamples,
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return result.confidence_interval.low, result.confidence_interval.high


def mark_best(spreads: Sequence[Spread]) -> list[Mark]:
    """``best`` for the highest mean and all equal to it, ``close`` for means that their interval contains.

    Nothing is marked where there is one alone, or where all are zero: nothing was achieved then.
    """
    means = [spread.mean for spread in spreads]
    if len(spreads) < 2 or all(_is_equal(mean, 0.0) for mean in means):
        return [""] * len(spreads)
    best = max(means)
    leading = [spread for spread in spreads if _is_equal(spread.mean, best)]
    low = min(best if spread.interval is None else spread.interval[0] for spread in leading)
    return ["best" if _is_equal(mean, best) else "close" if mean >= low else "" for mean in means]


def _is_equal(first: float, second: float) -> bool:
    """Whether two means differ by rounding at most."""
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)


def _interquartile_mean_of_means(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    return interquartile_mean(np.stack([values.mean(axis) for values in strata]), axis=0)
