"""The weight of each recorded row in the policy's regression, recomputed from the policy files and the data.

Training plans with slowly moving copies of the critics that policy files do not hold; the critics themselves stand
in for them here, which after training is a small difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from vem.algorithms.base import Rows, build, find_method, spec_of, sweepable
from vem.algorithms.guided import shortest_move
from vem.data.dataset import Dataset
from vem.losses import WEIGHTS
from vem.policy import Policy
from vem.reports.mazes import has_guides
from vem.reports.records import RunRecord, Series
from vem.reports.style import GRAY, Drawing, Look, label_axes, legend_below, log_axis, new_figure
from vem.storage import unflatten
from vem.training.rows import put_rows

NUM_BINS = 60


def has_weights(run: RunRecord) -> bool:
    """Whether the run's method weighs rows by an advantage that a policy file and the data give."""
    return run.config.settings.get("weight") in WEIGHTS and all(p.has_value for p in run.policies.values())


def weight_function(run: RunRecord, dataset: Dataset) -> Callable[[Policy], np.ndarray]:
    """A function from a policy of the run to the weights of the dataset's transitions, by the method's own refresh."""
    method = find_method(run.config.algorithm)
    # A joint schedule fits the same advantages, only more often.
    settings = build(method.config, {**run.config.settings, "schedule": "value-then-policy"})
    # The share of the rows that counts goes by the number of all rows, which may be more than are given here.
    spec = spec_of(run.dataset or dataset)._replace(num_rows=dataset.num_rows)
    settings, _ = settings.complete(spec)
    algorithm = method.make(settings, spec, run.config.steps)
    stage = next(stage for stage in algorithm.stages if hasattr(jax.eval_shape(stage.empty), "advantages"))
    raw = put_rows(dataset)
    weigh = WEIGHTS[settings.weight]

    @jax.jit
    def compute(raw: Rows, critics: Any, swept: Any, mean: Any, deviation: Any, unit: Any) -> jax.Array:
        # The rows are an argument: as constants of the program, XLA would compute with them while it compiles.
        rows = raw._replace(
            rewards=raw.rewards / unit, observation_mean=mean, observation_deviation=deviation, value_unit=unit
        )
        state = algorithm.init(jax.random.key(0), swept)._replace(critics=critics, targets=critics)
        _, memory = stage.refresh(state, stage.empty(), rows, jax.numpy.asarray(0), jax.random.key(0))
        return weigh(memory.advantages[raw.drawable], memory.scale.temperature)

    def of_policy(policy: Policy) -> np.ndarray:
        own = policy.info.get("settings", {})
        shared = {name: getattr(settings, name) for name in sweepable(type(settings))}
        chosen = {name: value if own.get(name) is None else own[name] for name, value in shared.items()}
        swept = {name: jax.numpy.float32(value) for name, value in chosen.items() if value is not None}
        template = jax.eval_shape(lambda: algorithm.init(jax.random.key(0), swept)).critics
        tensors = {k.removeprefix("critics."): t for k, t in policy.tensors.items() if k.startswith("critics.")}
        critics = unflatten(template, tensors, "the policy's critics")
        names = ("observation_mean", "observation_deviation", "value_unit")
        return np.asarray(compute(raw, critics, swept, *(policy.tensors[name] for name in names)), np.float64)

    return of_policy


def effective_share(row_weights: np.ndarray) -> float:
    """(Σ|w|)² / (n·Σw²): how many equally weighted rows these are worth, as a share of all."""
    sizes = np.abs(row_weights)
    return float(sizes.sum() ** 2 / max(sizes.size * (sizes**2).sum(), 1e-300))


def series_weights(series: list[Series], sampled: Callable[[RunRecord], Dataset | None]) -> list[list[np.ndarray]]:
    """For each series the weights of each of its policies; empty lists where the method has none."""
    functions: dict[int, Callable[[Policy], np.ndarray]] = {}
    result = []
    for one in series:
        dataset = sampled(one.run) if has_weights(one.run) and one.policies() else None
        if dataset is None:
            result.append([])
            continue
        if id(one.run) not in functions:
            functions[id(one.run)] = weight_function(one.run, dataset)
        result.append([functions[id(one.run)](policy) for policy in one.policies()])
    return result


def draw_weights(
    series: list[Series], looks: list[Look], all_weights: list[list[np.ndarray]], prefix: str
) -> list[Drawing]:
    """The distribution of the weights, and how much of their sum the heaviest rows carry."""
    drawn = [
        (index, one, look, found)
        for index, (one, look, found) in enumerate(zip(series, looks, all_weights, strict=True))
        if found
    ]
    if not drawn:
        return []
    drawings = [_draw_histogram(drawn, prefix)]
    if all((found >= 0).all() for *_, trials in drawn for found in trials):
        drawings.append(_draw_concentration(drawn, prefix))
    return drawings


