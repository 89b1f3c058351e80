"""Scores of support: golden values, calibration, and what is told from what."""

import numpy as np
import pytest

from vem.policy.support import MOST_NUMBERS, Support, fit_support, share_at_least, stored_support, support_problem


def rows(count, seed, scale=(1.0, 5.0)):
    """States of two correlated columns, and an action that follows the first with some noise."""
    random = np.random.default_rng(seed)
    first = random.standard_normal(count)
    states = np.stack([first, 0.9 * first + 0.3 * random.standard_normal(count)], axis=1) * scale
    actions = (0.5 * first + 0.1 * random.standard_normal(count))[:, None]
    return states.astype(np.float32), actions.astype(np.float32)


@pytest.fixture(scope="module")
def model():
    states, actions = rows(2000, 0)
    return fit_support(states, actions, np.arange(2000) >= 1000, ())


def test_share_at_least():
    np.testing.assert_allclose(
        share_at_least(np.array([1.0, 2.0, 2.0, 3.0]), np.array([0, 2, 2.5, 9.0])), [1, 0.8, 0.4, 0.2]
    )


def test_nearest_prototype_by_hand():
    states = np.array([[-1.0], [1.0], [3.0]])
    model = fit_support(states, np.zeros((3, 1)), np.array([False, False, True]), (2,))
    # Two prototypes at ∓1 in a column of mean 0 and deviation 1; the held-out row is 2 from the nearer one.
    factor = (1 + 1e-3) ** -0.25
    assert model.distances == pytest.approx([2 * factor], rel=1e-5)
    scores = model.scores(np.array([[2.9], [3.1]]), np.zeros((2, 1)))
    np.testing.assert_allclose(scores.state, [1.0, 0.5])


def test_novelty_of_a_choice_is_its_share_among_neighbors():
    states = np.zeros((20, 1))
    actions = np.array([0.0] * 12 + [1.0] * 4 + [0.0, 0.0, 1.0, 2.0])[:, None]
    model = fit_support(states, actions, np.arange(20) >= 16, (3,))
    _, novelties = model.measure(np.zeros((3, 1)), np.array([[0.0], [1.0], [2.0]]))
    expected = -np.log([(12 + 0.04) / 16, (4 + 0.12) / 16, 0.01])
    np.testing.assert_allclose(novelties, expected, rtol=1e-5)
    usual = model.usual(np.zeros((1, 1)))
    assert (usual.actions[0, 0], usual.deviations[0, 0]) == (0, 0.25)


def test_scores_of_new_rows_are_uniform(model):
    scores = model.scores(*rows(4000, 1))
    for found in scores:
        for level in (0.05, 0.2, 0.5, 0.8):
            # Sampling errors of 1,000 held-out and of 4,000 new rows, four deviations.
            error = 4 * np.sqrt(level * (1 - level) * (1 / 1000 + 1 / 4000))
            assert np.mean(np.asarray(found) <= level) == pytest.approx(level, abs=error)


def test_tells_what_was_not_recorded(model):
    states, actions = rows(500, 2)
    apart = states.copy()
    apart[:, 1] = -apart[:, 1]  # each column as recorded, but not together
    far = np.abs(states[:, 0]) > 1
    assert np.mean(np.asarray(model.scores(apart, actions).state)[far] < 0.01) > 0.95
    assert np.mean(np.asarray(model.scores(states, actions + 1).action) < 0.01) > 0.95
    assert np.mean(np.asarray(model.scores(states + 1000, actions).state) < 0.01) == 1


def test_usual_action_follows_the_state(model):
    states, _ = rows(500, 3)
    usual = model.usual(states)
    np.testing.assert_allclose(usual.actions[:, 0], 0.5 * states[:, 0], atol=0.2)
    assert np.median(usual.deviations) == pytest.approx(0.1, abs=0.03)


def test_batches_score_as_single_rows_do(model):
    states, actions = rows(1500, 4)
    whole = model.scores(states, actions)
    for row in (0, 700, 1499):
        single = model.scores(states[row : row + 1], actions[row : row + 1])
        assert single.state[0] == pytest.approx(whole.state[row], abs=2e-3)
        assert single.action[0] == pytest.approx(whole.action[row], abs=2e-3)


def test_constant_columns_and_wide_states():
    random = np.random.default_rng(0)
    states = random.standard_normal((200, 300))
    states[:, 7] = 5.0
    model = fit_support(states, random.uniform(size=(200, 2)), np.arange(200) >= 150, ())
    moved = states[150:].copy()
    moved[:, 7] = 5.5
    assert (np.asarray(model.scores(moved, np.zeros((50, 2))).state) == 1 / 51).all()
    assert model.rotation.size == 0
    assert sum(array.nbytes for array in model.tensors().values()) < 4 * MOST_NUMBERS + 65_536


def test_is_outside():
    assert Support(0.5, 0.001).is_outside is True
    assert Support(0.5, 0.5).is_outside is False
    np.testing.assert_array_equal(Support(np.array([0.001, 0.5]), np.array([0.5, 0.5])).is_outside, [True, False])


def test_stored_arrays_are_checked(model):
    tensors = model.tensors()
    assert support_problem(tensors, 2, 1) is None
    assert support_problem({}, 2, 1) is None
    assert stored_support({}) is None
    assert "center" in str(support_problem(tensors, 3, 1))
    assert "lack" in str(support_problem({k: t for k, t in tensors.items() if k != "support.states"}, 2, 1))
    assert "scale" in str(support_problem({**tensors, "support.scale": np.zeros(2, np.float32)}, 2, 1))
