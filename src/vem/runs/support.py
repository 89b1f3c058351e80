"""The support data of a run's policies: recorded rows, some of them held out, from the dataset."""

from __future__ import annotations

import numpy as np

from vem.core.support import SupportModel, fit_support
from vem.data import Dataset
from vem.data.action_columns import choices_of

NUM_ROWS = 20_000
"""Rows that scales, directions and the regression are taken from, and as many again at most to hold out from."""
HELD_OUT = 0.2
"""Share of the episodes that are held out."""


def measure_support(dataset: Dataset) -> SupportModel | None:
    """The support model of a dataset, always the same for the same rows; None for a single step, which has none."""
    if dataset.num_transitions < 2:
        return None
    known, held = split_rows(dataset)
    rows = np.concatenate([known, held])
    choices = choices_of(dataset.info.action_columns)
    return fit_support(dataset.observations[rows], dataset.actions[rows], np.arange(len(rows)) >= len(known), choices)


def split_rows(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Steps that prototypes are drawn from, and held-out ones that scores are calibrated on, at most ``NUM_ROWS`` each.

    A fifth of the episodes is held out, or the last fifth of a single one.
    """
    generator = np.random.default_rng(0)
    ends, starts = dataset.episode_ends, dataset.episode_starts
    if len(ends) == 1:
        cut = min(max(1, round((1 - HELD_OUT) * dataset.num_transitions)), dataset.num_transitions - 1)
        known, held = np.arange(cut), np.arange(cut, dataset.num_transitions)
    else:
        is_held = np.zeros(len(ends), bool)
        is_held[generator.permutation(len(ends))[: max(1, round(HELD_OUT * len(ends)))]] = True
        known, held = (_rows_of(starts[chosen], ends[chosen], generator) for chosen in (~is_held, is_held))
    known, held = (np.sort(generator.permutation(rows)[:NUM_ROWS]) for rows in (known, held))
    return known, held


def _rows_of(starts: np.ndarray, ends: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows with an action in these episodes; about ``2·NUM_ROWS`` of them where there are more."""
    lengths = ends - starts
    total = int(lengths.sum())
    places = np.arange(total) if total <= 2 * NUM_ROWS else np.unique(generator.integers(0, total, 2 * NUM_ROWS))
    before = np.concatenate([[0], np.cumsum(lengths)])
    episode = np.searchsorted(before, places, side="right") - 1
    return starts[episode] + places - before[episode]
