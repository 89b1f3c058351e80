"""Values against what recordings earned: V of recorded states beside the discounted returns that followed."""

from __future__ import annotations

import numpy as np

from vem.data import Dataset
from vem.policy import Policy
from vem.report.records import Series
from vem.report.style import GRAY, Drawing, Look, label_axes, legend_below, new_figure

NUM_BINS = 10


def followed_returns(policy: Policy, dataset: Dataset, values: np.ndarray) -> np.ndarray:
    """The discounted return after each row, in V's units; V of its end stands for the rest of a cut recording."""
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
    label_axes(axes, "estimated value V(s) of recorded states", "discounted return that followed in the recording")
    legend_below(axes)
    caption = (
        "Recorded states in ten equal parts by their value, mean over seeds. Marker: mean return that followed; "
        "bar: their middle half. Dotted: equal. V is meant for a better policy than the recorded one, so marks below "
        "the line are expected; marks that do not rise from left to right mean that V does not tell good states from "
        "bad ones."
    )
    return [Drawing(f"{prefix}calibration", "Values against recorded returns", caption, figure, caption)]
