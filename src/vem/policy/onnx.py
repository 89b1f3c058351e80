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
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from vem.data.encoding import ABSENT, Encoder, InputColumn, label_text, typed_label
from vem.errors import RunError, SettingsError, require
from vem.policy.kinds import Tensors, bcq_latents, choices_in
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
    from onnx import checker, helper

    build, tensors, encoder = find_builder(policy.kind), policy.tensors, policy.encoder
    graph = Graph([*policy.columns, *output_names(encoder).values(), valid_name(encoder), "observation"])
    observed = observation(graph, encoder, policy.observation_size)
    valid = finite_rows(graph, observed)
    centered = graph.add("Sub", observed, graph.constant(tensors["observation_mean"]))
    inputs = graph.add("Div", centered, graph.constant(tensors["observation_deviation"]))
    actions = bounded(graph, tensors, build(graph, tensors, inputs))
    give_actions(graph, tensors, encoder, actions, valid)
    doc = "Most likely actions; rows whose output 'valid' is false could not be used."
    opsets = [helper.make_opsetid("", OPSET)]
    if any(node.domain == ML for node in graph.nodes):
        opsets.append(helper.make_opsetid(ML, ML_OPSET))
    model = helper.make_model(
        graph.make("policy", doc),
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="vem",
        producer_version=importlib.metadata.version("vem"),
    )
    checker.check_model(model, full_check=True)
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


# A small builder of ONNX graphs: each call adds a node and returns the name of its output.


BATCH = "batch"
"""Name of the dimension whose size is free."""
FLOAT, INT, STRING, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL
ML = "ai.onnx.ml"
"""The standard's second set of operators, which has the dictionary from text to numbers."""


class Graph:
    """Nodes, constants, inputs and outputs on their way to a graph."""

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.inputs: list[ValueInfoProto] = []
        self.outputs: list[ValueInfoProto] = []
        self._names = set(reserved)

    def name(self, stem: str) -> str:
        """A name that nothing in the graph has yet."""
        number = 0
        while (name := f"{stem}_{number}") in self._names:
            number += 1
        self._names.add(name)
        return name

    def input(self, name: str, kind: int, *shape: int) -> str:
        """An input of shape (batch, …)."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))
        return name

    def output(self, value: str, name: str, kind: int, *shape: int) -> None:
        """Give ``value`` as an output of shape (batch, …)."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, [BATCH, *shape]))

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """A constant array; text has dtype object."""
        name = self.name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The output of one more node."""
        name = self.name(operator)
        self.nodes.append(helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def cast(self, value: str, kind: int) -> str:
        """The value in another type."""
        return self.add("Cast", value, to=kind)

    def column(self, values: str, index: int) -> str:
        """Column ``index`` of values of shape (batch, columns), as (batch,)."""
        return self.add("Gather", values, self.constant(index, np.int64), axis=1)

    def unsqueezed(self, value: str, axis: int = 1) -> str:
        """The value with one more axis."""
        return self.add("Unsqueeze", value, self.constant([axis], np.int64))

    def network(self, tensors: dict[str, np.ndarray], name: str, inputs: str) -> str:
        """The output of the network stored under ``name``: ReLU between layers."""
        index, hidden = 0, inputs
        while f"{name}.{index}.weight" in tensors:
            if index:
                hidden = self.add("Relu", hidden)
            hidden = self.add("MatMul", hidden, self.constant(tensors[f"{name}.{index}.weight"]))
            hidden = self.add("Add", hidden, self.constant(tensors[f"{name}.{index}.bias"]))
            index += 1
        return hidden

    def make(self, name: str, doc: str) -> GraphProto:
        """The graph."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants, doc)


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


# Whether an exported file acts as the policy does: both on the same thousands of rows.


NUM_ROWS = 4096
TOLERANCE = 1e-4
"""Largest difference of a number, as a share of its bounds' distance."""
MOST_TIES = 0.002
"""Share of the rows where nearly equal candidates may be ordered differently by another arithmetic."""
MISSING_SHARE = 0.2
Inputs = dict[str, Any]
"""The log's columns, or ``observation`` → one entry a row."""


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
    expected = policy.act(given[OBSERVATION] if policy.encoder is None else given)
    expected = {ACTION: expected} if policy.encoder is None else expected
    session = _session(model)
    found = run_model(session, policy.encoder, given)
    if not found.pop(valid_name(policy.encoder)).all():
        raise RunError("the exported file refuses observations that the policy acts on; nothing was written")
    first = run_model(session, policy.encoder, {name: values[:1] for name, values in given.items()})
    alone = {name: np.asarray(values)[:1] for name, values in expected.items()}
    _compare(policy, alone, {name: first[name] for name in alone})
    difference, others = _compare(policy, expected, found)
    return Check(len(observations), data_rows, difference, others)


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_model(session: Any, encoder: Encoder | None, given: Inputs) -> dict[str, np.ndarray]:
    """The actions and ``valid`` of a model, by the names that ``Policy.act`` gives them."""
    names = {**output_names(encoder), valid_name(encoder): valid_name(encoder)}
    outputs = session.run(list(names.values()), model_inputs(encoder, given))
    return dict(zip(names, outputs, strict=True))


