"""Methods over all datasets of a report: aggregate scores, performance profiles, probability of improvement."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np

from vem.evaluation.over_tasks import Estimate, OverTasks, estimate_text, over_tasks
from vem.report.page import Group, Section
from vem.report.plain_table import PlainTable
from vem.report.records import Series, common_labels
from vem.report.style import (
    GRAY,
    Drawing,
    Look,
    distinct_looks,
    label_axes,
    legend_below,
    new_figure,
    new_panels,
)
from vem.report.table import SCORE, member_means

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
            name = f"{named[id(one.run)]}, {one.setting_label}" if one.swept else named[id(one.run)]
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
        return Section(KEY, TITLE, [], " ".join([missing, *over.left_out]))
    caption = (
        f"Normalized scores of {len(over.tasks)} datasets ({', '.join(over.tasks)}), {over.seeds_text}. IQM: "
        f"inter-quartile mean of all runs; * the highest, ≈ within its interval. Brackets: {SEEDS}. P: the probability "
        f"that a run of {over.methods[0]} scores higher than one of the other method on the same dataset, mean over "
        "datasets; equal scores count half."
    )
    table = PlainTable(over.header, over.rows, " ".join([caption, *over.left_out]))
    return Section(KEY, TITLE, draw_over_datasets(over), tables=[table])


def draw_over_datasets(over: OverTasks, looks: Sequence[Look] | None = None) -> list[Drawing]:
    """The figures of the section."""
    looks = distinct_looks(len(over.methods)) if looks is None else looks
    return [draw_aggregates(over, looks), draw_profiles(over, looks), draw_improvements(over, looks)]


def draw_aggregates(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """Inter-quartile mean and mean of every method, with intervals."""
    figure, panels = new_panels(5.6, _height(len(over.methods)), 2)
    draw_aggregate_panel(panels[0], over, looks, "interquartile_mean", "inter-quartile mean")
    draw_aggregate_panel(panels[1], over, looks, "mean", "mean")
    panels[1].set_yticklabels([])
    limits = [panel.get_xlim() for panel in panels]
    for panel in panels:
        panel.set_xlim(min(0.0, *(low for low, _ in limits)), max(high for _, high in limits))
    figure.supxlabel(SCORE, fontsize=10)
    caption = f"Scores over {_basis(over)}. Bars: {SEEDS}."
    numbers = "; ".join(
        f"{method}: {estimate_text(one.interquartile_mean)}, mean {estimate_text(one.mean)}"
        for method, one in over.aggregates.items()
    )
    return Drawing(f"{KEY}-scores", "Scores over all datasets", caption, figure, f"{caption} {numbers}")


def draw_aggregate_panel(axes: Any, over: OverTasks, looks: Sequence[Look], statistic: str, title: str) -> None:
    """One statistic of every method, the first on top."""
    estimates = [getattr(over.aggregates[method], statistic) for method in over.methods]
    _draw_rows(axes, over.methods, estimates, looks)
    axes.set_title(title, loc="left", x=0.0, pad=8)


def draw_profiles(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """The share of runs above each score, for every method."""
    figure, axes = new_figure()
    draw_profile_panel(axes, over, looks)
    legend_below(axes)
    caption = (
        f"Share of the runs that score more than x, over {_basis(over)}. Higher is better; where lines cross, the "
        f"order depends on the score that is needed. Shaded: {SEEDS}."
    )
    return Drawing(f"{KEY}-profile", "Performance profiles", caption, figure, caption)


def draw_profile_panel(axes: Any, over: OverTasks, looks: Sequence[Look]) -> None:
    """The performance profiles of all methods in one panel."""
    levels = over.thresholds
    for index, (method, look) in enumerate(zip(over.methods, looks, strict=True)):
        shares, low, high = over.profile(method)
        if low is not None and high is not None:
            band = axes.fill_between(levels, low, high, color=look.color, alpha=0.15, linewidth=0)
            band.set_gid(f"series-{index}-band")
        (line,) = axes.plot(levels, shares, color=look.color, linestyle=look.line, label=method)
        line.set_gid(f"series-{index}-line")
    axes.set(xlim=(levels[0], levels[-1]), ylim=(0, 1.02))
    label_axes(axes, f"{SCORE} x", "share of runs with a score above x")


def draw_improvements(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """The probability that the first method improves on each of the others."""
    first, *others = over.methods
    figure, axes = new_figure(4.6, _height(len(others)))
    draw_improvement_panel(axes, over, looks)
    caption = (
        f"Probability that a run of {first} scores higher than one of each other method on the same dataset, mean over "
        f"{_basis(over)}; equal scores count half. Gray: no difference. Bars: {SEEDS}."
    )
    numbers = "; ".join(f"{method}: {estimate_text(one, 2)}" for method, one in over.improvements.items())
    title = "Probability of improvement"
    return Drawing(f"{KEY}-improvement", title, caption, figure, f"{caption} {numbers}")


def draw_improvement_panel(axes: Any, over: OverTasks, looks: Sequence[Look]) -> None:
    """The probabilities of improvement in one panel; gray is no difference."""
    first, *others = over.methods
    axes.axvline(0.5, color=GRAY, linewidth=1)
    _draw_rows(axes, others, list(over.improvements.values()), looks[1:])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"P({first} scores higher than …)")


def _draw_rows(axes: Any, names: Sequence[str], estimates: Sequence[Estimate], looks: Sequence[Look]) -> None:
    places = range(len(names) - 1, -1, -1)
    for place, (value, interval), look in zip(places, estimates, looks, strict=True):
        low, high = interval or (value, value)
        axes.plot([low, high], [place, place], color=look.color, linewidth=6, alpha=0.4, solid_capstyle="butt")
        axes.plot([value], [place], look.marker, color=look.color, markersize=6)
    axes.set_yticks(list(places), [fill(name, TICK_WIDTH) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)


def _height(count: int) -> float:
    return 1.1 + 0.34 * count


def _basis(over: OverTasks) -> str:
    return f"{len(over.tasks)} datasets, {over.seeds_text}"


def _final_scores(one: Series) -> np.ndarray:
    """The score of each seed after the last step; empty if it was not evaluated then."""
    steps = one.run.config.steps
    return member_means(one, "score", steps) if steps in one.evaluated_at else np.zeros(0)
