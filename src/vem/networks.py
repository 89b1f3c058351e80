"""Perceptrons as plain pytrees, what their outputs say about actions, and draws of rows by weight."""

from __future__ import annotations

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


# ---- Policies as densities: the Gaussian (tanh mean, plain Normal) and the tanh-Gaussian (a squashed Normal) ----


LOG_2PI = 1.8378770664093453


def log_deviation(free: jax.Array, low: float, high: float) -> jax.Array:
    """Log σ = low + (high − low)·sigmoid(free): bounded, so that no likelihood can run away."""
    return low + (high - low) * jax.nn.sigmoid(free)


def policy_mean(actor: Network, observations: jax.Array) -> jax.Array:
    """The mean action in units where the bounds are ±1."""
    return jnp.tanh(apply_network(actor, observations))


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


# ---- Heads: what the outputs of a policy's network say about actions ----


class Head(NamedTuple):
    """Pure functions of a network's outputs, for actions of given columns."""

    num_outputs: int
    """Outputs of the policy's network."""
    num_inputs: int
    """Numbers that a network sees of an action: ``encode``."""
    num_boxes: int
    """Columns of numbers; each has a log σ."""
    log_likelihood: Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
    """(outputs, log σ, actions) → log π(a|s)."""
    error: Callable[[jax.Array, jax.Array], jax.Array]
    """(outputs, actions) → mean over the columns: squared distance of numbers, −log-likelihood of choices."""
    mode: Callable[[jax.Array], jax.Array]
    """outputs → the mean of numbers, the likeliest of choices."""
    encode: Callable[[jax.Array], jax.Array]
    """actions → numbers as they are, choices one-hot."""


def make_head(num_columns: int, choices: Sequence[int] = ()) -> Head:
    """The head for columns with these numbers of choices; 0 stands for a column of numbers, as empty does for all."""
    return _product(tuple(choices)) if any(choices) else _box(num_columns)


def _box(size: int) -> Head:
    return Head(
        num_outputs=size,
        num_inputs=size,
        num_boxes=size,
        log_likelihood=lambda outputs, log_std, actions: log_likelihood(actions, jnp.tanh(outputs), log_std),
        error=lambda outputs, actions: jnp.mean((jnp.tanh(outputs) - actions) ** 2, axis=-1),
        mode=jnp.tanh,
        encode=lambda actions: actions,
    )


def _product(choices: tuple[int, ...]) -> Head:
    sizes = [max(count, 1) for count in choices]
    starts = [sum(sizes[:index]) for index in range(len(sizes))]
    boxes = [index for index, count in enumerate(choices) if count == 0]
    box_outputs = [starts[index] for index in boxes]

    def logits(outputs: jax.Array, index: int) -> jax.Array:
        return outputs[..., starts[index] : starts[index] + sizes[index]]

    def log_probability(outputs: jax.Array, actions: jax.Array, index: int) -> jax.Array:
        chosen = one_hot(actions[..., index], choices[index])
        return jnp.sum(jax.nn.log_softmax(logits(outputs, index)) * chosen, axis=-1)

    def columns(numbers: Callable[[int], jax.Array], chosen: Callable[[int], jax.Array]) -> list[jax.Array]:
        return [chosen(index) if count else numbers(index) for index, count in enumerate(choices)]

    def joint_log_likelihood(outputs: jax.Array, log_std: jax.Array, actions: jax.Array) -> jax.Array:
        parts = [log_probability(outputs, actions, index) for index, count in enumerate(choices) if count]
        if boxes:
            means = jnp.tanh(outputs[..., jnp.asarray(box_outputs)])
            parts.append(log_likelihood(actions[..., jnp.asarray(boxes)], means, log_std))
        return sum(parts[1:], parts[0])

    def error(outputs: jax.Array, actions: jax.Array) -> jax.Array:
        squared = lambda index: (jnp.tanh(outputs[..., starts[index]]) - actions[..., index]) ** 2
        parts = columns(squared, lambda index: -log_probability(outputs, actions, index))
        return jnp.stack(parts, axis=-1).mean(axis=-1)

    def mode(outputs: jax.Array) -> jax.Array:
        likeliest = lambda index: logits(outputs, index).argmax(axis=-1).astype(jnp.float32)
        return jnp.stack(columns(lambda index: jnp.tanh(outputs[..., starts[index]]), likeliest), axis=-1)

    def encode(actions: jax.Array) -> jax.Array:
        as_choice = lambda index: one_hot(actions[..., index], choices[index])
        return jnp.concatenate(columns(lambda index: actions[..., index : index + 1], as_choice), axis=-1)

    return Head(sum(sizes), sum(sizes), len(boxes), joint_log_likelihood, error, mode, encode)


def one_hot(codes: jax.Array, num_choices: int) -> jax.Array:
    """Codes kept as float32 → 1 at the code among zeros."""
    return jax.nn.one_hot(codes.astype(jnp.int32), num_choices)


# ---- Drawing rows in proportion to their weights ----


BLOCK = 256
"""Rows whose weights are summed up together: a running sum over all rows would lose small weights to rounding."""
BELOW_ONE = 1 - 1e-6


class Shares(NamedTuple):
    """Running sums of the weights of all rows, in two levels."""

    blocks: jax.Array
    """Of the blocks' totals, (blocks,)."""
    within: jax.Array
    """Inside each block, (blocks, BLOCK)."""


def empty_shares(num_rows: int) -> Shares:
    """Shares of the right shapes for so many rows."""
    return cumulate(jnp.zeros(num_rows))


def cumulate(weights: jax.Array) -> Shares:
    """The running sums of weights ≥ 0, one for each row; at least one must be positive before anything is drawn."""
    padded = jnp.pad(weights, (0, -weights.size % BLOCK)).reshape(-1, BLOCK)
    within = jnp.cumsum(padded, axis=1)
    return Shares(jnp.cumsum(within[:, -1]), within)


def draw_rows(shares: Shares, count: int, key: jax.Array) -> jax.Array:
    """Indices of rows, each drawn with a probability in proportion to its weight; never a row of weight 0."""
    block_key, row_key = jax.random.split(key)
    # The draw stays strictly below the total, so that rounding cannot step past the last positive weight.
    at = jax.random.uniform(block_key, (count,)) * (BELOW_ONE * shares.blocks[-1])
    block = jnp.searchsorted(shares.blocks, at, side="right")
    first, sums = block * BLOCK, shares.within.reshape(-1)
    at = jax.random.uniform(row_key, (count,)) * (BELOW_ONE * sums[first + BLOCK - 1])
    row, step = first, BLOCK // 2
    while step:  # The first row of the block whose running sum is above the draw, by halving.
        row = jnp.where(sums[row + step - 1] <= at, row + step, row)
        step //= 2
    return row
