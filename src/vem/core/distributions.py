"""Policies as densities: the Gaussian (tanh mean, plain Normal) and the tanh-Gaussian (a squashed Normal)."""

import jax
import jax.numpy as jnp

from vem.core.networks import Network, apply_network

LOG_2PI = 1.8378770664093453


def log_deviation(free: jax.Array, low: float, high: float) -> jax.Array:
    """Log σ = low + (high − low)·sigmoid(free): bounded, so that no likelihood can run away."""
    return low + (high - low) * jax.nn.sigmoid(free)


def policy_mean(
    actor: Network, observations: jax.Array, key: jax.Array | None = None, dropout: float = 0.0
) -> jax.Array:
    """The mean action in units where the bounds are ±1."""
    return jnp.tanh(apply_network(actor, observations, key, dropout))


def log_likelihood(actions: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log N(a; mean, σ²), summed over the action's dimensions."""
    standardized = (actions - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * standardized**2 - log_std - 0.5 * LOG_2PI, axis=-1)


def tanh_gaussian_log_likelihood(free: jax.Array, mean: jax.Array, log_std: jax.Array) -> jax.Array:
    """Log-density of the action tanh(u), u = ``free`` drawn from N(mean, σ²): log N(u) − Σ log(1 − tanh² u)."""
    log_slope = 2 * (jnp.log(2.0) - free - jax.nn.softplus(-2 * free))
    return log_likelihood(free, mean, log_std) - log_slope.sum(-1)


def sample_tanh_gaussian(
    key: jax.Array, mean: jax.Array, log_std: jax.Array, num_samples: int
) -> tuple[jax.Array, jax.Array]:
    """``num_samples`` actions for each row and their log-densities; the samples' axis comes first."""
    free = mean + jnp.exp(log_std) * jax.random.normal(key, (num_samples, *mean.shape))
    return jnp.tanh(free), tanh_gaussian_log_likelihood(free, mean, log_std)
