"""Records of measured scores, and the tables in the documents that are made from them.

    python benchmarks/tables.py collect runs/compare      run directories → benchmarks/results/scores/*.json
    python benchmarks/tables.py write                     those records → the tables of docs/results.md and README.md

The parts of a document between <!-- NAME --> and <!-- /NAME --> are made anew; the rest is prose.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ablations
import scale
from score_records import Record, collect, column_of, index, read_all
from vem.algorithms import METHODS
from vem.evaluation.statistics import Spread, mark_best
from vem.tasks import TASKS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "docs" / "results.md", ROOT / "docs" / "scale.md", ROOT / "README.md")
PEERS = ROOT / "benchmarks" / "results" / "peers.json"
REGULARIZATION = ROOT / "benchmarks" / "results" / "trials" / "regularization.json"
BEHAVIOR = ROOT / "benchmarks" / "results" / "behavior.json"
TRIALS = ROOT / "benchmarks" / "results" / "trials" / "guided.json"
README_METHODS = ("vem", "bc", "iql", "awr", "bail")
NOTHING = "No measurement is recorded yet."


def write(documents: Iterable[Path] = DOCUMENTS, records: Sequence[Record] | None = None) -> list[Path]:
    """Fill the marked parts of the documents that exist and return those that changed."""
    records = read_all() if records is None else records
    changed = []
    for path in documents:
        if path.exists() and (new := filled(old := path.read_text(encoding="utf-8"), records)) != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    return changed


def filled(text: str, records: Sequence[Record]) -> str:
    """The text with every marked part made anew from the records."""
    for name, make in PARTS.items():
        content = make(records) or NOTHING
        pattern = re.compile(f"(<!-- {name} -->).*?(<!-- /{name} -->)", re.DOTALL)
        text = pattern.sub(lambda match, content=content: f"{match[1]}\n\n{content}\n\n{match[2]}", text)
    return text


def score_table(records: Sequence[Record]) -> str:
    """All methods, ablations apart: mean ± std over seeds, and the interval of the measurement."""
    return _scores([r for r in records if METHODS[r["algorithm"]].ablates is None], with_interval=True)


def regression_table(records: Sequence[Record]) -> str:
    """VEM beside the ablations that have records of scores."""
    ablated = {r["dataset"] for r in records if METHODS[r["algorithm"]].ablates}
    chosen = [
        r for r in records if r["dataset"] in ablated and "vem" in (r["algorithm"], METHODS[r["algorithm"]].ablates)
    ]
    return _scores(chosen, with_interval=True)


def ablation_table(records: Sequence[Record] | None = None) -> str:
    """VEM with one choice changed at a time: score, and how far the mean value is from the default's."""
    records = ablations.read_ablations() if records is None else records
    datasets = sorted(_unique(r["dataset"] for r in records), key=lambda d: (index(list(TASKS), d), d))
    by_place = {(r["variant"], r["dataset"]): r for r in records}
    rows = []
    for name in ablations.VARIANTS:
        if any((name, d) in by_place for d in datasets):
            meaning = ablations.MEANINGS.get(name) or f"τ = {ablations.VARIANTS[name]['expectile']}"
            cells = [by_place.get((name, d)) for d in datasets]
            rows.append([meaning, *(cell for r in cells for cell in _ablation_cells(r))])
    return _table(["variant", *(text for d in datasets for text in (d, "mean V"))], rows)


def _ablation_cells(record: Record | None) -> tuple[str, str]:
    if record is None:
        return "", ""
    values = list(record["value_mean"].values())
    return _mean_std(_score(record)), f"{sum(values) / len(values):.3f}"


def readme_table(records: Sequence[Record]) -> str:
    """The methods most users choose between, beside the paper's VEM."""
    return _scores([r for r in records if column_of(r) in README_METHODS], with_interval=False, paper=("vem",))


