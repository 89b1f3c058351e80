"""Exported files act as the policies do, say what they are, and are not written where they would not."""

import json

import numpy as np
import pytest

from deployed import ENCODER, KINDS, random_policy
from vem.errors import RunError, SettingsError, VemError
from vem.policy import Policy
from vem.policy import onnx as check
from vem.policy import onnx as kinds
from vem.policy import onnx as onnx_file
from vem.policy.kinds import register_kind
from vem.policy.onnx import export_policy, missing_text
from vem.training.export import export

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def properties(path):
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


@pytest.fixture(scope="module")
def heating(tmp_path_factory):
    """A policy of the log's own columns, and its file."""
    policy = random_policy("gaussian", (0, 2, 3, 2), ENCODER)
    return policy, export_policy(policy, tmp_path_factory.mktemp("heating") / "policy.onnx").path


ROW = {
    "temp in": [20.5],
    "sun": [1.0],
    "mode": ["eco"],
    "wind": ["n"],
    "window": [True],
    "door": [0.0],
    "valve": [0.5],
}


def act(path, **changes):
    """What a file makes of one row of the log, given as ONNX takes it."""
    row = {**ROW, **{name.replace("_", " "): [value] for name, value in changes.items()}}
    types = {"mode": object, "wind": object, "window": np.bool_}
    feed = {name: np.asarray(values, types.get(name, np.float32)) for name, values in row.items()}
    loaded = session(path)
    names = [output.name for output in loaded.get_outputs()]
    return {name: values[0] for name, values in zip(names, loaded.run(None, feed), strict=True)}


@pytest.mark.parametrize(("kind", "choices"), KINDS, ids=str)
def test_every_kind_acts_as_its_policy(kind, choices, tmp_path):
    policy = random_policy(kind, choices)
    made = policy.export(tmp_path / "policy.onnx")
    assert made.check.rows == check.NUM_ROWS
    assert made.check.largest_difference < 1e-5
    observations = np.random.default_rng(5).normal(size=(300, 5)).astype(np.float32)
    action, valid = session(made.path).run(None, {"observation": observations})
    expected = policy.act(observations)
    assert action.dtype == expected.dtype
    assert action.shape == expected.shape
    np.testing.assert_allclose(action, expected, atol=1e-5)
    assert valid.all()
    assert len(np.unique(expected, axis=0)) > 1, "a constant would be no test"


def test_all_kinds_of_policies_are_tested_and_can_be_exported():
    from vem.policy.kinds import LAYOUTS

    assert set(kinds.BUILDERS) == {kind for kind, _ in KINDS} == {*LAYOUTS, "guided"}


def test_the_logs_own_columns_go_in_and_come_out(heating):
    policy, path = heating
    loaded = session(path)
    assert [entry.name for entry in loaded.get_inputs()] == list(ENCODER.columns)
    assert [entry.name for entry in loaded.get_outputs()] == ["valve_action", "fan", "level", "alarm", "valid"]
    for changes in ({}, {"mode": "boost", "window": False}, {"temp_in": -3.0, "door": 1.0, "wind": "s"}):
        found = act(path, **changes)
        row = {name: values[0] for name, values in ROW.items()}
        expected = policy.act({**row, **{name.replace("_", " "): value for name, value in changes.items()}})
        assert found["valve_action"] == pytest.approx(expected["valve"], abs=1e-5)
        assert (found["fan"], found["level"], found["alarm"]) == (expected["fan"], expected["level"], expected["alarm"])
        assert found["valid"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"sun": np.nan}, {"sun": None}),
        ({"sun": -999.0}, {"sun": -999.0}),
        ({"wind": ""}, {"wind": None}),
        ({"wind": "9"}, {"wind": 9}),
        ({"door": np.nan}, {"door": None}),
    ],
)
def test_missing_values_follow_the_rule_of_their_column(heating, given, meant):
    policy, path = heating
    row = {name: values[0] for name, values in ROW.items()}
    found, expected = act(path, **given), policy.act({**row, **meant})
    assert found["valid"]
    assert found["valve_action"] == pytest.approx(expected["valve"], abs=1e-5)
    assert found["valve_action"] != pytest.approx(act(path)["valve_action"], abs=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"temp_in": np.nan},
        {"temp_in": np.inf},
        {"sun": -np.inf},
        {"mode": "turbo"},
        {"mode": ""},
        {"wind": "w"},
        {"door": 0.5},
        {"valve": np.nan},
    ],
    ids=str,
)
def test_what_the_policy_refuses_is_not_valid(heating, changes):
    policy, path = heating
    row = {name: values[0] for name, values in ROW.items()}
    given = {name.replace("_", " "): value for name, value in changes.items()}
    with pytest.raises(VemError):
        policy.act({**row, **given})
    found = act(path, **changes)
    assert not found["valid"]
    assert np.isnan(found["valve_action"])
    assert (found["fan"], found["level"], found["alarm"]) == ("", -1, False)


