"""How far the log shows what a policy's actions lead to."""

import numpy as np
import pytest

from small_runs import tiny_dataset
from vem.estimation.importance import UNUSUAL_SHARE, support_border, support_weight
from vem.estimation.log import scale_actions


def normal(observations, actions):
    """The log-density of a Normal around 0 with deviation ½, but for its constant."""
    return -2.0 * np.square(actions).sum(axis=1)


def test_recorded_actions_are_in_support_but_for_the_unusual():
    dataset = tiny_dataset((6,) * 30)
    rows = np.flatnonzero(dataset.valid)
    recorded = scale_actions(dataset.actions[rows], dataset)
    border = support_border(normal, dataset)
    weights = support_weight(normal, border, dataset.observations[rows], recorded)
    assert np.mean(weights < 1) == pytest.approx(UNUSUAL_SHARE, abs=0.02)


def test_weights_fall_with_the_density():
    seen, actions = np.zeros((3, 2), np.float32), np.array([[0.0], [1.0], [3.0]], np.float32)
    np.testing.assert_allclose(support_weight(normal, -2.0, seen, actions), [1, 1, np.exp(-16)], rtol=1e-6)
