"""Tables → Dataset: two passes over the rows, never more in memory than the result, the rows' order and one block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vem.data.actions import ActionColumn
from vem.data.arrays import JUMP_FACTOR, SPLITS, TELEPORTS, TIME_LIMITS, assemble, find_resets, jump_thresholds, lay_out
from vem.data.checks import Column, known_bounds, located, require_choice
from vem.data.dataset import DataInfo, Dataset, RowBlock
from vem.data.encoding import ABSENT, Encoder, InputColumn
from vem.data.mapping import TableMap, make_map
from vem.data.proposal import propose
from vem.data.table_columns import (
    MOST_LABELS,
    Block,
    ColumnFacts,
    EpisodeNumbers,
    Order,
    RowKeys,
    Table,
    Times,
    booleans,
    check_values,
    codes,
    column_warnings,
    find_order,
    flags,
    kind_of,
    numbers,
    open_table,
    reading,
    scan,
)
from vem.errors import DataError
from vem.tasks import resolve_task

# The rows of a table as arrays: block by block in the table's order, or laid out as the rows of a Dataset.


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
        self.layout = lay_out(terminal, order.ends, unknown, split=split, time_limit=time_limit)
        if not self.layout.valid.any():
            raise DataError(
                f"no valid transition in {len(terminal)} rows: each step is the last of its trajectory. Check the "
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
                    'to fill forward; say missing = "indicator", or mend the trajectory.'
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
                    f"every step but the last of a trajectory needs one. Mend the trajectory{held}."
                )

    def cut_at_jumps(self) -> str | None:
        """End trajectories at jumps of the observations as ``from_arrays`` does; what to say if there were any."""
        states = Column("observations", self.observations)
        jumps, _ = find_resets(states, None, jump_thresholds(states))
        jumps[:-1] &= self.layout.valid[:-1]
        rows = self.layout.rows[np.flatnonzero(jumps)]
        rows = rows[~self.order.ends[rows]]
        if not len(rows):
            return None
        self.order.ends[rows] = True
        return (
            f"the observations jump at {len(rows)} rows, first after {self.table.place(int(rows[0]))}, by more than "
            f"{JUMP_FACTOR:g} times the 99 % quantile of their steps: unmarked resets, treated as time "
            "limits. Map episode or time; if the jumps are real, keep them with teleports='keep' (--teleports keep)."
        )


ENTRIES = tuple(TableMap.__dataclass_fields__)
"""What a mapping may say, also as keywords of ``load`` and ``from_table``."""
KIND_NAMES = {
    "number": "numbers",
    "boolean": "booleans",
    "text": "text",
    "time": "times",
    "other": "values that are neither numbers nor text",
}


def read_table(path: str | Path, mapping: Any = None, **rules: Any) -> Dataset:
    """The Dataset in a Parquet, Arrow, Feather or CSV file or a folder of them, read by a mapping.

    ``mapping`` is a TableMap, a dict, or a TOML file as ``vem data map`` writes it; its entries may also be keywords.
    Without one it is proposed from the columns' names, and refused if they leave anything open. ``rules`` are those of
    ``from_table``.
    """
    return _read(open_table(path), mapping, rules)


def from_table(frame: Any, mapping: Any = None, **rules: Any) -> Dataset:
    """The Dataset in a frame of pandas, Polars or Arrow, or a dict of columns; ``mapping`` as for ``read_table``.

    ``rules`` are entries of the mapping (``observation=``, ``action=``, ``gap=`` …), the rules of ``from_arrays``
    (``split``, ``time_limit``, ``teleports``, ``action_bounds``, ``task``, ``environment``, ``name``) and
    ``progress``. Jumps of the observations (``teleports``) are kept unless nothing else says where trajectories end.
    """
    return _read(open_table(frame), mapping, rules)


def _read(table: Table, mapping: Any, rules: dict[str, Any]) -> Dataset:
    entries = {name: rules.pop(name) for name in ENTRIES if name in rules}
    progress = rules.pop("progress", None)
    with located(table.source if table.source != "arrays" else rules.get("name") or table.name):
        chosen = make_map(mapping, **entries)
        found: list[str] = []
        if mapping is None:
            chosen = _proposed(table, chosen, bool(entries), progress, found)
        chosen.check()
        chosen.check_columns(table.names)
        _require_one_kind(table, chosen)
        return _Reading(table, chosen, progress, found).dataset(**rules)


def _require_one_kind(table: Table, mapping: TableMap) -> None:
    """DataError if the files of a folder hold values of different kinds in a mapped column."""
    for name, role in mapping.roles.items():
        rule = mapping.rule(name)
        if rule.kind in ("categorical", "discrete") or rule.labels or role == "episode":
            continue  # any value is a label
        kinds: dict[str, str] = {}
        for part in table.parts:
            kind = kind_of(part.types[name])
            if kind == "boolean" and role != "action":  # the same as 0 and 1
                kind = "number"
            if kind == "text" and role == "time":  # read as times, or refused with its row
                kind = "time"
            if kind != "empty":
                kinds.setdefault(kind, part.name)
        if len(kinds) > 1:
            (first, here), (second, there) = list(kinds.items())[:2]
            choice = {"observation": "categorical", "action": "discrete"}.get(role)
            said = f', or say kind = "{choice}" if they are labels' if choice else ""
            raise DataError(
                f"column '{name}', mapped as {role}, holds {KIND_NAMES[first]} in {here} and {KIND_NAMES[second]} in "
                f"{there}; write all files in one way{said}."
            )


def _proposed(
    table: Table, given: TableMap, is_partly_given: bool, progress: bool | None, found: list[str]
) -> TableMap:
    """The proposed mapping, if the columns' names leave nothing open."""
    proposal = propose(table, given, roles_only=True, progress=progress)
    if proposal.unclear:
        raise DataError(
            f"the columns {', '.join(table.names[:20])} do not say which is what: {proposal.unclear}. vem data map "
            "FILE --out map.toml proposes a mapping to complete and pass as --map (mapping=)."
        )
    mapping = proposal.mapping
    if not is_partly_given:
        roles = {role: getattr(mapping, role) for role in ("observation", "action", "reward", "episode", "time")}
        texts = [f"{role} {', '.join(v) if isinstance(v, tuple) else v}" for role, v in roles.items() if v]
        found.append(
            f"no mapping was given, so the columns' names decided: {'; '.join(texts)}. vem data map FILE explains it, "
            "and --map (mapping=) fixes it."
        )
    return mapping


