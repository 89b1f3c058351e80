"""The figures of docs/results.md and docs/choices.md, drawn from records.

    python benchmarks/figures.py

A figure without records is not drawn. Each PNG holds the fingerprint of the numbers in it, which a test compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ablations
import landscapes
from findings import curve_minutes, has_curve, read_over
from score_records import Record, column_of, read_all, read_paper
from score_tables import headline_records
from table_text import unique
from vem.evaluation.statistics import OverTasks

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULTS, CURVES, EXPECTILES, LANDSCAPES = "results.png", "curves.png", "ablations.png", "landscapes.png"
CURVE_METHODS = ("vem", "vem-paper", "bcq-em", "bcq")
"""The methods of the paper's figure of learning curves, VEM with our settings and the paper's."""
MOST_COLUMNS = 4
"""Datasets side by side."""
DPI = 110


def results_text(records: Sequence[Record]) -> str:
    """The figure over all datasets, as a document shows it; empty without records."""
    over = read_over(records)
    if over is None:
        return ""
    caption = (
        f"Left: inter-quartile mean of the scores over {len(over.tasks)} datasets, {over.seeds_text}, with 95 % "
        "bootstrap intervals over seeds. Middle: share of the runs that score more than x. Right: the probability that "
        f"a run of {over.methods[0]} scores higher than one of the other method on the same dataset."
    )
    names = ", ".join(over.methods)
    return f"![Inter-quartile means, performance profiles and improvement of {names}]({RESULTS})\n\n{caption}"


def curves_text(records: Sequence[Record]) -> str:
    """The figure of learning curves; empty without records of curves."""
    if not (found := curve_records(records)):
        return ""
    datasets, methods = unique(r["dataset"] for r in found), unique(map(column_of, found))
    return f"![Score and value error over training on {', '.join(datasets)}: {', '.join(methods)}]({CURVES})"


def expectiles_text() -> str:
    """The figure of τ; empty without records of ablations."""
    return f"![Score and mean value against the expectile]({EXPECTILES})" if expectile_records() else ""


def landscapes_text() -> str:
    """The figure of V over the mazes' floors; empty without records of landscapes."""
    if not (found := landscapes.read_landscapes()):
        return ""
    names = ", ".join(record["dataset"] for record in found)
    steps = ", ".join(f"{record['dataset']} {record['steps']:,}" for record in found)
    return f"![V over the floor of {names}]({LANDSCAPES})\n\nSteps of these runs: {steps}."


def curve_records(records: Sequence[Record]) -> list[Record]:
    """The records with curves of the paper's methods, where VEM is beside another one.

    Of a method with several records on a dataset, the last counts: that at equal time.
    """
    found = {
        (r["dataset"], column_of(r)): r for r in records if has_curve(r, "score") and column_of(r) in CURVE_METHODS
    }
    methods = {dataset: {m for d, m in found if d == dataset} for dataset, _ in found}
    return [r for (dataset, _), r in found.items() if "vem" in methods[dataset] and len(methods[dataset]) > 1]


def expectile_records() -> list[Record]:
    """The records of ablations that differ by their expectile."""
    names = {ablations.variant_of(expectile) for expectile in ablations.EXPECTILES}
    found = [r for r in ablations.read_ablations() if r["variant"] in names]
    return found if len({r["variant"] for r in found}) > 1 else []


def fingerprint(numbers: Any) -> str:
    """A name for what a figure shows."""
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def fingerprints(records: Sequence[Record], paper: Sequence[Record]) -> dict[str, str]:
    """File name of each figure that the records give → the fingerprint of its numbers."""
    found = {}
    if over := read_over(headline_records(records, paper)):
        found[RESULTS] = fingerprint({m: [v.tolist() for v in over.strata(m)] for m in over.methods})
    if curves := curve_records([*records, *paper]):
        found[CURVES] = fingerprint([[r["dataset"], column_of(r), r["curve"]] for r in curves])
    if levels := expectile_records():
        found[EXPECTILES] = fingerprint(
            [[r["dataset"], r["variant"], r["value_mean"], r["evaluation"]["trials"]] for r in levels]
        )
    if floors := landscapes.read_landscapes():
        found[LANDSCAPES] = fingerprint([[r["dataset"], r["values"]] for r in floors])
    return found


