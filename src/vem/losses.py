"""Asymmetric regression losses, on NumPy and JAX arrays alike (section 3.1), and the weights of rows (section 3.3).

``difference`` is always target − prediction, so a positive difference means the prediction is too low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp

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


# ---- Section 3.3: from planned returns and values to the weight f(A) of each row in eq. 7 ----


AdvantageKind = Literal["raw", "standardized", "relative"]


class AdvantageScale(NamedTuple):
    """What turns a return and a value into an advantage that a temperature can be applied to; scalars."""

    baseline: jax.Array
    """A lower bound of returns and values; relative advantages are ratios above it."""
    smallest: jax.Array
    """The least distance from ``baseline`` that still counts as different from it."""
    deviation: jax.Array
    low: jax.Array
    high: jax.Array
    temperature: jax.Array

    @classmethod
    def empty(cls) -> Self:
        """A scale before it is fitted."""
        return cls(*[jnp.zeros(()) for _ in cls._fields])


def raw_advantage(returns: jax.Array, values: jax.Array, scale: AdvantageScale) -> jax.Array:
    """A = R − V."""
    return returns - values


def standardized_advantage(returns: jax.Array, values: jax.Array, scale: AdvantageScale) -> jax.Array:
    """A = (R − V) / std(R − V): free of the reward's unit."""
    return (returns - values) / scale.deviation


def relative_advantage(returns: jax.Array, values: jax.Array, scale: AdvantageScale) -> jax.Array:
    """A = log (R − b) − log (V − b), b a lower bound: free of the reward's unit and of the distance to the reward."""
    log = lambda x: jnp.log(jnp.maximum(x - scale.baseline, scale.smallest))
    return log(returns) - log(values)


ADVANTAGES: dict[str, Callable[[jax.Array, jax.Array, AdvantageScale], jax.Array]] = {
    "raw": raw_advantage,
    "standardized": standardized_advantage,
    "relative": relative_advantage,
}


def fit_scale(
    returns: jax.Array,
    values: jax.Array,
    kind: AdvantageKind,
    temperature: jax.Array | None = None,
    clip_quantile: float | None = None,
    effective_sample: jax.Array | float | None = 0.1,
) -> AdvantageScale:
    """The scale of the advantages of a sample of rows.

    ``clip_quantile`` q sets the clipping bounds to the q and 1−q quantiles. Without a ``temperature`` it is the one at
    which exponential weights have the ``effective_sample`` size, as a share of the rows.
    """
    baseline = jnp.minimum(0.0, jnp.minimum(returns.min(), values.min()))
    scale = AdvantageScale(
        baseline=baseline,
        smallest=jnp.maximum(1e-3 * (jnp.maximum(returns.max(), values.max()) - baseline), 1e-8),
        deviation=jnp.maximum(jnp.std(returns - values), 1e-8),
        low=jnp.asarray(-jnp.inf),
        high=jnp.asarray(jnp.inf),
        temperature=jnp.ones(()) if temperature is None else temperature,
    )
    advantages = ADVANTAGES[kind](returns, values, scale)
    if clip_quantile is not None:
        low, high = jnp.quantile(advantages, jnp.asarray([clip_quantile, 1 - clip_quantile]))
        scale = scale._replace(low=low, high=high)
        advantages = jnp.clip(advantages, low, high)
    if temperature is None:
        assert effective_sample is not None, "one of the two is known"
        scale = scale._replace(temperature=temperature_for(advantages, effective_sample))
    return scale


def typical_share(num_rows: int) -> float:
    """The default share of rows that dominate the weights: of n rows about 5.5·n^⅔.

    Few rows must not be thinned out much, or too little is left to learn an action from; of many, more can be spared
    for the best ones. The factor is fitted by hand to the benchmark's files (docs/choices.md).
    """
    return min(1.0, (170 / num_rows) ** (1 / 3))


def temperature_for(advantages: jax.Array, effective_sample: jax.Array | float) -> jax.Array:
    """The temperature T at which exp(A/T) has the wanted effective sample size (share of rows), by bisection."""
    deviation = jnp.maximum(jnp.std(advantages), 1e-8)
    low, high = jnp.log(deviation) - 10.0, jnp.log(deviation) + 10.0

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        enough = effective_share(jax.nn.softmax(advantages / jnp.exp(middle))) >= effective_sample
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    low, high = jax.lax.fori_loop(0, 30, halve, (low, high))
    return jnp.exp(high)


def effective_share(weights: jax.Array) -> jax.Array:
    """(Σw)² / (n·Σw²): the effective sample size as a share of the rows; 1 when all weights are equal."""
    return jnp.sum(weights) ** 2 / jnp.maximum(weights.size * jnp.sum(weights**2), 1e-30)


def advantage(
    returns: jax.Array,
    values: jax.Array,
    scale: AdvantageScale,
    kind: AdvantageKind,
    drop_below: float | None = None,
) -> jax.Array:
    """The clipped advantage of each row; −∞ where R − V ≤ ``drop_below``, which makes the row's weight 0."""
    clipped = jnp.clip(ADVANTAGES[kind](returns, values, scale), scale.low, scale.high)
    return clipped if drop_below is None else jnp.where(returns - values <= drop_below, -jnp.inf, clipped)


def softmax_weights(advantages: jax.Array, temperature: jax.Array) -> jax.Array:
    """Batch softmax of A/T, times the batch size: the mean weight is 1."""
    # The maximum goes first: equal advantages over a tiny temperature would overflow.
    return jax.nn.softmax((advantages - advantages.max()) / temperature) * advantages.size


def exponential_weights(advantages: jax.Array, temperature: jax.Array, largest: float = 100.0) -> jax.Array:
    """min(exp(A/T), 100); T = 1 and no limit: eq. 1, AWR."""
    return jnp.exp(jnp.minimum(advantages / temperature, jnp.log(largest)))


def leaky_relu_weights(advantages: jax.Array, temperature: jax.Array) -> jax.Array:
    """A where A > 0, else A/T; negative there, so the loss that uses it must be guarded."""
    return jnp.where(advantages > 0, advantages, advantages / temperature)


WEIGHTS: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "softmax": softmax_weights,
    "exponential": exponential_weights,
    "leaky-relu": leaky_relu_weights,
}


def weighted_likelihood_loss(weights: jax.Array, log_likelihood: jax.Array, least: float) -> jax.Array:
    """−mean(w·log π), where a row of negative weight stops counting once log π < ``least``.

    Without that guard a negative weight rewards ever lower likelihood and the loss has no minimum.
    """
    guarded = jnp.where(weights < 0, jnp.maximum(log_likelihood, least), log_likelihood)
    return -jnp.mean(weights * guarded)
