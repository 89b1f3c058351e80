"""Configurations are checked when they are made, from Python as from the command line."""

import dataclasses
import json

import pytest

from vem.algorithms import bc, bcq, iql, vem
from vem.algorithms.base import METHODS, Configuration, build, method_of, setting
from vem.errors import SettingsError


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: iql.IQL(expectile=2), "--expectile is 2.0; it must be between 0 and 1, both excluded"),
        (lambda: iql.IQL(expectile="a"), "--expectile is 'a'; it must be a number"),
        (lambda: iql.IQL(expectile=True), "--expectile is True; it must be a number"),
        (lambda: iql.IQL(expectile=float("nan")), "--expectile is nan"),
        (lambda: iql.IQL(value_hidden=5), "--value-hidden is 5; it must be a list of numbers"),
        (lambda: vem.VEM(batch_size=1.5), "--batch-size is 1.5; it must be a whole number"),
        (lambda: vem.VEM(plan="best"), "--plan is 'best'; choose from episodic"),
        (lambda: vem.VEM(schedule="joint"), "policy-draw weights needs the final values"),
        (lambda: dataclasses.replace(vem.VEM(), discount=1), "--discount is 1.0"),
        (lambda: build(iql.IQL, {"expectil": 0.5}), "IQL has no setting 'expectil'; did you mean expectile?"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_what_is_wrong(make, message):
    with pytest.raises(SettingsError) as error:
        make()
    assert message in str(error.value)


def test_an_unknown_name_in_python_is_pythons_own_error():
    with pytest.raises(TypeError, match="expectil"):
        iql.IQL(expectil=0.5)


def test_text_and_lists_become_the_types_of_the_settings():
    config = vem.VEM(expectile="0.4", value_hidden=[8, 8.0], normalize_rewards="no", num_plan_steps="none")
    assert config == vem.VEM(expectile=0.4, value_hidden=(8, 8), normalize_rewards=False)
    assert isinstance(config.value_hidden[1], int)


@pytest.mark.parametrize("name", METHODS)
def test_a_stored_configuration_comes_back_equal(name):
    config = build(METHODS[name].config, dict(METHODS[name].overrides))
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert build(METHODS[name].config, stored) == config
    assert method_of(config) == (METHODS[name].ablates or name)


@dataclasses.dataclass(frozen=True)
class Unknown(Configuration):
    rate: float = setting(0.1, "a rate")


def test_the_method_goes_by_the_exact_class():
    assert method_of(bcq.BCQEM()) == "bcq-em"
    assert method_of(bcq.BCQ()) == "bcq"
    assert method_of(bc.BC()) == "bc"
    with pytest.raises(SettingsError, match="Unknown"):
        method_of(Unknown())


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_says_what_it_means(name):
    for field in dataclasses.fields(METHODS[name].config):
        assert len(field.metadata["meaning"]) > 5, field.name
        assert not field.metadata["meaning"].endswith("."), field.name
