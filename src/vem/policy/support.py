"""Support: how near a state, and an action in it, is to recorded ones, as a share of held-out recorded rows.

Some recorded rows are kept as prototypes, and others, of episodes without a prototype, are held out. The distance of a
state is that to the nearest prototype, in units where columns have deviation 1 and correlated ones are pulled apart
half-way (by λ^−¼ along each principal direction). The novelty of an action is

    −log ( 1/k · Σ_j exp(−‖e − e_j‖² / 2h) · ε^(choices that differ from j's) )

over the k prototypes nearest to the state, where e is what the action's numbers are beyond a linear regression on
the state. The score of x is the share of held-out rows that are at least as far: uniform for recorded rows, small
outside. NumPy alone; benchmarks/support.py compares it with other measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vem.data.actions import choices_of

if TYPE_CHECKING:
    from vem.data.dataset import Dataset

NUM_NEIGHBORS = 16
BANDWIDTH = 0.05
"""h for each column of numbers, in squared deviations of the regression's residuals."""
MISMATCH = 0.01
"""ε: what another choice counts beside the same one."""
RIDGE = 1e-2
HELD_OUT = 0.2
"""Share of the episodes that are held out."""
MOST_ROWS = 20_000
"""Rows that scales, directions and the regression are taken from, and as many again at most to hold out from."""
MOST_PROTOTYPES = 2048
MOST_NUMBERS = 65_536
"""Numbers in all prototypes: 256 kB."""
WIDEST_ROTATION = 128
"""Columns up to which principal directions are used; wider states are scaled column by column."""
OUTSIDE = 0.01
"""Scores below this are called outside of the data."""
PREFIX = "support."
SLICE_ROWS = 1024


class Support(NamedTuple):
    """Shares of held-out recorded rows that are at least as far from the data: 0.5 is typical, below 0.01 outside."""

    state: float | np.ndarray
    action: float | np.ndarray
    """Of the action among those recorded in states like this."""

    @property
    def is_outside(self) -> bool | np.ndarray:
        """Whether the state, or the action in it, is farther from the data than 99 % of held-out rows."""
        found = (np.asarray(self.state) < OUTSIDE) | (np.asarray(self.action) < OUTSIDE)
        return found if found.ndim else bool(found)


class Usual(NamedTuple):
    """What was recorded in the states nearest to each of some states."""

    actions: np.ndarray
    """Mean of numbers and the most frequent code of choices, (n, size)."""
    deviations: np.ndarray
    """Standard deviation of numbers; share of the other codes of choices."""


