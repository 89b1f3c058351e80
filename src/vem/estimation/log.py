"""The log as estimates see it: over how many steps returns are compared, and what its recordings earned in them.

A value is E[Σ_{t<H} γᵗ·r_t] from the start of a recording. Recordings that a time limit cut after H steps have this sum
in the log, so that policy and log are compared over the same steps and nothing need be guessed about what came after.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vem.algorithms.base import discounted_returns
from vem.data import Dataset
from vem.data.hold_out import recordings_of
from vem.errors import DataError

NEGLIGIBLE = 1e-3
"""A horizon is long enough where γᴴ is below this."""
MOST_CUT = 0.1
"""Share of the recordings that may be cut before the horizon; they tell nothing about the log's return."""


class Log(NamedTuple):
    """A dataset with the horizon of an estimate."""

    dataset: Dataset
    discount: float
    horizon: int
    """H: steps over which returns are compared."""
    episode: np.ndarray
    """Number of the recording of each row."""
    remaining: np.ndarray
    """Steps left until the horizon in each row, 1 … H; after H steps of an episode the count begins anew."""
    mass: np.ndarray
    """(1 − γʰ)/(1 − γᴴ) of the steps h left in each row."""
    returns: np.ndarray
    """Σ γⁱ·r_{t+i} of each row, up to the horizon."""
    is_known: np.ndarray
    """Whether that sum is whole in each row: neither cut nor a final observation."""
    starts: np.ndarray
    """First row of each recording whose return is whole."""
    lengths: np.ndarray
    """Steps of each of those, up to the horizon."""

    @property
    def start_returns(self) -> np.ndarray:
        """The discounted return of each recording whose return is whole."""
        return self.returns[self.starts].astype(np.float64)


def find_horizon(dataset: Dataset, discount: float) -> int:
    """H: the steps after which all but a tenth of the recordings have either ended or not yet been cut.

    At most as many as leave γᴴ = 0.001.
    """
    longest = 1 if discount == 0 else math.ceil(math.log(NEGLIGIBLE) / math.log(discount))
    first = _first_episodes(dataset)
    ends = dataset.episode_ends[first]
    cut = np.sort(dataset.episode_lengths[first][~dataset.terminal[ends - 1]])
    num_spared = int(MOST_CUT * len(first))
    return int(min(longest, cut[num_spared])) if len(cut) > num_spared else longest


def read_log(dataset: Dataset, discount: float, horizon: int) -> Log:
    """The log of a dataset, or of a part of one, whose horizon is known."""
    starts, lengths = dataset.episode_starts, dataset.episode_lengths
    place = np.arange(dataset.num_rows) - np.repeat(starts, lengths + 1)
    remaining = horizon - place % horizon
    steps = dataset.valid & (remaining > 1) & ~dataset.terminal
    returns = discounted_returns(dataset.rewards, dataset.valid, discount, np.where(steps, discount, 0.0))
    # What is left of an episode after its last whole piece of H steps was cut, unless the task ended it.
    whole = np.where(dataset.terminal[dataset.episode_ends - 1], lengths, lengths // horizon * horizon)
    is_known = dataset.valid & (place < np.repeat(whole, lengths + 1))
    recording = recordings_of(dataset)
    first = _first_episodes(dataset)
    chosen = first[is_known[starts[first]]]
    return Log(
        dataset,
        discount,
        horizon,
        np.repeat(recording, lengths + 1),
        remaining,
        ((1 - discount**remaining) / (1 - discount**horizon)).astype(np.float32),
        returns,
        is_known,
        starts[chosen],
        np.minimum(lengths[chosen], horizon),
    )


def require_starts(log: Log, what: str) -> None:
    """DataError if no recording of the log has a whole return."""
    if not len(log.starts):
        raise DataError(
            f"{what} has no recording that lasts {log.horizon} steps or ends before; give more recordings, or a "
            "smaller --discount"
        )


def _first_episodes(dataset: Dataset) -> np.ndarray:
    """The first episode of each recording: later ones begin where no policy is started."""
    return np.flatnonzero(np.diff(recordings_of(dataset), prepend=-1))
