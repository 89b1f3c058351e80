"""From run directories to a report: reads them, draws every figure that they allow, and writes one page."""

from __future__ import annotations

import dataclasses
import html
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from vem.errors import RunError, require
from vem.estimation.estimate import read_estimate
from vem.evaluation.statistics import Estimate, OverTasks, Table, over_tasks
from vem.reports.log import (
    compare_series,
    data_tables,
    difference_tables,
    draw_calibration,
    draw_differences,
    draw_support,
    draw_weights,
)
from vem.reports.mazes import draw_landscapes
from vem.reports.page import Group, Section, checks_section, render_page
from vem.reports.records import RunRecord, Series, common_labels, list_series, named_runs, read_run
from vem.reports.scores import (
    SCORE,
    ScoreRow,
    behavior_row,
    draw_curves,
    draw_evaluated,
    draw_returns,
    draw_scores,
    draw_sweep,
    draw_value_against_return,
    draw_value_errors,
    paper_rows,
    score_quantity,
    score_row,
    score_table,
    trajectories_of,
)
from vem.reports.style import (
    GRAY,
    Drawing,
    Style,
    distinct_styles,
    draw_rows,
    drawing_style,
    label_axes,
    legend_below,
    new_figure,
    slug,
)
from vem.storage import write_file
from vem.training.run import Run

# Everything that a page shows of the runs on one dataset, in the order in which people look for it.


NUM_VALUE_ROWS = 5000


def build_group(name: str, runs: list[RunRecord], prefix: str, show: Callable[[str], None]) -> Group:
    """Everything about the runs on one dataset."""
    show(f"{name}: reading the data")
    series, rows = _series_and_rows(runs)
    first = next((run for run in runs if run.dataset is not None), None)
    trajectories = None
    if first is not None and first.dataset is not None:
        trajectories = trajectories_of(first, first.dataset)
        rows.append(behavior_row(first, trajectories, rows))
    rows += paper_rows(runs[0])
    show(f"{name}: scores and values")
    sections = [_scores_section(series, rows, runs), _estimate_section(series)]
    sections.append(Section("sweep", "Sweep", _draw_sweeps(runs, series)))
    landscapes = draw_landscapes(runs, series)
    sections.append(Section("landscape", "The maze, values and trajectories", landscapes))
    show(f"{name}: policy against log")
    compared = compare_series(series)
    differences = Section("differences", "What the policy does differently", draw_differences(compared))
    if not landscapes:
        sections.append(differences)
    values = [*draw_value_against_return(series), *draw_value_errors(series, rows), *draw_calibration(series)]
    sections.append(Section("returns", "Returns and values", [*draw_returns(series, trajectories), *values]))
    sections.append(checks_section(series))
    if first is not None and first.dataset is not None and first.sample is not None:
        facts = f"{first.dataset.num_transitions:,} steps in {first.dataset.num_episodes:,} episodes, and their columns"
        sections.append(Section("data", "Data", tables=data_tables(first.dataset, first.sample), summary=facts))
    weights = draw_weights(series)
    sections.append(Section("weights", "Weights of rows", weights, summary="how much each recorded row counted"))
    curves = draw_curves(series)
    sections.append(Section("curves", "Training curves", curves, summary=f"{len(curves)} metrics"))
    if landscapes:
        sections.append(dataclasses.replace(differences, summary="its actions beside those of the log"))
    tables, summary = difference_tables(compared), "what it does differently, and where most, in numbers"
    sections.append(Section("columns", "Column by column", tables=tables, summary=summary))
    summary = "how near to the data the policy's actions stay"
    sections.append(Section("support", "Support", draw_support(compared), summary=summary))
    return _finished(name, prefix, runs, series, rows, sections, [])


def build_brief_group(name: str, runs: list[RunRecord], prefix: str, show: Callable[[str], None]) -> Group:
    """What compares the runs on one dataset of many: scores, their curves and value errors. No data is read."""
    show(f"{name}: scores and curves")
    series, rows = _series_and_rows(runs)
    errors = draw_value_errors(series, rows)
    rows += paper_rows(runs[0])
    sections = [_scores_section(series, rows, runs), _estimate_section(series)]
    sections.append(Section("values", "Value-estimation error", errors))
    parents = {run.directory.parent for run in runs}
    names = " ".join(shlex.quote(str(run.directory)) for run in runs)
    if len(parents) == 1 and len(runs) > 1:
        names = f"{shlex.quote(str(parents.pop()))}/*/"
    more = f"Data, mazes, weights and what the policies do: vem report {names}"
    return _finished(name, prefix, runs, series, rows, sections, [more])


