"""A policy as one ONNX file: encoder, normalizer, networks, head and bounds inside, checked before it is written."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

from vem.data.encoding import ABSENT, Encoder, InputColumn, label_text, typed_label
from vem.errors import RunError, SettingsError, require
from vem.policy.kinds import bounded, find_kind, normalized
from vem.storage import write_file

if TYPE_CHECKING:
    from vem.policy import Policy


FORMATS = ("onnx",)
OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
"""Old enough for every runtime since 2022."""


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: Path
    check: Check
    """How it compares with ``Policy.act``."""

    def __fspath__(self) -> str:
        return str(self.path)


def check_format(name: str) -> None:
    """SettingsError unless policies can be written in this format."""
    if name not in FORMATS:
        raise SettingsError(
            f"there is no format {name!r}; policies are exported as {', '.join(FORMATS)}. "
            "The .safetensors file itself acts with NumPy: vem.load_policy"
        )


def export_policy(
    policy: Policy,
    path: str | Path,
    observations: np.ndarray | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Exported:
    """Write ``policy`` to ``path`` as ONNX, checked on ``observations`` of the data, or on random rows without them.

    ``facts`` go into the file's metadata beside those that the policy holds. A file that would act otherwise than
    ``Policy.act`` is not written.
    """
    require("onnx", "onnxruntime")

    path = Path(path)
    if path.is_dir():
        raise RunError(f"{path} is a directory; name the file to write, such as {path / 'policy.onnx'}")
    model = make_model(policy)
    check = check_model(policy, model.SerializeToString(), observations)
    stored = {**metadata(policy), **(facts or {}), "check": dataclasses.asdict(check)}
    for name, value in stored.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value if isinstance(value, str) else json.dumps(value)
    write_file(path, model.SerializeToString())
    return Exported(path, check)


def make_model(policy: Policy) -> Any:
    """The ONNX model of a policy, without metadata."""
    tensors, encoder = policy.tensors, policy.encoder
    graph = Graph([*policy.columns, *output_names(encoder).values(), valid_name(encoder), OBSERVATION])
    try:
        observed = observation(graph, encoder, policy.observation_size)
        actions = bounded(tensors, find_kind(policy.kind).act(tensors, normalized(tensors, observed), None))
        valid = np.all(np.isfinite(observed), axis=1) & np.all(np.isfinite(actions), axis=1)
        give_actions(graph, policy, actions, valid)
        model = graph.model("Most likely actions; rows whose output 'valid' is false could not be used.")
        checker.check_model(model, full_check=True)
    except Exception as error:  # a kind of one's own may do anything, and onnx has errors of its own
        raise RunError(
            f"a policy of kind {policy.kind!r} cannot be exported ({str(error).splitlines()[0]}); write how it acts "
            "with functions of whole arrays that vem.policy.onnx knows"
        ) from None
    return model


def metadata(policy: Policy) -> dict[str, Any]:
    """What the file says about the policy: its making, its columns and its actions."""
    info = policy.info
    known = ("algorithm", "preset", "seed", "trial", "steps", "dataset", "data_sha256", "environment", "settings")
    facts = {name: info[name] for name in known if info.get(name) is not None}
    inputs = [{"name": "observation", "type": "float", "size": policy.observation_size}]
    if policy.encoder is not None:
        inputs = []
        for column in policy.encoder.inputs:
            entry: dict[str, Any] = {"name": column.name, "type": input_type(column), "kind": column.kind}
            entry |= {"missing": column.missing}
            if column.kind == "categorical":
                entry |= {"labels": column.labels, "missing_text": missing_text(column)}
            inputs.append(entry)
    outputs = output_names(policy.encoder)
    actions = [
        {**dataclasses.asdict(column), "output": outputs.get(column.name, "action")}
        for column in (policy.encoder.outputs if policy.encoder else policy.action_columns)
    ]
    versions = {**info.get("packages", {}), "vem": importlib.metadata.version("vem")}
    return {**facts, "kind": policy.kind, "inputs": inputs, "actions": actions, "versions": versions}


# Arrays that note what NumPy does to them as nodes of an ONNX graph.


BATCH = "batch"
"""Name of the dimension whose size is free."""
ML = "ai.onnx.ml"
"""The standard's second set of operators, which has the dictionary from text to numbers."""
OPERATORS = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "absolute": "Abs",
    "matmul": "MatMul", "maximum": "Max", "minimum": "Min", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
