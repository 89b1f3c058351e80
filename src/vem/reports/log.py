"""What the data of a run are: its columns, episodes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vem.data.actions import ActionColumn
from vem.data.dataset import Dataset
from vem.estimation.estimate import Value, read_estimate
from vem.evaluation.differences import ColumnDifference, Differences, compare_with_log, observation_names
from vem.policy import Policy
from vem.policy.support import OUTSIDE, SupportModel, measure_support, split_rows
from vem.reports.page import Section
from vem.reports.records import RunRecord, Series
from vem.reports.style import (
    GRAY,
    LINES,
    PALETTE,
    Drawing,
    Look,
    PlainTable,
    cell_text,
    label_axes,
    legend_below,
    log_axis,
    new_figure,
    slug,
)

MOST_COLUMNS = 60
MOST_LABELS = 6


def data_tables(dataset: Dataset, sample: Dataset) -> list[PlainTable]:
    """Sizes and returns of the whole data, and its columns by a sample of its episodes."""
    lengths, returns = dataset.episode_lengths, dataset.episode_returns
    ended = int(np.count_nonzero(dataset.terminal))
    facts = [
        ["recorded steps", f"{dataset.num_transitions:,}"],
        ["episodes", f"{dataset.num_episodes:,}, {ended:,} of them ended by the task and the others cut"],
        ["steps of an episode", _spread(lengths)],
        ["return of an episode", _spread(returns)],
        ["reward of a step", _spread(sample.rewards[sample.valid])],
    ]
    return [PlainTable(["", ""], facts), _columns(dataset, sample)]


def _columns(dataset: Dataset, sample: Dataset) -> PlainTable:
    rows = [
        [name, "observation", *_range(sample.observations[:, index])]
        for index, name in enumerate(observation_names(dataset)[:MOST_COLUMNS])
    ]
    actions = sample.actions[sample.valid]
    columns = dataset.info.action_columns
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
    caption = f"By {sample.num_transitions:,} steps."
    if hidden:
        caption += f" {hidden} more columns are not shown."
    return PlainTable(["column", "what", "least", "mean", "largest"], rows, caption)


def _range(values: np.ndarray) -> list[str]:
    wide = values.astype(np.float64)
    return [cell_text(float(found)) for found in (wide.min(), wide.mean(), wide.max())]


def _spread(values: np.ndarray) -> str:
    low, middle, high = np.quantile(values.astype(np.float64), [0, 0.5, 1])
    return f"{cell_text(float(middle))} (median), {cell_text(float(low))} to {cell_text(float(high))}"


# Values against what trajectories earned: V of recorded states beside the discounted returns that followed.


NUM_BINS = 10


def followed_returns(policy: Policy, dataset: Dataset, values: np.ndarray) -> np.ndarray:
    """The discounted return after each row, in V's units; V of its end stands for the rest of a cut trajectory."""
    settings = policy.info.get("settings", {})
    discount = float(settings.get("discount", 0.99))
    rewards = settings.get("reward_scale", 1.0) * dataset.rewards + settings.get("reward_shift", 0.0)
    returns, total = np.zeros(dataset.num_rows), 0.0
    for row in range(dataset.num_rows - 1, -1, -1):
        if not dataset.valid[row]:
            total = float(values[row])
        else:
            total = float(rewards[row]) + (0.0 if dataset.terminal[row] else discount * total)
        returns[row] = total
    return returns


def draw_calibration(
    series: list[Series], looks: list[Look], samples: list[Dataset | None], prefix: str
) -> list[Drawing]:
    """Recorded returns by tenths of the states, ordered by V; nothing where no policy has values."""
    drawn = []
    for index, (one, look, sample) in enumerate(zip(series, looks, samples, strict=True)):
        policies = [policy for policy in one.policies() if policy.has_value]
        if sample is None or not policies:
            continue
        values = np.mean([policy.value(sample.observations) for policy in policies], axis=0)
        returns = followed_returns(policies[0], sample, values)
        drawn.append((index, one, look, values[sample.valid], returns[sample.valid]))
    if not drawn:
        return []
    figure, axes = new_figure(4.6, 3.8)
    ends = []
    for index, one, look, values, returns in drawn:
        parts = np.array_split(np.argsort(values, kind="stable"), NUM_BINS)
        x = np.array([values[part].mean() for part in parts if part.size])
        y = np.array([np.quantile(returns[part], [0.25, 0.5, 0.75]) for part in parts if part.size]).T
        mean = np.array([returns[part].mean() for part in parts if part.size])
        bars = axes.vlines(x, y[0], y[2], color=look.color, linewidth=2.2, alpha=0.55)
        (marks,) = axes.plot(
            x, mean, look.marker, color=look.color, markersize=5.5, linestyle=look.line, linewidth=1, label=one.label
        )
        bars.set_gid(f"series-{index}-bars")
        marks.set_gid(f"series-{index}-marks")
        ends += [x.min(), x.max(), mean.min(), mean.max()]
    limits = min(ends), max(ends)
    axes.plot(limits, limits, color=GRAY, linewidth=1, linestyle=":")
    label_axes(axes, "estimated value V(s) of recorded states", "discounted return that followed in the trajectory")
    legend_below(axes)
    caption = (
        "Recorded states in ten equal parts by their value, mean over seeds. Marker: mean return that followed; "
        "bar: their middle half. Dotted: equal. V is meant for a better policy than the recorded one, so marks below "
        "the line are expected; marks that do not rise from left to right mean that V does not tell good states from "
        "bad ones."
    )
    return [Drawing(f"{prefix}calibration", "Values against recorded returns", caption, figure, caption)]


