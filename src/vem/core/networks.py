"""Multi-layer perceptrons as plain pytrees: a tuple of layers, each a weight and a bias."""

from collections.abc import Callable, Sequence
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


@jax.custom_vjp
def affine(inputs: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """x·W + b, for inputs of shape (batch, size)."""
    return inputs @ weight + bias


def _affine_forward(inputs: jax.Array, weight: jax.Array, bias: jax.Array) -> tuple[jax.Array, Any]:
    return affine(inputs, weight, bias), (inputs, weight)


def _affine_backward(kept: tuple[jax.Array, jax.Array], grad: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The derivative as JAX has it, but with that of W as xᵀ·g.

    JAX's own rule forms (gᵀ·x)ᵀ, and every read of the optimizer then walks through memory across its grain: a third
    of an update's time on a CPU.
    """
    inputs, weight = kept
    of_inputs = jax.lax.dot_general(grad, weight, (((1,), (1,)), ((), ())))
    of_weight = jax.lax.dot_general(inputs, grad, (((0,), (0,)), ((), ())))
    return of_inputs, of_weight, grad.sum(0)


affine.defvjp(_affine_forward, _affine_backward)


def apply_network(network: Network, inputs: jax.Array, key: jax.Array | None = None, dropout: float = 0.0) -> jax.Array:
    """The network's output for a batch of inputs: ReLU between layers; dropout after each ReLU if a key is given."""
    # One plain matrix product a layer, however many axes the batch has: XLA is slower at the others.
    hidden = inputs.reshape(-1, inputs.shape[-1])
    for index, layer in enumerate(network[:-1]):
        hidden = jax.nn.relu(affine(hidden, *layer))
        if key is not None and dropout > 0:
            kept = jax.random.bernoulli(jax.random.fold_in(key, index), 1 - dropout, hidden.shape)
            hidden = jnp.where(kept, hidden / (1 - dropout), 0)
    outputs = affine(hidden, *network[-1])
    return outputs.reshape(*inputs.shape[:-1], outputs.shape[-1])


def apply_networks(networks: Network, inputs: jax.Array) -> jax.Array:
    """Scalar outputs of stacked networks on one batch of inputs: shape (networks, batch)."""
    return jax.vmap(apply_network, (0, None))(networks, inputs)[..., 0]


def descend(
    optimizer: optax.GradientTransformation, grads: Any, opt_state: Any, parameters: Parameters
) -> tuple[Parameters, Any]:
    """The parameters and the optimizer's state after one step against the gradient."""
    step, opt_state = optimizer.update(grads, opt_state, parameters)  # type: ignore[arg-type]
    moved: Any = optax.apply_updates(parameters, step)  # type: ignore[arg-type]
    return moved, opt_state


def gradient_in_tiles(
    loss: Callable[[Parameters, Any], tuple[jax.Array, Any]], parameters: Parameters, rows: Any, largest_tile: int
) -> tuple[Parameters, Any]:
    """Gradient of the mean over rows of ``loss(parameters, rows)``, and what else the loss returned for each tile.

    Equal tiles of the rows' first axis follow one another, so that what is kept between the forward and the backward
    pass stays in the processor's cache: faster than all at once where each row stands for many inputs of a network.
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    num_tiles = next(count for count in range(-(-num_rows // largest_tile), num_rows + 1) if num_rows % count == 0)
    tiles = jax.tree.map(lambda leaf: leaf.reshape(num_tiles, -1, *leaf.shape[1:]), rows)

    def add(total: Parameters, tile: Any) -> tuple[Parameters, Any]:
        grads, extras = jax.grad(loss, has_aux=True)(parameters, tile)
        return jax.tree.map(lambda left, right: left + right / num_tiles, total, grads), extras

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, parameters), tiles)


def scheduled_lr(lr: float, schedule: str, num_steps: int) -> optax.ScalarOrSchedule:
    """A learning rate that stays (schedule ``none``) or follows a half cosine to 0 at the last update."""
    return optax.cosine_decay_schedule(lr, num_steps) if schedule == "cosine" else lr
