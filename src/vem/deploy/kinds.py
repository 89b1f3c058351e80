"""How each kind of policy acts, as ONNX nodes: what ``vem.policy_kinds`` does in NumPy without a key."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vem.deploy.graph import FLOAT, Graph
from vem.errors import RunError
from vem.policy_kinds import Tensors, bcq_latents, choices_in

Builder = Callable[[Graph, Tensors, str], str]
"""(graph, tensors, normalized observations) → actions, (batch, size): numbers in ±1 units, codes of choices."""


def _most_likely(graph: Graph, tensors: Tensors, outputs: str) -> str:
    choices = choices_in(tensors)
    if not any(choices):
        return graph.add("Tanh", outputs)
    columns, start = [], 0
    for count in choices:
        stop = start + max(count, 1)
        bounds = (graph.constant([bound], np.int64) for bound in (start, stop, 1))
        part = graph.add("Slice", outputs, *bounds)
        columns.append(_largest(graph, part) if count else graph.add("Tanh", part))
        start = stop
    return columns[0] if len(columns) == 1 else graph.add("Concat", *columns, axis=1)


def _largest(graph: Graph, values: str) -> str:
    """The code of the largest of each row, the first of equal ones, as (batch, 1) floats."""
    return graph.cast(graph.add("ArgMax", values, axis=1, keepdims=1), FLOAT)


def _actor(graph: Graph, tensors: Tensors, inputs: str) -> str:
    return _most_likely(graph, tensors, graph.network(tensors, "actor", inputs))


def _guided(graph: Graph, tensors: Tensors, inputs: str) -> str:
    named = graph.constant(tensors["move_scale"] > 0)
    moves = graph.add("Mul", graph.network(tensors, "guide", inputs), named)
    return _actor(graph, tensors, graph.add("Concat", inputs, moves, axis=1))


def _tanh_gaussian(graph: Graph, tensors: Tensors, inputs: str) -> str:
    outputs = graph.network(tensors, "actor", inputs)
    size = tensors["action_low"].size
    bounds = (graph.constant([bound], np.int64) for bound in (0, size, 1))
    return graph.add("Tanh", graph.add("Slice", outputs, *bounds))


def _bcq(graph: Graph, tensors: Tensors, inputs: str) -> str:
    """The best of several generated and perturbed actions, always from the same latents."""
    latents = bcq_latents(tensors, int(tensors["num_actions"].item()))
    _, count, size = latents.shape
    bounds = (graph.constant([bound], np.int64) for bound in (0, 1))
    batch = graph.add("Slice", graph.add("Shape", inputs), *bounds)

    def repeated(value: str, width: int) -> str:
        shape = graph.add("Concat", batch, graph.constant([count, width], np.int64), axis=0)
        return graph.add("Expand", value, shape)

    observed = repeated(graph.unsqueezed(inputs), tensors["observation_mean"].size)
    drawn = repeated(graph.constant(latents), size)
    joined = graph.add("Concat", observed, drawn, axis=2)
    actions = graph.add("Tanh", graph.network(tensors, "decoder", joined))
    joined = graph.add("Concat", observed, actions, axis=2)
    moves = graph.add("Tanh", graph.network(tensors, "perturbation", joined))
    actions = graph.add("Add", actions, graph.add("Mul", moves, graph.constant(tensors["limit"])))
    actions = graph.add("Clip", actions, graph.constant(-1.0), graph.constant(1.0))
    values = graph.network(tensors, "chooser", graph.add("Concat", observed, actions, axis=2))
    best = graph.add("ArgMax", values, axis=1, keepdims=0)  # (batch, 1)
    return graph.add("GatherND", actions, best, batch_dims=1)


def _greedy(graph: Graph, tensors: Tensors, inputs: str) -> str:
    values = graph.network(tensors, "choice_critic", inputs)
    if "threshold" not in tensors:
        return _largest(graph, values)
    logits = graph.network(tensors, "behavior", inputs)
    ratio = graph.add("Exp", graph.add("Sub", logits, graph.add("ReduceMax", logits, axes=[1], keepdims=1)))
    likely = graph.add("Greater", ratio, graph.constant(tensors["threshold"]))
    allowed = graph.add("Or", likely, graph.add("GreaterOrEqual", ratio, graph.constant(1.0)))
    return _largest(graph, graph.add("Where", allowed, values, graph.constant(-np.inf)))


BUILDERS: dict[str, Builder] = {
    "gaussian": _actor,
    "guided": _guided,
    "deterministic": _actor,
    "tanh-gaussian": _tanh_gaussian,
    "bcq": _bcq,
    "greedy": _greedy,
    "constrained-greedy": _greedy,
}
"""How each kind acts, as nodes."""


def find_builder(kind: str) -> Builder:
    """The nodes of a kind; RunError for kinds that a method of one's own registered."""
    if kind not in BUILDERS:
        raise RunError(
            f"a policy of kind {kind!r} cannot be exported: only {', '.join(BUILDERS)} can; "
            "add a builder for yours to vem.deploy.kinds.BUILDERS"
        )
    return BUILDERS[kind]


def bounded(graph: Graph, tensors: Tensors, scaled: str) -> str:
    """Actions in ±1 units as actions within the data's bounds; codes of choices as they are."""
    low, high = (tensors[name].astype(np.float32) for name in ("action_low", "action_high"))
    half = graph.add("Div", graph.add("Mul", scaled, graph.constant(high - low)), graph.constant(2.0))
    actions = graph.add("Add", half, graph.constant((low + high) / 2))
    actions = graph.add("Min", graph.add("Max", actions, graph.constant(low)), graph.constant(high))
    if not (choices := choices_in(tensors)):
        return actions
    return graph.add("Where", graph.constant([count > 0 for count in choices], np.bool_), scaled, actions)
