"""Exported files act as the policies do, say what they are, and are not written where they would not."""

import json

import numpy as np
import pytest

from deployed import ENCODER, KINDS, random_policy
from vem.data.encoding import InputColumn
from vem.errors import RunError, SettingsError, VemError
from vem.policy import Policy, kinds
from vem.policy.kinds import KINDS as ALL_KINDS
from vem.policy.kinds import Kind, network
from vem.policy.onnx import NUM_ROWS, export_policy, missing_text
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
    assert made.check.rows == NUM_ROWS
    assert made.check.largest_difference < 1e-5
    observations = np.random.default_rng(5).normal(size=(300, 5)).astype(np.float32)
    action, valid = session(made.path).run(None, {"observation": observations})
    expected = policy.act(observations)
    assert action.dtype == expected.dtype
    assert action.shape == expected.shape
    np.testing.assert_allclose(action, expected, atol=1e-5)
    assert valid.all()
    assert len(np.unique(expected, axis=0)) > 1, "a constant would be no test"


def test_all_kinds_of_policies_are_tested():
    assert set(ALL_KINDS) == {kind for kind, _ in KINDS}


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
    assert missing_text(InputColumn("a", "categorical", labels=("", "x"))) == "?"
    assert missing_text(InputColumn("a", "categorical", labels=("x",))) == ""


def test_what_overflows_on_the_way_is_not_valid(tmp_path):
    policy = random_policy("constrained-greedy", (4,))
    tensors = {name: tensor * 1e10 if name.endswith(".weight") else tensor for name, tensor in policy.tensors.items()}
    policy, far = Policy(policy.kind, tensors), np.full((1, 5), 1e30, np.float32)
    with pytest.raises(RunError, match="numbers overflow"):
        policy.act(far)
    path = policy.export(tmp_path / "policy.onnx").path
    action, valid = session(path).run(None, {"observation": far})
    assert (action.tolist(), valid.tolist()) == ([-1], [False])


def test_metadata_say_what_the_file_is(heating, tmp_path):
    _, path = heating
    held = properties(path)
    assert (held["algorithm"], held["seed"], held["preset"], held["kind"]) == ("own", "3", "default", "gaussian")
    inputs, actions = json.loads(held["inputs"]), json.loads(held["actions"])
    assert [entry["type"] for entry in inputs] == ["float", "float", "string", "string", "bool", "float", "float"]
    assert inputs[2]["labels"] == ["eco", "comfort", "boost"]
    assert [entry["output"] for entry in actions] == ["valve_action", "fan", "level", "alarm"]
    assert actions[1]["labels"] == ["low", "high"]
    assert json.loads(held["check"])["rows"] == NUM_ROWS
    assert "vem" in json.loads(held["versions"])
    policy = random_policy("bcq", (0, 0))
    held = properties(export_policy(policy, tmp_path / "p.onnx", facts={"data_sha256": "ab", "estimate": [1]}).path)
    assert (held["data_sha256"], held["estimate"]) == ("ab", "[1]")
    assert [entry["high"] for entry in json.loads(held["actions"])] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("kind", "choices", "problem"),
    [("deterministic", (0,), "acts differently"), ("greedy", (4,), "chooses differently")],
)
def test_a_file_that_acts_otherwise_is_not_written(kind, choices, problem, tmp_path, monkeypatch):
    act = ALL_KINDS[kind].act

    def acts_otherwise(tensors, inputs, generator):
        """Elsewhere in NumPy than in the graph."""
        return act(tensors, inputs if isinstance(inputs, np.ndarray) else inputs * 0.5 + 0.3, generator)

    monkeypatch.setitem(ALL_KINDS, kind, Kind(acts_otherwise))
    path = tmp_path / "policy.onnx"
    path.write_text("before")
    with pytest.raises(RunError, match=problem):
        random_policy(kind, choices).export(path)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kind_of_ones_own_is_exported_if_it_is_written_for_whole_arrays(tmp_path, monkeypatch):
    def act(tensors, inputs, generator):
        return np.where(inputs[:, :1] > 0, np.tanh(network(tensors, "actor", inputs)), -0.5)

    tensors = random_policy("deterministic", (0,)).tensors
    monkeypatch.setattr(kinds, "KINDS", dict(ALL_KINDS))
    kinds.register_kind("mine", act)
    assert Policy("mine", tensors).export(tmp_path / "policy.onnx").check.largest_difference < 1e-5
    for name, other in (
        ("no len", lambda tensors, inputs, generator: np.zeros((len(inputs), 1))),
        ("numpy.arctan", lambda tensors, inputs, generator: np.arctan(inputs[:, :1])),
        ("asks for", lambda tensors, inputs, generator: np.asarray(inputs)[:, :1]),
    ):
        kinds.register_kind("mine", other, overwrite=True)
        with pytest.raises(RunError, match=f"kind 'mine' cannot be exported.*{name}"):
            Policy("mine", tensors).export(tmp_path / "other.onnx")


def test_places_that_cannot_be_written(tmp_path):
    policy = random_policy("deterministic", (0,))
    with pytest.raises(RunError, match="is a directory"):
        policy.export(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot write"):
        policy.export(tmp_path / "file" / "policy.onnx")


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
