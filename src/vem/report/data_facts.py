"""What the data of a run are: its columns, episodes and returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vem.data import Dataset
from vem.data.action_columns import ActionColumn
from vem.evaluation.differences import observation_names
from vem.report.plain_table import PlainTable, cell_text

MOST_COLUMNS = 60
MOST_LABELS = 6


def data_tables(dataset: Dataset, sample: Dataset) -> list[PlainTable]:
    """Sizes and returns of the whole data, and its columns by a sample of its episodes."""
    lengths, returns = dataset.episode_lengths, dataset.episode_returns
    ended = int(np.count_nonzero(dataset.terminal))
    facts = [
        ["recorded steps", f"{dataset.num_transitions:,}"],
        ["episodes", f"{dataset.num_episodes:,}, {ended:,} of them ended by the task and the others cut"],
        ["steps of an episode", _spread(lengths)],
        ["return of an episode", _spread(returns)],
        ["reward of a step", _spread(sample.rewards[sample.valid])],
    ]
    return [PlainTable(["", ""], facts), _columns(dataset, sample)]


def _columns(dataset: Dataset, sample: Dataset) -> PlainTable:
    rows = [
        [name, "observation", *_range(sample.observations[:, index])]
        for index, name in enumerate(observation_names(dataset)[:MOST_COLUMNS])
    ]
    actions = sample.actions[sample.valid]
    columns = dataset.info.action_columns
    named: Sequence[ActionColumn | None] = columns or [None] * dataset.action_size
    for index, column in enumerate(named[:MOST_COLUMNS]):
        name = column.name if column else f"action {index}"
        if column is not None and column.kind == "discrete":
            counts = np.bincount(actions[:, index].astype(np.int64), minlength=len(column.labels)) / len(actions)
            order = np.argsort(-counts, kind="stable")[:MOST_LABELS]
            shares = ", ".join(f"{column.labels[code]} {counts[code]:.0%}" for code in order)
            more = f", {len(counts) - len(order)} more" if len(counts) > len(order) else ""
            rows.append([name, "action, choice", "", shares + more, ""])
        else:
            rows.append([name, "action", *_range(actions[:, index])])
    hidden = max(0, dataset.observation_size - MOST_COLUMNS) + max(0, dataset.action_size - MOST_COLUMNS)
    caption = f"By {sample.num_transitions:,} steps."
    if hidden:
        caption += f" {hidden} more columns are not shown."
    return PlainTable(["column", "what", "least", "mean", "largest"], rows, caption)


def _range(values: np.ndarray) -> list[str]:
    wide = values.astype(np.float64)
    return [cell_text(float(found)) for found in (wide.min(), wide.mean(), wide.max())]


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values.astype(np.float64), [0, 0.5, 1])
    return f"{cell_text(float(middle))} (median), {cell_text(float(low))} to {cell_text(float(high))}"
