"""Tables of scores, values, data and runs, from the records of evaluated runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import ablations
from score_records import Record, column_of, index
from table_text import mean_std, paper_text, short, spread_text, table, unique
from vem.algorithms.base import METHODS, official_steps, split_label
from vem.evaluation.statistics import Spread
from vem.tasks import TASKS

SMALLEST_GAP = 0.5
"""Points below a score of the paper that are worth a line."""
LONGER_METHODS = ("vem", "bc", "awr", "bail", "iql", "td3bc")
"""Those with records of more steps on most datasets."""


def readme_table(records: Sequence[Record]) -> str:
    """VEM, the highest score of another method, IQL and cloning with their steps, beside the paper's VEM."""
    by_place = {(r["dataset"], column_of(r)): r for r in records}
    rows = []
    for dataset in unique(r["dataset"] for r in records if column_of(r) == "vem"):
        others = [r for r in records if r["dataset"] == dataset and _is_other(column_of(r))]
        best = [f"{column_of(r)} {_score_over_steps(r)}" for r in sorted(others, key=lambda r: -score_of(r).mean)]
        vem, iql, bc = (_score_over_steps(by_place.get((dataset, method))) for method in ("vem", "iql", "bc"))
        rows.append([dataset, vem, *(best or [""])[:1], iql, bc, _published(dataset)])
    return table(["dataset", "VEM", "highest other score", "IQL", "cloning (BC)", "VEM in the paper"], rows)


def _is_other(column: str) -> bool:
    """Whether a column is a method that is not VEM, nor VEM with other settings."""
    return column in METHODS and column != "vem" and METHODS[column].ablates is None


def _score_over_steps(record: Record | None) -> str:
    return "" if record is None else f"{mean_std(score_of(record))}<br>{record['steps']:,}"


def longer_table(records: Sequence[Record]) -> str:
    """Each method's score, and below it its steps, beside the paper's score of VEM."""
    chosen = [r for r in records if column_of(r) in LONGER_METHODS]
    return _grid(chosen, _score_over_steps, {"paper": _published})


def equal_time_table(records: Sequence[Record]) -> str:
    """The scores of the methods that ran on all datasets, and in the last row the steps that they had."""
    chosen = on_all_datasets(records)
    if not chosen:
        return ""
    columns = _columns(chosen)
    steps = [median(r["steps"] for r in chosen if column_of(r) == column) for column in columns]
    last = ["median steps", *(f"{number:,.0f}" for number in steps)]
    narrow = lambda record: mean_std(score_of(record)).replace(" ± ", "<br>± ")
    return "\n".join([_grid(chosen, narrow), f"| {' | '.join(last)} |"])


def on_all_datasets(records: Sequence[Record]) -> list[Record]:
    """The records of the methods that ran on every dataset, ablations apart."""
    datasets = {r["dataset"] for r in records}
    having = {c: {r["dataset"] for r in records if column_of(r) == c} for c in map(column_of, records)}
    return [r for r in records if having[column_of(r)] == datasets and METHODS[r["algorithm"]].ablates is None]


def score_table(records: Sequence[Record]) -> str:
    """All methods, ablations apart: mean ± std over seeds, and the interval of the measurement."""
    return _scores([r for r in records if METHODS[r["algorithm"]].ablates is None])


def regression_table(records: Sequence[Record]) -> str:
    """VEM beside the ablations that have records of scores."""
    ablated = {r["dataset"] for r in records if METHODS[r["algorithm"]].ablates}
    chosen = [
        r for r in records if r["dataset"] in ablated and "vem" in (r["algorithm"], METHODS[r["algorithm"]].ablates)
    ]
    return _scores(chosen)


def ablation_table(records: Sequence[Record] | None = None) -> str:
    """VEM with one choice changed at a time: score, and how far the mean value is from the default's."""
    records = ablations.read_ablations() if records is None else records
    datasets = sorted(unique(r["dataset"] for r in records), key=lambda d: (index(list(TASKS), d), d))
    by_place = {(r["variant"], r["dataset"]): r for r in records}
    rows = []
    for name in ablations.VARIANTS:
        if any((name, d) in by_place for d in datasets):
            meaning = ablations.MEANINGS.get(name) or f"τ = {ablations.VARIANTS[name]['expectile']}"
            cells = [by_place.get((name, d)) for d in datasets]
            rows.append([meaning, *(cell for r in cells for cell in _ablation_cells(r))])
    return table(["variant", *(text for d in datasets for text in (d, "mean V"))], rows)


