"""The rows of a table as arrays: block by block in the table's order, or laid out as the rows of a Dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from vem.data import episodes
from vem.data.action_columns import ActionColumn
from vem.data.columns import Column
from vem.data.dataset import RowBlock
from vem.data.encoding import ABSENT, Encoder, InputColumn
from vem.data.mapping import TableMap
from vem.data.table_checks import Order
from vem.data.table_scan import reading
from vem.data.table_source import Block, Table
from vem.data.table_values import booleans, codes, numbers
from vem.errors import DataError


class TableBlock(NamedTuple):
    """Some rows of a table as arrays, in the table's order."""

    start: int
    observations: np.ndarray
    """float32, (rows, features); NaN where a value is missing and no indicator stands for it."""
    actions: np.ndarray
    """float32, (rows, action columns); NaN where missing."""
    rewards: np.ndarray
    """float32, (rows,); NaN where missing."""


def row_blocks(table: Table, mapping: TableMap, encoder: Encoder, progress: bool | None = None) -> Iterable[TableBlock]:
    """The rows of a table as arrays, block by block."""
    names = list(dict.fromkeys([*encoder.columns, *mapping.action, str(mapping.reward)]))
    with reading(table, "reading", progress) as show:
        for block in table.blocks(names):
            yield _row_block(table, mapping, encoder, block)
            show(block.start + block.num_rows)


def _row_block(table: Table, mapping: TableMap, encoder: Encoder, block: Block) -> TableBlock:
    prepared = {c.name: _prepared(c, block, table) for c in encoder.inputs}
    moves = np.empty((block.num_rows, len(encoder.outputs)), np.float32)
    for index, column in enumerate(encoder.outputs):
        if column.kind == "discrete":
            found = _codes(column, block, table, sentinels_of(mapping, column.name))
            moves[:, index] = np.where(found == ABSENT, np.nan, found)
        else:
            moves[:, index] = _numbers(column.name, block, table, sentinels_of(mapping, column.name))
    reward = str(mapping.reward)
    return TableBlock(
        block.start,
        encoder.encode(prepared),
        moves,
        _numbers(reward, block, table, sentinels_of(mapping, reward)).astype(np.float32),
    )


def _prepared(column: InputColumn, block: Block, table: Table) -> np.ndarray:
    if column.kind == "categorical":
        return _codes(column, block, table, column.sentinels)
    if column.kind == "boolean":
        return booleans(column.name, block.columns[column.name], block.start, table.place, column.sentinels)
    return _numbers(column.name, block, table, column.sentinels)


def _codes(column: InputColumn | ActionColumn, block: Block, table: Table, sentinels: tuple[float, ...]) -> np.ndarray:
    return codes(column.name, block.columns[column.name], column.labels, block.start, table.place, sentinels)


def _numbers(name: str, block: Block, table: Table, sentinels: tuple[float, ...]) -> np.ndarray:
    values = numbers(name, block.columns[name], block.start, table.place)
    if sentinels:
        values[np.isin(values, sentinels)] = np.nan
    return values


def sentinels_of(mapping: TableMap, name: str) -> tuple[float, ...]:
    """The numbers that mean a missing value in a column."""
    found = mapping.rule(name).sentinels
    return (mapping.sentinels or ()) if found is None else found


