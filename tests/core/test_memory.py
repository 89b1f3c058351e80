import jax
import jax.numpy as jnp
import numpy as np
import pytest

from episodes import loop_maximum, random_steps, table_crossed
from vem import plan as memory

# An episode of five steps, γ = ½. Its n-step returns are worked out by hand below.
REWARDS = jnp.asarray([1.0, 0.0, 2.0, -1.0, 4.0, 0.0])
VALID = jnp.asarray([True, True, True, True, True, False])
VALUES = jnp.asarray([[9.0, 2.0, 6.0, 0.0, 4.0, 8.0]])


def steps(ends_in_terminal):
    continues = jnp.full(6, 0.5).at[4].set(0.0 if ends_in_terminal else 0.5)
    return memory.Steps(REWARDS, continues, VALID)


@pytest.mark.parametrize(
    ("ends_in_terminal", "num_steps", "expected"),
    [
        # One step: r + ½·V(next); the last row earns its reward and, if cut by a time limit, ½·8.
        (True, 1, [2.0, 3.0, 2.0, 1.0, 4.0]),
        (False, 1, [2.0, 3.0, 2.0, 1.0, 8.0]),
        # Two steps: row 0 may also use r0 + ½·(r1 + ½·6) = 2.5, row 3 −1 + ½·4 (or ½·8).
        (True, 2, [2.5, 3.0, 2.5, 1.0, 4.0]),
        (False, 2, [2.5, 3.0, 2.5, 3.0, 8.0]),
        # To the end.
        (True, None, [2.5, 3.0, 2.5, 1.0, 4.0]),
        (False, None, [2.5, 3.0, 3.5, 3.0, 8.0]),
    ],
)
def test_the_maximum_of_five_steps_by_hand(ends_in_terminal, num_steps, expected):
    planned = memory.episodic_maximum(VALUES, steps(ends_in_terminal), num_steps)
    np.testing.assert_allclose(planned[0, :5], expected)
    assert planned[0, 5] == VALUES[0, 5]


@pytest.mark.parametrize(
    ("ends_in_terminal", "num_steps", "expected"),
    [
        # From two steps on: row 0 has 2.5 at n = 2 and less later; row 1 loses its 3 at n = 1 and has, from
        # r1 + ½·(r2 + ½·max(0, −1 + ½·4, …)), 1.25; row 2 the same without r1; rows 3 and 4 go to the end.
        (True, None, [2.5, 1.25, 2.5, 1.0, 4.0]),
        (False, None, [2.5, 1.75, 3.5, 3.0, 8.0]),
        (True, 2, [2.5, 1.0, 2.5, 1.0, 4.0]),
    ],
)
def test_the_maximum_from_two_steps_on_by_hand(ends_in_terminal, num_steps, expected):
    planned = memory.episodic_maximum(VALUES, steps(ends_in_terminal), num_steps, least_steps=2)
    np.testing.assert_allclose(planned[0, :5], expected)
    assert planned[0, 5] == VALUES[0, 5]


@pytest.mark.parametrize(
    ("ends_in_terminal", "expected"), [(True, [1.625, 1.25, 2.5, 1.0, 4.0]), (False, [1.875, 1.75, 3.5, 3.0, 8.0])]
)
def test_monte_carlo_of_five_steps_by_hand(ends_in_terminal, expected):
    np.testing.assert_allclose(memory.monte_carlo(VALUES, steps(ends_in_terminal))[0, :5], expected)


def test_lambda_return_between_one_step_and_monte_carlo():
    at_end = steps(False)
    np.testing.assert_allclose(memory.lambda_return(VALUES, at_end, 0.0), memory.one_step(VALUES, at_end), rtol=1e-6)
    np.testing.assert_allclose(memory.lambda_return(VALUES, at_end, 1.0), memory.monte_carlo(VALUES, at_end))
    # By hand with λ = ½: 8, then −1 + ½(½·4 + ½·8) = 2, …
    np.testing.assert_allclose(memory.lambda_return(VALUES, at_end, 0.5)[0, 3:5], [2.0, 8.0])


