"""Matrix arithmetic of one update: what a method needs, by formula, and what its program does, by its own trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import jax
from jax.extend import core
from jax.interpreters import partial_eval

from vem.algorithms.base import Rows, Spec, Stage, draw_batch


def forward(sizes: Sequence[int]) -> int:
    """Multiplications for one row through a perceptron."""
    return sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def trained(sizes: Sequence[int]) -> int:
    """Forward once and backward twice, less the first layer's input gradient, which nobody asks for."""
    return 3 * forward(sizes) - sizes[0] * sizes[1]


def passed(sizes: Sequence[int]) -> int:
    """Forward, and backward to the input of a network that stays as it is."""
    return 2 * forward(sizes)


def needed_flops(name: str, settings: Any, spec: Spec) -> dict[str, float]:
    """Stage → floating-point operations of one update, a multiplication and an addition each."""
    counts = NEEDED[name](settings, spec.observation_size, spec.action_size)
    return {stage: 2.0 * settings.batch_size * count for stage, count in counts.items()}


def _vem(s: Any, observed: int, acted: int) -> dict[str, float]:
    values = s.num_critics * trained((observed, *s.value_hidden, 1))
    policy = trained((observed, *s.policy_hidden, acted))
    return {"value": values, "policy": policy, "joint": values + policy}


def _bail(s: Any, observed: int, acted: int) -> dict[str, float]:
    return {"envelope": trained((observed, *s.value_hidden, 1)), "clone": trained((observed, *s.policy_hidden, acted))}


def _awr(s: Any, observed: int, acted: int) -> dict[str, float]:
    return {"joint": trained((observed, *s.value_hidden, 1)) + trained((observed, *s.policy_hidden, acted))}


def _iql(s: Any, observed: int, acted: int) -> dict[str, float]:
    value, critic = (observed, *s.value_hidden, 1), (observed + acted, *s.value_hidden, 1)
    # V is trained, and then valued anew at s for the advantage and at s′ for the critics' target.
    values = trained(value) + 2 * forward(value)
    critics = 2 * forward(critic) + 2 * trained(critic)
    return {"joint": values + critics + trained((observed, *s.policy_hidden, acted))}


def _cql(s: Any, observed: int, acted: int) -> dict[str, float]:
    actor, critic = (observed, *s.policy_hidden, 2 * acted), (observed + acted, *s.value_hidden, 1)
    targets = forward(actor) + 2 * forward(critic)
    critics = 2 * (1 + 3 * s.num_sampled_actions) * trained(critic)
    cloning = trained(actor) + targets + critics
    return {"cloning": cloning, "policy": cloning + 2 * passed(critic)}


def _bcq_parts(s: Any, observed: int, acted: int) -> tuple[float, float]:
    latent = s.latent_scale * acted
    encoder, decoder = (
        (observed + acted, *s.generator_hidden, 2 * latent),
        (observed + latent, *s.generator_hidden, acted),
    )
    perturbation, critic = (observed + acted, *s.policy_hidden, acted), (observed + acted, *s.value_hidden, 1)
    # The decoder's input gradient is the encoder's.
    generator = trained(encoder) + 3 * forward(decoder)
    update = generator + 2 * trained(critic) + forward(decoder) + trained(perturbation) + passed(critic)
    return update, s.num_target_actions * (forward(decoder) + forward(perturbation) + 2 * forward(critic))


def _td3bc(s: Any, observed: int, acted: int) -> dict[str, float]:
    actor, critic = (observed, *s.policy_hidden, acted), (observed + acted, *s.value_hidden, 1)
    critics = forward(actor) + 2 * forward(critic) + 2 * trained(critic)
    return {"joint": critics + (trained(actor) + passed(critic)) / s.critic_updates}


NEEDED: dict[str, Callable[[Any, int, int], dict[str, float]]] = {
    "vem": _vem,
    "bc": lambda s, observed, acted: {"policy": trained((observed, *s.policy_hidden, acted))},
    "awr": _awr,
    "bail": _bail,
    "bcq": lambda *given: {"joint": sum(_bcq_parts(*given))},
    "bcq-em": lambda *given: {"joint": _bcq_parts(*given)[0]},
    "cql": _cql,
    "iql": _iql,
    "td3bc": _td3bc,
}
"""Method → (settings, observation size, action size) → stage → multiplications for one row of an update."""


def done_flops(stage: Stage, state: Any, rows: Rows) -> float:
    """Floating-point operations of the matrix products in one update of one member, as JAX traces it."""

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