# What policies do otherwise than the log, and how near to it they stay: figures and a table.


AGAINST_LOG_MOST_COLUMNS = 30
MOST_HISTOGRAMS = 4
MOST_OBSERVATIONS = 8
AGAINST_LOG_NUM_BINS = 40
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
    shown = [name for name in names if name in sorted(names, key=lambda name: -sizes[name])[:AGAINST_LOG_MOST_COLUMNS]]
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
            edges = np.linspace(float(pooled.min()), float(pooled.max()) + 1e-9, AGAINST_LOG_NUM_BINS + 1)
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


# The parts of the page that need no simulator: what the data are, what policies do with them, what to beware of.


def warning_section(runs: list[RunRecord]) -> Section:
    """What was found when the runs' training ended, and what to do."""
    rows, unknown = [], []
    for run in runs:
        checks = run.files.checks()
        if checks is None and run.policies:
            unknown.append(run.label)
        rows += [[run.label, check.text, check.advice] for check in checks or () if check.verdict != "passed"]
    if len(runs) == 1:
        rows = [row[1:] for row in rows]
    head = ["run", "what was found", "what to do"] if len(runs) > 1 else ["what was found", "what to do"]
    lead = ""
    if not rows and not unknown and any(run.policies for run in runs):
        lead = "None was found: " + " ".join(check.text for run in runs for check in run.files.checks() or ())
    if unknown:
        lead = f"Not looked for in {', '.join(unknown)}: an earlier version trained it."
    return Section("warnings", "Warnings", [], lead=lead, tables=[PlainTable(head, rows)] if rows else [])


def data_section(dataset: Dataset | None, sample: Dataset | None) -> Section:
    """What the data are."""
    tables = [] if dataset is None or sample is None else data_tables(dataset, sample)
    return Section("data", "Data", [], tables=tables)


def log_sections(
    series: list[Series],
    looks: list[Look],
    datasets: list[Dataset | None],
    samples: list[Dataset | None],
    prefix: str,
) -> list[Section]:
    """Values against recorded returns, differences from the log, states where they are largest, and support.

    ``datasets`` and ``samples`` are those of each series, None where they cannot be read.
    """
    compared = compare_series(series, looks, datasets, samples)
    return [
        Section(
            "calibration",
            "Values against the log",
            draw_calibration(series, looks, samples, prefix),
        ),
        Section(
            "differences",
            "What the policy does differently",
            draw_differences(compared, prefix),
            tables=difference_tables(compared),
        ),
        Section("states", "Where it differs most", [], tables=state_tables(compared)),
        Section(
            "support",
            "Support",
            [*draw_support(compared, prefix), *draw_reach(compared, prefix)],
        ),
    ]


def estimate_section(runs: list[RunRecord]) -> Section:
    """What the policies are worth by recorded data alone, where a run's directory holds such an estimate."""
    tables = []
    for run in runs:
        if (found := read_estimate(run.files)) is not None:
            rows = [["the log", _value(found.log), "", ""]]
            for group in found.groups:
                settings = ", ".join(f"{name} {value:g}" for name, value in group.settings.items())
                rows.append([settings or run.label, _value(group.value), _value(group.difference), group.verdict])
            caption = " ".join(group.reason for group in found.groups)
            tables.append(PlainTable(["", "value [95 %]", "minus the log", "verdict"], rows, caption))
    return Section("estimate", "Estimate from recorded data", [], tables=tables)


def _value(found: Value) -> str:
    """An estimated value and its interval."""
    if found.value is None:
        return "unknown"
    ends = "" if found.interval is None else f" [{' to '.join(cell_text(float(end)) for end in found.interval)}]"
    return cell_text(float(found.value)) + ends