def _series_and_rows(runs: list[RunRecord]) -> tuple[list[Series], list[ScoreRow]]:
    series = list_series(runs)
    return series, [score_row(one) for one in series]


def _finished(
    name: str,
    prefix: str,
    runs: list[RunRecord],
    series: list[Series],
    rows: list[ScoreRow],
    sections: list[Section],
    notes: list[str],
) -> Group:
    """The group with its notes, sections that have content, and figures whose names are its own."""
    shown = [
        dataclasses.replace(
            section,
            drawings=[dataclasses.replace(one, name=f"{prefix}{one.name}") for one in section.drawings],
        )
        for section in sections
        if section.has_content
    ]
    several = len(runs) > 1
    found = [f"{name}: {note}" if several else note for run, name in named_runs(series) for note in run.notes]
    if len({run.data.sha256 for run in runs}) > 1:
        found.append("These runs read the dataset by different rules, or different versions of it: rows differ.")
    sources = {run.references.source for run in runs if run.references is not None}
    if len(sources) > 1:
        found.append(f"Scores have different references ({', '.join(sorted(sources))}) and must not be compared.")
    return Group(name, prefix, runs, series, rows, shown, [*found, *notes])


def _scores_section(series: list[Series], rows: list[ScoreRow], runs: list[RunRecord]) -> Section:
    if not any(row.kind == "policy" and row.quantities for row in rows):
        return Section("scores", "Scores")
    return Section("scores", "Scores", draw_scores(series, rows), [score_table(rows, runs)])


def _estimate_section(series: list[Series]) -> Section:
    """What the policies are worth by recorded data alone, where a run's directory holds such an estimate."""
    tables = []
    for run, name in named_runs(series):
        if (estimate := read_estimate(run.run)) is not None:
            table = estimate.table
            tables.append(table._replace(title=f"{name}, {table.title}"))
    return Section("estimate", "Estimate from recorded data", tables=tables)


def _draw_sweeps(runs: list[RunRecord], series: list[Series]) -> list[Drawing]:
    drawings = []
    for number, run in enumerate(runs):
        if not run.config.sweep:
            continue
        swept, sample = [one for one in series if one.run is run], run.sample
        values = [np.zeros(0)] * len(swept)
        if sample is not None and all(one.has_values for one in swept):
            rows = np.linspace(0, sample.num_rows - 1, min(NUM_VALUE_ROWS, sample.num_rows)).astype(int)
            states = sample.observations[rows]
            values = [np.array([policy.value(states).mean() for policy in one.policies]) for one in swept]
        several = len(runs) > 1
        found = draw_sweep(swept, values, f", {swept[0].name}" if several else "")
        drawings += [dataclasses.replace(one, name=f"{number}-{one.name}") for one in found] if several else found
    return drawings


# Methods over all datasets of a report: aggregate scores, performance profiles, probability of improvement.


KEY = "over-datasets"
TITLE = "Over all datasets"
TICK_WIDTH = 20
SEEDS = "95 % bootstrap interval, which resamples the seeds within each dataset"


def read_over_datasets(groups: Sequence[Group]) -> OverTasks | None:
    """Statistics over the datasets of a report; None unless it has two datasets and two methods.

    A run counts if it was evaluated after its last step and its dataset has reference scores.
    """
    labels = common_labels([group.runs for group in groups])
    scores: dict[str, dict[str, np.ndarray]] = {}
    left_out: dict[str, list[str]] = {}
    for group, own in zip(groups, labels, strict=True):
        named = {id(run): label for run, label in zip(group.runs, own, strict=True)}
        reason = _why_left_out(group)
        if reason:
            left_out.setdefault(reason, []).append(group.name)
        for one in group.series:
            name = dataclasses.replace(one, name=named[id(one.run)]).label
            found = scores.setdefault(name, {})
            if not reason:
                found[group.name] = _final_scores(one)
    if len(groups) < 2 or len(scores) < 2:
        return None
    return over_tasks(
        scores, [f"Datasets left out, {reason}: {', '.join(names)}." for reason, names in left_out.items()]
    )


