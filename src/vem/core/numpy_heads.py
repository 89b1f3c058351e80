"""The heads of ``core.heads`` in NumPy: how a stored policy gets actions from its network's outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def num_outputs(num_columns: int, choices: Sequence[int]) -> int:
    """Outputs of a policy's network for columns with these numbers of choices; 0, or none at all, for numbers."""
    return sum(max(count, 1) for count in choices) if any(choices) else num_columns


def most_likely(outputs: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """The mean of numbers, in units where the bounds are ±1, and the likeliest code of choices."""
    if not any(choices):
        return np.tanh(outputs)
    return _columns(outputs, choices, np.tanh, lambda logits: logits)


def sampled(
    outputs: np.ndarray, choices: Sequence[int], log_std: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A draw of each row: numbers from a Normal, codes from a categorical distribution."""
    if not any(choices):
        mean = np.tanh(outputs)
        return mean + np.exp(log_std) * generator.standard_normal(mean.shape, dtype=np.float32)
    deviations = iter(np.exp(np.broadcast_to(log_std, (sum(count == 0 for count in choices),))))

    def number(output: np.ndarray) -> np.ndarray:
        return np.tanh(output) + next(deviations) * generator.standard_normal(output.shape, dtype=np.float32)

    # The largest of logits with Gumbel noise is a draw of the categorical distribution.
    return _columns(outputs, choices, number, lambda logits: logits + generator.gumbel(size=logits.shape))


def _columns(
    outputs: np.ndarray,
    choices: Sequence[int],
    number: Callable[[np.ndarray], np.ndarray],
    noisy: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    columns, start = [], 0
    for count in choices:
        stop = start + max(count, 1)
        part = outputs[..., start:stop]
        columns.append(noisy(part).argmax(axis=-1).astype(np.float32) if count else number(part[..., 0]))
        start = stop
    return np.stack(columns, axis=-1)
