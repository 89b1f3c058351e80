"""What policies do otherwise than the log, and how near to it they stay: figures and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vem.core.support import OUTSIDE, SupportModel
from vem.data import Dataset
from vem.evaluation.differences import ColumnDifference, Differences, compare_with_log
from vem.report.plain_table import PlainTable, cell_text
from vem.report.records import Series
from vem.report.style import GRAY, LINES, PALETTE, Drawing, Look, label_axes, legend_below, log_axis, new_figure, slug
from vem.runs.support import measure_support, split_rows

MOST_COLUMNS = 30
MOST_HISTOGRAMS = 4
MOST_OBSERVATIONS = 8
NUM_BINS = 40
NUM_STATES = 2000
LEAST_SCORE = 1e-3


@dataclass(frozen=True)
class Comparison:
    """One series beside the recorded data."""

    index: int
    one: Series
    look: Look
    dataset: Dataset
    sample: Dataset
    support: SupportModel
    found: Differences


def compare_series(
    series: list[Series], looks: list[Look], datasets: list[Dataset | None], samples: list[Dataset | None]
) -> list[Comparison]:
    """The series with policies whose data can be read."""
    measured: dict[int, SupportModel | None] = {}
    comparisons = []
    for index, (one, look, dataset, sample) in enumerate(zip(series, looks, datasets, samples, strict=True)):
        policies = one.policies()
        if not policies or dataset is None or sample is None:
            continue
        if id(dataset) not in measured:  # policies of earlier versions have no support data
            stored = policies[0].support_model if policies[0].has_support else measure_support(dataset)
            measured[id(dataset)] = stored
        support = measured[id(dataset)]
        if support is not None:
            found = compare_with_log(policies, dataset, support)
            comparisons.append(Comparison(index, one, look, dataset, sample, support, found))
    return comparisons


def draw_differences(comparisons: list[Comparison], prefix: str) -> list[Drawing]:
    """The differences by column, and the columns that differ most as distributions."""
    numbers = _draw_columns(comparisons, "box", prefix)
    choices = _draw_columns(comparisons, "discrete", prefix)
    return [*numbers, *choices, *_draw_histograms(comparisons, prefix)]


def _draw_columns(comparisons: list[Comparison], kind: str, prefix: str) -> list[Drawing]:
    names = [column.name for column in comparisons[0].found.columns if column.kind == kind] if comparisons else []
    if not names:
        return []
    sizes = {name: max(_size(one, name) for one in comparisons) for name in names}
    shown = [name for name in names if name in sorted(names, key=lambda name: -sizes[name])[:MOST_COLUMNS]]
    figure, axes = new_figure(4.6, 1.2 + 0.2 * len(comparisons) + (0.22 + 0.1 * len(comparisons)) * max(len(shown), 2))
    shifts = np.linspace(-0.25, 0.25, len(comparisons)) if len(comparisons) > 1 else [0.0]
    for one, shift in zip(comparisons, shifts, strict=True):
        columns = {column.name: column for column in one.found.columns}
        places = np.arange(len(shown)) + shift
        if kind == "box":
            unit = np.array([max(columns[name].recorded_spread or 0.0, 1e-9) for name in shown])
            mean = np.array([columns[name].mean or 0.0 for name in shown]) / unit
            spread = np.array([columns[name].spread or 0.0 for name in shown]) / unit
            bars = axes.hlines(places, mean - spread, mean + spread, color=one.look.color, linewidth=2.4, alpha=0.6)
        else:
            mean = 100 * np.array([columns[name].share_other for name in shown])
            bars = axes.hlines(places, 0, mean, color=one.look.color, linewidth=2.4, alpha=0.6)
        (marks,) = axes.plot(mean, places, one.look.marker, color=one.look.color, markersize=6, label=one.one.label)
        bars.set_gid(f"series-{one.index}-bars")
        marks.set_gid(f"series-{one.index}-marks")
    axes.axvline(0, color=GRAY, linewidth=1)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    steps = f"{comparisons[0].found.num_steps:,} recorded steps"
    if kind == "box":
        label_axes(axes, "policy minus log (deviations of the recorded column)", "action column")
        title, name = "Numbers, policy minus log", f"{prefix}differences-numbers"
        caption = f"Over {steps}. Marker: mean difference; bar: ± one standard deviation, noise of the log included."
    else:
        axes.set_xlim(left=0)
        label_axes(axes, "steps with another choice than recorded (%)", "action column")
        title, name = "Choices, policy against log", f"{prefix}differences-choices"
        caption = f"Share of {steps} at which the policy's choice is not the recorded one."
    if len(names) > len(shown):
        caption += f" The {len(shown)} columns of {len(names)} that differ most."
    legend_below(axes)
    return [Drawing(name, title, caption, figure, caption)]


def _size(one: Comparison, name: str) -> float:
    column = next(column for column in one.found.columns if column.name == name)
    return _column_size(column)


def _column_size(column: ColumnDifference) -> float:
    if column.mean is None:
        return column.share_other
    return abs(column.mean) / max(column.recorded_spread or 0.0, 1e-9)


def _draw_histograms(comparisons: list[Comparison], prefix: str) -> list[Drawing]:
    """Recorded and chosen values of the columns that differ most."""
    if not comparisons:
        return []
    first = comparisons[0]
    rows = first.sample.valid
    states, recorded = first.sample.observations[rows], first.sample.actions[rows]
    columns = list(enumerate(first.one.policies()[0].action_columns))
    columns.sort(key=lambda entry: -_column_size(first.found.columns[entry[0]]))
    taken = [
        (one, np.concatenate([policy.act(states).reshape(len(states), -1) for policy in one.one.policies()]))
        for one in comparisons
        if one.sample is first.sample
    ]
    drawings = []
    for index, column in columns[:MOST_HISTOGRAMS]:
        figure, axes = new_figure(4.6, 3.0)
        entries = [("log", None, recorded[:, index])]
        entries += [(one.one.label, one, found[:, index]) for one, found in taken]
        if column.kind == "discrete":
            width = 0.8 / len(entries)
            for number, (label, one, values) in enumerate(entries):
                shares = 100 * np.bincount(values.astype(int), minlength=len(column.labels)) / len(values)
                places = np.arange(len(column.labels)) + (number - (len(entries) - 1) / 2) * width
                bars = axes.bar(places, shares, 0.92 * width, color=one.look.color if one else GRAY, label=label)
                for part, bar in enumerate(bars):
                    bar.set_gid(f"series-{one.index}-bar-{part}" if one else f"recorded-{part}")
            axes.set_xticks(range(len(column.labels)), column.labels, rotation=30 if len(column.labels) > 5 else 0)
            axes.grid(axis="x", visible=False)
        else:
            pooled = np.concatenate([values for *_, values in entries])
            edges = np.linspace(float(pooled.min()), float(pooled.max()) + 1e-9, NUM_BINS + 1)
            for label, one, values in entries:
                shares = 100 * np.histogram(values, edges)[0] / len(values)
                if one is None:
                    axes.stairs(shares, edges, fill=True, color=GRAY, alpha=0.45, label=label).set_gid("recorded")
                else:
                    patch = axes.stairs(
                        shares, edges, color=one.look.color, linestyle=one.look.line, linewidth=1.6, label=label
                    )
                    patch.set_gid(f"series-{one.index}-steps")
        axes.set_ylim(bottom=0)
        label_axes(axes, column.name, "share of the steps (%)")
        legend_below(axes)
        caption = "What was recorded, and what the policy does in the same states, all seeds together."
        title = f"{column.name}, log and policy"
        drawings.append(Drawing(f"{prefix}actions-{slug(column.name)}", title, caption, figure, f"{title}. {caption}"))
    return drawings


def draw_support(comparisons: list[Comparison], prefix: str) -> list[Drawing]:
    """How many of the policies' actions have which score of support at most."""
    if not comparisons:
        return []
    figure, axes = new_figure(4.6, 3.6)
    grid = np.geomspace(LEAST_SCORE, 1, 200)
    axes.plot(grid, 100 * grid, color=GRAY, linewidth=1.2, linestyle=":", label="recorded states and actions")
    outside = []
    for one in comparisons:
        scores = _scores(one)
        shares = 100 * np.array([np.mean(scores <= score) for score in grid])
        (line,) = axes.plot(
            grid, shares, color=one.look.color, linestyle=one.look.line, label=f"actions of {one.one.label}"
        )
        line.set_gid(f"series-{one.index}-line")
        outside.append(f"{np.mean(scores < OUTSIDE):.1%} of the actions of {one.one.label}")
    _finish_scores(axes, "actions")
    held_out = len(comparisons[0].support.distances)
    caption = (
        f"In {held_out:,} held-out recorded states, all seeds together. A score is the share of held-out recorded "
        "actions that are at least as far from what was done in similar states, so recorded ones lie on the dotted "
        "line, by definition. A line above it lies farther out than the log did, a line below it nearer. Left of the "
        f"vertical line is outside: {'; '.join(outside)}."
    )
    return [Drawing(f"{prefix}support", "Support of the policy's actions", caption, figure, caption)]