@pytest.fixture(scope="module")
def recorded():
    generator = np.random.default_rng(7)
    lengths = generator.integers(1, 60, size=80)
    rewards, continues, valid = random_steps(generator, lengths)
    values = generator.normal(scale=3, size=(2, len(rewards))).astype(np.float32)
    return values, (rewards, continues, valid), memory.Steps(*map(jnp.asarray, (rewards, continues, valid)))


@pytest.mark.parametrize(("num_steps", "least"), [(None, 1), (1, 1), (5, 1), (100, 1), (None, 3), (3, 3), (13, 3)])
def test_the_plan_agrees_with_a_double_loop(recorded, num_steps, least):
    values, loops, rows = recorded
    plan = jax.jit(memory.episodic_maximum, static_argnums=(2, 3))
    planned = plan(jnp.asarray(values), rows, num_steps, least)
    expected = np.stack([loop_maximum(group, *loops, num_steps, least_steps=least) for group in values])
    np.testing.assert_allclose(planned, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_steps", [None, 1, 4, 1000])
def test_crossed_selection_agrees_with_the_table(recorded, num_steps):
    values, loops, rows = recorded
    planned = jax.jit(memory.crossed_maximum, static_argnums=2)(jnp.asarray(values), rows, num_steps)
    np.testing.assert_allclose(planned, table_crossed(values, *loops, num_steps), rtol=1e-5, atol=1e-5)


def test_crossed_selection_takes_the_shorter_rollout_on_ties():
    # Group 0 sees the same return for n = 1 and n = 2; the value read off group 1 must be that of n = 1.
    rows = memory.Steps(jnp.zeros(3), jnp.asarray([1.0, 1.0, 1.0]), jnp.asarray([True, True, False]))
    values = jnp.asarray([[0.0, 5.0, 5.0], [0.0, 1.0, 9.0]])
    assert memory.crossed_maximum(values, rows)[0, 0] == 5.0  # its own one-step return beats group 1's value 1
    lower = jnp.asarray([[0.0, -5.0, -5.0], [0.0, 1.0, 9.0]])
    assert memory.crossed_maximum(lower, rows)[0, 0] == 1.0


def test_more_rows_than_lanes_and_leading_axes():
    generator = np.random.default_rng(3)
    rewards, continues, valid = random_steps(generator, generator.integers(1, 300, size=40))
    assert len(rewards) > 2 * memory.LANES
    values = generator.normal(size=(3, 2, len(rewards))).astype(np.float32)
    rows = memory.Steps(*map(jnp.asarray, (rewards, continues, valid)))
    planned = jax.vmap(memory.episodic_maximum, (0, None))(jnp.asarray(values), rows)
    for seed in range(3):
        np.testing.assert_array_equal(planned[seed], memory.episodic_maximum(jnp.asarray(values[seed]), rows))
    np.testing.assert_allclose(
        planned[0, 0], loop_maximum(values[0, 0], rewards, continues, valid), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("slice_rows", [7, 1000])
@pytest.mark.parametrize(("index", "num_fresh"), [(0, 10), (0, None), (3, None)])
def test_a_full_refresh_values_every_row(slice_rows, index, num_fresh):
    observations = jnp.arange(200.0)[:, None]
    blank = jnp.zeros((1, 200))
    values = memory.refresh_values(lambda x: x.T * 2, observations, blank, jnp.asarray(index), num_fresh, slice_rows)
    np.testing.assert_array_equal(values[0], 2 * np.arange(200))


def test_a_rolling_refresh_reaches_every_row_in_turn():
    observations = jnp.arange(50.0)[:, None]
    values = jnp.zeros((1, 50))
    for index in range(1, 6):
        values = memory.refresh_values(lambda x: x.T + 1, observations, values, jnp.asarray(index), 9, 5)
        np.testing.assert_array_equal(values[0] != 0, np.arange(50) < 10 * index)
    np.testing.assert_array_equal(values[0], np.arange(50) + 1)


def test_two_step_returns_of_five_steps_by_hand():
    np.testing.assert_allclose(memory.n_step(VALUES, steps(False), 2)[0, :5], [2.5, 1.0, 2.5, 3.0, 8.0])