def paper_table(records: Sequence[Record]) -> str:
    """Every method of the paper's table: ours, then the paper's."""
    default = {(r["dataset"], r["algorithm"]): r for r in records if r["preset"] == "default"}
    methods = [m for m in ("vem", "bail", "bcq", "cql", "awr") if any(key[1] == m for key in default)]
    datasets = [d for d in _unique(r["dataset"] for r in records) if d in TASKS and TASKS[d].paper_scores]
    rows = []
    for dataset in datasets:
        row = [dataset]
        for method in methods:
            ours, paper = default.get((dataset, method)), TASKS[dataset].paper_scores.get(method)
            row += ["" if ours is None else _mean_std(_score(ours)), _paper_text(paper)]
        rows.append(row)
    return _table(["dataset", *(f"{m}, {who}" for m in methods for who in ("ours", "paper"))], rows)


def value_table(records: Sequence[Record]) -> str:
    """V − G over all steps of the evaluated episodes, for the methods with state values."""
    having = [r for r in records if "value_error" in r["evaluation"]["over_seeds"]]
    return _grid(having, lambda r: _spread_text(Spread(**r["evaluation"]["over_seeds"]["value_error"]), _short))


def data_table(records: Sequence[Record]) -> str:
    """The files that were trained on, and how they were made."""
    rows = []
    for dataset in _unique(r["dataset"] for r in records):
        data = next(r["data"] for r in records if r["dataset"] == dataset)
        rows.append([dataset, f"{data['num_rows']:,}", data["recipe"] or "", f"`{data['sha256'][:12]}`"])
    header = ["dataset", "rows read", "how the file says it was made", "sha256 of the rows"]
    return _table(header, rows)


def behavior_table(path: Path = BEHAVIOR) -> str:
    """What the recordings themselves score, whole and within the steps of an evaluation."""
    rows = [
        [
            name,
            str(facts["episodes"]),
            f"{facts['mean_steps']:.0f}",
            str(facts["limit"]),
            f"{facts['whole']['mean']:.1f}",
            *(f"{facts['within_limit'][which]:.1f}" for which in ("mean", "median", "best")),
        ]
        for name, facts in (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}).items()
    ]
    head = ["dataset", "recordings", "mean steps", "limit of an evaluation", "mean score, whole"]
    return _table([*head, "within the limit: mean", "median", "best"], rows)


def run_table(records: Sequence[Record]) -> str:
    """What each run took: steps, seeds, episodes, time."""
    rows = [
        [
            r["dataset"],
            column_of(r),
            f"{r['steps']:,}",
            str(len(r["seeds"])),
            str(r["evaluation"]["num_episodes"]),
            "" if r["training_seconds"] is None else f"{r['training_seconds'] / 60:.1f}",
            str(sum(row["num_failed"] for row in r["evaluation"]["members"].values())),
        ]
        for r in records
    ]
    header = ["dataset", "method", "steps", "seeds", "episodes a seed", "training minutes", "failed episodes"]
    return _table(header, rows)


def trial_table(path: Path = TRIALS) -> str:
    """The trials that guided policies were designed by."""
    if not path.exists():
        return ""
    header = ["dataset", "what was tried", "discount", "scores of the seeds", "episodes a seed", "on its back, %"]
    rows = []
    for trial in json.loads(path.read_text(encoding="utf-8")):
        backs = "" if trial["on_its_back"] is None else " / ".join(f"{share:.0f}" for share in trial["on_its_back"])
        scores = " / ".join(f"{score:.0f}" for score in trial["scores"])
        rows.append([trial["dataset"], trial["what"], str(trial["discount"]), scores, str(trial["episodes"]), backs])
    return _table(header, rows)


