"""Asymmetric regression losses, on NumPy and JAX arrays alike.

``difference`` is always target − prediction, so a positive difference means the prediction is too low.
"""

from typing import Any

Array = Any


def asymmetry(difference: Array, level: Array) -> Array:
    """|τ − 1{d ≤ 0}|: weight τ where the target lies above the prediction, 1 − τ elsewhere."""
    xp = difference.__array_namespace__()
    return xp.where(difference > 0, level, 1 - level)


def expectile_loss(difference: Array, expectile: Array) -> Array:
    """τ·[d]₊² + (1−τ)·[d]₋² (the paper's ER loss); its minimizer is the τ-expectile of the targets."""
    return asymmetry(difference, expectile) * difference**2


def squared_weight_loss(difference: Array, expectile: Array) -> Array:
    """(τ·[d]₊ + (1−τ)·[d]₋)², the loss the authors released.

    The weights are squared with the difference, so its minimizer is the expectile at
    ``effective_expectile(τ)``, not at τ.
    """
    return (asymmetry(difference, expectile) * difference) ** 2


def quantile_loss(difference: Array, quantile: Array) -> Array:
    """τ·[d]₊ − (1−τ)·[d]₋ (the ablation VEM(abs)); its minimizer is the τ-quantile of the targets."""
    return asymmetry(difference, quantile) * abs(difference)


def expectile_step(difference: Array, expectile: Array, step_size: Array) -> Array:
    """2α·(τ·[δ]₊ + (1−τ)·[δ]₋): one gradient step of size α on the expectile loss (paper, eq. 3 and 4)."""
    return 2 * step_size * asymmetry(difference, expectile) * difference


def effective_expectile(expectile: float) -> float:
    """τ²/(τ²+(1−τ)²): the expectile that ``squared_weight_loss`` really estimates."""
    return expectile**2 / (expectile**2 + (1 - expectile) ** 2)
