"""Learning on a walk along a line (tests/chain.py): who finds the way where trajectories must be joined.

And on logs of control tasks with discrete actions.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import control_logs
from chain import reaches_goal, record
from vem.algorithms.base import METHODS
from vem.api import train
from vem.evaluation.evaluate import evaluate

VEM = {
    "expectile": 0.9,
    "discount": 0.9,
    "effective_sample": 0.2,
    "value_share": 0.4,
    "steps_per_refresh": 50,
    "target_rate": 0.05,
    "value_lr": 1e-3,
    "policy_lr": 3e-3,
}


def learn(name, dataset, steps, tmp_path, **settings):
    """Two seeds of a method with small networks."""
    fields = [field.name for field in dataclasses.fields(METHODS[name].config)]
    hidden = {field: (32, 32) for field in fields if field.endswith("_hidden")}
    run = train(dataset, name, seeds=2, steps=steps, out=tmp_path / "run", batch_size=64, **hidden, **settings)
    return run.policies


@pytest.fixture(scope="module")
def to_join():
    """Four steps an episode, 30 % of them toward the goal: no trajectory leads from the left to the reward."""
    dataset = record(300, share_right=0.3, num_steps=4)
    starts, ends = dataset.observations[dataset.episode_starts, 0], dataset.observations[dataset.episode_ends, 0]
    assert np.abs(ends - starts).max() < 0.5
    return dataset


def test_cloning_fails_where_most_trajectories_walk_away(to_join, tmp_path):
    policies = learn("bc", to_join, 1000, tmp_path)
    assert not any(reaches_goal(policy) for policy in policies)


def test_vem_joins_trajectories(to_join, tmp_path):
    policies = learn("vem", to_join, 600, tmp_path, **VEM)
    assert all(reaches_goal(policy) for policy in policies)
    values = policies[0].value(np.asarray([[0.1], [0.3], [0.5], [0.7], [0.9]], np.float32))
    assert (np.diff(values) > 0).all()


@pytest.mark.parametrize(("steps", "succeeds"), [(600, False), (3000, True)])
def test_one_step_targets_learn_the_same_slowly(to_join, tmp_path, steps, succeeds):
    policies = learn("vem-1step", to_join, steps, tmp_path, **VEM)
    assert [reaches_goal(policy) for policy in policies] == [succeeds] * 2


def test_monte_carlo_returns_cannot_join_trajectories(to_join, tmp_path):
    """BAIL's envelope knows no way from the left; its policy there is what the network extrapolates."""
    for policy in learn("bail", to_join, 1000, tmp_path, discount=0.9):
        left, right = policy.value(np.asarray([[0.3], [0.95]], np.float32))
        assert left < 0.25 * right


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bc", {}),
        ("awr", {"policy_lr": 1e-2}),
        ("bail", {}),
        ("iql", {}),
        ("td3bc", {}),
        pytest.param("bcq", {}, marks=pytest.mark.slow),
        pytest.param("bcq-em", {}, marks=pytest.mark.slow),
        pytest.param("cql", {"policy_lr": 1e-3}, marks=pytest.mark.slow),
    ],
)
def test_every_method_follows_an_expert(name, settings, tmp_path):
    policies = learn(name, record(100, share_right=1.0, num_steps=12), 500, tmp_path, **settings)
    assert all(reaches_goal(policy) for policy in policies)


# ---- discrete actions: logs of Gymnasium's control tasks, most of them bad (tests/control_logs.py) ----

CARTPOLE = "CartPole-v1"
FAST = {"batch_size": 64, "policy_hidden": (32, 32), "policy_lr": 3e-3}
FAST_VALUES = {"value_hidden": (32, 32), "value_lr": 3e-3, "steps_per_refresh": 50, "target_rate": 0.05}


@pytest.fixture(scope="module")
def cartpole():
    """Nine of ten controllers push the wrong way; the good one is cut after 50 steps."""
    dataset = control_logs.record(
        CARTPOLE, [control_logs.balance, *[control_logs.topple] * 9], 200, max_steps=50, name="cartpole"
    )
    assert np.median(dataset.episode_returns) < 12
    return dataset


def test_cloning_a_bad_log_of_cartpole_lets_the_pole_fall(cartpole, tmp_path):
    run = train(cartpole, "bc", steps=600, out=tmp_path / "run", **FAST)
    assert control_logs.mean_return(run.policy, CARTPOLE, 5) < 30


def test_vem_balances_the_pole_from_the_same_log(cartpole, tmp_path):
    """Longer than any trajectory, and by the evaluation that a user calls."""
    run = train(cartpole, "vem", steps=1000, out=tmp_path / "run", **FAST, **FAST_VALUES)
    result = evaluate(run, episodes=5, workers=1, progress=False)
    assert result.environment == CARTPOLE
    assert result.references is None
    assert result.groups[0].quantities["return"].mean > 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_vem_beats_cloning_on_a_log_of_lunar_lander(tmp_path):
    for package in ("Box2D", "pygame"):
        pytest.importorskip(package)
    name, controllers = "LunarLander-v3", [control_logs.land, *[control_logs.drop] * 2]
    log = control_logs.record(name, controllers, 60, max_steps=400, name="lunar-lander")
    cloned = train(log, "bc", steps=3000, out=tmp_path / "bc", batch_size=64)
    learnt = train(log, "vem", steps=8000, out=tmp_path / "vem", batch_size=64)
    returns = [control_logs.mean_return(run.policy, name, 10) for run in (cloned, learnt)]
    assert returns[1] > returns[0] + 50