def _finish_scores(axes: Any, what: str) -> None:
    """Scales, labels and legend of shares by score, and the line below which scores are outside."""
    axes.axvline(OUTSIDE, color=GRAY, linewidth=0.9)
    log_axis(axes.xaxis, LEAST_SCORE, 1)
    log_axis(axes.yaxis, 0.1, 100)
    axes.set(xlim=(LEAST_SCORE, 1), ylim=(0.1, 110))
    label_axes(axes, "score of support", f"{what} with this score or less (%, log scale)")
    legend_below(axes)


def draw_reach(comparisons: list[Comparison], prefix: str) -> list[Drawing]:
    """How far held-out recorded states are from the data, beside states with one column moved."""
    if not comparisons:
        return []
    one = comparisons[0]
    states = one.dataset.observations[split_rows(one.dataset)[1][:NUM_STATES]].astype(np.float64)
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, states.shape[1], len(states))
    places = (np.arange(len(states)), chosen)
    grid = np.geomspace(LEAST_SCORE, 1, 200)
    figure, axes = new_figure(4.6, 3.6)
    axes.plot(grid, 100 * grid, color=GRAY, linewidth=1.2, linestyle=":", label="recorded states")
    actions = one.dataset.actions[split_rows(one.dataset)[1][:NUM_STATES]]
    shares = []
    for number, (deviations, color) in enumerate(zip((1, 3), PALETTE, strict=False)):
        moved = states.copy()
        moved[places] += deviations * one.support.scale[chosen] * generator.choice([-1, 1], len(states))
        scores = np.asarray(one.support.scores(moved.astype(np.float32), actions).state)
        found = 100 * np.array([np.mean(scores <= score) for score in grid])
        axes.plot(
            grid, found, color=color, linestyle=LINES[number], label=f"one column moved by {deviations} deviations"
        )
        shares.append(f"{np.mean(scores < OUTSIDE):.0%} of those moved by {deviations}")
    _finish_scores(axes, "states")
    caption = (
        f"How well scores tell states that were not recorded: {len(states):,} held-out recorded states, and the same "
        "with one column, drawn at random, moved by some of its deviations. Left of the vertical line is outside: "
        f"{', '.join(shares)}. The higher these lines, the more a score can be relied on."
    )
    return [Drawing(f"{prefix}support-states", "Support of states", caption, figure, caption)]


