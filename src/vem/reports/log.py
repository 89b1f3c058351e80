"""The recorded data on the page: what they are, how much each row counted, and what policies do otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vem.data.actions import ActionColumn
from vem.data.dataset import Dataset
from vem.evaluation.differences import ColumnDifference, Differences, compare_with_log, observation_names
from vem.evaluation.rollout import discounted_returns
from vem.evaluation.statistics import Table
from vem.policy import Policy
from vem.policy.support import OUTSIDE, SupportModel, split_rows
from vem.reports.records import Series
from vem.reports.style import (
    GRAY,
    LINES,
    PALETTE,
    Distribution,
    Drawing,
    cell_text,
    draw_rows,
    draw_shares,
    label_axes,
    legend_below,
    log_axis,
    new_figure,
    slug,
)

MOST_COLUMNS = 60
MOST_LABELS = 6


def data_tables(dataset: Dataset, sample: Dataset) -> list[Table]:
    """Sizes and returns of the whole data, and its columns by a sample of its episodes."""
    ended = int(np.count_nonzero(dataset.terminal))
    facts = [
        ["recorded steps", f"{dataset.num_transitions:,}"],
        ["episodes", f"{dataset.num_episodes:,}, {ended:,} of them ended by the task and the others cut"],
        ["steps of an episode", _spread(dataset.episode_lengths)],
        ["return of an episode", _spread(dataset.episode_returns)],
        ["reward of a step", _spread(sample.rewards[sample.valid])],
    ]
    return [Table("", ["", ""], facts), _columns(dataset, sample)]


def _columns(dataset: Dataset, sample: Dataset) -> Table:
    rows = [
        [name, "observation", *_range(sample.observations[:, index])]
        for index, name in enumerate(observation_names(dataset)[:MOST_COLUMNS])
    ]
    actions, columns = sample.actions[sample.valid], dataset.info.action_columns
    named: Sequence[ActionColumn | None] = columns or [None] * dataset.action_size
    for index, column in enumerate(named[:MOST_COLUMNS]):
        name = column.name if column else f"action {index}"
        if column is not None and column.kind == "discrete":
            counts = np.bincount(actions[:, index].astype(np.int64), minlength=len(column.labels)) / len(actions)
            order = np.argsort(-counts, kind="stable")[:MOST_LABELS]
            shares = ", ".join(f"{column.labels[code]} {counts[code]:.0%}" for code in order)
            more = f", {len(counts) - len(order)} more" if len(counts) > len(order) else ""
            rows.append([name, "action, choice", "", shares + more, ""])
        else:
            rows.append([name, "action", *_range(actions[:, index])])
    hidden = max(0, dataset.observation_size - MOST_COLUMNS) + max(0, dataset.action_size - MOST_COLUMNS)
    caption = f"Taken from {'all' if sample is dataset else f'{sample.num_transitions:,} of the'} recorded steps."
    if hidden:
        caption += f" {hidden} more columns are not shown."
    return Table("", ["column", "what", "least", "mean", "largest"], rows, [caption])


def _range(values: np.ndarray) -> list[str]:
    wide = values.astype(np.float64)
    return [cell_text(float(found)) for found in (wide.min(), wide.mean(), wide.max())]


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values.astype(np.float64), [0, 0.5, 1])
    return f"{cell_text(float(middle))} (median), {cell_text(float(low))} to {cell_text(float(high))}"


# How much each row counted for the policy, as training wrote it.


def draw_weights(series: list[Series]) -> list[Drawing]:
    """The distribution of the weights, and how much of their sum the heaviest rows carry."""
    drawn = [(one, one.weights) for one in series if one.weights]
    if not drawn:
        return []
    spread, axes = new_figure()
    for one, trials in drawn:
        shares, edges = 100 * np.mean([found["shares"] for found in trials], axis=0), trials[0]["edges"]
        effective = np.mean([found["effective_share"] for found in trials])
        look = {"color": one.style.color, "linestyle": one.style.line, "linewidth": 1.5}
        axes.stairs(shares, edges, label=f"{one.label}: ESS {effective:.0%}", **look).set_gid(f"series-{one.index}-all")
    bins = np.max([np.array(found["shares"]) > 0 for _, trials in drawn for found in trials], axis=0)
    edges = np.array(drawn[0][1][0]["edges"])
    low, high = edges[np.argmax(bins)], edges[len(bins) - np.argmax(bins[::-1])]
    log_axis(axes.xaxis, low, high)
    axes.set(xlim=(low, high), ylim=(0, None))
    axes.axvline(1, color=GRAY, linewidth=1, linestyle=":")
    label_axes(axes, "weight of a row (mean row = 1, log scale)", "share of the rows in each bin (%)")
    axes.figure.legend(loc="outside lower center")
    zero = np.mean([found["zero_share"] for _, trials in drawn for found in trials])
    caption = (
        f"Weights of {drawn[0][1][0]['num_rows']:,} recorded steps at the end of training, mean over seeds. Dotted: "
        "cloning, where all rows weigh 1. ESS: effective sample size (Σw)²/(n·Σw²), the share of rows that would do "
        "with equal weights." + (f" {zero:.0%} of the weights are 0." if zero else "")
    )
    carried, axes = new_figure()
    for one, trials in drawn:
        lines = 100 * np.array([found["concentration"] for found in trials])
        (line,) = axes.plot(lines.mean(0), color=one.style.color, linestyle=one.style.line, label=one.label)
        line.set_gid(f"series-{one.index}-line")
    axes.plot([0, 100], [0, 100], color=GRAY, linewidth=1, linestyle=":", label="cloning")
    axes.set(xlim=(0, 100), ylim=(0, 101))
    label_axes(axes, "heaviest rows (% of all)", "share of the total weight (%)")
    legend_below(axes)
    return [
        Drawing("weights", "Weights of rows", caption, spread),
        Drawing("weights-concentration", "Where the weight goes", "Mean over seeds.", carried),
    ]


# Values against what trajectories earned: V of recorded states beside the discounted returns that followed.


NUM_PARTS = 10


def followed_returns(policy: Policy, dataset: Dataset, values: np.ndarray) -> np.ndarray:
    """The discounted return after each row, in V's units; V of its end stands for the rest of a cut trajectory."""
    settings = policy.info.get("settings", {})
    discount = float(settings.get("discount", 0.99))
    rewards = settings.get("reward_scale", 1.0) * dataset.rewards + settings.get("reward_shift", 0.0)
    returns = values.astype(np.float64)
    for start, end in zip(dataset.episode_starts, dataset.episode_ends, strict=True):
        tail = 0.0 if dataset.terminal[end - 1] else float(values[end])
        returns[start:end] = discounted_returns(rewards[start:end], discount, tail)
    return returns


