"""What was run for a table of scores, in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from processors import reference_time
from score_records import Record, column_of
from table_text import unique


def basis_text(records: Sequence[Record]) -> str:
    """What was run, in a sentence; empty without records."""
    return _what_was_run(records) if records else ""


def _what_was_run(records: Sequence[Record]) -> str:
    methods, datasets = unique(map(column_of, records)), unique(r["dataset"] for r in records)
    if minutes := equal_minutes(records):
        length = (
            f"{minutes:g} minutes of one core{_processors(records)} for each method and dataset, all its seeds "
            f"together: in the median over datasets {_steps(records)}"
        )
    else:
        length = "each method with its own number of steps, so not at equal time"
    seeds, episodes = _range(len(r["seeds"]) for r in records), _range(r["evaluation"]["num_episodes"] for r in records)
    return (
        f"{len(methods)} methods ({', '.join(methods)}) on {len(datasets)} datasets, {seeds} seeds and {episodes} "
        f"episodes a seed; {length}."
    )


def equal_minutes(records: Iterable[Record]) -> float | None:
    """The minutes of the reference processor that all records had, to a tenth; None if they had not the same."""
    found = {round(reference_time(r, r["minutes"]), 1) if r.get("minutes") else None for r in records}
    return found.pop() if len(found) == 1 else None


def _processors(records: Sequence[Record]) -> str:
    """In brackets: the processor, and how long others had, whose time is not the same."""
    minutes = {r["processor"]: r["minutes"] for r in records}
    own = [name for name, asked in minutes.items() if asked == equal_minutes(records)]
    others = [f"{asked:g} of {name}, which are worth as much" for name, asked in minutes.items() if name not in own]
    return f" ({'; '.join([*own, *others])})"


def _steps(records: Sequence[Record]) -> str:
    """The fewest and the most steps that a method had."""
    of = {m: median(r["steps"] for r in records if column_of(r) == m) for m in unique(map(column_of, records))}
    fewest, most = min(of, key=of.__getitem__), max(of, key=of.__getitem__)
    return f"{of[fewest]:,.0f} steps ({fewest}) to {of[most]:,.0f} ({most})"


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
