import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.networks import (
    log_deviation,
    sample_tanh_gaussian,
    tanh_gaussian_log_likelihood,
)


def test_log_deviation_stays_within_its_bounds():
    free = jnp.asarray([-100.0, 0.0, 100.0])
    np.testing.assert_allclose(log_deviation(free, -6.0, 0.0), [-6.0, -3.0, 0.0], atol=1e-5)


def test_tanh_gaussian_density_integrates_to_one():
    actions = np.linspace(-0.9999, 0.9999, 20001)
    free = jnp.arctanh(jnp.asarray(actions))[:, None]
    density = jnp.exp(tanh_gaussian_log_likelihood(free, jnp.full(1, 0.4), jnp.full(1, -0.5)))
    assert float(np.trapezoid(np.asarray(density), actions)) == pytest.approx(1.0, abs=1e-3)


def test_tanh_gaussian_samples_have_their_own_density():
    mean, log_std = jnp.asarray([[0.3, -0.2]]), jnp.asarray([[-1.0, 0.0]])
    actions, log_density = sample_tanh_gaussian(jax.random.key(0), mean, log_std, 5000)
    assert actions.shape == (5000, 1, 2)
    assert log_density.shape == (5000, 1)
    assert float(jnp.abs(actions).max()) <= 1
    np.testing.assert_allclose(jnp.arctanh(actions).mean(0), mean, atol=0.05)
    again = tanh_gaussian_log_likelihood(jnp.arctanh(actions[:10]), mean, log_std)
    np.testing.assert_allclose(log_density[:10], again, atol=1e-3)


def test_tanh_gaussian_density_is_finite_far_out():
    found = tanh_gaussian_log_likelihood(jnp.asarray([[30.0], [-30.0]]), jnp.zeros(1), jnp.zeros(1))
    assert bool(jnp.isfinite(found).all())
