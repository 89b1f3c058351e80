"""Checks on a table: the order of its rows, gaps and repeated steps; then columns that say nothing, or too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from vem.data.mapping import KEEP, TableMap
from vem.data.table_scan import FEW_VALUES, ColumnFacts
from vem.data.table_values import Place
from vem.errors import DataError

REGULAR_SHARE = 0.75
"""A log is regular if so many of its steps take nearly the usual time."""
REGULAR_FACTOR = 1.5
IRREGULAR_FACTOR = 10.0
MOST_PIECES = 0.1
"""More recordings than this share of the rows are no recordings: the rows of several are interleaved."""
FEW_STEPS = 16
"""Numbers closer together than so many steps of float32 are lost in it."""
FEW_PIECES = 5
"""So many recordings are never too many."""


class RowKeys(NamedTuple):
    """What decides the order of the rows and where recordings end, one entry for each row of the table."""

    episode: np.ndarray | None
    """Number of the episode."""
    time: np.ndarray | None
    is_timestamp: bool
    """Whether times are seconds since 1970."""
    episode_names: Sequence[str] = ()


class Order(NamedTuple):
    """In which order the rows are read, and where recordings end."""

    rows: np.ndarray | None
    """Row of the table for each step; None: as they are."""
    ends: np.ndarray
    """Step → whether its recording ends after it, by episode, time and gap."""
    rule: str
    """What was done, in a few words."""


def find_order(keys: RowKeys, mapping: TableMap, num_rows: int, place: Place) -> Order:
    """The order of the rows; DataError where transitions would be wrong.

    With an episode and a time column rows are sorted by both. With one of them they must be in order already.
    """
    if keys.episode is not None and keys.time is not None:
        return _by_episode_and_time(keys, mapping, place)
    if keys.episode is not None:
        return _by_episode(keys.episode, keys.episode_names, mapping, place)
    if keys.time is not None:
        return _by_time(keys.time, keys, mapping, place)
    ends = np.zeros(num_rows, np.bool_)
    ends[-1] = True
    return Order(None, ends, "as in the table")


def _by_episode_and_time(keys: RowKeys, mapping: TableMap, place: Place) -> Order:
    episode, time = keys.episode, keys.time
    assert episode is not None
    assert time is not None
    # Episodes in the order of their beginnings, so that the order of the table's rows changes nothing.
    begins = np.full(int(episode.max()) + 1, np.inf)
    np.minimum.at(begins, episode, time)
    place_of_episode = np.argsort(np.argsort(begins, kind="stable"), kind="stable")
    rows = np.lexsort((time, place_of_episode[episode]))
    episode, time = episode[rows], time[rows]
    same_episode = episode[1:] == episode[:-1]
    repeated = same_episode & (time[1:] == time[:-1])
    if repeated.any() and mapping.duplicates == "refuse":
        first = int(np.argmax(repeated))
        raise DataError(
            f"{place(int(rows[first]))} and {place(int(rows[first + 1]))} are one step twice: '{mapping.episode}' is "
            f"{keys.episode_names[episode[first]]} and '{mapping.time}' is {_time_text(time[first], keys)} in both "
            f"({_many(repeated, 'such row')}). Remove them, map the column that tells them apart as episode, or keep "
            'the first of each with duplicates = "first".'
        )
    if repeated.any():
        kept = np.concatenate([[True], ~repeated])
        rows, episode, time = rows[kept], episode[kept], time[kept]
        same_episode = episode[1:] == episode[:-1]
    steps = np.diff(time)
    ends = np.append(~same_episode, True)
    ends[:-1] |= _gaps(steps, same_episode, mapping, keys, rows, place)
    moved = int((rows != np.arange(len(rows))).sum()) if not repeated.any() else len(rows)
    is_as_it_was = moved == 0
    rule = "by episode and time, as in the table" if is_as_it_was else f"sorted by {mapping.episode} and {mapping.time}"
    if repeated.any():
        rule += f", {int(repeated.sum())} repeated rows dropped"
    return Order(None if is_as_it_was else rows, ends, rule)


def _by_episode(episode: np.ndarray, names: Sequence[str], mapping: TableMap, place: Place) -> Order:
    ends = np.append(episode[1:] != episode[:-1], True)
    starts = np.flatnonzero(np.concatenate([[True], ends[:-1]]))
    pieces = episode[starts]
    _, first = np.unique(pieces, return_index=True)
    again = np.setdiff1d(np.arange(len(pieces)), first)
    if again.size:
        piece = int(again[0])
        before = int(np.flatnonzero(pieces[:piece] == pieces[piece])[-1])
        raise DataError(
            f"column '{mapping.episode}' is {names[pieces[piece]]} up to {place(int(starts[before + 1]) - 1)} and "
            f"again at {place(int(starts[piece]))}: rows of several episodes are interleaved, and following rows are "
            "not following steps. Map the time column too, then rows are sorted by both."
        )
    return Order(None, ends, "by episode, as in the table")


def _by_time(time: np.ndarray, keys: RowKeys, mapping: TableMap, place: Place) -> Order:
    steps = np.diff(time)
    backwards, equal = steps < 0, steps == 0
    column = f"column '{mapping.time}'"
    if equal.any():
        first = int(np.argmax(equal))
        raise DataError(
            f"{column} is {_time_text(time[first], keys)} at {place(first)} and at {place(first + 1)} "
            f"({_many(equal, 'such pair')}): a step recorded twice, or several recordings in one log. Map the column "
            "that tells them apart as episode, or remove the repeated rows."
        )
    if backwards.any():
        first, count = int(np.argmax(backwards)), int(backwards.sum())
        where = (
            f"{column} runs backwards {count} times, first from {_time_text(time[first], keys)} at {place(first)} to "
            f"{_time_text(time[first + 1], keys)} at {place(first + 1)}"
        )
        if count > max(FEW_PIECES, MOST_PIECES * len(time)):
            raise DataError(
                f"{where}: rows are unsorted, or those of several recordings are interleaved, and following rows are "
                "not following steps. Map the column that tells the recordings apart as episode, then rows are "
                "sorted; if there is one recording only, sort the table by time."
            )
        if not isinstance(mapping.gap, float | int):
            raise DataError(
                f"{where}: recordings one after another, or unsorted rows. Map the column that tells them apart as "
                f"episode, sort the table, or say gap = {_number_text(_limit(steps[steps > 0]))}: then a recording "
                "ends wherever time runs backwards or jumps further than that."
            )
    ends = np.append(backwards, True)
    ends[:-1] |= _gaps(steps, ~backwards, mapping, keys, None, place)
    return Order(None, ends, "by time, as in the table")


def _gaps(
    steps: np.ndarray,
    inside: np.ndarray,
    mapping: TableMap,
    keys: RowKeys,
    rows: np.ndarray | None,
    place: Place,
) -> np.ndarray:
    """Steps that are too long to be steps; DataError if there are some and the mapping does not say what they are."""
    taken = steps[inside]
    if not taken.size or mapping.gap == KEEP:
        return np.zeros(len(steps), np.bool_)
    if isinstance(mapping.gap, float | int):
        return inside & (steps > mapping.gap)
    usual, limit = _usual(taken), _limit(taken)
    long = inside & (steps > limit)
    if long.any():
        first = int(np.argmax(long))
        before, after = (first, first + 1) if rows is None else (int(rows[first]), int(rows[first + 1]))
        raise DataError(
            f"column '{mapping.time}' jumps by {_duration_text(steps[first], keys)} from {place(before)} to "
            f"{place(after)}, where steps usually take {_duration_text(usual, keys)} ({_many(long, 'such gap')}): "
            f"rows are missing, and the transition across is wrong. Say gap = {_number_text(limit)} to end the "
            f'recording at longer steps, or gap = "{KEEP}" if they are real.'
        )
    return long


def _limit(steps: np.ndarray) -> float:
    """The longest step in time that is still one: little more than the usual one in a regular log."""
    if not steps.size:
        return 1.0
    usual = _usual(steps)
    is_regular = np.mean(np.abs(steps - usual) <= 0.1 * usual) >= REGULAR_SHARE
    return (REGULAR_FACTOR if is_regular else IRREGULAR_FACTOR) * usual


def _usual(steps: np.ndarray) -> float:
    """The median step; of two middle ones the shorter, so that one gap among few steps is still one."""
    return float(np.quantile(steps, 0.5, method="lower"))


def propose_gap(time: np.ndarray, episode: np.ndarray | None) -> tuple[float, int] | None:
    """The longest step and the number of gaps, where there are some."""
    order = np.arange(len(time)) if episode is None else np.lexsort((time, episode))
    steps = np.diff(time[order])
    inside = steps > 0 if episode is None else (np.diff(episode[order]) == 0) & (steps > 0)
    if not inside.any():
        return None
    limit = _limit(steps[inside])
    count = int((inside & (steps > limit)).sum()) + (int((steps < 0).sum()) if episode is None else 0)
    return (limit, count) if count else None


def check_values(facts: Mapping[str, ColumnFacts], mapping: TableMap, place: Place) -> None:
    """DataError for numbers beyond float32, sentinels nobody declared, and missing values that are refused."""
    for name, fact in facts.items():
        role = mapping.roles[name]
        if fact.num_present == 0:
            raise DataError(f"column '{name}' has no value in any row; leave it out of the mapping.")
        if fact.infinite.count:
            raise DataError(
                f"column '{name}' has {_count(fact.infinite.count)} with infinity or numbers beyond float32, the first "
                f"at {place(fact.infinite.first)}; mend the recording."
            )
        is_declared = mapping.sentinels is not None or mapping.rule(name).sentinels is not None
        has_labels = bool(mapping.rule(name).labels)
        if fact.is_number and not has_labels and not is_declared and (found := fact.sentinels):
            value, spots = next(iter(found.items()))
            raise DataError(
                f"column '{name}' is {value:g} in {_count(spots.count)}, first at {place(spots.first)}, far outside "
                f"its other values [{fact.low:g}, {fact.high:g}]: a sentinel for a missing value? Say sentinels = "
                f"[{value:g}] to read it as missing, or sentinels = [] if it is real."
            )
        if fact.kind == "number" and _is_flat(fact):
            raise DataError(
                f"column '{name}' lies between {fact.low:.10g} and {fact.high:.10g}, and float32 cannot tell such "
                "numbers apart; subtract an offset from all of them, or leave it out."
            )
        rule = mapping.rule(name).missing or (mapping.missing if role == "observation" else "refuse")
        if fact.missing.count and rule == "refuse" and role == "observation":
            raise DataError(
                f"column '{name}' misses {fact.missing.count} of {fact.num_rows} values, the first at "
                f'{place(fact.missing.first)}; say missing = "forward-fill" (the last value in the episode), missing = '
                '"indicator" (its mean, and a number that says so), or mend the recording.'
            )


def _is_flat(fact: ColumnFacts) -> bool:
    """Whether the numbers differ by less than a few steps of float32."""
    largest = np.float32(max(abs(fact.low), abs(fact.high)))
    return fact.low < fact.high and fact.high - fact.low < FEW_STEPS * float(np.spacing(largest))


def column_warnings(facts: Mapping[str, ColumnFacts], mapping: TableMap) -> Iterable[str]:
    """One sentence for each column that is constant, a copy of another, or asks what it is."""
    seen: dict[bytes, str] = {}
    for name, fact in facts.items():
        role = mapping.roles[name]
        if role == "observation" and fact.is_constant and not fact.missing.count:
            yield f"column '{name}' never changes, so it tells nothing; leave it out of the observation."
            continue
        digest = fact.digest.digest()
        if digest in seen:
            other = seen[digest]
            if {role, mapping.roles[other]} == {"observation"}:
                yield f"columns '{other}' and '{name}' are equal in every row; leave one out."
            elif "observation" in (role, mapping.roles[other]):
                known, told = (name, other) if role == "observation" else (other, name)
                yield (
                    f"column '{known}', an observation, equals the {mapping.roles[told]} '{told}' in every row: it "
                    "tells the policy its answer, which it will not know when it acts. Leave it out."
                )
        seen.setdefault(digest, name)
        asks = role == "action" and mapping.rule(name).kind is None and fact.kind == "number" and fact.is_whole
        if asks and fact.labels is not None and 2 <= len(fact.labels) <= FEW_VALUES:
            yield (
                f"action column '{name}' holds only {len(fact.labels)} whole numbers ({_some(fact.ordered_labels())}): "
                f'an amount or a choice? It is read as an amount; say kind = "box" or kind = "discrete" under '
                f"[columns.{name}]."
            )


def _many(found: np.ndarray, what: str) -> str:
    count = int(found.sum())
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _count(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _some(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 6 else f"{', '.join(labels[:3])}, …, {labels[-1]}"


def _time_text(value: float, keys: RowKeys) -> str:
    if not keys.is_timestamp:
        return _number_text(value)
    try:
        return datetime.fromtimestamp(float(value), UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return _number_text(value)


def _duration_text(value: float, keys: RowKeys) -> str:
    if not keys.is_timestamp:
        return _number_text(value)
    for unit, seconds in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if value >= 2 * seconds:
            return f"{value / seconds:.3g} {unit}"
    return f"{value:.6g} seconds"


def _number_text(value: float) -> str:
    return f"{value:.10g}"
