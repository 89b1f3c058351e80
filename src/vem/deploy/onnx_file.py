"""A policy as one ONNX file: encoder, normalizer, networks, head and bounds inside, checked before it is written."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.errors import RunError, SettingsError
from vem.extras import require
from vem.storage import write_file

if TYPE_CHECKING:
    from vem.deploy.check import Check
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
    from vem.deploy.check import check_model

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

    from vem.deploy.columns import finite_rows, give_actions, observation, output_names, valid_name
    from vem.deploy.graph import ML, Graph
    from vem.deploy.kinds import bounded, find_builder

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
    from vem.deploy.columns import input_type, missing_text, output_names

    info = policy.info
    known = ("algorithm", "preset", "seed", "member", "steps", "dataset", "data_sha256", "environment", "settings")
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
