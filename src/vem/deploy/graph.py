"""A small builder of ONNX graphs: each call adds a node and returns the name of its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

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
