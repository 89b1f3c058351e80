"""What the records say on the whole: statistics over datasets, in sentences and a table, and the time to a score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from processors import reference_time
from score_records import Record, column_of
from score_tables import marks_of, score_of
from table_text import table, unique
from vem.algorithms.base import METHODS
from vem.evaluation.statistics import OverTasks, estimate_text, over_tasks
from vem.tasks import TASKS

OURS = "vem"
LARGE = 10.0
"""Points that are worth a word."""
SHARE = 0.9
"""Of the best final score, for the time that methods take to reach it."""


def read_over(records: Sequence[Record]) -> OverTasks | None:
    """Statistics over the datasets of the records with scores, VEM first; None unless there is enough."""
    ordered = sorted(records, key=lambda record: column_of(record) != OURS)
    scores: dict[str, dict[str, list[float]]] = {}
    for record in ordered:
        found = [row.get("score") for row in record["evaluation"]["trials"].values()]
        scores.setdefault(column_of(record), {})[record["dataset"]] = [one for one in found if one is not None]
    over = over_tasks(scores)
    return over if over.is_enough else None


def found_text(records: Sequence[Record], longer: Sequence[Record] = ()) -> str:
    """Five sentences, as a list; ``longer``: records of the same datasets with more steps."""
    over = read_over(records)
    if over is None:
        return ""
    sentences = [
        _what_was_run(records),
        f"{_who_is_best(over)}; {_improvement(over)}.",
        _by_dataset(records),
        _longer(records, longer),
        _paper(records),
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences if sentence)


def basis_text(records: Sequence[Record]) -> str:
    """What was run, in a sentence; empty without records."""
    return _what_was_run(records) if records else ""


def overall_table(records: Sequence[Record]) -> str:
    """Inter-quartile mean, mean and probability of improvement over the datasets that all methods have."""
    over = read_over(records)
    if over is None:
        return ""
    rows = [[cell.replace(" *", "").strip() for cell in row] for row in over.rows]
    for row, mark in zip(rows, over.marks.values(), strict=True):
        row[1] = f"**{row[1]}**" if mark == "best" else row[1]
    basis = f"Over {len(over.tasks)} datasets ({', '.join(over.tasks)}), {over.seeds_text}."
    return "\n\n".join([table(over.header, rows), " ".join([basis, *over.left_out])])


def time_table(records: Sequence[Record]) -> str:
    """Core-minutes from which on each method had 90 % of the best final score, from the curves."""
    curved = [r for r in records if has_curve(r, "score") and None not in r["curve"]["core_seconds"]]
    columns = unique(map(column_of, curved))
    rows = []
    for dataset in unique(r["dataset"] for r in curved):
        own = {column_of(r): r for r in curved if r["dataset"] == dataset}
        best = max(r["curve"]["score"]["mean"][-1] for r in own.values())
        if len(own) > 1 and best > 0:
            minutes = [_minutes_to(own[c], SHARE * best) if c in own else "" for c in columns]
            rows.append([dataset, f"{SHARE * best:.1f}", *minutes])
    return table(["dataset", f"{100 * SHARE:.0f} % of the best", *columns], rows)


def has_curve(record: Record, quantity: str) -> bool:
    """Whether a record has evaluations on the way of that quantity."""
    return quantity in (record.get("curve") or {})


def curve_minutes(record: Record) -> list[float]:
    """When a record's evaluations on the way were, in minutes of the reference processor."""
    return [reference_time(record, seconds / 60) for seconds in record["curve"]["core_seconds"]]


def _minutes_to(record: Record, wanted: float) -> str:
    """The time from which on the mean over seeds was that high; a dash if it was not in the end."""
    scores = record["curve"]["score"]["mean"]
    good = [all(score >= wanted for score in scores[n:]) for n in range(len(scores))]
    return f"{curve_minutes(record)[good.index(True)]:.1f}" if any(good) else "–"


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