def draw_calibration(series: list[Series]) -> list[Drawing]:
    """Recorded returns by tenths of the states, ordered by V; nothing where no policy has values."""
    drawn = [(one, one.run.sample) for one in series if one.has_values]
    drawn = [(one, sample) for one, sample in drawn if sample is not None]
    if not drawn:
        return []
    figure, axes = new_figure(4.6, 3.6)
    ends = []
    for one, sample in drawn:
        values = np.mean([policy.value(sample.observations) for policy in one.policies], axis=0)
        returns = followed_returns(one.policies[0], sample, values)[sample.valid]
        values = values[sample.valid]
        parts = [part for part in np.array_split(np.argsort(values, kind="stable"), NUM_PARTS) if part.size]
        x, mean = (np.array([of[part].mean() for part in parts]) for of in (values, returns))
        low, high = np.array([np.quantile(returns[part], [0.25, 0.75]) for part in parts]).T
        bars = axes.vlines(x, low, high, color=one.style.color, linewidth=2.2, alpha=0.55)
        look = {"color": one.style.color, "marker": one.style.marker, "linestyle": one.style.line, "linewidth": 1}
        (marks,) = axes.plot(x, mean, markersize=5.5, label=one.label, **look)
        bars.set_gid(f"series-{one.index}-bars")
        marks.set_gid(f"series-{one.index}-marks")
        ends += [x.min(), x.max(), mean.min(), mean.max()]
    limits = min(ends), max(ends)
    axes.plot(limits, limits, color=GRAY, linewidth=1, linestyle=":")
    label_axes(axes, "estimated value V(s) of recorded states", "discounted return that followed in the trajectory")
    legend_below(axes)
    caption = (
        "Recorded states in ten equal parts by their value, mean over seeds. Marker: mean return that followed; "
        "bar: their middle half. Dotted: equal. Marks that do not rise from left to right mean that V does not tell "
        "good states from bad ones. V is of the policy, which may be better than the log: marks somewhat below the "
        "line can be right, marks far below it are values that nobody has earned."
    )
    return [Drawing("calibration", "Values against recorded returns", caption, figure)]


