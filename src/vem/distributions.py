"""The Gaussian policy: tanh mean, state-independent standard deviation, density of the plain Normal."""

import jax
import jax.numpy as jnp

from vem.networks import Network, apply_network

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
    standardised = (actions - mean) * jnp.exp(-log_std)
    return jnp.sum(-0.5 * standardised**2 - log_std - 0.5 * LOG_2PI, axis=-1)
