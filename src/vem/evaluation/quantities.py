"""What is measured of an episode: one table of quantities, by the names of summaries and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from vem.evaluation.environments import References
from vem.runs.records import EpisodeRecord
from vem.tasks import normalized_score


class Quantity(NamedTuple):
    """A number that an episode gives."""

    heading: str
    """Its name above a column."""
    of: Callable[[EpisodeRecord, References | None], float | None]
    """Its value in an episode; None where it is not known."""
    digits: int | None = None
    """Digits after the point; None: as many as the number needs."""
    factor: float = 1.0
    """What the number is multiplied by to be shown."""

    def text(self, value: float | None) -> str:
        """The value as tables show it."""
        if value is None:
            return "-"
        shown = self.factor * value
        digits = 1 if abs(shown) >= 100 else self.digits
        return f"{shown:.3g}" if digits is None else f"{shown:.{digits}f}"


def _score(episode: EpisodeRecord, references: References | None) -> float | None:
    if references is None or episode.episode_return is None:
        return None
    return normalized_score(references, episode.episode_return)


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


QUANTITIES: dict[str, Quantity] = {
    "return": Quantity("return", lambda episode, _: episode.episode_return),
    "score": Quantity("score", _score, 1),
    "success": Quantity("success %", lambda episode, _: episode.success, 1, 100.0),
    "length": Quantity("length", lambda episode, _: episode.length, 1),
    "discounted_return": Quantity("discounted return", lambda episode, _: episode.discounted_return),
    "value_start": Quantity("V(s0)", lambda episode, _: episode.value_start),
    "value_error_start": Quantity(
        "V − G at s0", lambda episode, _: _difference(episode.value_start, episode.target_start)
    ),
    "value_error": Quantity("V − G", lambda episode, _: _difference(episode.value_mean, episode.target_mean)),
}


def member_values(
    episodes: Iterable[EpisodeRecord], quantity: str, references: References | None
) -> dict[str, np.ndarray]:
    """Member → the quantity in each of its episodes that did not fail; members that have none are left out."""
    found: dict[str, list[float]] = {}
    of = QUANTITIES[quantity].of
    for episode in episodes:
        value = None if episode.error is not None else of(episode, references)
        if value is not None:
            found.setdefault(episode.member, []).append(float(value))
    return {member: np.array(values, np.float64) for member, values in found.items()}
