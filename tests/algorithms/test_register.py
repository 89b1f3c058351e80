"""A method from outside: the example, and what registering refuses."""

import dataclasses
import runpy
from pathlib import Path

import numpy as np
import pytest

from small_runs import tiny_dataset
from vem.algorithms import bc
from vem.algorithms.base import METHODS, Configuration, Preset, find_method, find_preset, method_of, register, setting
from vem.errors import RunError, SettingsError
from vem.policy import kinds, load_policy
from vem.training.request import make_request
from vem.training.run import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"


@pytest.fixture(autouse=True)
def tables():
    """What a test registers is gone after it."""
    before = [(table, dict(table)) for table in (METHODS, kinds.KINDS)]
    yield
    for table, content in before:
        table.clear()
        table.update(content)


@dataclasses.dataclass(frozen=True)
class Own(bc.BC):
    """BC with a setting more."""

    strength: float = setting(1.0, "a number above 0", "positive")


def test_the_example_prefers_the_best_episodes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if not EXAMPLE.exists():
        pytest.skip("the examples are not part of this distribution")
    names = runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert len(EXAMPLE.read_text().splitlines()) < 90
    cloned, chosen = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert cloned < 0
    assert chosen == pytest.approx(0.4, abs=0.1)
    run = names["run"]
    assert run.config.algorithm == "percentile-bc"
    assert method_of(names["PercentileBC"]()) == "percentile-bc"
    loaded = load_policy(run.directory)
    observations = np.linspace(-1, 1, 5, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(loaded.act(observations), run.policy.act(observations))
    assert Run.open(run.directory, names["dataset"]).begin().is_finished
    swept = make_request("tiny", "percentile-bc", settings={"kept": [0.2, 0.5]})
    assert len(swept.trials) == 2


def test_a_new_kind_of_policy_acts_and_values(tmp_path):
    def make(config, spec, num_steps):
        return bc.make(config, spec, num_steps)._replace(name="own", policy_kind="own")

    def act(tensors, inputs, generator):
        return np.full((len(inputs), tensors["action_low"].size), 0.5, np.float32)

    value = lambda tensors, inputs: inputs.sum(1)
    presets = {"strong": Preset({"strength": 9.0}, {}, "made up", {"antmaze": {"strength": 3.0}})}
    register("own", Own, make, "a test", presets, actor=act, value=value)
    assert find_preset("own", "strong").settings == {"strength": 9.0}
    assert list(find_method("own").presets) == ["default", "strong"]
    config = make_request(
        "tiny", "own", preset="strong", settings={"policy_hidden": (4,), "normalize_observations": False}, steps=2
    )
    run = Run.create(tmp_path / "run", config, tiny_dataset()).train()
    loaded = load_policy(tmp_path / "run")
    np.testing.assert_array_equal(loaded.act(np.zeros((3, 3), np.float32)), np.ones((3, 2)))
    np.testing.assert_array_equal(run.policy.value(np.ones((2, 3), np.float32)), [3.0, 3.0])
    del kinds.KINDS["own"]
    with pytest.raises(RunError, match="import the module that registers it"):
        load_policy(tmp_path / "run")
    with pytest.raises(RunError, match="'own'"):
        run.policy.act(np.zeros(3, np.float32))


@dataclasses.dataclass(frozen=True)
class Plain:
    rate: float = 0.1


class Undecorated(Configuration):
    rate: float = setting(0.1, "a rate")


@dataclasses.dataclass(frozen=True)
class Undescribed(Configuration):
    rate: float = 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vem"}, "'vem' already"),
        ({"name": "My method"}, "small letters"),
        ({"name": ""}, "small letters"),
        ({"config": Plain}, "Plain"),
        ({"config": Undecorated}, "Undecorated"),
        ({"config": Undescribed}, "Undescribed.rate"),
        ({"config": Own()}, "frozen dataclass"),
        ({"config": bc.BC}, "method 'bc'"),
        ({"presets": {"default": Preset({"strenght": 1}, {}, "made up")}}, "did you mean strength"),
        ({"presets": {"default": Preset({}, {}, "", {"antmaze": {"strength": -1}})}}, "--strength is -1"),
        ({"value": lambda tensors, inputs: inputs[:, 0]}, "no actor"),
        ({"name": "gaussian", "actor": lambda *given: given[1]}, "kind of policy 'gaussian' already"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_what_would_not_work(arguments, message):
    known = set(METHODS)
    with pytest.raises(SettingsError, match=message):
        register(**{"name": "own", "config": Own, "make": bc.make, "summary": "a test", **arguments})
    assert set(METHODS) == known


def test_overwrite_replaces():
    for summary in ("first", "second"):
        register("own", Own, bc.make, summary, overwrite=True)
    assert METHODS["own"].summary == "second"