@dataclass
class _Keys:
    """Order and ends of the rows, collected block by block."""

    mapping: TableMap
    table: Table
    watch: str | None
    """A time column that is not mapped: rows out of its order are refused."""
    numbers: EpisodeNumbers
    times: Times
    episode: list[np.ndarray] = field(default_factory=list)
    time: list[np.ndarray] = field(default_factory=list)
    terminal: list[np.ndarray] = field(default_factory=list)
    truncated: list[np.ndarray] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        mapping = self.mapping
        named = (mapping.episode, mapping.time, mapping.terminal, mapping.truncated, self.watch)
        return [name for name in named if name is not None]

    def see(self, start: int, columns: dict[str, Any], num_rows: int) -> None:
        mapping, place = self.mapping, self.table.place
        if mapping.episode is not None:
            self.episode.append(self.numbers.of(columns[mapping.episode], start, place))
        if mapping.time is not None:
            self.time.append(self.times.of(columns[mapping.time], start, place))
        elif self.watch is not None:
            try:
                self.time.append(self.times.of(columns[self.watch], start, place))
            except DataError:  # a column that nobody mapped may be damaged
                self.watch = None
        for name, into in ((mapping.terminal, self.terminal), (mapping.truncated, self.truncated)):
            if name is not None:
                into.append(flags(name, columns[name], start, place))


