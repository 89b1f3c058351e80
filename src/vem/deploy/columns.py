"""The inputs and outputs of an exported policy: an observation and its action, or the log's own columns.

ONNX knows neither errors nor missing text. So the output ``valid`` says for each row whether it could be used, and
where it is false the action is NaN, −1, false or empty; a missing category is ``missing_text``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vem.data.encoding import ABSENT, Encoder, InputColumn, label_text, typed_label
from vem.deploy.graph import BOOL, FLOAT, INT, ML, STRING, Graph
from vem.policy_kinds import Tensors, choices_in

OBSERVATION, ACTION, VALID = "observation", "action", "valid"
UNKNOWN = -2
"""The code of a category that the training log did not hold."""


def missing_text(column: InputColumn) -> str:
    """The text that stands for a missing category: empty, unless that is a label."""
    text = ""
    while text in column.labels:
        text += "?"
    return text


def observation(graph: Graph, encoder: Encoder | None, size: int) -> str:
    """The inputs, as observations of shape (batch, size); NaN or infinite where a row cannot be used."""
    if encoder is None:
        return graph.input(OBSERVATION, FLOAT, size)
    columns = [_input(graph, column) for column in encoder.inputs]
    return columns[0] if len(columns) == 1 else graph.add("Concat", *columns, axis=1)


def input_type(column: InputColumn) -> str:
    """``float``, ``bool`` or ``string``; booleans that may be missing are floats: 0, 1 and NaN."""
    if column.kind == "categorical":
        return "string"
    return "bool" if column.kind == "boolean" and column.missing != "indicator" else "float"


def _input(graph: Graph, column: InputColumn) -> str:
    """The numbers of one column, (batch, features), as ``InputColumn.encode`` gives them."""
    if column.kind == "categorical":
        return _categories(graph, column)
    if input_type(column) == "bool":
        return graph.unsqueezed(graph.cast(graph.input(column.name, BOOL), FLOAT))
    values = graph.unsqueezed(graph.input(column.name, FLOAT))
    absent = graph.add("IsNaN", values)
    for sentinel in column.sentinels:
        absent = graph.add("Or", absent, graph.add("Equal", values, graph.constant(sentinel)))
    if column.kind == "boolean":  # what is neither true nor false is refused
        flags = (graph.add("Equal", values, graph.constant(flag)) for flag in (0.0, 1.0))
        values = graph.add("Where", graph.add("Or", *flags), values, graph.constant(np.inf))
    if column.missing != "indicator":
        return graph.add("Where", absent, graph.constant(np.nan), values)
    filled = graph.add("Where", absent, graph.constant(column.fill), values)
    return graph.add("Concat", filled, graph.cast(absent, FLOAT), axis=1)


def _categories(graph: Graph, column: InputColumn) -> str:
    codes_of = {label: code for code, label in enumerate(column.labels)}
    codes_of |= {label_text(sentinel): ABSENT for sentinel in column.sentinels}
    codes_of[missing_text(column)] = ABSENT
    codes = graph.add(
        "LabelEncoder",
        graph.input(column.name, STRING),
        domain=ML,
        keys_strings=list(codes_of),
        values_int64s=list(codes_of.values()),
        default_int64=UNKNOWN,
    )
    codes = graph.unsqueezed(codes)
    first = ABSENT if column.missing == "indicator" else 0
    usable = graph.add("GreaterOrEqual", codes, graph.constant(first, np.int64))
    hot = graph.cast(graph.add("Equal", codes, graph.constant(np.arange(len(column.labels)), np.int64)), FLOAT)
    features = graph.add("Where", usable, hot, graph.constant(np.nan))
    if column.missing != "indicator":
        return features
    absent = graph.add("Equal", codes, graph.constant(ABSENT, np.int64))
    return graph.add("Concat", features, graph.cast(absent, FLOAT), axis=1)


def finite_rows(graph: Graph, observations: str) -> str:
    """Whether all numbers of a row are finite, (batch,)."""
    wrong = graph.add("Or", graph.add("IsNaN", observations), graph.add("IsInf", observations))
    fine = graph.cast(graph.add("Not", wrong), FLOAT)
    return graph.cast(graph.add("ReduceMin", fine, axes=[1], keepdims=0), BOOL)


def output_names(encoder: Encoder | None) -> dict[str, str]:
    """The log's action columns, or ``action`` → name of the output; a name that an input has gets ``_action``."""
    if encoder is None:
        return {ACTION: ACTION}
    taken, names = {*encoder.columns, valid_name(encoder)}, {}
    for column in encoder.outputs:
        name = column.name
        while name in taken:
            name += "_action"
        taken.add(name)
        names[column.name] = name
    return names


def valid_name(encoder: Encoder | None) -> str:
    """Name of the output that says which rows could be used."""
    name = VALID
    while encoder is not None and name in encoder.columns:
        name += "_rows"
    return name


def give_actions(graph: Graph, tensors: Tensors, encoder: Encoder | None, actions: str, valid: str) -> None:
    """Add the outputs: the log's action columns, or the actions as ``Policy.act`` shapes them; and ``valid``."""
    if encoder is None:
        _give_array(graph, tensors, actions, valid)
    else:
        names = output_names(encoder)
        for index, (column, kind) in enumerate(zip(encoder.outputs, encoder.output_types, strict=True)):
            values, name = graph.column(actions, index), names[column.name]
            if column.kind == "discrete":
                _give_labels(graph, name, column.labels, kind, values, valid)
            else:
                graph.output(graph.add("Where", valid, values, graph.constant(np.nan)), name, FLOAT)
    graph.output(valid, valid_name(encoder), BOOL)


def _give_array(graph: Graph, tensors: Tensors, actions: str, valid: str) -> None:
    choices, size = choices_in(tensors), tensors["action_low"].size
    is_code = bool(choices) and all(choices)
    shape = () if len(choices) == 1 else (size,)
    if not shape:
        actions = graph.column(actions, 0)
    usable = graph.unsqueezed(valid) if shape else valid
    nothing = graph.constant(-1, np.int64) if is_code else graph.constant(np.nan)
    values = graph.cast(actions, INT) if is_code else actions
    graph.output(graph.add("Where", usable, values, nothing), ACTION, INT if is_code else FLOAT, *shape)


def _give_labels(graph: Graph, name: str, labels: tuple[str, ...], kind: str, values: str, valid: str) -> None:
    """What the codes stand for, in the type that the column has in the log."""
    nothing: dict[str, tuple[Any, Any, int]] = {
        "integer": (-1, np.int64, INT),
        "number": (np.nan, np.float32, FLOAT),
        "boolean": (False, np.bool_, BOOL),
        "text": ("", object, STRING),
    }
    empty, dtype, proto = nothing[kind]
    table = graph.constant([*(typed_label(label, kind) for label in labels), empty], dtype)
    codes = graph.add("Where", valid, graph.cast(values, INT), graph.constant(len(labels), np.int64))
    graph.output(graph.add("Gather", table, codes), name, proto)
