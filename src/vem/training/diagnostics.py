"""What a run's policies rest on: the weights of its rows, and the checks at the end of its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from vem.algorithms.base import Rows
from vem.data.dataset import Dataset
from vem.policy import Policy
from vem.policy.support import OUTSIDE, SupportModel, split_rows
from vem.training.records import MetricLine, RowWeights, RunWarning

# How much each row counted for the policy.


WEIGHT_EDGES = np.geomspace(1e-4, 1e4, 81)
"""Of the histogram of weights whose mean is 1; weights beyond them count in the first and the last bin."""
NUM_SHARES = 101


def row_weights(weigh: Callable[[Any, Rows], jax.Array], memory: Any, rows: Rows) -> list[RowWeights]:
    """For each trial how much the rows counted at the end of a stage whose ``weights`` are ``weigh``."""
    weights = jax.vmap(weigh, in_axes=(0, None))(memory, rows)
    return [summarize_weights(np.asarray(of_trial, np.float64)) for of_trial in weights]


def summarize_weights(weights: np.ndarray) -> RowWeights:
    """How weights are spread, by their size: a negative one pushes away from its row."""
    sizes = np.abs(weights)
    total = max(float(sizes.sum()), 1e-300)
    counts, _ = np.histogram(np.clip(sizes * sizes.size / total, WEIGHT_EDGES[0], WEIGHT_EDGES[-1]), WEIGHT_EDGES)
    carried = np.concatenate([[0], np.cumsum(np.sort(sizes)[::-1])]) / total
    heaviest = np.linspace(0, 1, NUM_SHARES)
    return RowWeights(
        num_rows=sizes.size,
        effective_share=total**2 / max(sizes.size * float((sizes**2).sum()), 1e-300),
        zero_share=float(np.mean(sizes == 0)),
        edges=WEIGHT_EDGES.tolist(),
        shares=(counts / sizes.size).tolist(),
        concentration=np.interp(heaviest, np.linspace(0, 1, carried.size), carried).tolist(),
    )


# Reasons not to trust the policies: found, looked for in vain, or not to be told.


NUM_ROWS = 4000
"""Rows that support is measured on."""
LEAST_LINES = 6
"""Metric lines from which on values can be seen to settle."""
DRIFT = 0.05
"""Values have settled if their mean moves by less than this share of its path over the last tenth of training."""
LEAST_ROWS = 100
"""Effective rows that a policy should rest on at least."""
LEAST_SHARE = 0.01
MOST_OUTSIDE = 0.05
"""Share of a policy's actions that may be outside of the data; of recorded ones a hundredth is."""


def find_warnings(
    dataset: Dataset, policies: Sequence[Policy], lines: Sequence[MetricLine], support: SupportModel | None
) -> list[RunWarning]:
    """What speaks for and against these policies: ``lines`` are the metrics of their training."""
    checks = [
        unsettled_values(lines),
        small_effective_sample(lines, dataset.num_transitions),
        actions_outside(dataset, policies, support),
        few_rows(support),
    ]
    return [check for check in checks if check is not None]


def unsettled_values(lines: Sequence[MetricLine]) -> RunWarning | None:
    """Whether the mean value still moved, in one direction, at the end of the values' training; None without values."""
    drifts: dict[str, tuple[float, float]] = {}
    num_readings = 0
    for name in lines[-1].trials if lines else ():
        readings = [line.trials.get(name, {}).get("value_mean") for line in lines]
        values = np.array([value for value in readings if value is not None])
        num_readings = max(num_readings, len(values))
        if len(values) >= LEAST_LINES and (drift := _drift(values)) is not None:
            drifts[name] = drift
    if num_readings == 0:
        return None
    if num_readings < LEAST_LINES:
        return RunWarning(
            "unsettled",
            f"Whether values had settled: training was too short to tell ({num_readings} readings of the mean value, "
            f"and {LEAST_LINES} are needed).",
            "Train longer (--steps).",
            "untold",
        )
    if not drifts:
        return RunWarning("unsettled", "Values had settled by the end of their training.", verdict="passed")
    name, (share, moved) = max(drifts.items(), key=lambda entry: entry[1][0])
    which = f" of {name}" if len(drifts) > 1 or len(lines[-1].trials) > 1 else ""
    return RunWarning(
        "unsettled",
        f"Values had not settled: the mean value{which} still went {'up' if moved > 0 else 'down'} at the end of "
        f"its training, by {share:.0%} of its whole path between the last two readings.",
        "Train longer (vem train --resume RUN --steps N), and compare the policies of both lengths.",
    )


def _drift(values: np.ndarray) -> tuple[float, float] | None:
    """The move of the last tenth, as a share of the whole path and with its sign; None if it is small or noise."""
    size = max(2, len(values) // 10)
    last, before = values[-size:], values[-2 * size : -size]
    moved = float(last.mean() - before.mean())
    noise = float(np.sqrt((last.var() + before.var()) / size))
    means = [part.mean() for part in np.array_split(values, min(10, len(values)))]
    path = max(float(np.ptp([values[0], *means])), 1e-12)
    is_level = abs(moved) <= DRIFT * path or abs(moved) <= 0.01 * abs(float(last.mean()))
    return None if is_level or abs(moved) <= 2 * noise else (abs(moved) / path, moved)


def small_effective_sample(lines: Sequence[MetricLine], num_transitions: int) -> RunWarning | None:
    """Whether few of the rows carry the weights of the policy's regression; None without weights."""
    newest: dict[str, float] = {}
    for line in lines:
        newest.update({n: m["effective_share"] for n, m in line.trials.items() if "effective_share" in m})
    if not newest:
        return None
    share = min(newest.values())
    rows = share * num_transitions
    worth = f"about {max(1, round(rows)):,} of {num_transitions:,} equally weighted steps ({share:.2%})"
    if rows >= LEAST_ROWS and share >= LEAST_SHARE:
        text = f"Enough rows carry the policy: its weights are worth {worth}."
        return RunWarning("effective-sample", text, verdict="passed")
    return RunWarning(
        "effective-sample",
        f"The policy rests on few rows: its weights are worth {worth}.",
        "Give more rows a say (--effective-sample, or a higher --temperature), or record more data.",
    )


def actions_outside(dataset: Dataset, policies: Sequence[Policy], support: SupportModel | None) -> RunWarning | None:
    """Whether policies act in recorded states, those that support is calibrated on, as nobody did there."""
    if support is None or not policies:
        return None
    states = dataset.observations[split_rows(dataset)[1][:NUM_ROWS]]
    share = max(
        float(np.mean(support.scores(states, policy.act(states).reshape(len(states), -1)).action < OUTSIDE))
        for policy in policies
    )
    if share <= MOST_OUTSIDE:
        text = f"The policy's actions in recorded states stay near the data: {share:.1%} are outside."
        return RunWarning("outside", text, verdict="passed")
    return RunWarning(
        "outside",
        f"{share:.0%} of the policy's actions in recorded states are farther from what was done there than 99 % of "
        "recorded actions are.",
        "Stay nearer to the data with a larger effective sample, or with bc.",
    )


def few_rows(support: SupportModel | None) -> RunWarning | None:
    """Whether support cannot be told finely enough; None if it can."""
    held_out = 0 if support is None else len(support.distances)
    if held_out >= 1 / OUTSIDE:
        return None
    return RunWarning(
        "few-rows",
        f"Support is calibrated on {held_out} held-out steps, too few for scores below {1 / (1 + held_out):.2g}.",
        "Record more episodes before relying on scores of support.",
    )