def model_inputs(encoder: Encoder | None, given: Inputs) -> dict[str, np.ndarray]:
    """The log's columns as arrays of the types that the model takes; None and NaN for missing values."""
    if encoder is None:
        return {OBSERVATION: np.asarray(given[OBSERVATION], np.float32)}
    return {column.name: _model_input(column, given[column.name]) for column in encoder.inputs}


def _model_input(column: InputColumn, values: Any) -> np.ndarray:
    if input_type(column) == "string":
        empty = missing_text(column)
        return np.array([empty if value is None else value for value in values], object)
    return np.asarray(values, np.bool_ if input_type(column) == "bool" else np.float32)


def _compare(policy: Policy, expected: dict[str, Any], found: dict[str, Any]) -> tuple[float, int]:
    """Largest difference of numbers, and rows with another choice; RunError if they are too many or too large."""
    num_rows = len(next(iter(expected.values())))
    is_other, largest, excess = np.zeros(num_rows, bool), 0.0, 0.0
    for name, (low, high, is_choice) in _parts(policy).items():
        columns = (np.asarray(side[name]).reshape(num_rows, -1) for side in (expected, found))
        for index, (ours, theirs) in enumerate(zip(*(values.T for values in columns), strict=True)):
            if is_choice[index]:
                is_other |= ours.astype(str) != theirs.astype(str) if ours.dtype.kind in "US" else ours != theirs
                continue
            differences = np.abs(ours.astype(np.float64) - theirs)
            share = differences / max(high[index] - low[index], np.finfo(np.float32).tiny)
            if policy.kind == "bcq":
                is_other |= ~(share <= TOLERANCE)
                differences = np.where(share <= TOLERANCE, differences, 0)
            largest = max(largest, float(differences.max()))
            excess = max(excess, float(np.where(np.isnan(differences), np.inf, share).max()))
    others = int(is_other.sum())
    if policy.kind != "bcq" and excess > TOLERANCE:
        raise RunError(
            f"the exported file acts differently: an action differs by {largest:.3g}, more than {TOLERANCE:g} of its "
            "bounds' distance; nothing was written"
        )
    if others > max(1, MOST_TIES * num_rows):
        raise RunError(f"the exported file chooses differently in {others} of {num_rows} rows; nothing was written")
    return largest, others


def _parts(policy: Policy) -> dict[str, tuple[np.ndarray, np.ndarray, list[bool]]]:
    """Output → bounds of its columns, and which of them hold choices."""
    low, high = policy.tensors["action_low"], policy.tensors["action_high"]
    is_choice = [count > 0 for count in policy.action_choices] or [False] * low.size
    if policy.encoder is None:
        return {ACTION: (low, high, is_choice)}
    columns = enumerate(policy.encoder.outputs)
    return {column.name: (low[i : i + 1], high[i : i + 1], is_choice[i : i + 1]) for i, column in columns}


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


def log_columns(encoder: Encoder, observations: np.ndarray) -> Inputs:
    """The log's columns that these observations are made of: the inverse of ``Encoder.encode``."""
    columns, start = {}, 0
    for column in encoder.inputs:
        size = len(column.feature_names)
        features = observations[:, start : start + size]
        start += size
        absent = features[:, -1] == 1 if column.missing == "indicator" else np.zeros(len(features), bool)
        if column.kind == "categorical":
            codes = features[:, : len(column.labels)].argmax(axis=1)
            pairs = zip(codes, absent, strict=True)
            columns[column.name] = [None if missing else column.labels[code] for code, missing in pairs]
        else:
            columns[column.name] = np.where(absent, np.nan, features[:, 0])
    return columns


# How each kind of policy acts, as ONNX nodes: what ``vem.policy.kinds`` does in NumPy without a key.


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
            "add a builder for yours to vem.policy.onnx.BUILDERS"
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
