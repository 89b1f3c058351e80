"""Floating-point operations of perceptrons, for one row: a multiplication and an addition count as two."""

from collections.abc import Sequence
from itertools import pairwise


def forward(sizes: Sequence[int]) -> int:
    """Once through a perceptron of these layer sizes."""
    return 2 * sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def trained(sizes: Sequence[int]) -> int:
    """Forward once and backward twice, less the first layer's input gradient, which nobody asks for."""
    return 3 * forward(sizes) - 2 * sizes[0] * sizes[1]


def passed(sizes: Sequence[int]) -> int:
    """Forward, and backward to the input of a network that stays as it is."""
    return 2 * forward(sizes)