def _scores(one: Comparison) -> np.ndarray:
    """Scores of the actions of all policies of a series in held-out recorded states."""
    states = one.dataset.observations[split_rows(one.dataset)[1][:NUM_STATES]]
    taken = [policy.act(states).reshape(len(states), -1).astype(np.float32) for policy in one.one.policies()]
    return np.concatenate([np.asarray(one.support.scores(states, actions).action) for actions in taken])


def difference_tables(comparisons: list[Comparison]) -> list[PlainTable]:
    """The differences by column in numbers, one table for each series."""
    tables = []
    for one in comparisons:
        rows = []
        for column in one.found.columns:
            numbers = ["", ""] if column.mean is None else [cell_text(column.mean), cell_text(column.spread)]
            with_columns = ", ".join(f"{name} ({found:+.2f})" for name, found in column.varies_with)
            rows.append(
                [column.name, *numbers, f"{column.share_other:.0%}", column.direction, with_columns.replace("-", "−")]
            )
        head = ["action column", "mean difference", "spread", "other", "direction", "goes with (correlation)"]
        which = f"{one.one.label}. " if len(comparisons) > 1 else ""
        count = one.found.num_policies
        seeds = f", mean over {count} policies" if count > 1 else ""
        caption = f"{which}Policy minus log{seeds}. Other: by more than a "
        caption += "twentieth of the column's deviation, or another choice."
        tables.append(PlainTable(head, rows, caption))
    return tables


def state_tables(comparisons: list[Comparison]) -> list[PlainTable]:
    """The states where each series differs most from what the log usually did there."""
    tables = []
    for one in comparisons:
        states = one.found.states
        if not states:
            continue
        names = _telling_columns(one)
        actions = list(states[0].policy)[:3]
        head = [*names, *(f"{name}: log → policy" for name in actions), "support of the action"]
        rows = [
            [
                *(cell_text(state.observation[name]) for name in names),
                *(f"{cell_text(state.usual[name])} → {cell_text(state.policy[name])}" for name in actions),
                f"{state.support:.2g}",
            ]
            for state in states
        ]
        which = f"{one.one.label}. " if len(comparisons) > 1 else ""
        caption = (
            f"{which}Recorded states, one of an episode, where the first policy is farthest from what the log did in "
            "the 16 most similar recorded states (mean of numbers, the most frequent choice)."
        )
        if len(states[0].observation) > len(names):
            caption += f" The {len(names)} observation columns that are most unusual there."
        tables.append(PlainTable(head, rows, caption))
    return tables


def _telling_columns(one: Comparison) -> list[str]:
    """All observation columns, or those whose values in these states are farthest from their means."""
    names = list(one.found.states[0].observation)
    if len(names) <= MOST_OBSERVATIONS:
        return names
    features = list(one.sample.observation_names) or names
    values = one.sample.observations.astype(np.float64)
    rows = [state.row for state in one.found.states]
    away = np.abs(values[rows] - values.mean(axis=0)).mean(axis=0) / np.maximum(values.std(axis=0), 1e-9)
    size = dict.fromkeys(names, 0.0)
    for feature, distance in zip(features, away, strict=True):
        name = feature if feature in size else feature.rpartition("=")[0]
        if name in size:
            size[name] = max(size[name], float(distance))
    largest = sorted(names, key=lambda name: -size[name])[:MOST_OBSERVATIONS]
    return [name for name in names if name in largest]
