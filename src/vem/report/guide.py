"""The guide of a guided policy as arrows on the floor of a maze: from a state to where the guide heads for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vem.envs.layouts import MazeLayout
from vem.policy import Policy

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
