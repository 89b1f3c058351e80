"""Makes the picture of the README: python docs/picture.py (two minutes of one core).

It records the built-in maze, trains VEM on it, lets the policy walk, and draws the log beside what was learned.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import vem
from vem import envs
from vem.envs.mazes import maze_layout

OUT = Path(__file__).resolve().parent / "maze.png"
MAZE, STEPS, WALKS = "pointmaze-medium", 16_000, 12
RECORDED, TILES = 150, 5
"""Trajectories on the left; tiles of a cell's side on the right."""


def walk(policy: Any, seed: int) -> np.ndarray:
    """Positions of one episode of the policy, (steps + 1, 2)."""
    env = envs.make(MAZE)
    observation, _ = env.reset(seed=seed)
    path, done = [observation[:2]], False
    while not done:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        path.append(observation[:2])
        done = terminated or truncated
    env.close()
    return np.array(path)


def tiles(positions: np.ndarray, values: np.ndarray, layout: Any) -> np.ndarray:
    """The mean value of each tile of the floor; NaN where nothing was recorded."""
    left, right, bottom, top = layout.extent
    rows, columns = (TILES * size for size in layout.walls.shape)
    edges = np.linspace(bottom, top, rows + 1), np.linspace(left, right, columns + 1)
    sums, _, _ = np.histogram2d(positions[:, 1], positions[:, 0], edges, weights=values)
    counts, _, _ = np.histogram2d(positions[:, 1], positions[:, 0], edges)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def draw_maze(axes: Any, layout: Any, title: str) -> None:
    """Walls, start and goal."""
    size = layout.cell_size
    for row, column in np.argwhere(layout.walls):
        x, y = layout.center((row, column))
        axes.add_patch(plt.Rectangle((x - size / 2, y - size / 2), size, size, color="#6b7280", linewidth=0))
    axes.plot(*layout.start, "o", color="white", markeredgecolor="black", markersize=9, zorder=5)
    axes.plot(*layout.goal, "*", color="#fbbf24", markeredgecolor="black", markersize=15, zorder=5)
    left, right, bottom, top = layout.extent
    inset = size / 2
    axes.set(xlim=(left + inset, right - inset), ylim=(bottom + inset, top - inset), xticks=[], yticks=[])
    axes.set_aspect("equal")
    axes.set_title(title, loc="left", fontsize=10)


def main() -> None:
    """Train, walk and draw."""
    dataset, layout = vem.load(MAZE), maze_layout(MAZE)
    with tempfile.TemporaryDirectory() as folder:
        policy = vem.train(dataset, steps=STEPS, seeds=1, out=Path(folder) / "run").policy
    walks = [walk(policy, seed) for seed in range(WALKS)]
    arrived = sum(np.linalg.norm(path[-1] - layout.goal) < 1.5 * layout.goal_radius for path in walks)
    positions, values = dataset.observations[:, :2], policy.value(dataset.observations)

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
    draw_maze(left, layout, "The log: walks between random cells,\nnone from the start to the goal")
    ends = np.flatnonzero(~dataset.valid)
    for first, last in itertools.pairwise(ends[: RECORDED + 1]):
        left.plot(*positions[first + 1 : last + 1].T, color="#2563eb", alpha=0.35, linewidth=0.7)
    draw_maze(right, layout, f"The policy: {arrived} of {WALKS} walks reach the goal\n(color: the value it learned)")
    shown = right.imshow(tiles(positions, values, layout), origin="lower", extent=layout.extent, cmap="viridis")
    for path in walks:
        right.plot(*path.T, color="white", linewidth=1.1, alpha=0.9)
    figure.colorbar(shown, ax=right, shrink=0.8, label="V(s)").outline.set_visible(False)
    figure.savefig(OUT, dpi=120, facecolor="white", metadata={"Software": None})
    print(f"{OUT.name}: {arrived} of {WALKS} arrived")


if __name__ == "__main__":
    main()