# What policies do otherwise than the log, and how near to it they stay.


MOST_DRAWN = 30
MOST_HISTOGRAMS = 3
MOST_OBSERVATIONS = 12
NUM_STATES = 2000
LEAST_SCORE = 1e-3
SCORES = np.geomspace(LEAST_SCORE, 1, 200)


@dataclass(frozen=True)
class Comparison:
    """One series beside the recorded data."""

    one: Series
    dataset: Dataset
    sample: Dataset
    support: SupportModel
    found: Differences


def compare_series(series: list[Series]) -> list[Comparison]:
    """The series with policies, support and data."""
    comparisons = []
    for one in series:
        dataset, sample, policies = one.run.dataset, one.run.sample, one.policies
        if dataset is not None and sample is not None and policies and policies[0].has_support:
            support = policies[0].support_model
            found = compare_with_log(policies, dataset, support)
            comparisons.append(Comparison(one, dataset, sample, support, found))
    return comparisons


def draw_differences(comparisons: list[Comparison]) -> list[Drawing]:
    """The differences by column, and the columns that differ most as distributions."""
    if not comparisons:
        return []
    return [
        *_draw_columns(comparisons, "box"),
        *_draw_columns(comparisons, "discrete"),
        *_draw_histograms(comparisons),
    ]


def _size(column: ColumnDifference) -> float:
    """How large a difference is, in recorded deviations or as a share of other choices."""
    return column.share_other if column.mean is None else abs(column.mean) / max(column.recorded_spread or 0.0, 1e-9)


def _draw_columns(comparisons: list[Comparison], kind: str) -> list[Drawing]:
    by_name = [{column.name: column for column in one.found.columns if column.kind == kind} for one in comparisons]
    names = list(by_name[0])
    if not names:
        return []
    largest = sorted(names, key=lambda name: -max(_size(columns[name]) for columns in by_name))[:MOST_DRAWN]
    shown = [name for name in names if name in largest]
    height = 1.2 + 0.2 * len(comparisons) + (0.22 + 0.1 * len(comparisons)) * max(len(shown), 2)
    figure, axes = new_figure(4.6, height)
    shifts = np.linspace(-0.25, 0.25, len(comparisons)) if len(comparisons) > 1 else [0.0]
    for comparison, of_name, shift in zip(comparisons, by_name, shifts, strict=True):
        columns, places, style = [of_name[name] for name in shown], np.arange(len(shown)) + shift, comparison.one.style
        if kind == "box":
            unit = np.array([max(column.recorded_spread or 0.0, 1e-9) for column in columns])
            marks = np.array([column.mean or 0.0 for column in columns]) / unit
            spread = np.array([column.spread or 0.0 for column in columns]) / unit
            ends = marks - spread, marks + spread
        else:
            marks = 100 * np.array([column.share_other for column in columns])
            ends = 0 * marks, marks
        bars = axes.hlines(places, *ends, color=style.color, linewidth=2.4, alpha=0.6)
        (dots,) = axes.plot(marks, places, style.marker, color=style.color, markersize=6, label=comparison.one.label)
        bars.set_gid(f"series-{comparison.one.index}-bars")
        dots.set_gid(f"series-{comparison.one.index}-marks")
    axes.axvline(0, color=GRAY, linewidth=1)
    draw_rows(axes, shown)
    steps = f"{comparisons[0].found.num_steps:,} recorded steps"
    if kind == "box":
        label_axes(axes, "policy minus log (deviations of the recorded column)", "action column")
        caption = f"Over {steps}. Marker: mean difference; bar: ± one standard deviation, noise of the log included."
        title, name = "Policy minus log", "differences-numbers"
    else:
        axes.set_xlim(left=0)
        label_axes(axes, "steps with another choice than recorded (%)", "action column")
        caption = f"Share of {steps} at which the policy's choice is not the recorded one."
        title, name = "Choices, policy against log", "differences-choices"
    if len(names) > len(shown):
        caption += f" The {len(shown)} columns of {len(names)} that differ most."
    legend_below(axes)
    return [Drawing(name, title, caption, figure)]