def _why_left_out(group: Group) -> str:
    """Why no score of a dataset counts; empty if they do."""
    references = {run.references for run in group.runs if run.episodes}
    if not references:
        return "without an evaluation"
    if None in references:
        return "without reference scores"
    return "whose runs have different references" if len(references) > 1 else ""


def over_datasets_section(over: OverTasks | None) -> Section | None:
    """The part of the page about all datasets together; None where there is nothing to put together."""
    if over is None:
        return None
    if not over.is_enough:
        missing = "Scores cannot be averaged: that takes two methods with scores on the same two datasets."
        return Section(KEY, TITLE, lead=" ".join([missing, *over.left_out]))
    caption = (
        f"Normalized scores of {len(over.tasks)} datasets ({', '.join(over.tasks)}), {over.seeds_text}. IQM: "
        f"inter-quartile mean of all runs; * the highest, ≈ within its interval. Brackets: {SEEDS}. P: the probability "
        f"that a run of {over.methods[0]} scores higher than one of the other method on the same dataset, mean over "
        "datasets; equal scores count half."
    )
    table = Table("", over.header, over.rows, [caption, *over.left_out])
    return Section(KEY, TITLE, draw_over_datasets(over), tables=[table])


def draw_over_datasets(over: OverTasks) -> list[Drawing]:
    """The figures of the section, all of whose numbers are in its table."""
    styles = distinct_styles(len(over.methods))
    means, axes = new_figure(4.6, 1.1 + 0.34 * len(over.methods))
    draw_aggregate_panel(axes, over, styles, "interquartile_mean", "inter-quartile mean")
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel(SCORE)
    profiles, axes = new_figure()
    draw_profile_panel(axes, over, styles)
    legend_below(axes)
    improvements, axes = new_figure(4.6, 0.76 + 0.34 * len(over.methods))
    draw_improvement_panel(axes, over, styles)
    crossing = "Where lines cross, the order depends on the score that is needed."
    return [
        Drawing(f"{KEY}-scores", "Scores over all datasets", f"Bars: {SEEDS}.", means),
        Drawing(f"{KEY}-profile", "Performance profiles", f"{crossing} Shaded: {SEEDS}.", profiles),
        Drawing(
            f"{KEY}-improvement", "Probability of improvement", f"Gray: no difference. Bars: {SEEDS}.", improvements
        ),
    ]


def draw_aggregate_panel(axes: Any, over: OverTasks, styles: Sequence[Style], statistic: str, title: str) -> None:
    """One statistic of every method, the first on top."""
    estimates = [getattr(over.aggregates[method], statistic) for method in over.methods]
    _draw_estimates(axes, over.methods, estimates, styles)
    axes.set_title(title, loc="left", x=0.0, pad=8)


def draw_profile_panel(axes: Any, over: OverTasks, styles: Sequence[Style]) -> None:
    """The performance profiles of all methods in one panel."""
    levels = over.thresholds
    for index, (method, style) in enumerate(zip(over.methods, styles, strict=True)):
        shares, low, high = over.profile(method)
        if low is not None and high is not None:
            band = axes.fill_between(levels, low, high, color=style.color, alpha=0.15, linewidth=0)
            band.set_gid(f"series-{index}-band")
        (line,) = axes.plot(levels, shares, color=style.color, linestyle=style.line, label=method)
        line.set_gid(f"series-{index}-line")
    axes.set(xlim=(levels[0], levels[-1]), ylim=(0, 1.02))
    label_axes(axes, f"{SCORE} x", "share of runs with a score above x")


def draw_improvement_panel(axes: Any, over: OverTasks, styles: Sequence[Style]) -> None:
    """The probabilities of improvement in one panel; gray is no difference."""
    first, *others = over.methods
    axes.axvline(0.5, color=GRAY, linewidth=1)
    _draw_estimates(axes, others, list(over.improvements.values()), styles[1:])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"P({first} scores higher than …)")


def _draw_estimates(axes: Any, names: Sequence[str], estimates: Sequence[Estimate], styles: Sequence[Style]) -> None:
    for place, ((value, interval), style) in enumerate(zip(estimates, styles, strict=True)):
        low, high = interval or (value, value)
        axes.plot([low, high], [place, place], color=style.color, linewidth=6, alpha=0.4, solid_capstyle="butt")
        axes.plot([value], [place], style.marker, color=style.color, markersize=6)
    draw_rows(axes, [fill(name, TICK_WIDTH) for name in names])
    axes.margins(x=0.1)


