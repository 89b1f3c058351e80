import pytest

from vem.algorithms.base import METHODS, build, find_method, find_preset
from vem.errors import SettingsError
from vem.tasks import TASKS, find_task


@pytest.mark.parametrize("algorithm", METHODS)
def test_every_preset_builds_for_every_task(algorithm):
    method = METHODS[algorithm]
    for preset in method.presets:
        for task in (None, *TASKS.values()):
            found = find_preset(algorithm, preset, task)
            settings = build(method.config, found.settings)
            assert found.source
            for name, value in method.overrides.items():
                assert getattr(settings, name) == value


@pytest.mark.parametrize(
    ("algorithm", "dataset", "expected"),
    [
        ("iql", "antmaze-umaze", {"expectile": 0.9, "inverse_temperature": 10.0, "reward_shift": -1.0}),
        ("iql", "door-human", {"expectile": 0.7, "inverse_temperature": 0.5, "policy_dropout": 0.1}),
        ("iql", "hopper-medium", {"expectile": 0.7, "inverse_temperature": 3.0, "return_span": 1000.0}),
        ("cql", "antmaze-large-play", {"lagrange_threshold": 5.0, "reward_scale": 4.0, "reward_shift": -2.0}),
        ("cql", "walker2d-medium", {"lagrange_threshold": None, "conservative_weight": 5.0, "reward_scale": 1.0}),
        ("awr", "antmaze-umaze", {"policy_std": 0.2, "td_lambda": 0.95}),
        ("awr", "halfcheetah-medium", {"policy_std": 0.4, "momentum": 0.9}),
        ("bcq", "pen-human", {"perturbation": 0.05, "minimum_weight": 0.75, "batch_size": 100}),
        ("bail", "pen-human", {"kept": 0.25, "below_weight": 1000.0, "value_weight_decay": 0.02}),
        ("td3bc", "hopper-medium", {"value_weight": 2.5, "normalize_observations": True}),
    ],
)
def test_official_settings_of_a_family(algorithm, dataset, expected):
    task = find_task(dataset)
    assert task is not None
    settings = build(find_method(algorithm).config, find_preset(algorithm, "default", task).settings)
    assert {name: getattr(settings, name) for name in expected} == expected


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_tuned_expectiles_belong_to_vem_and_its_ablations(preset):
    task = find_task("antmaze-large-diverse")
    assert find_preset("vem", preset, task).settings["expectile"] == 0.1
    assert find_preset("vem-1step", preset, task).settings["expectile"] == 0.1
    assert "expectile" not in find_preset("vem", "default", task).settings
    assert find_preset("vem", preset, find_task("relocate-human")).settings["expectile"] == 0.3


@pytest.mark.parametrize(
    ("name", "preset", "expected"),
    [
        ("vem-1step", "authors", {"plan": "one-step", "num_plan_steps": None, "num_critics": 4}),
        ("vem-nstep", "paper", {"plan": "n-step", "num_plan_steps": 10, "num_critics": 2}),
        ("vem-abs", "paper", {"value_loss": "quantile", "order": "plan-then-expectile"}),
        ("vem-4critics", "default", {"num_critics": 4}),
        ("vem-joint", "authors", {"schedule": "joint"}),
    ],
)
def test_ablations_change_what_they_say_and_nothing_else(name, preset, expected):
    base, changed = find_preset("vem", preset).settings, find_preset(name, preset).settings
    assert {key: changed[key] for key in expected} == expected
    overrides = METHODS[name].overrides
    assert {k: v for k, v in changed.items() if k not in overrides} == {
        k: v for k, v in base.items() if k not in overrides
    }


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match="vem-1step"):
        find_method("dqn")
    with pytest.raises(SettingsError, match="paper, authors"):
        find_preset("vem-abs", "ours")