def test_rows_that_cannot_be_used_leave_the_others_alone(tmp_path):
    observations = np.zeros((3, 5), np.float32)
    observations[1, 2] = np.nan
    for choices, nothing in (((0, 0), np.nan), ((3,), -1)):
        policy = random_policy("gaussian", choices)
        path = policy.export(tmp_path / "policy.onnx").path
        action, valid = session(path).run(None, {"observation": observations})
        assert valid.tolist() == [True, False, True]
        np.testing.assert_equal(action[1], np.full_like(action[1], nothing))
        np.testing.assert_allclose(action[[0, 2]], policy.act(observations[[0, 2]]), atol=1e-6)


def test_an_empty_label_leaves_the_empty_text_to_itself():
    from vem.data.encoding import InputColumn

    assert missing_text(InputColumn("a", "categorical", labels=("", "x"))) == "?"
    assert missing_text(InputColumn("a", "categorical", labels=("x",))) == ""


def test_metadata_say_what_the_file_is(heating, tmp_path):
    _, path = heating
    held = properties(path)
    assert (held["algorithm"], held["seed"], held["preset"], held["kind"]) == ("own", "3", "default", "gaussian")
    inputs, actions = json.loads(held["inputs"]), json.loads(held["actions"])
    assert [entry["type"] for entry in inputs] == ["float", "float", "string", "string", "bool", "float", "float"]
    assert inputs[2]["labels"] == ["eco", "comfort", "boost"]
    assert [entry["output"] for entry in actions] == ["valve_action", "fan", "level", "alarm"]
    assert actions[1]["labels"] == ["low", "high"]
    assert json.loads(held["check"])["rows"] == check.NUM_ROWS
    assert "vem" in json.loads(held["versions"])
    policy = random_policy("bcq", (0, 0))
    held = properties(export_policy(policy, tmp_path / "p.onnx", facts={"data_sha256": "ab", "estimate": [1]}).path)
    assert (held["data_sha256"], held["estimate"]) == ("ab", "[1]")
    assert [entry["high"] for entry in json.loads(held["actions"])] == [2.0, 2.0]


def test_a_file_that_acts_otherwise_is_not_written(tmp_path, monkeypatch):
    policy = random_policy("deterministic", (0,))
    path = tmp_path / "policy.onnx"
    path.write_text("before")
    build = kinds.BUILDERS["deterministic"]
    monkeypatch.setitem(
        kinds.BUILDERS,
        "deterministic",
        lambda graph, *rest: graph.add("Mul", build(graph, *rest), graph.constant(0.99)),
    )
    with pytest.raises(RunError, match="acts differently"):
        policy.export(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_chooses_otherwise_is_not_written(tmp_path, monkeypatch):
    policy = random_policy("greedy", (4,))
    monkeypatch.setitem(
        kinds.BUILDERS, "greedy", lambda graph, tensors, x: graph.cast(graph.add("ReduceMin", x, axes=[1]), 1)
    )
    monkeypatch.setattr(onnx_file, "write_file", lambda *_: pytest.fail("written"))
    with pytest.raises(RunError, match="chooses differently"):
        policy.export(tmp_path / "policy.onnx")


def test_a_kind_of_ones_own_cannot_be_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("vem.policy.kinds.ACTORS", dict(kinds.BUILDERS))
    register_kind("mine", lambda tensors, inputs, generator: inputs)
    policy = random_policy("deterministic", (0,))
    with pytest.raises(RunError, match="kind 'mine' cannot be exported"):
        Policy("mine", policy.tensors).export(tmp_path / "policy.onnx")


def test_places_that_cannot_be_written(tmp_path):
    policy = random_policy("deterministic", (0,))
    with pytest.raises(RunError, match="is a directory"):
        policy.export(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        policy.export(tmp_path / "file" / "policy.onnx")
    full = "/dev/full/policy.onnx"
    with pytest.raises(RunError, match="cannot write"):
        policy.export(full)


def test_wrong_formats_and_sources(tmp_path):
    policy = random_policy("deterministic", (0,))
    with pytest.raises(SettingsError, match="no format 'numpy'"):
        export(policy, tmp_path / "p.onnx", format="numpy")
    with pytest.raises(SettingsError, match="name the file to write"):
        export(policy)
    with pytest.raises(RunError, match="no policy file"):
        export(tmp_path / "absent.safetensors")
    with pytest.raises(RunError):
        export(tmp_path / "absent")
    policy.save(tmp_path / "policy.safetensors")
    assert export(tmp_path / "policy.safetensors").path == tmp_path / "policy.onnx"
    with pytest.raises(SettingsError, match="one policy"):
        export(tmp_path / "policy.safetensors", seed=1)