class LaidOutRows:
    """The second pass: the rows in their final places."""

    def __init__(
        self,
        table: Table,
        mapping: TableMap,
        encoder: Encoder,
        order: Order,
        terminal: np.ndarray,
        *,
        split: str,
        time_limit: str,
        progress: bool | None = None,
    ) -> None:
        self.table, self.mapping, self.encoder, self.order = table, mapping, encoder, order
        unknown = np.zeros(len(terminal), np.bool_)
        self.layout = episodes.lay_out(terminal, order.ends, unknown, split=split, time_limit=time_limit)
        if not self.layout.valid.any():
            raise DataError(
                f"no valid transition in {len(terminal)} rows: each step is the last of its recording. Check the "
                "columns mapped as episode and truncated, the gap, or use time_limit='end' (--time-limit end)."
            )
        self.source_rows = self.layout.rows if order.rows is None else order.rows[self.layout.rows]
        self._fill(progress)
        starts = self._starts()
        features = [(c.missing, name) for c in encoder.inputs for name in c.feature_names]
        self._hold(self.observations, starts, [name for rule, name in features if rule == "forward-fill"], features)
        held = [(mapping.rule(column.name).missing, column.name) for column in encoder.outputs]
        self._hold(self.actions, starts, [name for rule, name in held if rule == "forward-fill"], held)
        self.actions[~self.layout.valid], self.rewards[~self.layout.valid] = 0, 0
        self._require_present()

    @property
    def block(self) -> RowBlock:
        """All rows, as a Dataset takes them."""
        layout = self.layout
        return RowBlock(self.observations, self.actions, self.rewards, layout.valid, layout.terminal)

    def _fill(self, progress: bool | None) -> None:
        encoder, place_of = self.encoder, self.source_rows
        num_rows = len(place_of)
        self.observations = np.empty((num_rows, len(encoder.feature_names)), np.float32)
        self.actions = np.empty((num_rows, len(encoder.outputs)), np.float32)
        self.rewards = np.empty(num_rows, np.float32)
        # Where rows are sorted, a block's rows go to places all over the result.
        targets = None if self.order.rows is None else np.argsort(place_of, kind="stable")
        sources = place_of if targets is None else place_of[targets]
        for block in row_blocks(self.table, self.mapping, encoder, progress):
            first, last = np.searchsorted(sources, [block.start, block.start + len(block.rewards)])
            into = slice(first, last) if targets is None else targets[first:last]
            rows = sources[first:last] - block.start
            self.observations[into] = block.observations[rows]
            self.actions[into] = block.actions[rows]
            self.rewards[into] = block.rewards[rows]

    def _starts(self) -> np.ndarray:
        """First row of the episode of each row."""
        final = ~self.layout.valid
        begins = np.concatenate([[True], final[:-1]])
        return np.maximum.accumulate(np.where(begins, np.arange(len(final)), 0))

    def _hold(self, values: np.ndarray, starts: np.ndarray, wanted: list[str], named: list[tuple[Any, str]]) -> None:
        """Replace missing values by the last one of the episode in the ``wanted`` columns."""
        for index, (_, name) in enumerate(named):
            if name not in wanted:
                continue
            column = values[:, index]
            absent = np.isnan(column)
            if absent.any():
                last = np.maximum.accumulate(np.where(absent, -1, np.arange(len(column))))
                is_known = last >= starts
                column[absent & is_known] = column[last[absent & is_known]]

    def _require_present(self) -> None:
        """DataError if an observation has no value before it to hold, or a step no action or reward."""
        place, valid = self.table.place, self.layout.valid
        names = [column.name for column in self.encoder.inputs for _ in column.feature_names]
        for index, name in enumerate(names):
            absent = np.isnan(self.observations[:, index])
            if absent.any():
                row = int(self.source_rows[np.argmax(absent)])
                raise DataError(
                    f"column '{name}' is missing its value at {place(row)}, and no earlier row of the episode has one "
                    'to fill forward; say missing = "indicator", or mend the recording.'
                )
        columns = [(self.encoder.outputs[i].name, self.actions[:, i]) for i in range(self.actions.shape[1])]
        for name, values in [*columns, (str(self.mapping.reward), self.rewards)]:
            absent = np.isnan(values) & valid
            if absent.any():
                row = int(self.source_rows[np.argmax(absent)])
                role = self.mapping.roles[name]
                held = ', or say missing = "forward-fill" if it keeps its last value' if role == "action" else ""
                raise DataError(
                    f"{role} column '{name}' is missing its value at {place(row)} ({int(absent.sum())} such steps); "
                    f"every step but the last of a recording needs one. Mend the recording{held}."
                )

    def cut_at_jumps(self) -> str | None:
        """End recordings at jumps of the observations as ``from_arrays`` does; what to say if there were any."""
        states = Column("observations", self.observations)
        jumps, _ = episodes.find_resets(states, None, episodes.jump_thresholds(states))
        jumps[:-1] &= self.layout.valid[:-1]
        rows = self.layout.rows[np.flatnonzero(jumps)]
        rows = rows[~self.order.ends[rows]]
        if not len(rows):
            return None
        self.order.ends[rows] = True
        return (
            f"the observations jump at {len(rows)} rows, first after {self.table.place(int(rows[0]))}, by more than "
            f"{episodes.JUMP_FACTOR:g} times the 99 % quantile of their steps: unmarked resets, treated as time "
            "limits. Map episode or time; if the jumps are real, keep them with teleports='keep' (--teleports keep)."
        )