def regularization_table(path: Path = REGULARIZATION) -> str:
    """Trials of the policy's regularization, beside the record of the default."""
    defaults = {record["dataset"]: record for record in read_all() if column_of(record) == "vem"}
    rows = []
    for trial in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        default = defaults[trial["dataset"]]
        scores = " / ".join(f"{score:.1f}" for score in trial["scores"])
        mean, usual = sum(trial["scores"]) / len(trial["scores"]), default["evaluation"]["over_seeds"]["score"]["mean"]
        steps = (
            f"{trial['steps']:,}"
            if trial["steps"] == default["steps"]
            else f"{trial['steps']:,} (record: {default['steps']:,})"
        )
        rows.append([trial["dataset"], trial["what"], steps, scores, f"{mean:.1f}", f"{usual:.1f}"])
    return _table(["dataset", "what was tried", "steps", "scores of the seeds", "mean", "record of the default"], rows)


def speed_table(path: Path = PEERS) -> str:
    """Updates per second of every method, against one seed of before, and the share of the machine's matrix rate."""
    rows = []
    for name, figures in _speeds(path).items():
        rate, before, stages = figures["updates_per_second"], figures.get("before"), figures["stages"].values()
        rows.append(
            [
                name,
                f"{rate['one_seed']:,.0f}",
                f"{rate['3_seeds']:,.0f}",
                "" if before is None else f"{before['updates_per_second']:,.0f}",
                " / ".join(f"{100 * stage['share_of_sgemm']['one_seed']:.0f}" for stage in stages),
                " / ".join(f"{stage['done_over_needed']:.2f}" for stage in stages),
            ]
        )
    head = ["method", "steps/s, one seed", "three seeds together", "one seed, before", "% of sgemm, one seed"]
    return _table([*head, "arithmetic done ÷ needed"], rows)


def peers_table(path: Path = PEERS) -> str:
    """Other libraries' updates per second, and how many times as fast ours are."""
    rows = [
        [
            name,
            library,
            f"{peer['updates_per_second']:,.0f}",
            f"{peer['times_as_fast']['one_seed']:.2f}",
            f"{peer['times_as_fast']['3_seeds']:.2f}",
        ]
        for name, figures in _speeds(path).items()
        for library, peer in figures.get("peers", {}).items()
    ]
    return _table(["method", "library", "its steps/s", "ours ÷ its, one seed", "ours ÷ its, three seeds"], rows)


def seeds_table(path: Path = PEERS) -> str:
    """IQL's updates per second by the number of seeds that train together."""
    rates = _speeds(path).get("iql", {}).get("updates_per_second", {})
    counts = sorted((1 if label == "one_seed" else int(label.split("_")[0]), rate) for label, rate in rates.items())
    rows = [[str(count), f"{rate:,.0f}", f"{rate / rates['one_seed']:.2f}"] for count, rate in counts]
    return _table(["seeds", "steps/s of all together", "times one seed"], rows)


def scale_table(path: Path = PEERS) -> str:
    """Hours of the paper's table by the number of cores: equal time a cell, and the official number of updates."""
    rates = scale.core_rates(path) if path.exists() else {}
    equal = [scale.EQUAL_MINUTES / 60] * (scale.NUM_TASKS * len(rates))
    official, apart = scale.cell_hours(rates), scale.cell_hours(rates, seeds_apart=True)
    rows = [
        [str(cores), *(_short_hours(scale.makespan(cells, cores)) for cells in (equal, official, apart))]
        for cores in scale.CORES
        if rates
    ]
    head = ["cores", f"{scale.EQUAL_MINUTES} minutes of a core for each cell"]
    return _table([*head, "a million updates, a cell a core", "the same, each seed a cell"], rows)


def cell_table(path: Path = PEERS) -> str:
    """What one cell of each method takes on one core."""
    rates = scale.core_rates(path) if path.exists() else {}
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{scale.EQUAL_MINUTES * 60 * rate / scale.NUM_SEEDS:,.0f}",
            _short_hours(scale.NUM_SEEDS * scale.OFFICIAL_STEPS / rate / 3600),
        ]
        for name, rate in rates.items()
    ]
    head = ["method", "updates/s of one core", f"updates of each of three seeds in {scale.EQUAL_MINUTES} minutes"]
    return _table([*head, "three seeds, a million updates each"], rows)


