"""Distributions of returns: evaluated episodes against recorded ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from vem.data import Dataset
from vem.report.records import Series
from vem.report.style import GRAY, Drawing, Look, label_axes, legend_below, new_figure

Entry = tuple[str, tuple[int, Look] | None, np.ndarray]
"""Label, number and Look of the series (None: recorded), returns."""
FEW_VALUES = 6
NUM_BINS = 30


def draw_returns(series: list[Series], looks: list[Look], dataset: Dataset | None, prefix: str) -> Drawing | None:
    """Share of the episodes by return; None if there is neither an evaluated nor a recorded one."""
    entries: list[Entry] = []
    if dataset is not None:
        entries.append(("data", None, dataset.episode_returns))
    for index, (one, look) in enumerate(zip(series, looks, strict=True)):
        found = np.array([e.episode_return for e in one.episodes() if e.episode_return is not None], float)
        if found.size:
            entries.append((f"{one.label}: {found.size} episodes", (index, look), found))
    if not entries:
        return None
    figure, axes = new_figure()
    pooled = np.concatenate([found for *_, found in entries])
    distinct = np.unique(pooled)
    if len(distinct) <= FEW_VALUES:
        _draw_bars(axes, entries, distinct)
    else:
        low, high = float(pooled.min()), float(pooled.max())
        _draw_steps(axes, entries, np.linspace(low, high, NUM_BINS + 1))
    label_axes(axes, "return of an episode (undiscounted, unit of the reward)", "share of the episodes (%)")
    axes.set_ylim(bottom=0)
    legend_below(axes)
    caption = "Returns of evaluated episodes, all seeds together, each distribution adding up to 100 %."
    if dataset is not None:
        cut = ", cut at their first success," if dataset.info.rules.get("split") == "first-success" else ""
        caption += f" Gray: {dataset.num_episodes:,} recorded episodes{cut} which start where the recording did."
    return Drawing(f"{prefix}returns", "Returns", caption, figure, caption)


def _draw_bars(axes: Any, entries: list[Entry], distinct: np.ndarray) -> None:
    width = 0.8 / len(entries)
    for number, (label, drawn, found) in enumerate(entries):
        shares = [100 * float(np.mean(found == value)) for value in distinct]
        places = np.arange(len(distinct)) + (number - (len(entries) - 1) / 2) * width
        index, color = (None, GRAY) if drawn is None else (drawn[0], drawn[1].color)
        bars = axes.bar(places, shares, 0.92 * width, color=color, label=label)
        for part, bar in enumerate(bars):
            bar.set_gid(f"recorded-{part}" if index is None else f"series-{index}-bar-{part}")
    axes.set_xticks(range(len(distinct)), [f"{value:g}" for value in distinct])
    axes.grid(axis="x", visible=False)


def _draw_steps(axes: Any, entries: list[Entry], edges: np.ndarray) -> None:
    for label, drawn, found in entries:
        shares = 100 * np.histogram(found, edges)[0] / found.size
        if drawn is None:
            axes.stairs(shares, edges, fill=True, color=GRAY, alpha=0.45, label=label).set_gid("recorded")
        else:
            index, look = drawn
            patch = axes.stairs(shares, edges, color=look.color, linestyle=look.line, linewidth=1.6, label=label)
            patch.set_gid(f"series-{index}-steps")
