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
from vem.training.records import EpisodeRecord

# The guide of a guided policy as arrows on the floor of a maze: from a state to where the guide heads for.


MOST_PER_CELL = 3
"""Arrows along one side of a cell at most."""
COLOR, EDGE = "#ff4fa3", "#2b0018"
"""Pink on a dark edge: neither the landscape nor the trajectories have it."""


def has_guides(policies: Sequence[Policy]) -> bool:
    """Whether there are policies and all have a guide."""
    return bool(policies) and all(policy.has_guide for policy in policies)


def plane_moves(policies: Sequence[Policy], observations: np.ndarray) -> np.ndarray:
    """The guides' moves in x and y at each observation, in its own unit: the mean over the policies."""
    return np.stack([policy.guide(observations)[:, :2] for policy in policies]).mean(axis=0, dtype=np.float64)


def spread_states(observations: np.ndarray, layout: MazeLayout, policies: Sequence[Policy]) -> np.ndarray:
    """Some of the observations, spread evenly over the floor and as dense as arrows do not crowd.

    The floor is cut into squares, and each gives the observation nearest to its center. A cell has one square, or up to
    ``MOST_PER_CELL`` along each side if the typical arrow is shorter than they are.
    """
    sparse = observations[central_rows(observations, layout, 1)]
    typical = float(np.median(np.linalg.norm(plane_moves(policies, sparse), axis=1))) if len(sparse) else 0.0
    per_cell = int(np.clip(layout.cell_size / max(typical, 1e-9), 1, MOST_PER_CELL))
    return observations[central_rows(observations, layout, per_cell)]


def central_rows(observations: np.ndarray, layout: MazeLayout, per_cell: int) -> np.ndarray:
    """The row nearest to the center of each square of a cell's size / ``per_cell``, where there is one."""
    left, right, bottom, top = layout.extent
    places = (observations[:, :2] - np.array([left, bottom])) * (per_cell / layout.cell_size)
    is_inside = ((places >= 0) & (observations[:, :2] < np.array([right, top]))).all(axis=1)
    rows, places = np.flatnonzero(is_inside), places[is_inside]
    squares = np.floor(places)
    order = np.lexsort((np.abs(places - squares - 0.5).max(axis=1), squares[:, 1], squares[:, 0]))
    _, first = np.unique(squares[order], axis=0, return_index=True)
    return np.sort(rows[order[first]])


def draw_arrows(axes: Any, states: np.ndarray, moves: np.ndarray, gid: str) -> None:
    """Arrows from the states' x and y to where the moves lead, with a dot at their tails and an entry for a legend."""
    (tails,) = axes.plot(
        *states[:, :2].T, "o", color=COLOR, markeredgecolor=EDGE, markeredgewidth=0.5, markersize=3.5, zorder=3.5
    )
    tails.set_gid(f"{gid}-tails")
    arrows = axes.quiver(
        *states[:, :2].T.astype(float),
        *moves[:, :2].T.astype(float),
        angles="xy",
        scale_units="xy",
        scale=1,
        units="inches",
        width=0.022,
        headwidth=5,
        headlength=5,
        headaxislength=4.2,
        color=COLOR,
        edgecolor=EDGE,
        linewidth=0.5,
        zorder=3.5,
    )
    arrows.set_gid(gid)
    axes.plot([], [], color=COLOR, marker=r"$\rightarrow$", markersize=11, linestyle="none", label="guide")


TILES_PER_CELL = 8
ROWS_PER_TILE = 12
NUM_DOTS = 2000
NUM_TRAJECTORIES = 8


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
    name = run.task.environment if run.task else run.environment
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


def draw_landscapes(series: list[Series], floor: Floor, dataset: Dataset, prefix: str) -> list[Drawing]:
    """One Drawing for each series that has values, all on the same color scale."""
    valued = [(index, one) for index, one in enumerate(series) if _has_values(one)]
    if not valued:
        return []
    maps = [tile_values(floor, dataset, one.policies()) for _, one in valued]
    low, high = (float(f(np.concatenate([m.ravel() for m in maps]))) for f in (np.nanmin, np.nanmax))
    drawings = []
    for (index, one), values in zip(valued, maps, strict=True):
        drawings.append(_draw(one, f"{prefix}landscape-{index}", floor, dataset, values, (low, high)))
    return drawings


def _has_values(one: Series) -> bool:
    policies = one.policies()
    return bool(policies) and all(policy.has_value for policy in policies)