def _short_hours(hours: float) -> str:
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def _speeds(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))["methods"] if path.exists() else {}


PARTS: dict[str, Callable[[Sequence[Record]], str]] = {
    "trials": lambda records: trial_table(),
    "results": readme_table,
    "scores": score_table,
    "paper": paper_table,
    "regression": regression_table,
    "ablations": lambda records: ablation_table(),
    "values": value_table,
    "data": data_table,
    "behavior": lambda records: behavior_table(),
    "runs": run_table,
    "regularization": lambda records: regularization_table(),
    "speed": lambda records: speed_table(),
    "peers": lambda records: peers_table(),
    "seeds": lambda records: seeds_table(),
    "scale": lambda records: scale_table(),
    "cells": lambda records: cell_table(),
}
"""Name of a marked part → what fills it."""


def _scores(records: Sequence[Record], with_interval: bool, paper: Sequence[str] = ()) -> str:
    """Datasets × methods, the best bold and those within its interval marked."""
    marks: dict[int, str] = {}
    for dataset in _unique(r["dataset"] for r in records):
        row = [r for r in records if r["dataset"] == dataset and _score(r) is not None]
        found = mark_best([spread for r in row if (spread := _score(r)) is not None])
        marks |= {id(r): mark for r, mark in zip(row, found, strict=True)}

    def text(record: Record) -> str:
        shown = _mean_std(_score(record), is_bold=marks.get(id(record)) == "best")
        interval = (spread := _score(record)) and spread.interval
        ends = f" ({interval[0]:.1f} to {interval[1]:.1f})" if with_interval and interval else ""
        return shown + ends + (" ≈" if marks.get(id(record)) == "close" else "")

    extra = {
        f"{m}, paper": lambda d, m=m: _paper_text(TASKS[d].paper_scores.get(m)) if d in TASKS else "" for m in paper
    }
    return _grid(records, text, extra)


def _grid(
    records: Sequence[Record], text: Callable[[Record], str], extra: dict[str, Callable[[str], str]] | None = None
) -> str:
    methods = list(METHODS)
    columns = sorted(_unique(map(column_of, records)), key=lambda column: (index(methods, column.split()[0]), column))
    by_place = {(r["dataset"], column_of(r)): text(r) for r in records}
    rows = [
        [d, *(by_place.get((d, column), "") for column in columns), *(make(d) for make in (extra or {}).values())]
        for d in _unique(r["dataset"] for r in records)
    ]
    return _table(["dataset", *columns, *(extra or {})], rows)


def _table(header: list[str], rows: list[list[str]]) -> str:
    if not rows:
        return ""
    numeric = [all(re.match(r"[-*\d]|$", row[i]) for row in rows) for i in range(len(header))]
    lines = [header, ["---:" if is_number else "---" for is_number in numeric], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _score(record: Record) -> Spread | None:
    over_seeds = record["evaluation"]["over_seeds"]
    found = over_seeds.get("score") or over_seeds.get("return")
    return Spread(**found) if found else None


def _mean_std(spread: Spread | None, is_bold: bool = False) -> str:
    return "" if spread is None else _spread_text(spread, lambda number: f"{number:.1f}", is_bold)


def _spread_text(spread: Spread, shown: Callable[[float], str], is_bold: bool = False) -> str:
    mean = f"**{shown(spread.mean)}**" if is_bold else shown(spread.mean)
    return mean if spread.std is None else f"{mean} ± {shown(spread.std)}"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.2g}"


def _paper_text(score: Any) -> str:
    return "" if score is None else _mean_std(Spread(score.mean, score.std, score.mean, None))


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    collecting = verbs.add_parser("collect", help="run directories → records")
    collecting.add_argument("directories", nargs="+", type=Path)
    verbs.add_parser("write", help="records → tables")
    options = parser.parse_args()
    paths = collect(options.directories) if options.verb == "collect" else write()
    for path in paths:
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