def draw_all(records: Sequence[Record], paper: Sequence[Record], folder: Path = DOCS) -> list[Path]:
    """Draw every figure that the records give and return the files."""
    from vem.reports.style import drawing_style

    makers: dict[str, Callable[[], Any]] = {
        RESULTS: lambda: draw_results(read_over(headline_records(records, paper))),
        CURVES: lambda: draw_curves(curve_records([*records, *paper])),
        EXPECTILES: lambda: ablations.draw(expectile_records()),
        LANDSCAPES: lambda: landscapes.draw(landscapes.read_landscapes()),
    }
    written = []
    for name, mark in fingerprints(records, paper).items():
        with drawing_style():
            figure = makers[name]()
            metadata = {"Software": None, "Description": f"records {mark}"}
            figure.savefig(folder / name, dpi=DPI, facecolor="white", metadata=metadata)
        written.append(folder / name)
    return written


def draw_results(over: OverTasks | None) -> Any:
    """Inter-quartile means with intervals, performance profiles, and the probability of improvement."""
    from vem.reports.report import draw_aggregate_panel, draw_improvement_panel, draw_profile_panel
    from vem.reports.style import distinct_styles, new_panels

    assert over is not None
    looks = distinct_styles(len(over.methods))
    figure, (left, middle, right) = new_panels(11.4, 1.6 + 0.3 * max(4, len(over.methods)), 3)
    draw_aggregate_panel(left, over, looks, "interquartile_mean", "inter-quartile mean")
    left.set_xlim(left=min(0.0, left.get_xlim()[0]))
    left.set_xlabel("normalized score")
    draw_profile_panel(middle, over, looks)
    draw_improvement_panel(right, over, looks)
    right.set_title("probability of improvement", loc="left", x=0.0, pad=8)
    figure.legend(loc="outside lower center", ncols=len(over.methods))
    return figure


def draw_curves(records: Sequence[Record]) -> Any:
    """Score (above) and V − G (below) over training, mean ± std over seeds, a column a dataset."""
    from matplotlib.figure import Figure

    from vem.reports.style import GRAY, distinct_styles

    datasets = unique(r["dataset"] for r in records)
    looks = dict(zip(CURVE_METHODS, distinct_styles(len(CURVE_METHODS)), strict=True))
    in_minutes = all(None not in r["curve"]["core_seconds"] for r in records)
    width = min(MOST_COLUMNS, len(datasets))
    height = -(-len(datasets) // width)
    figure = Figure(figsize=(3.0 * width + 0.6, 4.6 * height + 0.2), layout="constrained")
    axes = figure.subplots(2 * height, width, squeeze=False)
    places = {d: axes[2 * (n // width) : 2 * (n // width) + 2, n % width] for n, d in enumerate(datasets)}
    for axis in axes[-2:, len(datasets) - width * (height - 1) :].flat:
        axis.remove()
    for record in records:
        look, curve = looks[column_of(record)], record["curve"]
        x = np.array(curve_minutes(record) if in_minutes else curve["steps"])
        for axis, quantity in zip(places[record["dataset"]], ("score", "value_error"), strict=True):
            if quantity in curve:
                mean, std = (np.array([v or 0.0 for v in curve[quantity][name]]) for name in ("mean", "std"))
                axis.fill_between(x, mean - std, mean + std, color=look.color, alpha=0.2, linewidth=0)
                style = {"color": look.color, "linestyle": look.line, "marker": look.marker, "markersize": 4}
                axis.plot(x, mean, label=column_of(record), **style)
    for number, (dataset, (above, below)) in enumerate(places.items()):
        above.set_title(dataset, loc="left")
        above.sharex(below)
        above.tick_params(labelbottom=False)
        below.axhline(0, color=GRAY, linewidth=1, zorder=0)
        below.set_xlabel("minutes of one core" if in_minutes else "steps")
        below.set_xlim(left=0)
        if number % width == 0:
            above.set_ylabel("normalized score")
            below.set_ylabel("V − G")
    handles = {m: h for above, _ in places.values() for h, m in zip(*above.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    return figure


def main() -> None:
    for path in draw_all(read_all(), read_paper()):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
