"""Multi-layer perceptrons as plain pytrees: a tuple of layers, each a weight and a bias."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import optax

Parameters = TypeVar("Parameters")


class Layer(NamedTuple):
    """An affine map x ↦ x·weight + bias."""

    weight: jax.Array
    bias: jax.Array


Network = tuple[Layer, ...]


def init_network(key: jax.Array, sizes: Sequence[int]) -> Network:
    """A network with layer sizes ``sizes``; weights and biases uniform in ±1/√fan_in."""
    # One draw for all layers: each further one costs seconds of compilation.
    count = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))
    numbers, used, layers = jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0), 0, []
    for fan_in, fan_out in pairwise(sizes):
        block = numbers[used : used + (fan_in + 1) * fan_out].reshape(fan_in + 1, fan_out) * fan_in**-0.5
        used += block.size
        layers.append(Layer(block[:-1], block[-1]))
    return tuple(layers)


def init_networks(key: jax.Array, sizes: Sequence[int], num_networks: int) -> Network:
    """Several networks of one shape, stacked along a leading axis of every array."""
    return jax.vmap(lambda k: init_network(k, sizes))(jax.random.split(key, num_networks))


def apply_network(network: Network, inputs: jax.Array, key: jax.Array | None = None, dropout: float = 0.0) -> jax.Array:
    """The network's output for a batch of inputs: ReLU between layers; dropout after each ReLU if a key is given."""
    hidden = inputs
    for index, layer in enumerate(network[:-1]):
        hidden = jax.nn.relu(hidden @ layer.weight + layer.bias)
        if key is not None and dropout > 0:
            kept = jax.random.bernoulli(jax.random.fold_in(key, index), 1 - dropout, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - dropout), 0)
    return hidden @ network[-1].weight + network[-1].bias


def apply_networks(networks: Network, inputs: jax.Array) -> jax.Array:
    """Scalar outputs of stacked networks on one batch of inputs: shape (networks, batch)."""
    return jax.vmap(apply_network, (0, None))(networks, inputs)[..., 0]


def move_targets(targets: Network, online: Network, rate: jax.Array | float) -> Network:
    """θ′ ← κ·θ + (1−κ)·θ′ with κ = ``rate``."""
    return jax.tree.map(lambda target, source: target + rate * (source - target), targets, online)


def descend(
    optimiser: optax.GradientTransformation, gradient: Any, moments: Any, parameters: Parameters
) -> tuple[Parameters, Any]:
    """The parameters and the optimiser's state after one step against the gradient."""
    step, moments = optimiser.update(gradient, moments, parameters)  # type: ignore[arg-type]
    moved: Any = optax.apply_updates(parameters, step)  # type: ignore[arg-type]
    return moved, moments


def decayed(rate: float, decay: str, num_updates: int) -> optax.ScalarOrSchedule:
    """A learning rate that stays (decay ``none``) or follows a half cosine to 0 at the last update."""
    return optax.cosine_decay_schedule(rate, num_updates) if decay == "cosine" else rate
