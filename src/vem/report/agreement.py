"""How far guide and executor agree with recorded rows: R² of moves and of actions, dimension by dimension.

    R²_d = 1 − Σ w·(y_d − ŷ_d)² / Σ w·(y_d − ȳ_d)²

For the guide, y is the recorded move of k steps and w the weight that its training draws rows by, so that good rows
count. For the executor, y is the recorded action, ŷ its action for the move that really followed, and w = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from vem.algorithms.vem.guided import shortest_move
from vem.data import Dataset
from vem.policy import Policy
from vem.report.guide import has_guides
from vem.report.records import Series
from vem.report.style import GRAY, Drawing, Look, label_axes, legend_below, new_figure

MOST_DIMENSIONS = 40
"""Lines of a figure at most."""
LOWEST = -0.5
"""Where the axis ends on the left: how much worse than the mean something is hardly matters."""

Scores = dict[int, list[float]]
"""Dimension → R² of each member."""


@dataclass(frozen=True)
class Agreement:
    """R² of the guides' moves and of the executors' actions of one series."""

    index: int
    """Number of the series."""
    label: str
    look: Look
    guide: Scores
    executor: Scores


def measure(
    series: Sequence[Series],
    looks: Sequence[Look],
    all_weights: Sequence[Sequence[np.ndarray]],
    datasets: Mapping[int, Dataset],
) -> list[Agreement]:
    """The agreement of each series with guides and weights on the dataset of its run (by ``id``)."""
    found = []
    for index, (one, look, weights) in enumerate(zip(series, looks, all_weights, strict=True)):
        dataset, horizon = datasets.get(id(one.run)), one.settings.get("horizon")
        if dataset is None or not horizon or not has_guides(one.policies()):
            continue
        guide: Scores = {}
        executor: Scores = {}
        for policy, drawn_by in zip(one.policies(), weights, strict=False):
            for scores, new in (
                (guide, guide_scores(policy, dataset, horizon, drawn_by)),
                (executor, executor_scores(policy, dataset, horizon)),
            ):
                for dimension, score in new.items():
                    scores.setdefault(dimension, []).append(score)
        if guide or executor:
            found.append(Agreement(index, one.label, look, guide, executor))
    return found


def guide_scores(policy: Policy, dataset: Dataset, horizon: int, weights: np.ndarray) -> dict[int, float]:
    """R² of each dimension that moves have, over rows weighted by ``weights``, one for each row with an action."""
    rows = np.flatnonzero(dataset.valid)
    moves = recorded_moves(dataset, rows, np.full(rows.size, horizon))
    scores = explained(moves, policy.guide(dataset.observations[rows]), weights)
    return {dimension: score for dimension, score in scores.items() if policy.move_unit[dimension] > 0}


def executor_scores(policy: Policy, dataset: Dataset, horizon: int) -> dict[int, float]:
    """R² of each action dimension over all rows, given the moves that followed; their lengths drawn as in training."""
    rows = np.flatnonzero(dataset.valid)
    lengths = np.random.default_rng(0).integers(shortest_move(horizon), horizon + 1, rows.size)
    actions = policy.execute(dataset.observations[rows], recorded_moves(dataset, rows, lengths))
    return explained(dataset.actions[rows], actions, np.ones(rows.size))


def recorded_moves(dataset: Dataset, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where each row's recording was ``lengths`` steps later, or at its end, minus where it is."""
    ends = dataset.episode_ends
    last = ends[np.searchsorted(ends, rows)]
    return dataset.observations[np.minimum(rows + lengths, last)] - dataset.observations[rows]


def explained(recorded: np.ndarray, predicted: np.ndarray, weights: np.ndarray) -> dict[int, float]:
    """R² of each column; columns that are constant, and so have none, are left out."""
    recorded, predicted = recorded.astype(np.float64), predicted.astype(np.float64)
    total = np.abs(weights).sum()
    if not total > 0:
        return {}
    shares = (np.abs(weights) / total)[:, None]
    spread = np.sum(shares * (recorded - np.sum(shares * recorded, axis=0)) ** 2, axis=0)
    errors = np.sum(shares * (recorded - predicted) ** 2, axis=0)
    scale = np.abs(recorded).max(axis=0)
    return {int(d): float(1 - errors[d] / spread[d]) for d in np.flatnonzero(spread > (1e-6 * scale) ** 2)}