def _draw_histograms(comparisons: list[Comparison]) -> list[Drawing]:
    """Recorded and chosen values of the columns that differ most."""
    first = comparisons[0]
    states, recorded = first.sample.observations[first.sample.valid], first.sample.actions[first.sample.valid]
    taken = [
        (one.one, np.concatenate([policy.act(states).reshape(len(states), -1) for policy in one.one.policies]))
        for one in comparisons
        if one.sample is first.sample
    ]
    columns = list(enumerate(first.one.policies[0].action_columns))
    columns.sort(key=lambda entry: -_size(first.found.columns[entry[0]]))
    drawings = []
    for index, column in columns[:MOST_HISTOGRAMS]:
        figure, axes = new_figure(4.6, 3.0)
        entries = [Distribution("log", recorded[:, index])]
        entries += [Distribution(one.label, found[:, index], one.index, one.style) for one, found in taken]
        draw_shares(axes, entries, column.labels if column.kind == "discrete" else None)
        label_axes(axes, column.name, "share of the steps (%)")
        legend_below(axes)
        caption = "What was recorded, and what the policy does in the same states, all seeds together."
        drawings.append(Drawing(f"actions-{slug(column.name)}", f"{column.name}, log and policy", caption, figure))
    return drawings


def draw_support(comparisons: list[Comparison]) -> list[Drawing]:
    """How many actions, and how many changed states, have which score of support at most."""
    if not comparisons:
        return []
    first = comparisons[0]
    return [_draw_action_support(comparisons), _draw_state_support(first.dataset, first.support)]


def _draw_action_support(comparisons: list[Comparison]) -> Drawing:
    figure, axes = new_figure(4.6, 3.6)
    outside = []
    for one in comparisons:
        states, _ = _held_out(one.dataset)
        taken = [policy.act(states).reshape(len(states), -1).astype(np.float32) for policy in one.one.policies]
        scores = np.concatenate([np.asarray(one.support.scores(states, actions).action) for actions in taken])
        line = _draw_scores(axes, scores, f"actions of {one.one.label}", one.one.style.color, one.one.style.line)
        line.set_gid(f"series-{one.one.index}-line")
        outside.append(f"{np.mean(scores < OUTSIDE):.1%} of the actions of {one.one.label}")
    _finish_scores(axes, "actions")
    caption = (
        f"In {len(comparisons[0].support.distances):,} held-out recorded states, all seeds together. A score is the "
        "share of held-out recorded actions that are at least as far from what was done in similar states. A line "
        "above the dotted one lies farther out than the log did. Left of the vertical line is outside: "
        f"{'; '.join(outside)}."
    )
    return Drawing("support", "Support of the policy's actions", caption, figure)


