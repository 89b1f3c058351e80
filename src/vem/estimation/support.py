"""How far the log shows what a policy's actions lead to: w(s) = min(1, β(π(s)|s)/b).

β is the density of the log's actions, and b the density that all but a quarter of recorded actions exceed. So w is 1
where recorded actions are as unusual as the policy's, and falls with its density elsewhere.
"""

from __future__ import annotations

import numpy as np

from vem.data import Dataset
from vem.estimation.acting import scale_actions
from vem.estimation.density import Density

UNUSUAL_SHARE = 0.25
MOST_ROWS = 50_000
"""Rows that b is found from."""


def unusual(density: Density, dataset: Dataset) -> float:
    """Log b of recorded actions that the density was not fitted to."""
    rows = np.flatnonzero(dataset.valid)
    rows = rows[:: max(1, len(rows) // MOST_ROWS)]
    found = density(dataset.observations[rows], scale_actions(dataset.actions[rows], dataset))
    return float(np.quantile(found, UNUSUAL_SHARE))


def weigh(density: Density, border: float, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """W of actions, in the networks' units, in states."""
    return np.exp(np.minimum(density(observations, actions) - border, 0.0)).astype(np.float32)
