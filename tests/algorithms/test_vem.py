"""VEM's settings: each choice trains, meaningless combinations are refused, presets say what they should."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_runs import tiny_dataset, tiny_settings
from vem.algorithms import vem
from vem.algorithms.base import Spec, build, find_preset, spec_of
from vem.algorithms.vem import expectile_operator
from vem.data.arrays import from_arrays
from vem.errors import SettingsError
from vem.networks import apply_networks
from vem.plan import Steps
from vem.training.request import make_request
from vem.training.rows import put_rows
from vem.training.run import Run

# Each plan, order, loss, schedule, weight, advantage, number of critics and refresh occurs at least once.
COMBINATIONS = {
    "operator": {
        "order": "expectile-then-plan",
        "value_loss": "squared",
        "schedule": "joint",
        "policy_draw": "uniform",
    },
    "authors": {"plan": "crossed", "value_loss": "squared-weight", "num_critics": 4, "drop_below": -1000.0},
    "n-step": {
        "plan": "n-step",
        "num_plan_steps": 3,
        "value_loss": "quantile",
        "schedule": "joint",
        "policy_draw": "uniform",
        "weight": "exponential",
        "num_critics": 1,
        "advantage": "raw",
    },
    "one-step": {
        "plan": "one-step",
        "weight": "leaky-relu",
        "policy_draw": "uniform",
        "temperature": 2.0,
        "effective_sample": None,
        "advantage": "standardized",
        "clip_quantile": None,
        "target_update": "refresh",
        "initial_values": "random",
        "policy_lr_schedule": "none",
    },
    "monte-carlo": {
        "plan": "monte-carlo",
        "order": "expectile-then-plan",
        "value_loss": "squared",
        "operator_step": 0.4,
        "num_critics": 4,
        "refresh": "full",
        "weight": "exponential",
    },
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_trains_and_stays_finite(name, tmp_path):
    settings = tiny_settings("vem", **COMBINATIONS[name])
    run = Run.create(tmp_path / "run", make_request("tiny", settings=settings, steps=4), tiny_dataset())
    for progress in run.progress():
        assert all(np.isfinite(values).all() for values in progress.metrics.values())
    observations = np.zeros((2, 3), np.float32)
    assert np.isfinite(run.policy.act(observations)).all()
    assert np.isfinite(run.policy.value(observations)).all()


@pytest.mark.parametrize(
    ("settings", "typical_steps", "expected"),
    [
        ({}, 8, 1),
        ({}, 100, 5),
        ({}, 1000, 10),
        ({"least_plan_steps": 3}, 1000, 3),
        ({"num_plan_steps": 4}, 1000, 4),
    ],
    ids=str,
)
def test_the_shortest_rollout_follows_the_length_of_the_trajectories(settings, typical_steps, expected):
    spec = Spec(3, 2, 23, typical_steps)
    assert build(vem.VEM, settings).complete(spec)[0].least_plan_steps == expected


def test_what_follows_from_the_data_is_decided_and_explained():
    spec = Spec(3, 2, 171_000, 100, unrewarded=0.0, num_transitions=170_000)
    config, notes = vem.VEM().complete(spec)
    open_settings = [name for name, value in dataclasses.asdict(config).items() if value is None]
    # What is open still is not a matter of the data: "to the end", "none", "found from another setting".
    assert open_settings == ["num_plan_steps", "operator_step", "horizon", "temperature", "drop_below"]
    assert config.effective_sample == pytest.approx(0.1)
    assert [note.split(":")[0] for note in notes] == [
        "policy regression",
        "value-share 0.5",
        "policy-weight-decay 0.1",
        "discount 0.99",
        "least-plan-steps 5",
        "effective-sample 0.1",
    ]
    assert any("about 17,000 of 170,000 steps" in note for note in notes)
    assert config.complete(spec) == (config, ())
    assert vem.VEM(temperature=2.0).complete(spec)[0].effective_sample is None
    assert vem.VEM(effective_sample=0.4).complete(spec)[0].effective_sample == 0.4


def test_the_typical_trajectory_holds_the_median_transition():
    ends = np.isin(np.arange(74), [0, 1, 2, 3, 43, 73])
    zeros = np.zeros((74, 1), np.float32)
    dataset = from_arrays(zeros, zeros, ends.astype(np.float32), ends, np.zeros(74, bool), name="lengths")
    assert list(dataset.episode_lengths) == [1, 1, 1, 1, 40, 30]
    assert spec_of(dataset).typical_steps == 40


@pytest.mark.parametrize(
    "settings",
    [
        {"order": "expectile-then-plan"},
        {"order": "expectile-then-plan", "value_loss": "quantile"},
        {"value_loss": "squared"},
        {"plan": "crossed", "num_critics": 1},
        {"plan": "n-step"},
        {"plan": "one-step", "num_plan_steps": 3},
        {"plan": "monte-carlo", "num_plan_steps": 3},
        {"weight": "leaky-relu", "policy_draw": "uniform"},
        {"weight": "leaky-relu", "policy_draw": "uniform", "temperature": 1.0, "drop_below": -1.0},
        {"weight": "leaky-relu", "temperature": 1.0},
        {"temperature": 1.0, "effective_sample": 0.5},
        {"schedule": "joint"},
        {"plan": "one-step", "least_plan_steps": 3},
        {"least_plan_steps": 3, "num_plan_steps": 2},
    ],
    ids=str,
)
def test_refuses_combinations_that_mean_nothing(settings):
    with pytest.raises(SettingsError):
        vem.make(build(vem.VEM, settings), Spec(3, 2, 23), 10)


BOTH_READINGS = {
    "num_critics": (2, 4),
    "plan": ("episodic", "crossed"),
    "order": ("expectile-then-plan", "plan-then-expectile"),
    "value_loss": ("squared", "squared-weight"),
    "schedule": ("joint", "value-then-policy"),
    "steps_per_refresh": (200, 200),
    "refresh": ("full", "full"),
    "target_rate": (0.005, 1 - 0.995**200),
    "target_update": ("refresh", "update"),
    "value_lr": (1e-3, 3e-4),
    "policy_lr": (1e-3, 3e-4),
    "policy_hidden": ((256, 256), (256, 256, 256, 256)),
    "value_hidden": ((256, 256), (256, 256)),
    "log_std_low": (-6.0, -6.0),
    "log_std_high": (0.0, 0.0),
    "weight": ("softmax", "softmax"),
    "temperature": (100.0, 100.0),
    "effective_sample": (None, None),
    "policy_draw": ("uniform", "uniform"),
    "advantage": ("raw", "raw"),
    "clip_quantile": (None, None),
    "drop_below": (None, -1000.0),
    "num_plan_steps": (None, 1000),
    "least_plan_steps": (1, 1),
    "operator_step": (None, None),
    "batch_size": (128, 128),
    "discount": (0.99, 0.99),
    "normalize_observations": (False, False),
    "normalize_rewards": (False, False),
    "initial_values": ("random", "random"),
    "policy_lr_schedule": ("none", "none"),
}
"""Setting → (what the paper says, what its authors released)."""


@pytest.mark.parametrize("name", BOTH_READINGS)
def test_presets_set_both_readings(name):
    for preset, expected in zip(("paper", "authors"), BOTH_READINGS[name], strict=True):
        settings = build(vem.VEM, find_preset("vem", preset).settings)
        assert getattr(settings, name) == expected


def test_presets_read_episode_ends_as_they_did():
    assert find_preset("vem", "paper").rules == {"time_limit": "end"}
    assert find_preset("vem", "authors").rules == {"time_limit": "end", "repeat_terminals": True}


def test_advantage_is_smallest_return_minus_mean_value():
    """A = min_i R⁽ⁱ⁾ − mean_i V_i with online V; the memory is planned with the targets."""
    rows = put_rows(tiny_dataset())
    spec = Spec(3, 2, rows.rewards.size)
    settings = vem.VEM(
        plan="one-step",
        initial_values="random",
        value_hidden=(),
        policy_hidden=(8,),
        advantage="raw",
        clip_quantile=None,
        temperature=1.0,
    )
    algorithm = vem.make(settings, spec, 10)
    swept = {"expectile": jnp.asarray(0.3), "temperature": jnp.asarray(1.0)}
    state = algorithm.init(jax.random.key(0), swept)
    state = state._replace(targets=jax.tree.map(lambda leaf: 2 * leaf, state.critics))
    stage = algorithm.stages[1]
    _, memory = jax.jit(stage.refresh)(state, stage.empty(), rows, jnp.asarray(0), jax.random.key(1))

    def linear(networks):
        return np.asarray(rows.observations @ networks[0].weight + networks[0].bias[:, None])[..., 0]

    online, target = linear(state.critics), linear(state.targets)
    drawn = np.asarray(rows.drawable)
    rewards, continues = np.asarray(rows.rewards)[drawn], np.asarray(rows.continues)[drawn]
    returns = rewards + 0.99 * continues * target[:, drawn + 1]
    np.testing.assert_allclose(memory.advantages[drawn], returns.min(0) - online[:, drawn].mean(0), atol=1e-5)


def test_operator_keeps_the_value_of_final_observations_and_moves_the_others_by_the_expectile_step():
    values = jnp.asarray([[1.0, 2.0, 5.0]])
    steps = Steps(jnp.asarray([1.0, 0.0, 0.0]), jnp.asarray([0.9, 0.9, 0.9]), jnp.asarray([True, True, False]))
    operate = partial(expectile_operator, vem.VEM(operator_step=0.5))
    # δ = 1 + 0.9·2 − 1 = 1.8 and 0.9·5 − 2 = 2.5, both up: V + 2·0.5·0.3·δ
    expected = [[1 + 0.3 * 1.8, 2 + 0.3 * 2.5, 5.0]]
    np.testing.assert_allclose(operate(values, steps, jnp.asarray(0.3)), expected, rtol=1e-6)
    # Without a step size it is 1/(2·max(τ, 1−τ)): the larger weight becomes 1
    largest = partial(expectile_operator, vem.VEM())
    np.testing.assert_allclose(largest(values, steps, jnp.asarray(0.8)), [[2.8, 4.5, 5.0]], rtol=1e-6)


def test_values_start_at_zero_unless_told():
    spec = Spec(3, 2, 23)
    swept = {"expectile": jnp.asarray(0.3), "effective_sample": jnp.asarray(0.5)}
    for initial, is_zero in (("zero", True), ("random", False)):
        algorithm = vem.make(vem.VEM(initial_values=initial, value_hidden=(8,), policy_hidden=(8,)), spec, 10)
        state = jax.jit(algorithm.init)(jax.random.key(0), swept)
        values = apply_networks(state.critics, jnp.ones((1, 3)))
        assert bool((values == 0).all()) == is_zero


def test_groups_of_critics_are_valued_by_their_smaller():
    rows = put_rows(tiny_dataset())
    spec = Spec(3, 2, rows.rewards.size)
    algorithm = vem.make(vem.VEM(num_critics=4, plan="one-step", value_hidden=(), initial_values="random"), spec, 10)
    swept = {"expectile": jnp.asarray(0.3), "effective_sample": jnp.asarray(0.5)}
    state = algorithm.init(jax.random.key(0), swept)
    stage = algorithm.stages[0]
    _, memory = jax.jit(stage.refresh)(state, stage.empty(), rows, jnp.asarray(0), jax.random.key(1))
    layer = state.targets[0]
    values = np.asarray(rows.observations @ layer.weight + layer.bias[:, None])[..., 0]
    np.testing.assert_allclose(memory.values, [values[:2].min(0), values[2:].min(0)], atol=1e-5)
