"""Learning curves: each training metric, and the score where a run was evaluated several times."""

from __future__ import annotations

from typing import Any

import numpy as np

from vem.report.records import Series
from vem.report.style import GRAY, Drawing, Look, include_zero, label_axes, legend_below, log_axis, new_figure, slug
from vem.report.table import member_means, score_quantity

METRICS = {
    "value_loss": ("value loss", "({reward})²"),
    "value_mean": ("mean value V(s) of a batch", "{reward}"),
    "value_largest": ("largest |V(s)| of a batch", "{reward}"),
    "return_mean": ("mean planned return of a batch", "{reward}"),
    "policy_loss": ("policy loss", "nats"),
    "log_likelihood": ("log-likelihood of recorded actions", "nats"),
    "effective_share": ("effective sample size", "share of the rows"),
    "temperature": ("temperature of the weights", "unit of the advantage"),
}
"""Metric → its name and unit on an axis."""
SHARES = ("effective_share",)
WITHOUT_ZERO = ("log_likelihood", "policy_loss")
"""Log-densities, in which 0 means nothing; every other linear axis shows it."""
LOG_RATIO = 50.0
"""A positive metric that spans more than this is drawn on a logarithmic axis."""


def draw_curves(series: list[Series], looks: list[Look], prefix: str) -> list[Drawing]:
    """One Drawing for each metric that any of the runs recorded."""
    found = {name for one in series for line in one.run.metrics for m in line.members.values() for name in m}
    ordered = [name for name in METRICS if name in found] + sorted(found - METRICS.keys())
    drawings = [_draw_metric(name, series, looks, prefix) for name in ordered]
    return [drawing for drawing in drawings if drawing is not None]


def draw_score_curve(
    series: list[Series], looks: list[Look], prefix: str, quantity: str | None = None, unit: str = ""
) -> Drawing | None:
    """An evaluated quantity, by default the score, against steps; None unless evaluated at two times or more."""
    if quantity is None:
        quantity, unit = score_quantity(series)
    curves = []
    for one in series:
        found = [(time, member_means(one, quantity, time)) for time in one.evaluated_at]
        curves.append([(time, means) for time, means in found if means.size])
    if all(len(curve) < 2 for curve in curves):
        return None
    figure, axes = new_figure()
    for index, (curve, one, look) in enumerate(zip(curves, series, looks, strict=True)):
        if curve:
            times = np.array([time for time, _ in curve], float)
            low, mean, high = (np.array([f(means) for _, means in curve]) for f in (np.min, np.mean, np.max))
            _draw_band(axes, index, look, one.label, times, low, mean, high, marker=look.marker)
    axes.set_xlim(0, max(one.run.config.steps for one in series))
    include_zero(axes, 102 if quantity == "score" else 0)
    label_axes(axes, "steps", unit)
    _thousands(axes)
    legend_below(axes)
    name = {"score": "Score", "return": "Return"}.get(quantity, "Value-estimation error")
    caption = f"Evaluated while training. {_interval_sentence(series)}"
    return Drawing(f"{prefix}curve-{quantity.replace('_', '-')}", f"{name} during training", caption, figure, caption)


def _draw_metric(metric: str, series: list[Series], looks: list[Look], prefix: str) -> Drawing | None:
    name, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
    curves = [one.curve(metric) for one in series]
    values = np.concatenate([curve.ravel() for _, curve in curves]) if curves else np.zeros(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    figure, axes = new_figure()
    for index, ((steps, curve), one, look) in enumerate(zip(curves, series, looks, strict=True)):
        if steps.size:
            bounds = curve.min(0), curve.mean(0), curve.max(0)
            _draw_band(axes, index, look, one.label, steps, *bounds, marker=look.marker if steps.size < 3 else "")
    longest = max(one.run.config.steps for one in series)
    axes.set_xlim(0, longest)
    recorded = [one for one, (steps, _) in zip(series, curves, strict=True) if steps.size]
    unit = unit.format(reward=_reward_unit(recorded))
    is_log = values.min() > 0 and values.max() > LOG_RATIO * values.min()
    if is_log:
        log_axis(axes.yaxis, values.min(), values.max())
    if metric in SHARES:
        axes.set_ylim(0, 1.05)
    elif not is_log and metric not in WITHOUT_ZERO:
        include_zero(axes)
    scale = ", log scale" if is_log else ""
    label_axes(axes, "steps", f"{name} ({unit}{scale})" if unit else f"{name}{scale}")
    _mark_stages(axes, series)
    _thousands(axes)
    legend_below(axes)
    title = f"{name[0].upper()}{name[1:]}"
    caption = f"Mean over each chunk of steps. {_interval_sentence(series)}{_stage_sentence(series)}"
    return Drawing(f"{prefix}curve-{slug(metric)}", title, caption, figure, caption)


def _reward_unit(series: list[Series]) -> str:
    kinds = {bool(one.settings.get("normalize_rewards") or one.settings.get("return_span")) for one in series}
    return "reward of each run" if len(kinds) > 1 else "normalized reward" if True in kinds else "reward"


def _draw_band(
    axes: Any,
    index: int,
    look: Look,
    label: str,
    x: np.ndarray,
    low: np.ndarray,
    mean: np.ndarray,
    high: np.ndarray,
    marker: str,
) -> None:
    band = axes.fill_between(x, low, high, color=look.color, alpha=0.22, linewidth=0)
    (line,) = axes.plot(x, mean, color=look.color, linestyle=look.line, marker=marker, markersize=4, label=label)
    band.set_gid(f"series-{index}-band")
    line.set_gid(f"series-{index}-line")


def _mark_stages(axes: Any, series: list[Series]) -> None:
    """A dotted line where a run goes from one stage to the next."""
    for run in {id(one.run): one.run for one in series}.values():
        for before, after in zip(run.metrics, run.metrics[1:], strict=False):
            if before.stage != after.stage:
                axes.axvline(before.steps, color=GRAY, linewidth=0.9, linestyle=":")


def _stage_sentence(series: list[Series]) -> str:
    stages = {line.stage for one in series for line in one.run.metrics}
    return " Dotted: the next stage of training begins." if len(stages) > 1 else ""


def _interval_sentence(series: list[Series]) -> str:
    counts = sorted({len(one.members) for one in series})
    if counts == [1]:
        return "One seed, so no interval."
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Line: mean over {seeds} seeds; shaded: from the smallest to the largest seed."


def _thousands(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
