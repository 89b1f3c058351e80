"""Matrix arithmetic of one update: what a method needs, by formula, and what its program does, by its own trace."""

from __future__ import annotations

from math import prod
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import partial_eval

from vem.algorithms.base import METHODS, Rows, Spec, Stage, draw_batch


def needed_flops(name: str, config: Any, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations that one update needs."""
    count = METHODS[name].arithmetic
    assert count is not None, f"{name} was registered without arithmetic"
    return count(config, spec)


def done_flops(stage: Stage, state: Any, rows: Rows) -> float:
    """Floating-point operations of the matrix products in one update of one trial, as JAX traces it."""

    def update(state: Any, memory: Any, key: jax.Array) -> Any:
        return stage.update(state, memory, draw_batch(stage, memory, rows, key), key)

    closed = jax.make_jaxpr(update)(state, stage.empty(), jax.random.key(0))
    # What no result depends on is never computed: XLA drops it as well.
    live, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    return _products(live)


def _products(jaxpr: Any) -> float:
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            contracted = equation.params["dimension_numbers"][0][0]
            left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            total += 2.0 * prod(result) * prod(left[axis] for axis in contracted)
        inner = [_products(part) for value in equation.params.values() for part in _programs(value)]
        repeats = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += max(inner, default=0.0) if equation.primitive.name == "cond" else repeats * sum(inner)
    return total


def _programs(value: Any) -> list[Any]:
    parts = value if isinstance(value, tuple | list) else (value,)
    return [getattr(part, "jaxpr", part) for part in parts if isinstance(part, core.Jaxpr | core.ClosedJaxpr)]
