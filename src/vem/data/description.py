"""What a Dataset holds, in numbers: the questions to ask before training on it."""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.dataset import Dataset, hash_dataset
from vem.errors import DataError, printable, require
from vem.storage import write_file

NUM_CELLS = 20
"""Cells per side of the coverage grid."""
MOST_LABELS = 8
"""Choices of a column that the table shows."""
BOUND_TOLERANCE = 1e-3
"""An action counts as at a bound within this share of its range."""
BOUNDS_SOURCES = {
    "given": "as given",
    "task": "the task's",
    "environment": "the environment's",
    "data": "the data's own range",
}
HIDDEN_RULES = ("mapping", "action_bounds")
"""Rules that the table shows in other lines."""
TASK_SOURCES = {"given": "as given", "attributes": "from the file's attributes", "name": "from its name"}


@dataclass(frozen=True)
class Summary:
    """Extremes and center of a set of numbers."""

    min: float
    median: float
    mean: float
    max: float

    def __str__(self) -> str:
        """The four numbers in one line."""
        return f"min {self.min:,.6g}   median {self.median:,.6g}   mean {self.mean:,.6g}   max {self.max:,.6g}"


@dataclass(frozen=True)
class Coverage:
    """How much of the observation space the data visits."""

    dimensions: tuple[int, int]
    """The first two dimensions that are not constant, positions in most tasks; equal if there is only one."""
    occupied_cells: float
    """Share of the cells of a 20 × 20 grid over their range that hold at least one row."""
    constant_dimensions: float
    """Share of all dimensions that never change."""


@dataclass(frozen=True)
class ActionRange:
    """One action dimension: its range in the data, its bounds, and how often it is at one of them."""

    min: float
    max: float
    low: float
    high: float
    share_at_bounds: float
    name: str | None = None
    """The column's name, where it has one."""
    kind: str = "box"
    counts: dict[str, int] | None = None
    """Label → steps with it, for choices."""

    def __str__(self) -> str:
        """Range and bounds, or the share of each choice, those taken most first."""
        if self.kind == "box":
            return f"{self.name or 'action'} in [{self.min:.4g}, {self.max:.4g}], bounds [{self.low:g}, {self.high:g}]"
        counts = self.counts or {}
        total = max(1, sum(counts.values()))
        shown = sorted(counts.items(), key=lambda item: -item[1])[:MOST_LABELS]
        rest = f", {len(counts) - len(shown)} more" if len(counts) > len(shown) else ""
        return f"{len(counts)} choices: " + ", ".join(f"{label} {count / total:.1%}" for label, count in shown) + rest


