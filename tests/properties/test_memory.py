import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from episodes import loop_maximum, random_steps, table_crossed
from vem import plan as memory

maximum = jax.jit(memory.episodic_maximum, static_argnums=2)
crossed = jax.jit(memory.crossed_maximum)

# Few shapes, so that few programs are compiled: episodes fill 24 rows.
SIZES = st.lists(st.integers(1, 9), max_size=8)


def fill(lengths):
    kept, used = [], 0
    for length in lengths:
        if used + length + 1 > 22:
            break
        kept.append(length)
        used += length + 1
    return [*kept, 24 - used - 1]


@st.composite
def trajectories(draw):
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    lengths = fill(draw(SIZES))
    rewards, continues, valid = random_steps(generator, lengths, draw(st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0])))
    values = (generator.normal(size=(2, 24)) * draw(st.sampled_from([0.0, 1.0, 100.0]))).astype(np.float32)
    return lengths, values, rewards, continues, valid


def plan(values, rewards, continues, valid, num_steps=None):
    steps = memory.Steps(jnp.asarray(rewards), jnp.asarray(continues), jnp.asarray(valid))
    return np.asarray(maximum(jnp.asarray(values), steps, num_steps))


@settings(max_examples=60, deadline=None)
@given(trajectories())
def test_recursion_equals_the_unrolled_maximum(trajectory):
    _, values, *rest = trajectory
    for num_steps in (None, 3):
        expected = np.stack([loop_maximum(group, *rest, num_steps) for group in values])
        np.testing.assert_allclose(plan(values, *rest, num_steps), expected, rtol=1e-4, atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(trajectories())
def test_crossed_selection_equals_its_table(trajectory):
    _, values, rewards, continues, valid = trajectory
    steps = memory.Steps(jnp.asarray(rewards), jnp.asarray(continues), jnp.asarray(valid))
    planned = crossed(jnp.asarray(values), steps)
    np.testing.assert_allclose(planned, table_crossed(values, rewards, continues, valid), rtol=1e-4, atol=1e-3)


@settings(max_examples=60, deadline=None)
@given(trajectories(), st.integers(0, 23), st.floats(0, 10, width=32))
def test_monotone_in_values_rewards_and_steps(trajectory, row, more):
    _, values, rewards, continues, valid = trajectory
    planned = plan(values, rewards, continues, valid)
    higher = values.copy()
    higher[:, row] += more
    assert (plan(higher, rewards, continues, valid) >= planned - 1e-3).all()
    richer = rewards.copy()
    richer[row] += more * valid[row]
    assert (plan(values, richer, continues, valid) >= planned - 1e-3).all()
    one, three = (plan(values, rewards, continues, valid, n) for n in (1, 3))
    assert (three >= one - 1e-3).all()
    assert (planned >= three - 1e-3).all()


@settings(max_examples=60, deadline=None)
@given(trajectories(), st.integers(0, 2**32 - 1))
def test_episodes_do_not_touch_each_other(trajectory, seed):
    lengths, values, rewards, continues, valid = trajectory
    generator = np.random.default_rng(seed)
    ends = np.cumsum(np.asarray(lengths) + 1)
    chosen = generator.integers(len(lengths))
    rows = slice(ends[chosen] - lengths[chosen] - 1, ends[chosen])
    changed_values, changed_rewards = values.copy(), rewards.copy()
    changed_values[:, rows] += generator.normal(size=(2, lengths[chosen] + 1)).astype(np.float32) * 50
    changed_rewards[rows] -= 7 * valid[rows]
    others = np.ones(24, bool)
    others[rows] = False
    before = plan(values, rewards, continues, valid)
    after = plan(changed_values, changed_rewards, continues, valid)
    np.testing.assert_allclose(after[:, others], before[:, others], rtol=1e-5, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(trajectories(), st.integers(0, 2**32 - 1))
def test_permuting_episodes_permutes_the_plan(trajectory, seed):
    lengths, values, rewards, continues, valid = trajectory
    ends = np.cumsum(np.asarray(lengths) + 1)
    order = np.random.default_rng(seed).permutation(len(lengths))
    rows = np.concatenate([np.arange(ends[i] - lengths[i] - 1, ends[i]) for i in order])
    moved = plan(values[:, rows], rewards[rows], continues[rows], valid[rows])
    np.testing.assert_allclose(moved, plan(values, rewards, continues, valid)[:, rows], rtol=1e-5, atol=1e-4)
