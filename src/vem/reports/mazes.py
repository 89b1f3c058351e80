"""The value landscape: V over the floor of a maze, with the data, the guide and the evaluated trajectories on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vem.data.dataset import Dataset
from vem.envs.mazes import MazeLayout, maze_layout
from vem.errors import SimulatorError
from vem.policy import Policy
from vem.reports.records import RunRecord, Series
from vem.reports.style import GRAY, Drawing, new_figure

TILES_PER_CELL = 8
ROWS_PER_TILE = 12
NUM_DOTS = 2000
NUM_TRAJECTORIES = 8
ARROW, ARROW_EDGE = "#ff4fa3", "#2b0018"
"""Pink on a dark edge: neither the values nor the trajectories have it."""


@dataclass(frozen=True)
class Floor:
    """Recorded rows sorted into the tiles of a maze's floor."""

    layout: MazeLayout
    shape: tuple[int, int]
    """Tiles along y and along x."""
    rows: np.ndarray
    """A few rows of the data from every tile that has any."""
    tiles: np.ndarray
    """Flat index of each such row's tile."""


def find_layout(run: RunRecord) -> MazeLayout | None:
    """The maze of a run, or None if it has none."""
    name = run.task.environment if run.task else run.data.info.environment
    try:
        return maze_layout(name) if name else None
    except SimulatorError:
        return None


def sort_rows(dataset: Dataset, layout: MazeLayout) -> Floor:
    """Up to ``ROWS_PER_TILE`` rows of each tile, drawn at random but always the same."""
    left, right, bottom, top = layout.extent
    rows, columns = layout.walls.shape
    shape = rows * TILES_PER_CELL, columns * TILES_PER_CELL
    x, y = dataset.observations[:, 0], dataset.observations[:, 1]
    column = np.floor((x - left) / (right - left) * shape[1]).astype(int)
    row = np.floor((y - bottom) / (top - bottom) * shape[0]).astype(int)
    inside = np.flatnonzero((column >= 0) & (column < shape[1]) & (row >= 0) & (row < shape[0]))
    inside = np.random.default_rng(0).permutation(inside)
    tiles = row[inside] * shape[1] + column[inside]
    order = np.argsort(tiles, kind="stable")
    inside, tiles = inside[order], tiles[order]
    _, first, counts = np.unique(tiles, return_index=True, return_counts=True)
    rank = np.arange(len(tiles)) - np.repeat(first, counts)
    kept = rank < ROWS_PER_TILE
    return Floor(layout, shape, inside[kept], tiles[kept])


def tile_values(floor: Floor, dataset: Dataset, policies: Sequence[Policy]) -> np.ndarray:
    """Mean of V over the policies and over the rows of each tile, (y, x); NaN where there is no data."""
    observations = dataset.observations[floor.rows]
    values = np.mean([policy.value(observations) for policy in policies], axis=0)
    size = floor.shape[0] * floor.shape[1]
    counts = np.bincount(floor.tiles, minlength=size)
    sums = np.bincount(floor.tiles, values, minlength=size)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan).reshape(floor.shape)


def draw_landscapes(runs: Sequence[RunRecord], series: Sequence[Series]) -> list[Drawing]:
    """The maze of the runs for each series that has values, all on the same color scale; nothing without maze or data.

    Where no series has values, the bare floor for each that has evaluated trajectories.
    """
    layout, dataset = find_layout(runs[0]), next((run.dataset for run in runs if run.dataset is not None), None)
    shown = [one for one in series if one.has_values] or [one for one in series if _paths(one)]
    if layout is None or dataset is None or not shown:
        return []
    floor = sort_rows(dataset, layout)
    maps = [tile_values(floor, dataset, one.policies) if one.has_values else None for one in shown]
    known = np.concatenate([values[np.isfinite(values)] for values in maps if values is not None] or [np.zeros(0)])
    scale = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    return [_draw_landscape(one, floor, dataset, values, scale) for one, values in zip(shown, maps, strict=True)]


