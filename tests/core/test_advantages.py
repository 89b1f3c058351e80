import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vem import losses as advantages

RETURNS = jnp.asarray([0.5, 0.2, 0.9, 0.1])
VALUES = jnp.asarray([0.25, 0.4, 0.9, 0.2])


def scale(kind="raw", **changes):
    return advantages.fit_scale(RETURNS, VALUES, kind, jnp.float32(1.0), **changes)


def test_advantages_by_hand():
    difference = np.asarray([0.25, -0.2, 0.0, -0.1])
    np.testing.assert_allclose(advantages.advantage(RETURNS, VALUES, scale(), "raw"), difference, atol=1e-7)
    standardized = advantages.advantage(RETURNS, VALUES, scale("standardized"), "standardized")
    np.testing.assert_allclose(standardized, difference / difference.std(), rtol=1e-5, atol=1e-6)
    relative = advantages.advantage(RETURNS, VALUES, scale("relative"), "relative")
    np.testing.assert_allclose(relative, np.log([2.0, 0.5, 1.0, 0.5]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["standardized", "relative"])
def test_the_unit_of_the_reward_does_not_matter(kind):
    small = advantages.advantage(RETURNS, VALUES, scale(kind), kind)
    large = advantages.fit_scale(1000 * RETURNS, 1000 * VALUES, kind, jnp.float32(1.0))
    np.testing.assert_allclose(
        advantages.advantage(1000 * RETURNS, 1000 * VALUES, large, kind), small, rtol=1e-4, atol=1e-5
    )


def test_relative_advantages_survive_negative_values():
    returns, values = jnp.asarray([-5.0, 0.0, 2.0]), jnp.asarray([-4.0, -1.0, 1.0])
    fitted = advantages.fit_scale(returns, values, "relative", jnp.float32(1.0))
    found = advantages.advantage(returns, values, fitted, "relative")
    assert np.isfinite(found).all()
    assert (np.sign(found) == np.sign(returns - values)).all()


def test_clipping_at_quantiles():
    returns = jnp.asarray(np.random.default_rng(0).standard_t(2, 5000), jnp.float32)
    fitted = advantages.fit_scale(returns, jnp.zeros(5000), "raw", jnp.float32(1.0), clip_quantile=0.1)
    clipped = advantages.advantage(returns, jnp.zeros(5000), fitted, "raw")
    low, high = np.quantile(returns, [0.1, 0.9])
    assert clipped.min() == pytest.approx(low, rel=1e-4)
    assert clipped.max() == pytest.approx(high, rel=1e-4)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e4])
def test_the_temperature_gives_the_wanted_effective_sample(share, unit):
    adv = unit * jnp.asarray(np.random.default_rng(1).gumbel(size=4000), jnp.float32)
    temperature = advantages.temperature_for(adv, jnp.float32(share))
    found = advantages.effective_share(advantages.softmax_weights(adv, temperature))
    assert found == pytest.approx(share, abs=0.01)


def test_weights_by_hand():
    adv = jnp.asarray([0.0, np.log(3.0)])
    np.testing.assert_allclose(advantages.softmax_weights(adv, jnp.float32(1.0)), [0.5, 1.5], rtol=1e-5)
    np.testing.assert_allclose(advantages.exponential_weights(adv, jnp.float32(0.5)), [1.0, 9.0], rtol=1e-5)
    assert advantages.exponential_weights(jnp.asarray(1e9), jnp.float32(1.0)) == pytest.approx(100.0)
    np.testing.assert_allclose(advantages.leaky_relu_weights(jnp.asarray([-2.0, 3.0]), jnp.float32(4.0)), [-0.5, 3.0])


def test_dropped_rows_weigh_nothing():
    kept = advantages.advantage(RETURNS, VALUES, scale(), "raw", drop_below=-0.15)
    found = advantages.softmax_weights(kept, jnp.float32(1.0))
    assert found[1] == 0.0
    assert (found[jnp.asarray([0, 2, 3])] > 0).all()


def fit_mean(least, steps=400):
    """Fit a Gaussian's mean to a row that must be avoided, and return the loss and the mean."""
    weight, action = jnp.asarray([-1.0]), jnp.asarray([0.0])
    likelihood = lambda mean: -0.5 * (action - mean) ** 2
    loss = lambda mean: advantages.weighted_likelihood_loss(weight, likelihood(mean), least)
    optimizer = optax.sgd(0.5)
    mean, moments = jnp.asarray(0.1), optimizer.init(jnp.asarray(0.1))
    for _ in range(steps):
        step, moments = optimizer.update(jax.grad(loss)(mean), moments)
        mean = optax.apply_updates(mean, step)
    return float(loss(mean)), float(mean)


def test_negative_weights_run_away_unless_guarded():
    loss, mean = fit_mean(least=-5.0)
    assert loss >= -5.0 - 1e-6
    assert abs(mean) < 10
    unguarded, far = fit_mean(least=-1e30, steps=60)
    assert unguarded < -1e6
    assert abs(far) > 1e3


def test_the_typical_share_falls_with_the_number_of_rows():
    assert advantages.typical_share(20) == 1.0
    assert advantages.typical_share(170_000) == pytest.approx(0.1)
    for num_rows in (6_000, 48_000):
        assert advantages.typical_share(8 * num_rows) == pytest.approx(advantages.typical_share(num_rows) / 2)
