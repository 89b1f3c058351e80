"""What a Dataset holds, in numbers: the questions to ask before training on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from vem.data.dataset import Dataset
from vem.data.row_hashes import hash_dataset
from vem.errors import printable

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
    if dataset.num_episodes > 1 and single > 0.2 and dataset.info.rules.get("split") == "terminals":
        yield (
            f"{single:.0%} of the episodes have one step, because terminals come in runs (as in AntMaze, "
            "where the ant stays at the goal); split='first-success' (--split first-success) cuts each "
            "recording at its first terminal instead."
        )
    if same_episodes:
        yield (
            f"{same_episodes} of {dataset.num_episodes} episodes repeat others exactly; keep the copies on "
            "one side when you hold episodes out, or the held-out score flatters."
        )
    elif same_transitions > 0.01 * dataset.num_transitions:
        yield f"{same_transitions} transitions repeat others exactly; check how the recordings were joined."


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