def _label(one: Series, trials: list[np.ndarray]) -> str:
    return f"{one.label}: ESS {np.mean([effective_share(found) for found in trials]):.0%}"


def _draw_histogram(drawn: list[tuple[int, Series, Look, list[np.ndarray]]], prefix: str) -> Drawing:
    pooled = np.concatenate([found for *_, trials in drawn for found in trials])
    figure, axes = new_figure()
    if (pooled < 0).any():
        edges, unit = np.linspace(pooled.min(), pooled.max(), NUM_BINS + 1), "unit of the advantage"
        axes.axvline(0, color=GRAY, linewidth=1)
    else:
        positive = pooled[pooled > 0]
        low, high = (positive.min(), positive.max()) if positive.size else (0.5, 2.0)
        low, high = max(low, 1e-6 * high) / 1.05, high * 1.05
        edges, unit = np.geomspace(low, high, NUM_BINS + 1), "mean row = 1, log scale"
        log_axis(axes.xaxis, low, high)
        axes.axvline(1, color=GRAY, linewidth=1, linestyle=":")
    for index, one, look, trials in drawn:
        shares = np.mean([np.histogram(found, edges)[0] / found.size for found in trials], axis=0)
        patch = axes.stairs(
            100 * shares, edges, color=look.color, linestyle=look.line, linewidth=1.5, label=_label(one, trials)
        )
        patch.set_gid(f"series-{index}-weights")
    label_axes(axes, f"weight of a row ({unit})", "share of the rows in each bin (%)")
    axes.set_ylim(bottom=0)
    legend_below(axes)
    zero = float(np.mean(pooled == 0))
    caption = (
        f"Weights of {drawn[0][3][0].size:,} recorded transitions in the policy's regression, mean over seeds. Dotted: "
        "cloning, where all rows weigh 1. ESS: effective sample size (Σw)²/(n·Σw²), the share of rows that would do "
        "with equal weights." + (f" {zero:.0%} of the weights are 0." if zero else "")
    )
    return Drawing(f"{prefix}weights", "Advantage weights", caption, figure, caption)


def _draw_concentration(drawn: list[tuple[int, Series, Look, list[np.ndarray]]], prefix: str) -> Drawing:
    figure, axes = new_figure()
    grid = np.linspace(0, 1, 101)
    for index, one, look, trials in drawn:
        curves = []
        for found in trials:
            total = np.concatenate([[0], np.cumsum(np.sort(found)[::-1])])
            curves.append(np.interp(grid, np.linspace(0, 1, total.size), total / max(total[-1], 1e-300)))
        low, mean, high = 100 * np.min(curves, 0), 100 * np.mean(curves, 0), 100 * np.max(curves, 0)
        band = axes.fill_between(100 * grid, low, high, color=look.color, alpha=0.22, linewidth=0)
        (line,) = axes.plot(100 * grid, mean, color=look.color, linestyle=look.line, label=one.label)
        band.set_gid(f"series-{index}-band")
        line.set_gid(f"series-{index}-line")
    axes.plot([0, 100], [0, 100], color=GRAY, linewidth=1, linestyle=":")
    axes.set(xlim=(0, 100), ylim=(0, 101))
    label_axes(axes, "heaviest rows (% of all)", "share of the total weight (%)")
    legend_below(axes)
    caption = (
        "How much of the total weight the heaviest rows carry. Dotted: cloning, where all rows weigh the same. "
        "Line: mean over seeds; shaded: from the smallest to the largest seed."
    )
    return Drawing(f"{prefix}weights-concentration", "Where the weight goes", caption, figure, caption)


# How far guide and executor agree with recorded rows: R² of moves and of actions, dimension by dimension.


MOST_DIMENSIONS = 40
"""Lines of a figure at most."""
LOWEST = -0.5
"""Where the axis ends on the left: how much worse than the mean something is hardly matters."""

Scores = dict[int, list[float]]
"""Dimension → R² of each trial."""


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
    return {dimension: score for dimension, score in scores.items() if policy.guide.unit[dimension] > 0}


def executor_scores(policy: Policy, dataset: Dataset, horizon: int) -> dict[int, float]:
    """R² of each action dimension over all rows, given the moves that followed; their lengths drawn as in training."""
    rows = np.flatnonzero(dataset.valid)
    lengths = np.random.default_rng(0).integers(shortest_move(horizon), horizon + 1, rows.size)
    actions = policy.guide.execute(dataset.observations[rows], recorded_moves(dataset, rows, lengths))
    return explained(dataset.actions[rows], actions, np.ones(rows.size))


def recorded_moves(dataset: Dataset, rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Where each row's trajectory was ``lengths`` steps later, or at its end, minus where it is."""
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