def _ablation_cells(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    values = list(record["value_mean"].values())
    return mean_std(score_of(record)), f"{sum(values) / len(values):.3f}"


def paper_table(records: Sequence[Record]) -> str:
    """Every method of the paper's table: ours, then the paper's; VEM also with the paper's settings."""
    found = {(r["dataset"], column_of(r)): r for r in records}
    columns = [c for c in ("vem", "vem-paper", "bail", "bcq", "cql", "awr") if any(key[1] == c for key in found)]
    datasets = [d for d in unique(r["dataset"] for r in records) if d in TASKS and TASKS[d].paper_scores]
    rows = []
    for dataset in datasets:
        row = [dataset]
        for column in columns:
            ours, published = found.get((dataset, column)), TASKS[dataset].paper_scores
            row.append("" if ours is None else mean_std(score_of(ours)))
            row += [paper_text(published.get(column))] if column != "vem-paper" else []
        rows.append(row)
    heads = [[f"{c}, ours"] if c == "vem-paper" else [f"{c}, ours", f"{c}, paper"] for c in columns]
    return table(["dataset", *(head for pair in heads for head in pair)], rows)


def gap_table(records: Sequence[Record], paper: Sequence[Record]) -> str:
    """Where the paper's methods score lower here, ours apart: at equal time, and with more steps if those ran."""
    rows = []
    at_equal_time = {(r["dataset"], column_of(r)): r for r in paper}
    longer = {(r["dataset"], column_of(r)): r for r in records}
    for dataset in unique(r["dataset"] for r in [*paper, *records]):
        published = TASKS[dataset].paper_scores if dataset in TASKS else {}
        for column in ("vem-paper", "bail", "bcq", "cql", "awr"):
            found = [r for group in (at_equal_time, longer) if (r := group.get((dataset, column)))]
            scores = [spread.mean for r in found if (spread := score_of(r))]
            theirs = published.get(split_label(column)[0])
            if theirs and scores and max(scores) < theirs.mean - SMALLEST_GAP:
                cells = [_score_and_steps(group.get((dataset, column))) for group in (at_equal_time, longer)]
                rows.append([dataset, column, paper_text(theirs), *cells, f"{official_steps(column):,}"])
    return table(["dataset", "method", "paper", "at equal time", "with its own steps", "official steps"], rows)


def _score_and_steps(record: Record | None) -> str:
    return "" if record is None else f"{mean_std(score_of(record))} after {record['steps']:,}"


def value_table(records: Sequence[Record]) -> str:
    """V − G over all steps of the evaluated episodes, for the methods with state values."""
    having = [r for r in records if "value_error" in r["evaluation"]["over_seeds"]]
    return _grid(having, lambda r: spread_text(Spread(**r["evaluation"]["over_seeds"]["value_error"]), short))


def data_table(records: Sequence[Record]) -> str:
    """The files that were trained on, and how they were made."""
    rows = []
    for dataset in unique(r["dataset"] for r in records):
        data = next(r["data"] for r in records if r["dataset"] == dataset)
        rows.append([dataset, f"{data['num_rows']:,}", data["recipe"] or "", f"`{data['sha256'][:12]}`"])
    header = ["dataset", "rows read", "how the file says it was made", "sha256 of the rows"]
    return table(header, rows)


def run_table(records: Sequence[Record]) -> str:
    """What each run took: steps, seeds, episodes, time; processor time where it is recorded."""
    has_cores = any(r.get("core_seconds") is not None for r in records)
    rows = []
    for r in records:
        row = [
            r["dataset"],
            column_of(r),
            f"{r['steps']:,}",
            str(len(r["seeds"])),
            str(r["evaluation"]["num_episodes"]),
        ]
        row += [_minutes(r["training_seconds"]), *([_minutes(r.get("core_seconds"))] if has_cores else [])]
        rows.append([*row, str(sum(trial["num_failed"] for trial in r["evaluation"]["trials"].values()))])
    header = ["dataset", "method", "steps", "seeds", "episodes a seed", "training minutes"]
    return table([*header, *(["minutes of one core"] if has_cores else []), "failed episodes"], rows)


def steps_table(records: Sequence[Record]) -> str:
    """The steps of each method on each dataset, and in a sentence what all runs took."""
    taken = [r for r in records if r.get("core_seconds") is not None]
    if not taken:
        return ""
    shares = [r["core_seconds"] / (60 * r["minutes"]) for r in taken]
    failed = sum(trial["num_failed"] for r in records for trial in r["evaluation"]["trials"].values())
    episodes = sum(r["evaluation"]["num_episodes"] * len(r["seeds"]) for r in records)
    text = (
        f"Training took {min(shares):.2f} to {max(shares):.2f} of the minutes that were asked for (median "
        f"{median(shares):.2f}); {failed} of {episodes:,} evaluated episodes failed."
    )
    return "\n\n".join([_grid(records, lambda r: f"{r['steps']:,}"), text])


def _minutes(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds / 60:.1f}"


def _scores(records: Sequence[Record]) -> str:
    """Datasets × methods: mean ± std over seeds, and below it the interval of the measurement."""

    def text(record: Record) -> str:
        spread = score_of(record)
        interval = spread.interval if spread else None
        return mean_std(spread) + (f"<br>({interval[0]:.1f} to {interval[1]:.1f})" if interval else "")

    return _grid(records, text)


def _published(dataset: str) -> str:
    return paper_text(TASKS[dataset].paper_scores.get("vem")) if dataset in TASKS else ""


def _grid(
    records: Sequence[Record], text: Callable[[Record], str], extra: dict[str, Callable[[str], str]] | None = None
) -> str:
    columns = _columns(records)
    by_place = {(r["dataset"], column_of(r)): text(r) for r in records}
    rows = [
        [d, *(by_place.get((d, column), "") for column in columns), *(make(d) for make in (extra or {}).values())]
        for d in unique(r["dataset"] for r in records)
    ]
    return table(["dataset", *columns, *(extra or {})], rows)


def _columns(records: Sequence[Record]) -> list[str]:
    """The names of the methods, in the order of the methods."""
    methods = list(METHODS)
    return sorted(unique(map(column_of, records)), key=lambda name: (index(methods, split_label(name)[0]), name))


def score_of(record: Record) -> Spread | None:
    """The score over seeds, or the return without references."""
    over_seeds = record["evaluation"]["over_seeds"]
    found = over_seeds.get("score") or over_seeds.get("return")
    return Spread(**found) if found else None
