"""A Dataset in four panels: returns, lengths, reward over time, and where the data went."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.dataset import Dataset
from vem.data.description import Description
from vem.errors import DataError
from vem.extras import require
from vem.storage import write_file

BLUE, ORANGE, GRAY = "#3b6ea5", "#d9742b", "#6b6b6b"
MAX_STARTS = 400
MAX_BINS = 100


def draw(dataset: Dataset, description: Description, path: str | Path) -> None:
    """Write the picture to ``path``; its suffix decides the format (``.png``, ``.pdf``, ``.svg``)."""
    require("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    (returns, lengths), (rewards, places) = figure.subplots(2, 2)
    figure.suptitle(
        f"{description.name}: {description.transitions:,} transitions in {description.episodes:,} episodes, "
        f"{description.ended_by_terminal:,} ended, {description.ended_by_time_limit:,} cut by a time limit",
        fontsize=11,
    )
    _histogram(returns, dataset.episode_returns, "return of an episode")
    _histogram(lengths, dataset.episode_lengths, "steps of an episode")
    _reward_over_time(rewards, dataset)
    _places(places, dataset, description)
    for axes in (returns, lengths, rewards, places):
        axes.spines[["top", "right"]].set_visible(False)
    picture = io.BytesIO()
    try:
        figure.savefig(picture, dpi=120, format=Path(path).suffix.removeprefix(".") or "png")
    except ValueError as error:
        raise DataError(f"{path}: the picture cannot be drawn ({error}); use a name that ends in .png.") from None
    write_file(Path(path), picture.getvalue())


def _histogram(axes: Any, values: np.ndarray, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = float(values.min()), float(values.max())
    if np.all(values == np.round(values)) and high - low < 1e6:
        # Bins of equal numbers of whole values, or the counts would beat against the bins.
        width = math.ceil((high - low + 1) / 40)
        edges, share = np.arange(low - 0.5, high + width, width), 0.8 if high - low < 10 else 0.97
    else:
        num_bins = int(np.clip(2 * np.sqrt(len(values)), 10, 40))
        margin = 0.5 if high - low <= 1e-6 * max(1.0, abs(high)) else 0.0
        edges, share = np.linspace(low - margin, high + margin, num_bins + 1), 0.97
    counts = np.histogram(values, edges)[0]
    axes.bar((edges[:-1] + edges[1:]) / 2, counts, share * np.diff(edges), color=BLUE)
    # A crowded bin hides the others on a linear axis.
    if counts.max() > 100 * counts[counts > 0].min():
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(integer=high - low < 10))
    median = float(np.median(values))
    axes.axvline(median, color=ORANGE, linewidth=1.5, label=f"median {median:.4g}")
    axes.legend(frameon=False, fontsize=9)
    axes.set(xlabel=label, ylabel="episodes")


def _reward_over_time(axes: Any, dataset: Dataset) -> None:
    lengths = dataset.episode_lengths
    step = (np.arange(dataset.num_rows) - np.repeat(dataset.episode_starts, lengths + 1))[dataset.valid]
    num_bins = min(MAX_BINS, int(lengths.max()))
    bins = step * num_bins // int(lengths.max())
    counts = np.bincount(bins, minlength=num_bins)
    means = np.bincount(bins, dataset.rewards[dataset.valid], num_bins) / np.maximum(counts, 1)
    edges = np.arange(num_bins + 1) * (lengths.max() / num_bins)
    axes.stairs(means, edges, color=BLUE, linewidth=1.5, label="mean reward", baseline=None)
    axes.set(xlabel="step in the episode", ylabel="mean reward")
    share = axes.twinx()
    running = [float(np.mean(lengths > edge)) for edge in edges[:-1]]
    share.stairs(running, edges, color=GRAY, linewidth=1, linestyle=":", baseline=None)
    share.set_ylabel("share of episodes still running (dotted)", color=GRAY, fontsize=9)
    share.set_ylim(0, 1.05)
    share.tick_params(axis="y", colors=GRAY, labelsize=8)
    share.spines["top"].set_visible(False)


def _places(axes: Any, dataset: Dataset, description: Description) -> None:
    first, second = description.coverage.dimensions
    names = description.observation_names
    labels = [names[d] if names else f"observation {d}" for d in (first, second)]
    x, y = dataset.observations[:, first], dataset.observations[:, second]
    starts = dataset.episode_starts
    starts = starts[np.linspace(0, len(starts) - 1, min(MAX_STARTS, len(starts))).astype(int)]
    if first == second:
        axes.hist(x, bins=40, color=BLUE)
        axes.plot(x[starts], np.zeros(len(starts)), "|", color=ORANGE, markersize=10)
        axes.set(xlabel=labels[0], ylabel="rows")
    else:
        axes.hexbin(x, y, gridsize=60, bins="log", cmap="Blues", mincnt=1, linewidths=0.1)
        axes.plot(x[starts], y[starts], ".", color=ORANGE, markersize=4, alpha=0.7)
        axes.set(xlabel=labels[0], ylabel=labels[1])
    visited = description.coverage.occupied_cells
    axes.set_title(f"rows (blue), episode starts (orange); {visited:.0%} of the grid visited", fontsize=9)
