"""Floating-point operations of one update, by XLA's analysis of its program."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import jax

from vem.algorithms import cql
from vem.algorithms.base import Rows, Stage
from vem.training.rows import draw_batch


def update_flops(stage: Stage, state: Any, rows: Rows) -> float:
    """Floating-point operations of one update of one trial; of a step that is taken now and then, as if always."""

    def update(state: Any, memory: Any, key: jax.Array) -> Any:
        return stage.update(state, memory, draw_batch(stage, memory, rows, key), key)

    # XLA counts the body of a loop once, so the tiles that CQL works through one by one are laid together here.
    with patch.object(cql, "TILE_INPUTS", 1 << 30):
        lowered = jax.jit(update).lower(state, jax.eval_shape(stage.empty), jax.random.key(0))
    analysis = lowered.cost_analysis()
    assert analysis is not None, "this backend of XLA analyzes no programs"
    return analysis["flops"]
