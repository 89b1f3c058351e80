"""Heads: what the outputs of a policy's network say about actions.

A column of numbers has one output, the mean of a Normal after a tanh; its log σ does not depend on the state. A column
of n choices has n outputs, the logits of a categorical distribution. Several columns are independent given the state,
so the log-likelihood of an action is the sum over its columns. Actions are one float32 array: numbers in units where
the bounds are ±1, and codes 0 … n − 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from vem.core import distributions


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
        log_likelihood=lambda outputs, log_std, actions: distributions.log_likelihood(
            actions, jnp.tanh(outputs), log_std
        ),
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

    def log_likelihood(outputs: jax.Array, log_std: jax.Array, actions: jax.Array) -> jax.Array:
        parts = [log_probability(outputs, actions, index) for index, count in enumerate(choices) if count]
        if boxes:
            means = jnp.tanh(outputs[..., jnp.asarray(box_outputs)])
            parts.append(distributions.log_likelihood(actions[..., jnp.asarray(boxes)], means, log_std))
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

    return Head(sum(sizes), sum(sizes), len(boxes), log_likelihood, error, mode, encode)


def one_hot(codes: jax.Array, num_choices: int) -> jax.Array:
    """Codes kept as float32 → 1 at the code among zeros."""
    return jax.nn.one_hot(codes.astype(jnp.int32), num_choices)