def _final_scores(one: Series) -> np.ndarray:
    """The score of each seed after the last step; empty if it was not evaluated then."""
    steps = one.run.config.steps
    return one.means("score", steps) if steps in one.evaluated_at else np.zeros(0)


# The page and its files.


PAGE = "report.html"
FIGURES = "figures"
MOST_IN_FULL = 4
"""Datasets of a page that shows everything; a page about more of them compares their runs."""


@dataclass(frozen=True, repr=False)
class Report:
    """What was written; a notebook shows a link to it."""

    page: Path
    figures: list[Path]
    groups: list[Group]
    over_datasets: OverTasks | None = None
    """Statistics over all datasets, if there are several and the same methods have scores on them."""

    def __repr__(self) -> str:
        return f"<Report {self.page}: {self._facts}>"

    def _repr_html_(self) -> str:
        """A link and the results in a notebook."""
        results = [f"{group.name}: {''.join(group.result)}" for group in self.groups]
        lines = "".join(f"<br>{html.escape(text)}" for text in results)
        return f'<a href="{html.escape(str(self.page))}">{html.escape(str(self.page))}</a>, {self._facts}{lines}'

    @property
    def _facts(self) -> str:
        count = sum(len(group.runs) for group in self.groups)
        names = ", ".join(group.name for group in self.groups[:4]) + ", …" * (len(self.groups) > 4)
        return f"{count} run{'s' * (count != 1)} on {names}, {len(self.figures) // 2} figures"

    def to_dict(self) -> dict[str, Any]:
        """The report's facts as JSON values."""
        return {
            "page": str(self.page),
            "figures": [str(path) for path in self.figures],
            "over_datasets": self.over_datasets and self.over_datasets.to_json(),
            "datasets": [
                {
                    "name": group.name,
                    "runs": [str(run.directory) for run in group.runs],
                    "scores": [_row_dict(row) for row in group.rows],
                    "notes": group.notes,
                }
                for group in self.groups
            ],
        }


def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    show: Callable[[str], None] = lambda text: None,
) -> Report:
    """Write ``report.html`` and ``figures/*.png, *.svg`` about the runs and return what was written.

    ``runs`` are runs or their directories, one or several. ``out`` is by default the directory ``report`` in the first
    run. ``show`` is told what is being drawn. Of more than ``MOST_IN_FULL`` datasets the page compares the runs, and
    reads no data.
    """
    require("matplotlib", "jinja2")
    sources = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    by_place = {Path(source): source for source in sources}
    if not by_place:
        raise RunError("a report needs at least one run directory; make one with vem train")
    records = [read_run(source) for source in by_place.values()]
    first = records[0].directory
    if not any(record.metrics or record.policies for record in records):
        raise RunError(
            f"{first} has no policies and no metrics yet, so there is nothing to report; train it with "
            f"vem train --resume {first}"
        )
    out = first / "report" if out is None else Path(out)
    try:
        (out / FIGURES).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}); choose another --out") from None
    by_data: dict[str, list[RunRecord]] = {}
    for record in records:
        by_data.setdefault(record.data.info.name, []).append(record)
    build = build_brief_group if len(by_data) > MOST_IN_FULL else build_group
    with drawing_style():
        groups = [
            build(name, of_data, f"{slug(name)}-" if len(by_data) > 1 else "", show)
            for name, of_data in by_data.items()
        ]
        over = read_over_datasets(groups)
        overall = over_datasets_section(over)
    sections = [*([overall] if overall else []), *(section for group in groups for section in group.sections)]
    show("writing")
    try:
        drawings = [drawing for section in sections for drawing in section.drawings]
        figures = [path for drawing in drawings for path in drawing.write_files(out / FIGURES)]
        write_file(out / PAGE, render_page(groups, FIGURES, overall).encode())
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}); choose another --out") from None
    return Report(out / PAGE, figures, groups, over if over and over.is_enough else None)


def write_score_curve(directory: str | Path) -> Path | None:
    """Draw the evaluations so far of a run against its steps, as PNG and SVG in its directory.

    Returns the PNG, or None while there are fewer than two evaluations.
    """
    series = list_series([read_run(directory)])
    with drawing_style():
        drawings = draw_evaluated(series, *score_quantity(series))
    return drawings[0].write_files(Path(directory))[0] if drawings else None


def _row_dict(row: ScoreRow) -> dict[str, Any]:
    facts = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {**facts, "quantities": {name: spread._asdict() for name, spread in row.quantities.items()}}