def _draw_state_support(dataset: Dataset, support: SupportModel) -> Drawing:
    """How far held-out recorded states are from the data when one of their columns is moved."""
    states, actions = _held_out(dataset)
    generator = np.random.default_rng(0)
    chosen = generator.integers(0, states.shape[1], len(states))
    figure, axes = new_figure(4.6, 3.6)
    shares = []
    for number, (size, words) in enumerate(((1, "one deviation"), (3, "three deviations"))):
        moved = states.astype(np.float64)
        moved[np.arange(len(states)), chosen] += size * support.scale[chosen] * generator.choice([-1, 1], len(states))
        scores = np.asarray(support.scores(moved.astype(np.float32), actions).state)
        _draw_scores(axes, scores, f"one column moved by {words}", PALETTE[number], LINES[number])
        shares.append(f"{np.mean(scores < OUTSIDE):.0%} of those moved by {words}")
    _finish_scores(axes, "states")
    caption = (
        f"Whether scores notice a state that was not recorded: {len(states):,} held-out recorded states with one "
        f"column, drawn at random, moved. Left of the vertical line is outside: {', '.join(shares)}. The higher the "
        "lines, the more a score can be relied on."
    )
    return Drawing("support-states", "Support of changed states", caption, figure)


def _held_out(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """States and actions that support is calibrated on."""
    rows = split_rows(dataset)[1][:NUM_STATES]
    return dataset.observations[rows], dataset.actions[rows]


def _draw_scores(axes: Any, scores: np.ndarray, label: str, color: str, line: Any) -> Any:
    shares = 100 * np.array([np.mean(scores <= score) for score in SCORES])
    return axes.plot(SCORES, shares, color=color, linestyle=line, label=label)[0]


def _finish_scores(axes: Any, what: str) -> None:
    """Scales, labels and legend of shares by score, and the line below which scores are outside."""
    axes.plot(SCORES, 100 * SCORES, color=GRAY, linewidth=1.2, linestyle=":", label=f"recorded {what}")
    axes.axvline(OUTSIDE, color=GRAY, linewidth=0.9)
    log_axis(axes.xaxis, LEAST_SCORE, 1)
    log_axis(axes.yaxis, 0.1, 100)
    axes.set(xlim=(LEAST_SCORE, 1), ylim=(0.1, 110))
    label_axes(axes, "score of support", f"{what} with this score or less (%, log scale)")
    legend_below(axes)


def difference_tables(comparisons: list[Comparison]) -> list[Table]:
    """The differences by column in numbers, and the states where they are largest, for each series."""
    tables = []
    for one in comparisons:
        rows = []
        for column in one.found.columns:
            numbers = ["", ""] if column.mean is None else [cell_text(column.mean), cell_text(column.spread)]
            goes_with = ", ".join(f"{name} ({found:+.2f})" for name, found in column.varies_with).replace("-", "−")
            rows.append([column.name, *numbers, f"{column.share_other:.0%}", column.direction, goes_with])
        head = ["action column", "mean difference", "spread", "other", "direction", "goes with (correlation)"]
        count = one.found.num_policies
        caption = f"Policy minus log{f', mean over {count} policies' if count > 1 else ''}. Other: by more than a "
        caption += "twentieth of the column's deviation, or another choice."
        title = one.one.label if len(comparisons) > 1 else ""
        tables += [Table(title, head, rows, [caption]), *_state_tables(one)]
    return tables


def _state_tables(one: Comparison) -> list[Table]:
    """The states where the first policy differs most from what the log usually did there, each in a column."""
    states = one.found.states[:5]
    if not states:
        return []
    names = list(states[0].observation)[:MOST_OBSERVATIONS]
    rows = [[name, *(cell_text(state.observation[name]) for state in states)] for name in names]
    for name in list(states[0].policy)[:3]:
        changes = [f"{cell_text(state.usual[name])} → {cell_text(state.policy[name])}" for state in states]
        rows.append([f"{name}: log → policy", *changes])
    rows.append(["support of the action", *(f"{state.support:.2g}" for state in states)])
    caption = (
        "The recorded states, at most one of an episode, in which the first policy is farthest from what the log did "
        "in the 16 most similar ones (mean of numbers, the most frequent choice)."
    )
    if len(states[0].observation) > len(names):
        caption += f" Of the observation the first {len(names)} columns."
    head = ["where it differs most", *(f"state {number + 1}" for number in range(len(states)))]
    return [Table("", head, rows, [caption])]