def _draw(
    one: Series, name: str, floor: Floor, dataset: Dataset, values: np.ndarray, scale: tuple[float, float]
) -> Drawing:
    layout = floor.layout
    figure, axes = new_figure(5.2, 3.6 * floor_shape(layout) + 1.1)
    mesh = draw_floor(axes, layout, values, scale)
    _draw_data(axes, dataset)
    shown, successes = _draw_trajectories(axes, one)
    guide = _draw_guide(axes, one.policies(), dataset.observations[floor.rows], layout)
    draw_places(axes, layout)
    axes.set(xlabel="x (m)", ylabel="y (m)")
    axes.set_title(one.label, loc="left")
    bar = figure.colorbar(mesh, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label("V(s) (discounted return)")
    bar.outline.set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, handlelength=2.0, columnspacing=1.2, markerscale=1.0)
    seeds = len(one.policies())
    caption = (
        f"Value of {one.label}: mean over {seeds} seed{'s' if seeds > 1 else ''} and over up to {ROWS_PER_TILE} "
        f"recorded observations in each tile; blank floor has no data. "
        + (
            f"{shown} evaluated trajectories ({successes} reached the goal)."
            if shown
            else "No evaluated trajectories: the evaluation kept none."
        )
        + guide
    )
    title = f"Value landscape, {one.label}"
    return Drawing(name, title, caption, figure, caption)


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


def _draw_guide(axes: Any, policies: Sequence[Policy], observations: np.ndarray, layout: MazeLayout) -> str:
    """Draw the arrows of guided policies; return the sentence about them, empty for other policies."""
    if not has_guides(policies):
        return ""
    states = spread_states(observations, layout, policies)
    draw_arrows(axes, states, plane_moves(policies, states), "layer-guide")
    horizon = policies[0].info.get("settings", {}).get("horizon")
    ahead = f"{horizon} steps" if horizon else "some steps"
    over = ", mean over seeds" if len(policies) > 1 else ""
    return (
        f" Arrows: where the guide heads for from {len(states)} recorded states, each in the pose and at the velocity "
        f"of its trajectory, {ahead} ahead and to scale{over}."
    )


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


def _draw_trajectories(axes: Any, one: Series) -> tuple[int, int]:
    """Draw some evaluated episodes; return how many, and how many of them succeeded."""
    from matplotlib.patheffects import Normal, Stroke

    kept = [episode for episode in one.episodes() if _path(episode) is not None]
    kept = [kept[i] for i in np.linspace(0, len(kept) - 1, min(NUM_TRAJECTORIES, len(kept))).astype(int)]
    labeled: set[bool] = set()
    for number, episode in enumerate(kept):
        path = _path(episode)
        assert path is not None
        success = bool(episode.success)
        look = (
            {"color": "white", "linewidth": 1.1, "path_effects": [Stroke(linewidth=2.4, foreground="black"), Normal()]}
            if success
            else {
                "color": "#ff9f80",
                "linewidth": 0.9,
                "path_effects": [Stroke(linewidth=1.9, foreground="#7a1f00"), Normal()],
            }
        )
        label = None if success in labeled else ("reached the goal" if success else "did not reach it")
        labeled.add(success)
        (line,) = axes.plot(path[:, 0], path[:, 1], zorder=3, label=label, **look)
        line.set_gid(f"layer-trajectories-{number}")
    return len(kept), sum(bool(episode.success) for episode in kept)


def _path(episode: EpisodeRecord) -> np.ndarray | None:
    """The x, y of an evaluated episode; None where it was not kept."""
    try:
        path = np.asarray(episode.path, float)
    except (TypeError, ValueError):
        return None
    return path if path.ndim == 2 and path.shape[1] == 2 and len(path) > 1 and np.isfinite(path).all() else None


def draw_places(axes: Any, layout: MazeLayout, size: float = 1.0) -> None:
    """Mark start and goal, ``size`` times as large as in a landscape."""
    from matplotlib.patches import Circle

    axes.plot(
        *layout.start,
        "o",
        color="white",
        markeredgecolor="black",
        markersize=8 * size,
        zorder=4,
        label="start",
        linestyle="none",
    )
    axes.plot(
        *layout.goal,
        "*",
        color="#ffcc0d",
        markeredgecolor="black",
        markersize=13 * size,
        zorder=4,
        label="goal",
        linestyle="none",
    )
    axes.add_patch(Circle(layout.goal, layout.goal_radius, fill=False, edgecolor="black", linewidth=0.9, zorder=4))