@dataclass(frozen=True)
class Description:
    """A Dataset in numbers; ``print`` shows them as a table, ``to_dict`` gives JSON values."""

    name: str
    source: str
    task: str | None
    task_source: str | None
    """What named the task: ``given``, ``attributes`` or ``name``."""
    environment: str | None
    rules: dict[str, Any]
    rows: int
    transitions: int
    episodes: int
    observation_size: int
    action_size: int
    megabytes: float
    lengths: Summary
    returns: Summary
    rewards: Summary
    usual_reward: float
    """The reward that more than half of the steps get, if there is one, else 0."""
    reward_density: float
    """Share of steps with any other reward than the usual one."""
    ended_by_terminal: int
    """Episodes that end because the MDP did."""
    ended_by_time_limit: int
    """Episodes that were cut; values bootstrap from their final observation."""
    duplicate_transitions: int
    """Transitions (s, a, r, s′, terminal) that repeat an earlier one exactly."""
    duplicate_episodes: int
    """Episodes all of whose rows repeat an earlier episode exactly."""
    coverage: Coverage
    actions: tuple[ActionRange, ...]
    bounds_source: str | None
    """Where the action bounds come from: ``given``, ``task``, ``environment`` or ``data``."""
    observation_names: tuple[str, ...]
    """What each number of an observation is, for data read from a table."""
    metadata: dict[str, Any]
    warnings: tuple[str, ...]
    """What loading found: legal and probably not meant."""
    remarks: tuple[str, ...]
    """What follows from the numbers above for training."""

    def to_dict(self) -> dict[str, Any]:
        """The same facts as JSON values."""
        return dataclasses.asdict(self)

    def table(self) -> list[tuple[str, str]]:
        """What, and how much, as text in which nothing moves a terminal."""
        return [(printable(what), printable(text)) for what, text in self._lines()]

    def _lines(self) -> list[tuple[str, str]]:
        grid = self.coverage
        first, second = (
            self.observation_names[d] if self.observation_names else str(d) for d in self.coverage.dimensions
        )
        names = [("observation columns", ", ".join(self.observation_names))] if self.observation_names else []
        rules = {name: value for name, value in self.rules.items() if name not in HIDDEN_RULES}
        return [
            ("source", self.source),
            ("task", f"{self.task} ({TASK_SOURCES[self.task_source or 'given']})" if self.task else "unknown"),
            ("environment", self.environment or "unknown"),
            ("rules", ", ".join(f"{name} = {value}" for name, value in rules.items())),
            ("rows", f"{self.rows:,}  ({self.megabytes:.1f} MB)"),
            ("transitions", f"{self.transitions:,}"),
            ("episodes", f"{self.episodes:,}"),
            ("episode ends", f"{self.ended_by_terminal:,} terminal, {self.ended_by_time_limit:,} time limit"),
            ("episode lengths", str(self.lengths)),
            ("episode returns", str(self.returns)),
            ("rewards", str(self.rewards)),
            (
                "reward density",
                f"{self.reward_density:.3%} of the steps have a reward other than {self.usual_reward:g}",
            ),
            ("observations", f"{self.observation_size} numbers, {grid.constant_dimensions:.0%} of them constant"),
            (
                "coverage",
                f"{grid.occupied_cells:.0%} of a {NUM_CELLS} × {NUM_CELLS} grid over observations {first} and {second}",
            ),
            *names,
            *self._action_lines(),
            ("duplicates", f"{self.duplicate_transitions:,} transitions, {self.duplicate_episodes:,} episodes"),
        ]

    def _action_lines(self) -> list[tuple[str, str]]:
        numbers = [column for column in self.actions if column.kind == "box"]
        lines = []
        if numbers:
            limits = f"[{min(a.low for a in numbers):g}, {max(a.high for a in numbers):g}]"
            seen = f"[{min(a.min for a in numbers):.4g}, {max(a.max for a in numbers):.4g}]"
            at_bounds = sum(a.share_at_bounds for a in numbers) / len(numbers)
            source = BOUNDS_SOURCES.get(self.bounds_source or "", self.bounds_source)
            where = f" ({source})" if source else ""
            counted = f"{len(numbers)} number{'s' if len(numbers) > 1 else ''}"
            lines = [("actions", f"{counted} in {seen}, bounds {limits}{where}, {at_bounds:.1%} at a bound")]
        if self.observation_names:
            lines += [("action column", str(column)) for column in numbers]
        return lines + [(column.name or "action", str(column)) for column in self.actions if column.kind == "discrete"]

    def messages(self) -> list[str]:
        """Warnings and remarks, one line each."""
        lines = [*(f"warning: {text}" for text in self.warnings), *(f"note: {text}" for text in self.remarks)]
        return [printable(line) for line in lines]

    def __str__(self) -> str:
        """The table in aligned plain text, then warnings and remarks."""
        return "\n".join([printable(self.name), *aligned(self.table()), *self.messages()])

    def _repr_html_(self) -> str:
        """The same as an HTML table, for notebooks."""
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(text)}</td></tr>" for what, text in self.table())
        lines = "".join(f"<p>{escape(text)}</p>" for text in self.messages())
        return f"<table><caption>{escape(printable(self.name))}</caption>{rows}</table>{lines}"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line of text for each row, columns under one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def describe(dataset: Dataset) -> Description:
    """The Description of a Dataset."""
    rewards = dataset.rewards[dataset.valid]
    usual = _usual(rewards)
    lengths = dataset.episode_lengths
    num_terminal = int(dataset.terminal.sum())
    same_transitions, same_episodes = _duplicates(dataset)
    return Description(
        name=dataset.info.name,
        source=dataset.info.source,
        task=dataset.info.task,
        task_source=dataset.info.task_source,
        environment=dataset.info.environment,
        rules=dataset.info.rules,
        rows=dataset.num_rows,
        transitions=dataset.num_transitions,
        episodes=dataset.num_episodes,
        observation_size=dataset.observation_size,
        action_size=dataset.action_size,
        megabytes=dataset.num_bytes / 1e6,
        lengths=_summary(lengths),
        returns=_summary(dataset.episode_returns),
        rewards=_summary(rewards),
        usual_reward=usual,
        reward_density=float(np.mean(rewards != usual)),
        ended_by_terminal=num_terminal,
        ended_by_time_limit=dataset.num_episodes - num_terminal,
        duplicate_transitions=same_transitions,
        duplicate_episodes=same_episodes,
        coverage=_coverage(dataset),
        actions=_action_ranges(dataset),
        bounds_source=dataset.info.bounds_source,
        observation_names=dataset.observation_names,
        metadata=dataset.info.metadata,
        warnings=dataset.info.warnings,
        remarks=tuple(_remarks(dataset, lengths, same_transitions, same_episodes)),
    )