class _Reading:
    """One table being read by a complete mapping."""

    def __init__(self, table: Table, mapping: TableMap, progress: bool | None, found: list[str]) -> None:
        self.table, self.mapping, self.progress, self.found = table, mapping, progress, found

    def dataset(
        self,
        *,
        name: str | None = None,
        split: str = "terminals",
        time_limit: str = "bootstrap",
        teleports: str | None = None,
        action_bounds: tuple[Any, Any] | None = None,
        task: str | None = None,
        environment: str | None = None,
    ) -> Dataset:
        mapping, table = self.mapping, self.table
        is_bare = mapping.episode is None and mapping.time is None and mapping.truncated is None
        teleports = teleports or ("split" if is_bare else "keep")
        require_choice("split", split, SPLITS)
        require_choice("time_limit", time_limit, TIME_LIMITS)
        require_choice("teleports", teleports, TELEPORTS)

        facts, keys = self._look()
        if not facts[str(mapping.reward)].num_rows:
            raise DataError("the table has no rows; record at least two steps.")
        check_values(facts, mapping, table.place)
        self.found += column_warnings(facts, mapping)
        encoder = self._encoder(facts)
        order, terminal = self._order(keys, facts[str(mapping.reward)].num_rows)
        del keys  # the order is all that is needed of them
        if is_bare and mapping.terminal is None:
            self.found.append(
                f"the table is read as one trajectory of {len(terminal)} rows, because no column says where one ends; "
                "map episode, time, terminal or truncated if it holds several."
            )
        resolved = resolve_task(
            task=task,
            environment=environment,
            name=name or table.name,
            source=table.source,
            sizes=(len(encoder.feature_names), len(encoder.outputs)),
        )
        if resolved.warning:
            self.found.append(resolved.warning)

        def lay_out() -> LaidOutRows:
            return LaidOutRows(
                table, mapping, encoder, order, terminal, split=split, time_limit=time_limit, progress=self.progress
            )

        rows = lay_out()
        if teleports == "split" and (message := rows.cut_at_jumps()):
            self.found.append(message)
            rows = lay_out()
        info = DataInfo(
            name=name or table.name,
            source=table.source,
            task=resolved.task.name if resolved.task else None,
            task_source=resolved.source,
            environment=resolved.environment,
            action_columns=encoder.outputs,
            encoder=encoder,
            rules={
                "split": split,
                "time_limit": time_limit,
                "teleports": teleports,
                "order": order.rule,
                "mapping": mapping.to_json(),
            },
            warnings=tuple(self.found),
        )
        known = known_bounds(info.task, environment, len(encoder.outputs))
        return assemble(rows.block, info, action_bounds or self._bounds(encoder), known)

    def _look(self) -> tuple[dict[str, ColumnFacts], _Keys]:
        """The first pass: what the columns hold, and what orders the rows."""
        mapping, table = self.mapping, self.table
        watch = None
        if mapping.time is None:
            free = [name for name in table.names if name not in mapping.roles]
            watch = next((name for name in free if kind_of(table.types[name]) == "time"), None)
        keys = _Keys(mapping, table, watch, EpisodeNumbers(mapping.episode or ""), Times(mapping.time or watch or ""))
        kinds = {name: self._kind(name) for name in (*mapping.observation, *mapping.action)}
        looks = {name: "text" if kind in ("categorical", "discrete") else "number" for name, kind in kinds.items()}
        looks[str(mapping.reward)] = "number"
        sentinels = {name: sentinels_of(mapping, name) for name in looks}
        return scan(table, looks, sentinels, keys.columns, keys.see, self.progress), keys

    def _kind(self, name: str) -> str:
        rule, role = self.mapping.rule(name), self.mapping.roles[name]
        choice, amount = ("discrete", "box") if role == "action" else ("categorical", "number")
        if rule.kind is not None:
            return rule.kind
        natural = kind_of(self.table.types[name])
        if rule.labels or natural == "text":
            return choice
        if natural == "boolean":
            return "discrete" if role == "action" else "boolean"
        return amount

    def _encoder(self, facts: Mapping[str, ColumnFacts]) -> Encoder:
        mapping = self.mapping
        inputs = []
        for name in mapping.observation:
            kind: Any = self._kind(name)
            missing: Any = mapping.rule(name).missing or mapping.missing
            labels = self._labels(name, facts[name]) if kind == "categorical" else ()
            fill = facts[name].mean if kind != "categorical" and missing == "indicator" else 0.0
            inputs.append(InputColumn(name, kind, missing, labels, fill, sentinels_of(mapping, name)))
        outputs = []
        for name in mapping.action:
            if self._kind(name) == "discrete":
                labels = self._labels(name, facts[name])
                if len(labels) < 2:
                    raise DataError(
                        f"action column '{name}' is always '{''.join(labels)}': there is nothing to choose; leave it "
                        "out of the actions, or name all its labels."
                    )
                outputs.append(ActionColumn(name, "discrete", 0.0, len(labels) - 1.0, labels))
            else:
                rule = mapping.rule(name)
                outputs.append(ActionColumn(name, "box", _or_nan(rule.low), _or_nan(rule.high)))
        return Encoder(tuple(inputs), tuple(outputs), tuple(self._output_type(column) for column in outputs))

    def _labels(self, name: str, fact: ColumnFacts) -> tuple[str, ...]:
        if given := self.mapping.rule(name).labels:
            return given
        if fact.labels is None:
            raise DataError(
                f"column '{name}' has more than {MOST_LABELS} different values, too many for categories; leave it out, "
                "or join them into fewer."
            )
        return fact.ordered_labels()

    def _output_type(self, column: ActionColumn) -> Literal["number", "integer", "text", "boolean"]:
        kind = kind_of(self.table.types[column.name])
        if column.kind == "box" or kind not in ("number", "boolean"):
            return "number" if column.kind == "box" else "text"
        if kind == "boolean":
            return "boolean"
        return "integer" if all(label.lstrip("-").isdigit() for label in column.labels) else "number"

    def _bounds(self, encoder: Encoder) -> tuple[Any, Any] | None:
        """The bounds that the mapping gives, if it gives any."""
        low = [column.low for column in encoder.outputs]
        high = [column.high for column in encoder.outputs]
        boxes = [column for column in encoder.outputs if column.kind == "box"]
        if all(np.isnan([column.low, column.high]).all() for column in boxes):
            return None
        return [None if np.isnan(x) else x for x in low], [None if np.isnan(x) else x for x in high]

    def _order(self, keys: _Keys, num_rows: int) -> tuple[Order, np.ndarray]:
        """The order of the steps with all their ends, and which are terminal."""
        mapping, place = self.mapping, self.table.place
        time = np.concatenate(keys.time) if keys.time and (mapping.time or keys.watch) else None
        is_mapped = mapping.time is not None
        row_keys = RowKeys(
            np.concatenate(keys.episode) if keys.episode else None,
            time if is_mapped else None,
            is_mapped and keys.times.are_timestamps,
            keys.numbers.names(),
        )
        order = find_order(row_keys, mapping, num_rows, place)
        steps = slice(None) if order.rows is None else order.rows
        terminal = np.concatenate(keys.terminal)[steps] if keys.terminal else np.zeros(num_rows, np.bool_)[steps]
        inner = terminal & ~order.ends
        if mapping.episode is not None and inner.any():
            first = int(np.argmax(inner))
            self.found.append(
                f"column '{mapping.terminal}' is set at {int(inner.sum())} steps that are not the last of their "
                f"episode, first at {place(first if order.rows is None else int(order.rows[first]))}; by "
                "split='terminals' an episode ends at each of them."
            )
        ends = order.ends | (np.concatenate(keys.truncated)[steps] if keys.truncated else False)
        if mapping.episode is None and mapping.time is None and mapping.truncated is None:
            ends = ends | terminal
        if time is not None and not is_mapped:
            backwards = (np.diff(time) < 0) & ~ends[:-1]
            if backwards.any():
                row = int(np.argmax(backwards))
                raise DataError(
                    f"the rows are not in the order of column '{keys.watch}': it runs backwards from {place(row)} to "
                    f"{place(row + 1)} ({int(backwards.sum())} times). Map it as time, with the column that tells "
                    "trajectories apart as episode, or sort the table."
                )
        return Order(order.rows, ends, order.rule), terminal


def _or_nan(value: float | None) -> float:
    return np.nan if value is None else value