def _draw_landscape(
    one: Series, floor: Floor, dataset: Dataset, values: np.ndarray | None, scale: tuple[float, float]
) -> Drawing:
    layout = floor.layout
    figure, axes = new_figure(5.2, 3.6 * floor_shape(layout) + 1.1)
    mesh = draw_floor(axes, layout, np.full((1, 1), np.nan) if values is None else values, scale)
    _draw_data(axes, dataset)
    num_shown, num_successes = _draw_trajectories(axes, one)
    caption = "Blank floor has no data."
    if values is not None:
        seeds = f"{len(one.policies)} seeds" if len(one.policies) > 1 else "1 seed"
        caption = (
            f"Colors: value V(s), mean over {seeds} and up to {ROWS_PER_TILE} recorded states a tile; {caption.lower()}"
        )
        bar = figure.colorbar(mesh, ax=axes, shrink=0.85, pad=0.02)
        bar.set_label("V(s) (discounted return)")
        bar.outline.set_visible(False)
    if num_shown:
        caption += f" Lines: {num_shown} evaluated trajectories, {num_successes} of which reached the goal."
    else:
        caption += " No trajectories: there is no evaluation that kept any."
    caption += _draw_guide(axes, one.policies, dataset.observations[floor.rows], layout)
    draw_places(axes, layout)
    axes.set(xlabel="x (m)", ylabel="y (m)")
    axes.set_title(one.label, loc="left")
    figure.legend(loc="outside lower center", ncols=3, handlelength=2.0, columnspacing=1.2, markerscale=1.0)
    return Drawing(f"landscape-{one.index}", f"Maze, {one.label}", caption, figure)


def floor_shape(layout: MazeLayout) -> float:
    """Height of a maze's floor as ``draw_floor`` shows it, in units of its width."""
    left, right, bottom, top = layout.extent
    return (top - bottom - layout.cell_size) / (right - left - layout.cell_size)


def draw_floor(axes: Any, layout: MazeLayout, values: np.ndarray, scale: tuple[float, float]) -> Any:
    """Draw V and the walls, and return what a color bar needs."""
    left, right, bottom, top = layout.extent
    axes.grid(False)
    mesh = axes.imshow(
        values,
        extent=(left, right, bottom, top),
        origin="lower",
        interpolation="nearest",
        cmap="viridis",
        vmin=scale[0],
        vmax=scale[1] if scale[1] > scale[0] else scale[0] + 1,
        zorder=1,
    )
    _draw_walls(axes, layout)
    # Of the outer wall half a cell is enough to see.
    hidden = layout.cell_size / 2
    axes.set(xlim=(left + hidden, right - hidden), ylim=(bottom + hidden, top - hidden), aspect="equal")
    for spine in axes.spines.values():
        spine.set_visible(False)
    return mesh


def central_rows(observations: np.ndarray, layout: MazeLayout) -> np.ndarray:
    """Of each cell with observations the row of the one that is nearest to its center."""
    left, _, bottom, _ = layout.extent
    cells, offsets = np.divmod((observations[:, :2] - np.array([left, bottom])) / layout.cell_size, 1)
    order = np.argsort(np.abs(offsets - 0.5).max(axis=1), kind="stable")
    _, first = np.unique(cells[order], axis=0, return_index=True)
    return np.sort(order[first])


def plane_moves(policies: Sequence[Policy], observations: np.ndarray) -> np.ndarray:
    """The guides' moves in x and y at each observation, in its own unit: the mean over the policies."""
    return np.stack([policy.guide(observations)[:, :2] for policy in policies]).mean(axis=0, dtype=np.float64)


