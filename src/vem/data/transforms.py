"""Changes of a whole Dataset that some programs make before learning."""

from __future__ import annotations

import dataclasses

import numpy as np

from vem.data.dataset import Dataset


def repeat_terminals(dataset: Dataset) -> Dataset:
    """Every terminal step twice in a row, as the authors' program stores it.

    The first copy no longer ends the episode, so a terminal reward of r counts as r + γ·r there.
    """
    rows = np.repeat(np.arange(dataset.num_rows), np.where(dataset.terminal, 2, 1))
    repeated = np.concatenate([rows[1:] == rows[:-1], [False]])
    return dataclasses.replace(
        dataset,
        observations=dataset.observations[rows],
        actions=dataset.actions[rows],
        rewards=dataset.rewards[rows],
        valid=dataset.valid[rows],
        terminal=dataset.terminal[rows] & ~repeated,
        info=dataclasses.replace(dataset.info, rules={**dataset.info.rules, "repeat_terminals": True}),
        shards=None,
    )
