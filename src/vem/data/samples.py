"""A part of a dataset that stands for the whole where looking at all rows would take long."""

from __future__ import annotations

import dataclasses

import numpy as np

from vem.data.dataset import Dataset, RowBlock

SAMPLE_ROWS = 20_000


def sample_episodes(dataset: Dataset, num_rows: int = SAMPLE_ROWS) -> Dataset:
    """Whole episodes, drawn at random but always the same, of about ``num_rows`` rows; all if there are fewer."""
    if dataset.num_rows <= num_rows:
        return dataset
    lengths = dataset.episode_lengths + 1
    order = np.random.default_rng(0).permutation(len(lengths))
    kept = np.zeros(len(lengths), bool)
    kept[order[: max(1, int(np.searchsorted(np.cumsum(lengths[order]), num_rows)))]] = True
    rows = np.flatnonzero(np.repeat(kept, lengths))
    columns = {name: np.asarray(getattr(dataset, name)[rows]) for name in RowBlock._fields}
    return dataclasses.replace(dataset, **columns, shards=None)