def _who_is_best(over: OverTasks) -> str:
    middles = {method: one.interquartile_mean for method, one in over.aggregates.items()}
    first, second, *_ = sorted(middles, key=lambda method: -middles[method].value)
    close = [method for method, mark in over.marks.items() if mark == "close"]
    within = f"; within its interval: {', '.join(close)}" if close else ""
    return (
        f"Over the {len(over.tasks)} datasets that {', '.join(over.methods)} all have, {first} has the highest "
        f"inter-quartile mean, {estimate_text(middles[first])} (95 % interval over seeds), then {second} with "
        f"{estimate_text(middles[second])}{within}"
    )


def _improvement(over: OverTasks) -> str:
    first = over.methods[0]
    chances = sorted(over.improvements.items(), key=lambda item: item[1].value)
    (lowest, low), (highest, high) = chances[0], chances[-1]
    return (
        f"a run of {first} scores higher than one of another method on the same dataset with probability "
        f"{estimate_text(low, 2)} ({lowest}) to {estimate_text(high, 2)} ({highest})"
    )


def _by_dataset(records: Sequence[Record]) -> str:
    marks = marks_of(records)
    good, others = [], []
    for record in records:
        if column_of(record) == OURS:
            best = [column_of(r) for r in records if r["dataset"] == record["dataset"] and marks.get(id(r)) == "best"]
            if marks.get(id(record)):
                good.append(record["dataset"])
            elif best:
                others.append(f"{record['dataset']} ({', '.join(best)})")
    not_on = f"; another one is ahead on {', '.join(others)}" if others else ""
    count = f"{len(good)} of {len(good) + len(others)}"
    return f"{OURS} has the best mean, or one within the interval of the best, on {count} datasets{not_on}."


def _longer(records: Sequence[Record], longer: Sequence[Record]) -> str:
    """Where more steps than those at equal time change the picture."""
    shown = {r["dataset"]: score_of(r) for r in records if column_of(r) == OURS and r.get("minutes")}
    longer = [r for r in longer if METHODS[r["algorithm"]].ablates is None and score_of(r)]
    marks = marks_of(longer)
    gained, ahead = [], []
    for ours in (r for r in longer if column_of(r) == OURS and r["dataset"] in shown):
        before, after = shown[ours["dataset"]], score_of(ours)
        if before and after and after.mean - before.mean > LARGE:
            gained.append(f"{_score_after(ours)} on {ours['dataset']}")
        row = [r for r in longer if r["dataset"] == ours["dataset"]]
        if not marks.get(id(ours)):
            ahead += [
                f"{column_of(r)} on {r['dataset']} ({_score_after(r)})" for r in row if marks.get(id(r)) == "best"
            ]
    parts = [f"{OURS} has {' and '.join(gained)}"] if gained else []
    parts += [f"{' and '.join(ahead)} {'is' if len(ahead) == 1 else 'are'} ahead of {OURS}"] if ahead else []
    return f"The time is short; with more steps {', and '.join(parts)}." if parts else ""


def _score_after(record: Record) -> str:
    score = score_of(record)
    return f"{score.mean:.1f} after {record['steps']:,} steps" if score else ""


def _paper(records: Sequence[Record]) -> str:
    pairs = [
        (spread.mean, paper.mean)
        for r in records
        if column_of(r) == OURS and r["dataset"] in TASKS
        if (paper := TASKS[r["dataset"]].paper_scores.get(OURS)) and (spread := score_of(r))
    ]
    if not pairs:
        return ""
    higher = sum(ours > paper for ours, paper in pairs)
    return (
        f"The paper's own scores of VEM, on D4RL's data, are lower than these on {higher} of {len(pairs)} datasets and "
        f"higher on {len(pairs) - higher}: the files differ, so this is no replication."
    )


def _steps(records: Sequence[Record]) -> str:
    """The fewest and the most steps that a method had."""
    of = {m: median(r["steps"] for r in records if column_of(r) == m) for m in unique(map(column_of, records))}
    fewest, most = min(of, key=of.__getitem__), max(of, key=of.__getitem__)
    return f"{of[fewest]:,.0f} steps ({fewest}) to {of[most]:,.0f} ({most})"


def _range(numbers: Iterable[int]) -> str:
    found = sorted(set(numbers))
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"