def _remarks(dataset: Dataset, lengths: np.ndarray, same_transitions: int, same_episodes: int) -> Iterator[str]:
    single = float(np.mean(lengths == 1))
    if 0.2 < single < 1 and dataset.info.rules.get("split") == "terminals":
        yield (
            f"{single:.0%} of the episodes have one step, because terminals come in runs (as in AntMaze, "
            "where the ant stays at the goal); split='first-success' (--split first-success) cuts each "
            "trajectory at its first terminal instead."
        )
    if same_episodes:
        yield (
            f"{same_episodes} of {dataset.num_episodes} episodes repeat others exactly; keep the copies on "
            "one side when you hold episodes out, or the held-out score flatters."
        )
    elif same_transitions > 0.01 * dataset.num_transitions:
        yield f"{same_transitions} transitions repeat others exactly; check how the trajectories were joined."


def _summary(values: np.ndarray) -> Summary:
    wide = values.astype(np.float64)
    return Summary(float(wide.min()), float(np.median(wide)), float(wide.mean()), float(wide.max()))


def _usual(rewards: np.ndarray) -> float:
    values, counts = np.unique(rewards, return_counts=True)
    return float(values[np.argmax(counts)]) if counts.max() > len(rewards) / 2 else 0.0


def _duplicates(dataset: Dataset) -> tuple[int, int]:
    """Number of transitions and of episodes that repeat earlier ones, by 64-bit hashes of their bits."""
    hashes = hash_dataset(dataset)
    return _num_repeated(hashes.transitions), _num_repeated(hashes.episodes)


def _num_repeated(hashes: np.ndarray) -> int:
    return len(hashes) - len(np.unique(hashes))


def _coverage(dataset: Dataset) -> Coverage:
    extremes = [(part.min(axis=0), part.max(axis=0)) for part in dataset.slices("observations")]
    low, high = np.min([e[0] for e in extremes], axis=0), np.max([e[1] for e in extremes], axis=0)
    changing = np.flatnonzero(low != high).tolist() or [0]
    first, second = changing[0], changing[min(1, len(changing) - 1)]
    occupied = np.zeros((NUM_CELLS, NUM_CELLS), np.bool_)
    for part in dataset.slices("observations"):
        rows, columns = (_cells(part[:, d], low[d], high[d]) for d in (first, second))
        occupied[rows, 0 if first == second else columns] = True
    return Coverage(
        dimensions=(first, second),
        occupied_cells=int(occupied.sum()) / (NUM_CELLS if first == second else NUM_CELLS**2),
        constant_dimensions=float(np.mean(low == high)),
    )


def _cells(values: np.ndarray, low: float, high: float) -> np.ndarray:
    width = max(float(high) - float(low), np.finfo(np.float32).tiny)
    return np.minimum((values.astype(np.float64) - low) / width * NUM_CELLS, NUM_CELLS - 1).astype(np.int64)


def _action_ranges(dataset: Dataset) -> tuple[ActionRange, ...]:
    low, high = np.array(dataset.info.action_low), np.array(dataset.info.action_high)
    margin = BOUND_TOLERANCE * (high - low)
    columns = dataset.info.action_columns
    least, most, at_bounds = np.full(len(low), np.inf), np.full(len(low), -np.inf), np.zeros(len(low), np.int64)
    taken = [np.zeros(len(column.labels), np.int64) for column in columns]
    for actions, valid in zip(dataset.slices("actions"), dataset.slices("valid"), strict=True):
        acted = actions[valid]
        least = np.minimum(least, np.min(acted, axis=0, initial=np.inf))
        most = np.maximum(most, np.max(acted, axis=0, initial=-np.inf))
        at_bounds += ((acted <= low + margin) | (acted >= high - margin)).sum(axis=0)
        for index, column in enumerate(columns):
            if column.kind == "discrete":
                taken[index] += np.bincount(acted[:, index].astype(np.int64), minlength=len(column.labels))
    facts = (least, most, low, high, at_bounds / dataset.num_transitions)
    names = ("min", "max", "low", "high", "share_at_bounds")
    ranges = [ActionRange(**dict(zip(names, map(float, values), strict=True))) for values in zip(*facts, strict=True)]
    for index, column in enumerate(columns):
        is_choice = column.kind == "discrete"
        counts = dict(zip(column.labels, taken[index].tolist(), strict=True)) if is_choice else None
        ranges[index] = dataclasses.replace(ranges[index], name=column.name, kind=column.kind, counts=counts)
    return tuple(ranges)


# A Dataset in four panels: returns, lengths, reward over time, and where the data went.


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