TESTS = {
    "equal": "Equal", "greater": "Greater", "greater_equal": "GreaterOrEqual", "less": "Less",
    "less_equal": "LessOrEqual", "isnan": "IsNaN", "isinf": "IsInf", "bitwise_and": "And", "bitwise_or": "Or",
    "invert": "Not",
}  # fmt: skip
"""NumPy's functions of single numbers → ONNX's operators; those of ``TESTS`` tell true from false."""


class Graph:
    """Nodes, constants, inputs and outputs on their way to a graph."""

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self._names = set(reserved)

    def _name(self, stem: str) -> str:
        """A name that nothing in the graph has yet."""
        number = 0
        while (name := f"{stem}_{number}") in self._names:
            number += 1
        self._names.add(name)
        return name

    def model(self, doc: str) -> ModelProto:
        """The graph as a model."""
        opsets = [helper.make_opsetid("", OPSET)]
        if any(node.domain == ML for node in self.nodes):
            opsets.append(helper.make_opsetid(ML, ML_OPSET))
        graph = helper.make_graph(self.nodes, "policy", self.inputs, self.outputs, self.constants, doc)
        version = importlib.metadata.version("vem")
        makers = {"producer_name": "vem", "producer_version": version, "ir_version": IR_VERSION}
        return helper.make_model(graph, opset_imports=opsets, **makers)

    def input(self, name: str, dtype: Any, *shape: int) -> Array:
        """An input of shape (batch, …)."""
        self.inputs.append(helper.make_tensor_value_info(name, _proto(dtype), [BATCH, *shape]))
        return Array(self, name, np.dtype(dtype))

    def output(self, array: Array, name: str, *shape: int) -> None:
        """Give an array as an output of shape (batch, …)."""
        self.nodes.append(helper.make_node("Identity", [array.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, _proto(array.dtype), [BATCH, *shape]))

    def constant(self, value: Any, dtype: Any) -> Array:
        """A constant array; text has dtype object."""
        name = self._name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return Array(self, name, np.dtype(dtype))

    def add(self, operator: str, dtype: Any, *inputs: Array, domain: str = "", **attributes: Any) -> Array:
        """The output of one more node."""
        name = self._name(operator)
        names = [array.name for array in inputs]
        self.nodes.append(helper.make_node(operator, names, [name], domain=domain, **attributes))
        return Array(self, name, np.dtype(dtype))

    def alike(self, *values: Any) -> list[Array]:
        """Arrays and constants of one type: that of the arrays; float32 where one is of floats, or there is none."""
        dtypes = {value.dtype for value in values if isinstance(value, Array)} or {np.dtype(np.float32)}
        dtype = np.dtype(np.float32) if np.dtype(np.float32) in dtypes else np.result_type(*dtypes)
        return [value.astype(dtype) if isinstance(value, Array) else self.constant(value, dtype) for value in values]


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """A value of the graph: NumPy's functions and operators of it add nodes."""

    def __init__(self, graph: Graph, name: str, dtype: np.dtype) -> None:
        self.graph, self.name, self.dtype = graph, name, dtype

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("it asks for the numbers of an array")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        operator = OPERATORS.get(ufunc.__name__) or TESTS.get(ufunc.__name__)
        if ufunc is np.isfinite:
            return ~(np.isnan(self) | np.isinf(self))
        if operator is None or method != "__call__" or options:
            raise TypeError(f"numpy.{ufunc.__name__}")
        arrays = self.graph.alike(*inputs)
        dtype = np.bool_ if ufunc.__name__ in TESTS else arrays[0].dtype
        return self.graph.add(operator, dtype, *arrays)

    def __array_function__(self, function: Callable, types: Any, inputs: tuple, options: dict[str, Any]) -> Array:
        if function not in FUNCTIONS:
            raise TypeError(f"numpy.{function.__name__}")
        return FUNCTIONS[function](self.graph, *inputs, **options)

    def __getitem__(self, key: Any) -> Array:
        """Slices, whole numbers and new axes; ``...`` in front of slices alone."""
        parts, array, axis = key if isinstance(key, tuple) else (key,), self, 0
        if parts[0] is Ellipsis:
            parts = parts[1:]
            axis = -len(parts)
        for part in parts:
            if part is None:
                array = self.graph.add("Unsqueeze", self.dtype, array, self.graph.constant([axis], np.int64))
            elif isinstance(part, slice):
                if part != slice(None):
                    stop = np.iinfo(np.int64).max if part.stop is None else part.stop
                    numbers = (part.start or 0, stop, axis, part.step or 1)
                    bounds = (self.graph.constant([number], np.int64) for number in numbers)
                    array = self.graph.add("Slice", self.dtype, array, *bounds)
            else:
                array = self.graph.add("Gather", self.dtype, array, self.graph.constant(part, np.int64), axis=axis)
                axis -= axis >= 0
            axis += 1
        return array

    def astype(self, dtype: Any) -> Array:
        """The array in another type."""
        same = np.dtype(dtype) == self.dtype
        return self if same else self.graph.add("Cast", dtype, self, to=_proto(dtype))


def _proto(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _concatenate(graph: Graph, arrays: Sequence[Any], axis: int = 0) -> Array:
    same = graph.alike(*arrays)
    return same[0] if len(same) == 1 else graph.add("Concat", same[0].dtype, *same, axis=axis)


def _where(graph: Graph, condition: Any, chosen: Any, other: Any) -> Array:
    if not isinstance(condition, Array):
        condition = graph.constant(condition, np.bool_)
    chosen, other = graph.alike(chosen, other)
    return graph.add("Where", chosen.dtype, condition, chosen, other)


def _all(graph: Graph, array: Array, axis: int, keepdims: bool = False) -> Array:
    least = graph.add("ReduceMin", np.float32, array.astype(np.float32), axes=[axis], keepdims=keepdims)
    return least.astype(np.bool_)


def _zeros_like(graph: Graph, array: Array) -> Array:
    zero = numpy_helper.from_array(np.zeros(1, np.float32))
    return graph.add("ConstantOfShape", np.float32, graph.add("Shape", np.int64, array), value=zero)


FUNCTIONS: dict[Callable, Callable[..., Array]] = {
    np.concatenate: _concatenate,
    np.where: _where,
    np.all: _all,
    np.zeros_like: _zeros_like,
    np.clip: lambda graph, array, low, high: np.minimum(np.maximum(array, low), high),
    np.argmax: lambda graph, array, axis, keepdims=False: graph.add(
        "ArgMax", np.int64, array, axis=axis, keepdims=keepdims
    ),
    np.max: lambda graph, array, axis, keepdims=False: graph.add(
        "ReduceMax", array.dtype, array, axes=[axis], keepdims=keepdims
    ),
    np.take_along_axis: lambda graph, array, indices, axis: graph.add(
        "GatherND", array.dtype, array, indices, batch_dims=axis
    ),
}
"""NumPy's other functions, as far as kinds of policies use them.

``take_along_axis`` takes whole entries: indices of shape (…, 1).
"""


# The inputs and outputs of an exported policy: an observation and its action, or the log's own columns.


OBSERVATION, ACTION, VALID = "observation", "action", "valid"
UNKNOWN = -2
"""The code of a category that the training log did not hold."""


def missing_text(column: InputColumn) -> str:
    """The text that stands for a missing category: empty, unless that is a label."""
    text = ""
    while text in column.labels:
        text += "?"
    return text


def observation(graph: Graph, encoder: Encoder | None, size: int) -> Any:
    """The inputs, as observations of shape (batch, size); NaN or infinite where a row cannot be used."""
    if encoder is None:
        return graph.input(OBSERVATION, np.float32, size)
    return np.concatenate([_input(graph, column) for column in encoder.inputs], axis=1)


def input_type(column: InputColumn) -> str:
    """``float``, ``bool`` or ``string``; booleans that may be missing are floats: 0, 1 and NaN."""
    if column.kind == "categorical":
        return "string"
    return "bool" if column.kind == "boolean" and column.missing != "indicator" else "float"


def _input(graph: Graph, column: InputColumn) -> Any:
    """The numbers of one column, (batch, features)."""
    if column.kind == "categorical":
        codes = _codes(graph, column)
        return np.where((codes == UNKNOWN)[:, None], np.nan, column.encode(codes))
    if input_type(column) == "bool":
        flags: Any = graph.input(column.name, np.bool_).astype(np.float32)
        return column.encode(flags)
    values: Any = graph.input(column.name, np.float32)
    for sentinel in column.sentinels:
        values = np.where(values == sentinel, np.nan, values)
    if column.kind == "boolean":  # what is neither true nor false is refused
        values = np.where((values == 0) | (values == 1) | np.isnan(values), values, np.inf)
    return column.encode(values)


def _codes(graph: Graph, column: InputColumn) -> Any:
    """The codes of a categorical column's texts."""
    codes_of = {label: code for code, label in enumerate(column.labels)}
    codes_of |= {label_text(sentinel): ABSENT for sentinel in column.sentinels}
    codes_of[missing_text(column)] = ABSENT
    return graph.add(
        "LabelEncoder",
        np.int64,
        graph.input(column.name, object),
        domain=ML,
        keys_strings=list(codes_of),
        values_int64s=list(codes_of.values()),
        default_int64=UNKNOWN,
    )


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


def give_actions(graph: Graph, policy: Policy, actions: Any, valid: Any) -> None:
    """Add the outputs: the log's action columns, or the actions as ``Policy.act`` shapes them; and ``valid``."""
    if policy.encoder is None:
        _give_array(graph, policy, actions, valid)
    else:
        encoder, names = policy.encoder, output_names(policy.encoder)
        for index, (column, kind) in enumerate(zip(encoder.outputs, encoder.output_types, strict=True)):
            values: Any = actions[:, index]
            if column.kind == "discrete":
                values = _labels(graph, column.labels, kind, values, valid)
            else:
                values = np.where(valid, values, np.nan)
            graph.output(values, names[column.name])
    graph.output(valid, valid_name(policy.encoder))


def _give_array(graph: Graph, policy: Policy, actions: Any, valid: Any) -> None:
    choices = policy.action_choices
    shape = () if len(choices) == 1 else (policy.action_size,)
    values: Any = actions if shape else actions[:, 0]
    is_code = bool(choices) and all(choices)
    values = np.where(valid if not shape else valid[:, None], values, -1 if is_code else np.nan)
    graph.output(values.astype(np.int64) if is_code else values, ACTION, *shape)


def _labels(graph: Graph, labels: tuple[str, ...], kind: str, values: Any, valid: Any) -> Any:
    """What the codes stand for, in the type that the column has in the log."""
    nothing: dict[str, tuple[Any, Any]] = {
        "integer": (-1, np.int64),
        "number": (np.nan, np.float32),
        "boolean": (False, np.bool_),
        "text": ("", object),
    }
    empty, dtype = nothing[kind]
    table = graph.constant([*(typed_label(label, kind) for label in labels), empty], dtype)
    codes: Any = np.where(valid, values, len(labels))
    return graph.add("Gather", dtype, table, codes.astype(np.int64))


# Whether an exported file acts as the policy does: both on the same thousands of rows.


NUM_ROWS = 4096
TOLERANCE = 1e-4
"""Largest difference of a number, as a share of its bounds' distance."""
MOST_TIES = 0.002
"""Share of the rows where nearly equal candidates may be ordered differently by another arithmetic."""
MISSING_SHARE = 0.2


@dataclass(frozen=True)
class Check:
    """How far an exported file is from ``Policy.act``."""

    rows: int
    data_rows: int
    """How many of them are the data's; the others are drawn around the normalizer's mean."""
    largest_difference: float
    """Of the actions that are numbers, in their own units."""
    other_choices: int
    """Rows whose choice, or for BCQ whose candidate, is another."""

    def __str__(self) -> str:
        drawn = self.rows - self.data_rows
        parts = [f"{self.data_rows:,} rows of the data"] if self.data_rows else []
        parts += [f"{drawn:,} random rows"] if drawn else []
        other = f", {self.other_choices} with another choice" if self.other_choices else ""
        return f"checked on {' and '.join(parts)}: largest difference {self.largest_difference:.2g}{other}"


def check_model(policy: Policy, model: bytes, observations: np.ndarray | None = None) -> Check:
    """Compare the model with ``policy.act``; RunError if they differ.

    ``observations`` are rows of the data, encoded; where they are few or none, rows around the normalizer's mean are
    added.
    """
    if observations is None:
        observations = np.zeros((0, policy.observation_size), np.float32)
    if len(observations) > NUM_ROWS:
        drawn = np.random.default_rng(0).choice(len(observations), NUM_ROWS, replace=False)
        observations = np.asarray(observations[np.sort(drawn)], np.float32)
    data_rows = len(observations)
    observations = np.concatenate([observations, random_observations(policy, NUM_ROWS - data_rows)])
    given = {OBSERVATION: observations} if policy.encoder is None else log_columns(policy.encoder, observations)
    session = _session(model)
    *found, valid = session.run(None, given)
    if not valid.all():
        raise RunError("the exported file refuses observations that the policy acts on; nothing was written")
    *alone, _ = session.run(None, {name: values[:1] for name, values in given.items()})
    _compare(policy, observations[:1], alone)
    difference, others = _compare(policy, observations, found)
    return Check(len(observations), data_rows, difference, others)


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _compare(policy: Policy, observations: np.ndarray, found: list[np.ndarray]) -> tuple[float, int]:
    """Largest difference of numbers, and rows with another choice; RunError if they are too many or too large."""
    num_rows = len(observations)
    actions = np.reshape(policy.act(observations), (num_rows, -1))
    if policy.encoder is None:
        expected, theirs = actions.T, np.reshape(found[0], (num_rows, -1)).T
    else:
        expected, theirs = policy.encoder.decode(actions).values(), found
    spans = np.maximum(policy.tensors["action_high"] - policy.tensors["action_low"], np.finfo(np.float32).tiny)
    is_other, largest, excess = np.zeros(num_rows, bool), 0.0, 0.0
    for ours, other, span, count in zip(expected, theirs, spans, policy.action_choices or 0 * spans, strict=True):
        if count:
            is_other |= ours.astype(other.dtype) != other
            continue
        differences = np.abs(ours.astype(np.float64) - other)
        if policy.kind == "bcq":
            is_other |= ~(differences <= TOLERANCE * span)
            differences = np.where(differences <= TOLERANCE * span, differences, 0)
        largest = max(largest, float(differences.max()))
        excess = max(excess, float(np.nan_to_num(differences, nan=np.inf).max() / span))
    if excess > TOLERANCE:
        raise RunError(
            f"the exported file acts differently: an action differs by {largest:.3g}, more than {TOLERANCE:g} of its "
            "bounds' distance; nothing was written"
        )
    others = int(is_other.sum())
    if others > max(1, MOST_TIES * num_rows):
        raise RunError(f"the exported file chooses differently in {others} of {num_rows} rows; nothing was written")
    return largest, others


def random_observations(policy: Policy, count: int) -> np.ndarray:
    """Rows around the normalizer's mean, with categories and missing values as the encoder has them."""
    random = np.random.default_rng(0)
    mean, deviation = policy.tensors["observation_mean"], policy.tensors["observation_deviation"]
    drawn = (mean + 2 * deviation * random.standard_normal((count, mean.size))).astype(np.float32)
    if policy.encoder is None:
        return drawn
    start = 0
    for column in policy.encoder.inputs:
        values: np.ndarray
        if column.kind == "categorical":
            values = random.integers(-1 if column.missing == "indicator" else 0, len(column.labels), count)
        else:
            values = drawn[:, start].astype(np.float64)
            if column.kind == "boolean":
                values = random.integers(0, 2, count).astype(np.float64)
            if column.missing == "indicator":
                values[random.random(count) < MISSING_SHARE] = np.nan
        features = column.encode(values)
        drawn[:, start : start + features.shape[1]] = features
        start += features.shape[1]
    return drawn


def log_columns(encoder: Encoder, observations: np.ndarray) -> dict[str, np.ndarray]:
    """The log's columns that these observations are made of, as the file takes them: ``Encoder.encode`` undone."""
    columns, start = {}, 0
    for column in encoder.inputs:
        size = len(column.feature_names)
        features = observations[:, start : start + size]
        start += size
        absent = features[:, -1] == 1 if column.missing == "indicator" else np.zeros(len(features), bool)
        if column.kind == "categorical":
            codes = features[:, : len(column.labels)].argmax(axis=1)
            texts = np.array([*column.labels, missing_text(column)], object)
            columns[column.name] = texts[np.where(absent, len(column.labels), codes)]
        else:
            values = np.where(absent, np.nan, features[:, 0])
            columns[column.name] = values.astype(np.bool_ if input_type(column) == "bool" else np.float32)
    return columns
