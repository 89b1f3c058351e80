"""One evaluated episode in a maze as a film strip: the path so far, and where the guide heads for at that moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from vem.data import Dataset
from vem.envs.layouts import MazeLayout
from vem.errors import RunError
from vem.policy import Policy
from vem.report.guide import draw_arrows, has_guides, plane_moves
from vem.report.landscape import draw_floor, draw_places, floor_shape, sort_rows, tile_values
from vem.report.records import RunRecord
from vem.report.style import Drawing, new_panels
from vem.runs.records import EpisodeRecord

NUM_FRAMES = 6
FRAME_WIDTH = 1.85
"""Inches."""


class Episode(NamedTuple):
    """The episode that is shown, the policy that acted, and what it observed."""

    record: EpisodeRecord
    policy: Policy
    observations: np.ndarray


def choose_episode(run: RunRecord) -> Episode | None:
    """The first episode of the member with the median return in the newest evaluation; None if it left no trace.

    Of an even number of members it is the lower of the two in the middle. Only members with a guide leave traces. One
    that cannot be read adds a note to the run.
    """
    newest = max((episode.steps for episode in run.episodes if episode.steps is not None), default=None)
    returns: dict[str, list[float]] = {}
    first: dict[str, EpisodeRecord] = {}
    for episode in run.episodes:
        policy = run.policies.get(episode.member)
        if episode.steps == newest and policy is not None and policy.has_guide:
            returns.setdefault(episode.member, []).append(episode.episode_return or 0.0)
            if episode.episode == 0:
                first[episode.member] = episode
    ranked = sorted((name for name in returns if name in first), key=lambda name: float(np.mean(returns[name])))
    if not ranked:
        return None
    member = ranked[(len(ranked) - 1) // 2]
    try:
        trace = run.files.trace(member)
    except RunError as error:
        run.notes.append(f"{error}, so no episode is shown; write it again with: vem evaluate {run.directory}")
        return None
    policy = run.policies[member]
    # A trace of an earlier evaluation is not what this record was written about.
    if trace is None or not trace.is_of(first[member]) or trace.observations.shape[1] != policy.observation_size:
        return None
    return Episode(first[member], policy, trace.observations)


def draw_films(
    runs: list[RunRecord], layout: MazeLayout, datasets: Mapping[int, Dataset | None], prefix: str
) -> tuple[list[Drawing], str]:
    """One strip for each evaluated run with guides, and a sentence if one lacks it; ``datasets`` by ``id`` of runs."""
    drawings, missing = [], ""
    for number, run in enumerate(runs):
        if not run.episodes or not has_guides(list(run.policies.values())):
            continue
        episode = choose_episode(run)
        if episode is None:
            missing = f"The evaluation of {run.label} left no trace that can be read; vem evaluate writes one."
        else:
            drawings.append(draw_film(episode, run.label, layout, datasets[id(run)], f"{prefix}film-{number}"))
    return drawings, missing


def frame_steps(length: int) -> np.ndarray:
    """The steps of the frames: start, end and as many between them as there are frames and steps."""
    return np.unique(np.linspace(0, length, NUM_FRAMES).round().astype(int))


def draw_film(episode: Episode, label: str, layout: MazeLayout, dataset: Dataset | None, name: str) -> Drawing:
    """The strip, left to right in time, on the member's own value landscape; on the bare floor without the data."""
    record, policy, observations = episode
    steps = frame_steps(len(observations) - 1)
    values = np.full((1, 1), np.nan)
    if dataset is not None and policy.has_value:
        values = tile_values(sort_rows(dataset, layout), dataset, [policy])
    known = values[np.isfinite(values)]
    scale = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    height = FRAME_WIDTH * floor_shape(layout) + 0.75
    figure, frames = new_panels(FRAME_WIDTH * max(len(steps), 2), height, len(steps))
    moves = plane_moves([policy], observations[steps])
    for axes, step, move in zip(frames, steps, moves, strict=True):
        draw_floor(axes, layout, values, scale)
        draw_places(axes, layout, 0.6)
        _draw_path(axes, observations[: step + 1, :2])
        draw_arrows(axes, observations[step : step + 1], move[None], f"guide-{step}")
        axes.set_title(f"step {step}", loc="left", pad=3)
        axes.set(xticks=[], yticks=[])
    handles, labels = frames[0].get_legend_handles_labels()
    columns = 5 if len(steps) > 3 else 3
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=1.6, columnspacing=1.2)
    plural = "" if record.length == 1 else "s"
    outcome = "reached the goal" if record.success else "did not reach the goal"
    caption = (
        f"Episode {record.episode} of {record.member}, which {outcome} in {record.length:,} step{plural}. Arrow: where "
        "the guide heads for from the observation of that step, to scale. Shown is the first episode of the member "
        "with the median return, whatever became of it."
    )
    if known.size:
        caption += " Floor: the member's own values, bright where they are high."
    return Drawing(name, f"An evaluated episode, {label}", caption, figure, caption)


def _draw_path(axes: Any, path: np.ndarray) -> None:
    from matplotlib.patheffects import Normal, Stroke

    outline = [Stroke(linewidth=2.6, foreground="black"), Normal()]
    axes.plot(*path.T, color="white", linewidth=1.2, path_effects=outline, zorder=3, label="path so far")
    axes.plot(
        *path[-1], "D", color="white", markeredgecolor="black", markersize=6, zorder=5, label="now", linestyle="none"
    )