def draw_agreement(
    found: list[Agreement],
    rows: str,
    names: Mapping[int, str],
    prefix: str,
    action_names: Mapping[int, str] = MappingProxyType({}),
) -> list[Drawing]:
    """One Drawing for the guides and one for the executors; ``rows`` says of which rows.

    ``names`` and ``action_names`` are what some dimensions of the observations and of the actions are called.
    """
    drawings = []
    guides = [(one, one.guide) for one in found if one.guide]
    if guides:
        caption = (
            f"R² of the guide's move against the recorded one, for each dimension of the observation that travels, on "
            f"{rows}, weighted as the guide's training draws them: good rows count."
        )
        drawings.append(_draw(guides, f"{prefix}agreement-guide", "Guide", "dimension of the move", caption, names))
    executors = [(one, one.executor) for one in found if one.executor]
    if executors:
        caption = (
            f"R² of the executor's action against the recorded one, given the move that really followed, for each "
            f"dimension of the action, on {rows}."
        )
        drawings.append(
            _draw(
                executors, f"{prefix}agreement-executor", "Executor", "dimension of the action", caption, action_names
            )
        )
    return drawings


def _draw(
    entries: list[tuple[Agreement, Scores]],
    name: str,
    title: str,
    heading: str,
    caption: str,
    names: Mapping[int, str],
) -> Drawing:
    means = {
        dimension: float(np.mean([np.mean(scores[dimension]) for _, scores in entries if dimension in scores]))
        for dimension in sorted(set().union(*(scores for _, scores in entries)))
    }
    shown = sorted(sorted(means, key=lambda dimension: means[dimension])[:MOST_DIMENSIONS])
    figure, axes = new_figure(4.6, 1.15 + 0.2 * len(entries) + (0.14 + 0.08 * len(entries)) * max(len(shown), 3))
    axes.axvline(0, color=GRAY, linewidth=1)
    shifts = np.linspace(-0.25, 0.25, len(entries)) if len(entries) > 1 else [0.0]
    lowest = min(min(scores[d]) for _, scores in entries for d in shown if d in scores)
    for (one, scores), shift in zip(entries, shifts, strict=True):
        places = [place for place, dimension in enumerate(shown) if dimension in scores]
        _draw_series(axes, one, np.array(places) + shift, [scores[shown[place]] for place in places])
    axes.set_yticks(range(len(shown)), [names.get(dimension, str(dimension)) for dimension in shown])
    # The first dimension on top.
    axes.set(ylim=(len(shown) - 0.4, -0.6), xlim=(min(-0.03, max(lowest, LOWEST) - 0.04), 1.03))
    label_axes(axes, "R² (1: exact, 0: no better than the mean)", heading)
    legend_below(axes)
    caption += " Marker: mean over seeds; line: from the smallest to the largest seed."
    if len(means) > len(shown):
        caption += f" The {len(shown)} lowest of {len(means)} dimensions are shown."
    if lowest < LOWEST:
        caption += f" Markers at the left edge stand for {LOWEST:g} and less.".replace("-", "−")
    return Drawing(name, title, caption, figure, caption)


def _draw_series(axes: Any, one: Agreement, places: np.ndarray, values: list[list[float]]) -> None:
    low, mean, high = (np.clip([f(found) for found in values], LOWEST, None) for f in (np.min, np.mean, np.max))
    color = one.look.color
    bars = axes.hlines(places, low, high, color=color, linewidth=2.2)
    (marks,) = axes.plot(mean, places, one.look.marker, color=color, markersize=5.5, label=one.label)
    bars.set_gid(f"series-{one.index}-bars")
    marks.set_gid(f"series-{one.index}-marks")