def _draw_guide(axes: Any, policies: Sequence[Policy], observations: np.ndarray, layout: MazeLayout) -> str:
    """Draw where the guides head for from one state a cell; return the sentence about it, empty without guides."""
    if not policies or not all(policy.has_guide for policy in policies):
        return ""
    states = observations[central_rows(observations, layout)]
    places, moves = states[:, :2].T.astype(float), plane_moves(policies, states).T
    dots = {"color": ARROW, "markeredgecolor": ARROW_EDGE, "markeredgewidth": 0.5, "markersize": 3.5, "zorder": 3.5}
    axes.plot(*places, "o", **dots)[0].set_gid("layer-guide-tails")
    to_scale = {"angles": "xy", "scale_units": "xy", "scale": 1, "units": "inches", "width": 0.022}
    head = {"headwidth": 5, "headlength": 5, "headaxislength": 4.2}
    look = {"color": ARROW, "edgecolor": ARROW_EDGE, "linewidth": 0.5, "zorder": 3.5}
    axes.quiver(*places, *moves, **to_scale, **head, **look).set_gid("layer-guide")
    axes.plot([], [], color=ARROW, marker=r"$\rightarrow$", markersize=11, linestyle="none", label="guide")
    horizon = policies[0].info.get("settings", {}).get("horizon")
    ahead = f"{horizon} steps" if horizon else "some steps"
    over = ", mean over seeds" if len(policies) > 1 else ""
    return f" Arrows: where the guide heads for from {len(states)} recorded states, {ahead} ahead, to scale{over}."


def _draw_walls(axes: Any, layout: MazeLayout) -> None:
    from matplotlib.colors import ListedColormap

    walls = np.where(layout.walls, 1.0, np.nan)
    origin = "lower" if layout.row_step > 0 else "upper"
    axes.imshow(walls, cmap=ListedColormap([GRAY]), extent=layout.extent, origin=origin, zorder=1.5)


def _draw_data(axes: Any, dataset: Dataset) -> None:
    """Some recorded positions as dots: one path of very short lines, which a page can hide and which stays small."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    rows = np.linspace(0, dataset.num_rows - 1, min(NUM_DOTS, dataset.num_rows)).astype(int)
    places = dataset.observations[rows, :2].astype(float)
    corners = np.stack([places, places + np.array([0.01, 0.0])], axis=1).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, Path.LINETO], len(rows))
    dots = PathPatch(Path(corners, codes), fill=False, edgecolor="black", linewidth=1.4, capstyle="round", alpha=0.4)
    dots.set(zorder=2, gid="layer-data")
    axes.add_patch(dots)
    axes.plot([], [], "o", color="black", markeredgecolor=GRAY, markersize=4, label="data")


def _paths(one: Series) -> list[tuple[np.ndarray, bool]]:
    """The x, y of evaluated episodes that kept them, and whether each succeeded."""
    found = []
    for episode in one.episodes():
        try:
            path = np.asarray(episode.path, float)
        except (TypeError, ValueError):
            continue
        if path.ndim == 2 and path.shape[1] == 2 and len(path) > 1 and np.isfinite(path).all():
            found.append((path, bool(episode.success)))
    return found


def _draw_trajectories(axes: Any, one: Series) -> tuple[int, int]:
    """Draw some evaluated episodes; return how many, and how many of them succeeded."""
    from matplotlib.patheffects import Normal, Stroke

    paths = _paths(one)
    paths = [paths[i] for i in np.linspace(0, len(paths) - 1, min(NUM_TRAJECTORIES, len(paths))).astype(int)]
    labels = {True: "reached the goal", False: "did not reach it"}
    for number, (path, success) in enumerate(paths):
        color, edge, width = ("white", "black", 1.1) if success else ("#ff9f80", "#7a1f00", 0.9)
        outline = [Stroke(linewidth=width + 1.2, foreground=edge), Normal()]
        label = labels.pop(success, None)
        look = {"color": color, "linewidth": width, "path_effects": outline, "zorder": 3, "label": label}
        axes.plot(path[:, 0], path[:, 1], **look)[0].set_gid(f"layer-trajectories-{number}")
    return len(paths), sum(success for _, success in paths)


def draw_places(axes: Any, layout: MazeLayout, size: float = 1.0) -> None:
    """Mark start and goal, ``size`` times as large as in a landscape."""
    from matplotlib.patches import Circle

    look = {"markeredgecolor": "black", "zorder": 4, "linestyle": "none"}
    axes.plot(*layout.start, "o", color="white", markersize=8 * size, label="start", **look)
    axes.plot(*layout.goal, "*", color="#ffcc0d", markersize=13 * size, label="goal", **look)
    axes.add_patch(Circle(layout.goal, layout.goal_radius, fill=False, edgecolor="black", linewidth=0.9, zorder=4))
