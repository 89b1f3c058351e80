"""Results of evaluation side by side: scores, value-estimation errors, and both against a swept setting."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np

from vem.report.curves import draw_score_curve
from vem.report.records import Series, setting_symbol
from vem.report.style import GRAY, Drawing, Look, include_zero, label_axes, legend_below, new_figure
from vem.report.table import SCORE, ScoreRow, member_means, score_quantity

DOTS = (
    "Small dots below: seeds; large marker: inter-quartile mean over seeds, bar: its 95 % bootstrap interval over "
    "episodes."
)
TICK_WIDTH = 22
VALUE_UNIT = "discounted return, unit of the reward"


def draw_scores(series: list[Series], looks: list[Look], rows: list[ScoreRow], prefix: str) -> Drawing | None:
    """The score of each series, seeds as dots; None if nothing was evaluated."""
    quantity, unit = score_quantity(series)
    drawing = _draw_dots(series, looks, rows, [(quantity, "o")], unit, f"{prefix}scores", "Scores")
    if drawing is not None and quantity == "score":
        axes = drawing.figure.axes[0]
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -2), max(high, 102))
    return drawing


def draw_value_errors(series: list[Series], looks: list[Look], rows: list[ScoreRow], prefix: str) -> list[Drawing]:
    """Values minus the discounted returns that followed: by series, and during training."""
    quantities = [("value_error", "o"), ("value_error_start", "s")]
    dots = _draw_dots(
        series, looks, rows, quantities, f"V − G ({VALUE_UNIT})", f"{prefix}value-error", "Value-estimation error"
    )
    if dots is None:
        return []
    curve = draw_score_curve(series, looks, prefix, "value_error", f"V − G ({VALUE_UNIT})")
    return [dots] if curve is None else [dots, curve]


def _draw_dots(
    series: list[Series],
    looks: list[Look],
    rows: list[ScoreRow],
    quantities: list[tuple[str, str]],
    unit: str,
    name: str,
    title: str,
) -> Drawing | None:
    known = [
        (index, one, look, row)
        for index, (one, look, row) in enumerate(zip(series, looks, rows, strict=True))
        if any(quantity in row.quantities for quantity, _ in quantities)
    ]
    if not known:
        return None
    figure, axes = new_figure(4.6, 0.95 + 0.36 * len(known) * len(quantities))
    axes.axvline(0, color=GRAY, linewidth=1)
    shift = np.linspace(0.22, -0.22, len(quantities)) if len(quantities) > 1 else [0.0]
    for place, (index, one, look, row) in enumerate(reversed(known)):
        for (quantity, marker), offset in zip(quantities, shift, strict=True):
            if quantity not in row.quantities:
                continue
            spread, y = row.quantities[quantity], place + offset
            low, high = spread.interval or (spread.interquartile_mean,) * 2
            (bar,) = axes.plot([low, high], [y, y], color=look.color, linewidth=2.4, solid_capstyle="butt")
            (middle,) = axes.plot([spread.interquartile_mean], [y], marker, color=look.color, markersize=7)
            means = member_means(one, quantity)
            (dots,) = axes.plot(means, np.full(len(means), y - 0.14), ".", color=look.color, markersize=5, alpha=0.8)
            for part, artist in (("bar", bar), ("middle", middle), ("dots", dots)):
                artist.set_gid(f"series-{index}-{part}-{quantity.replace('_', '-')}")
    axes.set_yticks(range(len(known)), [fill(one.label, TICK_WIDTH) for _, one, _, _ in reversed(known)])
    axes.set(xlabel=unit, ylim=(-0.6, len(known) - 0.4))
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    marks = " Circles: over all steps; squares: at the start of an episode." if len(quantities) > 1 else ""
    meaning = (
        " V is the estimated value and G the discounted return that followed (with V at a time limit); right of 0 is "
        "overestimation."
        if "value_error" in dict(quantities)
        else ""
    )
    caption = f"{title}.{meaning}{marks} {DOTS}"
    numbers = "; ".join(
        f"{one.label}: {row.quantities[quantities[0][0]].interquartile_mean:.3g}"
        for _, one, _, row in known
        if quantities[0][0] in row.quantities
    )
    return Drawing(name, title, caption, figure, f"{caption} {numbers}")


def draw_value_against_return(series: list[Series], looks: list[Look], prefix: str) -> Drawing | None:
    """The value of each evaluated episode's start against the return that followed; None without values."""
    figure, axes = new_figure(4.2, 4.0)
    points = []
    for index, (one, look) in enumerate(zip(series, looks, strict=True)):
        found = [(e.target_start, e.value_start) for e in one.episodes() if e.target_start is not None]
        found = [(target, value) for target, value in found if value is not None]
        if found:
            x, y = np.array(found, float).T
            (dots,) = axes.plot(x, y, look.marker, color=look.color, markersize=3.5, alpha=0.6, label=one.label)
            dots.set_gid(f"series-{index}-dots")
            points.extend(found)
    if not points:
        return None
    low, high = float(np.min(points)), float(np.max(points))
    margin = 0.05 * (high - low) or 0.5
    limits = min(low - margin, 0), max(high + margin, 0)
    axes.plot(limits, limits, color=GRAY, linewidth=1, linestyle=":")
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    label_axes(axes, "discounted return that followed, G₀", "estimated value of the start, V(s₀)")
    legend_below(axes)
    caption = (
        "Estimated value of each evaluated episode's start against the discounted return that followed, one dot an "
        "episode. Dotted: a perfect estimate; dots above it are overestimated."
    )
    return Drawing(f"{prefix}value-against-return", "Values against returns", caption, figure, caption)