@dataclass(frozen=True)
class SupportModel:
    """Prototypes and the distances of held-out rows; all float32."""

    center: np.ndarray
    scale: np.ndarray
    rotation: np.ndarray
    """(columns, columns), or empty: none."""
    states: np.ndarray
    """Prototypes, scaled and rotated: (prototypes, columns)."""
    slope: np.ndarray
    """(columns + 1, action columns): the regression of numbers on scaled states and 1; 0 for choices."""
    residual_scale: np.ndarray
    """Deviation of the regression's residuals; 1 for choices."""
    actions: np.ndarray
    """Scaled residuals of numbers, codes of choices: (prototypes, action columns)."""
    choices: np.ndarray
    """Number of choices of each action column, 0 for numbers."""
    distances: np.ndarray
    """Of held-out states, ascending."""
    novelties: np.ndarray
    """Of held-out actions, ascending."""

    @cached_property
    def _squares(self) -> np.ndarray:
        return np.square(self.states).sum(axis=1)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.flatnonzero(self.choices == 0)

    def scores(self, states: np.ndarray, actions: np.ndarray) -> Support:
        """Scores of states (n, columns) and of actions in them (n, action columns), in recorded units."""
        distances, novelties = self.measure(states, actions)
        return Support(share_at_least(self.distances, distances), share_at_least(self.novelties, novelties))

    def measure(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Distances of states and novelties of actions, not yet compared with held-out rows."""
        starts = range(0, max(len(states), 1), SLICE_ROWS)
        parts = [self._measure(states[i : i + SLICE_ROWS], actions[i : i + SLICE_ROWS]) for i in starts]
        return np.concatenate([d for d, _ in parts]), np.concatenate([n for _, n in parts])

    def _measure(self, states: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scaled = self._scaled(states)
        neighbors, squares = self._neighbors(scaled)
        columns = self._numbers
        logs = np.zeros(neighbors.shape, np.float32)
        if columns.size:
            residuals = (actions[:, columns] - self._regressed(scaled)[:, columns]) / self.residual_scale[columns]
            away = np.square(residuals[:, None] - self.actions[neighbors][..., columns]).sum(axis=-1)
            logs -= away / np.float32(2 * BANDWIDTH * columns.size)
        if columns.size < self.choices.size:
            chosen = np.flatnonzero(self.choices)
            differs = actions[:, None, chosen] != self.actions[neighbors][..., chosen]
            logs += np.float32(np.log(MISMATCH)) * differs.sum(axis=-1)
        largest = logs.max(axis=1)
        novelties = -largest - np.log(np.exp(logs - largest[:, None]).mean(axis=1))
        return np.sqrt(squares.min(axis=1)), novelties

    def usual(self, states: np.ndarray) -> Usual:
        """What was recorded in the prototypes nearest to each state."""
        starts = range(0, max(len(states), 1), SLICE_ROWS)
        parts = [self._usual(states[i : i + SLICE_ROWS]) for i in starts]
        return Usual(np.concatenate([p.actions for p in parts]), np.concatenate([p.deviations for p in parts]))

    def _usual(self, states: np.ndarray) -> Usual:
        scaled = self._scaled(states)
        near = self.actions[self._neighbors(scaled)[0]]
        actions = self._regressed(scaled) + self.residual_scale * near.mean(axis=1)
        deviations = self.residual_scale * near.std(axis=1)
        for column in np.flatnonzero(self.choices):
            counts = (near[:, :, column, None] == np.arange(self.choices[column])).sum(axis=1)
            actions[:, column] = counts.argmax(axis=1)
            deviations[:, column] = 1 - counts.max(axis=1) / near.shape[1]
        return Usual(actions, deviations)

    def _scaled(self, states: np.ndarray) -> np.ndarray:
        return (np.asarray(states, np.float32) - self.center) / self.scale

    def _regressed(self, scaled: np.ndarray) -> np.ndarray:
        return scaled @ self.slope[:-1] + self.slope[-1]

    def _neighbors(self, scaled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The nearest prototypes of each row, in no order, and their squared distances."""
        rotated = scaled @ self.rotation if self.rotation.size else scaled
        count = min(NUM_NEIGHBORS, len(self.states))
        rough = self._squares - 2 * rotated @ self.states.T
        nearest = np.argpartition(rough, count - 1, axis=1)[:, :count]
        # Differences again, exactly: the expanded square loses small distances.
        return nearest, np.square(rotated[:, None] - self.states[nearest]).sum(axis=-1)

    def tensors(self) -> dict[str, np.ndarray]:
        """The arrays by their names in a policy file."""
        return {PREFIX + field.name: getattr(self, field.name) for field in fields(self)}


def share_at_least(ascending: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(1 + how many of ``ascending`` are at least as large) / (1 + how many there are), for each value."""
    # What is equal but for rounding is equal.
    below = np.searchsorted(ascending, values - 1e-5 * (1 + np.abs(values)), side="left")
    return (1 + len(ascending) - below) / (1 + len(ascending))


def measure_support(dataset: Dataset) -> SupportModel | None:
    """The support model of a dataset, always the same for the same rows; None for a single step, which has none."""
    if dataset.num_transitions < 2:
        return None
    known, held = split_rows(dataset)
    rows = np.concatenate([known, held])
    choices = choices_of(dataset.info.action_columns)
    return fit_support(dataset.observations[rows], dataset.actions[rows], np.arange(len(rows)) >= len(known), choices)


def split_rows(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Steps that prototypes are drawn from, and held-out ones that scores are calibrated on, ``MOST_ROWS`` each.

    A fifth of the episodes is held out, or the last fifth of a single one.
    """
    generator = np.random.default_rng(0)
    ends, starts = dataset.episode_ends, dataset.episode_starts
    if len(ends) == 1:
        cut = min(max(1, round((1 - HELD_OUT) * dataset.num_transitions)), dataset.num_transitions - 1)
        known, held = np.arange(cut), np.arange(cut, dataset.num_transitions)
    else:
        is_held = np.zeros(len(ends), bool)
        is_held[generator.permutation(len(ends))[: max(1, round(HELD_OUT * len(ends)))]] = True
        known, held = (_rows_of(starts[chosen], ends[chosen], generator) for chosen in (~is_held, is_held))
    known, held = (np.sort(generator.permutation(rows)[:MOST_ROWS]) for rows in (known, held))
    return known, held


def _rows_of(starts: np.ndarray, ends: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows with an action in these episodes; about ``2·MOST_ROWS`` of them where there are more."""
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    total = int(before[-1])
    few = total <= 2 * MOST_ROWS
    places = np.arange(total) if few else np.unique(generator.integers(0, total, 2 * MOST_ROWS))
    episode = np.searchsorted(before, places, side="right") - 1
    return starts[episode] + places - before[episode]


def fit_support(
    states: np.ndarray, actions: np.ndarray, held_out: np.ndarray, choices: Sequence[int], seed: int = 0
) -> SupportModel:
    """The model of recorded rows, (n, columns) and (n, action columns); rows where ``held_out`` calibrate it.

    ``choices`` is the number of choices of each action column, 0 for numbers; empty: numbers only. At least one row
    must be held out, and one not.
    """
    states, actions = np.asarray(states, np.float64), np.asarray(actions, np.float64)
    counts = np.asarray(choices or np.zeros(actions.shape[1]), np.int32)
    known, acted = states[~held_out], actions[~held_out]
    center, scale = known.mean(axis=0), _scales(known)
    scaled = (known - center) / scale
    rotation = np.zeros((0, 0))
    if scaled.shape[1] <= WIDEST_ROTATION:
        values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled) + 1e-3 * np.eye(scaled.shape[1]))
        rotation = vectors * values**-0.25
    slope = np.zeros((scaled.shape[1] + 1, counts.size))
    residual_scale = np.ones(counts.size)
    kept = acted.copy()
    if (numbers := np.flatnonzero(counts == 0)).size:
        offset = acted[:, numbers].mean(axis=0)
        penalty = RIDGE * len(scaled) * np.eye(scaled.shape[1])
        slope[:-1, numbers] = np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ (acted[:, numbers] - offset))
        slope[-1, numbers] = offset
        residuals = acted[:, numbers] - scaled @ slope[:-1, numbers] - offset
        # A column that hardly varies is as exact as a thousandth of its scale.
        residual_scale[numbers] = np.maximum(_scales(residuals), 1e-3 * _scales(acted[:, numbers]))
        kept[:, numbers] = residuals / residual_scale[numbers]
    generator = np.random.default_rng(seed)
    most = max(64, min(MOST_PROTOTYPES, MOST_NUMBERS // (states.shape[1] + counts.size)))
    chosen = np.sort(generator.permutation(len(known))[:most])
    prototypes = scaled[chosen] @ rotation if rotation.size else scaled[chosen]
    arrays = (center, scale, rotation, prototypes, slope, residual_scale, kept[chosen])
    empty = np.zeros(0, np.float32)
    model = SupportModel(*(a.astype(np.float32) for a in arrays), choices=counts, distances=empty, novelties=empty)
    rows = np.flatnonzero(held_out)
    rows = np.sort(generator.permutation(rows)[:MOST_PROTOTYPES])
    distances, novelties = model.measure(states[rows], actions[rows].astype(np.float32))
    stored = {field.name: getattr(model, field.name) for field in fields(model)}
    return SupportModel(**{**stored, "distances": np.sort(distances), "novelties": np.sort(novelties)})


def _scales(columns: np.ndarray) -> np.ndarray:
    """Deviation of each column; of one that never changes, a thousandth of its size, or of 1."""
    deviation, size = columns.std(axis=0), np.abs(columns).max(axis=0)
    return np.where(deviation > 1e-6 * size, deviation, 1e-3 * np.maximum(size, 1))


def stored_support(tensors: Mapping[str, np.ndarray]) -> SupportModel | None:
    """The model in a policy's tensors; None where they hold none."""
    names = [field.name for field in fields(SupportModel)]
    if not all(PREFIX + name in tensors for name in names):
        return None
    return SupportModel(**{name: tensors[PREFIX + name] for name in names})


def support_problem(tensors: Mapping[str, np.ndarray], num_columns: int, num_actions: int) -> str | None:
    """What is wrong with the support data in a policy's tensors; None if nothing is, or there are none."""
    found = [name for name in tensors if name.startswith(PREFIX)]
    model = stored_support(tensors)
    if model is None:
        return f"its support data lack some of their arrays; it has {', '.join(sorted(found))}" if found else None
    count = len(model.states) if model.states.ndim else 0
    shapes = {
        "center": (num_columns,),
        "scale": (num_columns,),
        "states": (count, num_columns),
        "slope": (num_columns + 1, num_actions),
        "residual_scale": (num_actions,),
        "actions": (count, num_actions),
        "choices": (num_actions,),
    }
    wrong = [name for name, shape in shapes.items() if getattr(model, name).shape != shape]
    if model.rotation.size and model.rotation.shape != (num_columns, num_columns):
        wrong.append("rotation")
    wrong += [n for n in ("distances", "novelties") if getattr(model, n).ndim != 1 or not getattr(model, n).size]
    wrong += [n for n in ("scale", "residual_scale") if not (getattr(model, n) > 0).all()]
    if wrong or not count:
        return f"{PREFIX}{wrong[0] if wrong else 'states'} of its support data does not fit"
    return None