def draw_sweep(series: list[Series], data_values: list[np.ndarray], prefix: str, whose: str) -> list[Drawing]:
    """Score and value against each swept setting of one run; ``data_values``: mean V over the data, by seed.

    ``whose`` ends the titles, to tell runs apart.
    """
    drawings = []
    for name in series[0].swept:
        quantity, unit = score_quantity(series)
        ordered = sorted(range(len(series)), key=lambda index: series[index].swept[name])
        scored = [(index, member_means(series[index], quantity)) for index in ordered]
        if any(found.size for _, found in scored):
            drawings.append(
                _sweep_figure(
                    name,
                    series,
                    [(unit, "o", "-", scored)],
                    unit,
                    prefix,
                    f"Score against {setting_symbol(name)}{whose}",
                )
            )
        lines = [("mean V(s) over the data", "o", "-", [(index, data_values[index]) for index in ordered])]
        for label, which, marker, line in (
            ("V at evaluated starts", "value_start", "s", "--"),
            ("discounted return reached", "discounted_return", "^", ":"),
        ):
            lines.append((label, marker, line, [(i, member_means(series[i], which)) for i in ordered]))
        lines = [line for line in lines if any(found.size for _, found in line[3])]
        if lines:
            drawings.append(
                _sweep_figure(
                    name, series, lines, f"value ({VALUE_UNIT})", prefix, f"Value against {setting_symbol(name)}{whose}"
                )
            )
    return drawings


def _sweep_figure(name: str, series: list[Series], lines: list[Any], unit: str, prefix: str, title: str) -> Drawing:
    figure, axes = new_figure()
    others = sorted({tuple(v for k, v in one.swept.items() if k != name) for one in series})
    for number, (label, marker, style, entries) in enumerate(lines):
        for other in others:
            chosen = [
                (series[index].swept[name], found)
                for index, found in entries
                if found.size and tuple(v for k, v in series[index].swept.items() if k != name) == other
            ]
            if not chosen:
                continue
            x = [value for value, _ in chosen]
            mean = [found.mean() for _, found in chosen]
            error = [found.std(ddof=1) if found.size > 1 else 0.0 for _, found in chosen]
            color = ("#0072b2", "#d55e00", "#009e73")[number]
            shade = 1 - 0.6 * others.index(other) / max(len(others) - 1, 1)
            text = f"{label}{' at ' if other else ''}{', '.join(f'{v:g}' for v in other)}"
            axes.errorbar(
                x, mean, error, color=color, marker=marker, linestyle=style, capsize=3, label=text, alpha=shade
            )
            for value, found in chosen:
                axes.plot(np.full(found.size, value), found, ".", color=color, markersize=3, alpha=0.7)
    values = sorted({one.swept[name] for one in series})
    if values[0] > 0 and values[-1] > 20 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.margins(x=0.06)
    include_zero(axes, 102 if unit.startswith(SCORE) else 0)
    label_axes(axes, f"{setting_symbol(name)} ({name.replace('_', ' ')})", unit)
    if len(lines) * len(others) > 1:
        legend_below(axes)
    seeds = max(len(one.members) for one in series)
    interval = "One seed, so no interval." if seeds == 1 else "Mean ± standard deviation over seeds; dots: seeds."
    kind = title.split()[0].lower()
    return Drawing(f"{prefix}sweep-{name.replace('_', '-')}-{kind}", title, interval, figure, f"{title}. {interval}")
