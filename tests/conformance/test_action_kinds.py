"""What holds for every method that learns discrete, several discrete or mixed actions, on tiny data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_runs import NUM_STEPS, OWN_METHODS, bits, make_run, share_programs, tiny_dataset
from vem.algorithms import bcq
from vem.algorithms.base import METHODS
from vem.data.actions import ACTION_KINDS, action_kind
from vem.errors import SettingsError
from vem.networks import apply_network, make_head
from vem.policy import load_policy
from vem.training.run import Run

OBSERVATIONS = np.random.default_rng(5).standard_normal((40, 3)).astype(np.float32)
FULLY = ("vem", "vem-guided", "bc", "awr", "bail", "iql")


def test_the_kinds_are_those_of_the_papers():
    for name in OWN_METHODS:
        expected = ACTION_KINDS if name in FULLY else ("box", "discrete") if name in ("cql", "bcq") else ("box",)
        assert METHODS[name].actions == expected, name


def test_state_keeps_its_structure_and_is_measured(action_trial):
    assert all(shape == action_trial.shapes[0] for shape in action_trial.shapes)
    assert action_trial.chunks[-1][1] == NUM_STEPS
    for metrics in action_trial.metrics:
        assert all(np.isfinite(values).all() for values in metrics.values())


def test_training_changes_the_policy(action_trial):
    run = action_trial.run
    before, after = (
        bits(run.algorithm.export(jax.tree.map(lambda leaf: leaf[0], state)))
        for state in (run.initial().state, action_trial.state)
    )
    assert any(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))


def test_acts_in_the_form_of_its_kind(action_trial):
    policy = action_trial.run.policy
    kind = action_kind(policy.action_choices)
    for key in (None, 0):
        actions, single = policy.act(OBSERVATIONS, key), policy.act(OBSERVATIONS[0], key)
        if kind == "discrete":
            assert actions.shape == (40,)
            assert isinstance(single, np.int64)
            assert set(actions.tolist()) <= {0, 1, 2}
        elif kind == "several":
            assert actions.shape == (40, 2)
            assert single.shape == (2,)
            assert (actions >= 0).all()
            assert (actions.max(axis=0) <= [2, 1]).all()
        else:
            assert actions.shape == (40, 2)
            assert (np.abs(actions[:, 0]) <= 2).all()
            assert len(np.unique(actions[:, 0])) > 1
            assert set(actions[:, 1].tolist()) <= {0.0, 1.0, 2.0}
        assert actions.dtype == (np.float32 if kind == "mixed" else np.int64)
        assert np.array_equal(actions, policy.act(OBSERVATIONS, key))


def test_samples_are_as_likely_as_the_outputs_say(action_trial):
    if action_trial.run.algorithm.policy_kind not in ("gaussian", "guided"):
        pytest.skip("this kind always takes its best choice")
    policy = action_trial.run.policy
    draws = policy.act(np.repeat(OBSERVATIONS[:1], 4000, axis=0), key=0)
    column = draws if draws.ndim == 1 else draws[:, 0 if action_kind(policy.action_choices) == "several" else 1]
    logits = outputs_of(action_trial, OBSERVATIONS[:1])[0]
    logits = logits[1:] if action_kind(policy.action_choices) == "mixed" else logits[:3]
    shares = np.bincount(column.astype(int), minlength=3) / 4000
    np.testing.assert_allclose(shares, jax.nn.softmax(logits), atol=0.04)


def outputs_of(trial, observations):
    """The outputs of the first trial's policy network, in JAX."""
    parameters = trial.run.algorithm.export(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trial.state))
    inputs = trial.run.rows.observe(jnp.asarray(observations))
    kind = trial.run.algorithm.policy_kind
    if kind == "guided":
        moves = apply_network(parameters["guide"], inputs) * (parameters["move_scale"] > 0)
        inputs = jnp.concatenate([inputs, moves], axis=-1)
    if kind == "greedy":
        return apply_network(parameters["choice_critic"], inputs)
    if kind == "constrained-greedy":
        q, logits = (apply_network(parameters[name], inputs) for name in ("choice_critic", "behavior"))
        return bcq.constrained(q, logits, parameters["threshold"])
    return apply_network(parameters["actor"], inputs)


def test_numpy_acts_as_the_networks_do(action_trial):
    policy, dataset = action_trial.run.policy, action_trial.run.dataset
    head = make_head(dataset.action_size, policy.action_choices)
    outputs = outputs_of(action_trial, OBSERVATIONS)
    expected = np.array(head.mode(outputs))
    if action_kind(policy.action_choices) == "mixed":
        expected[:, 0] *= 2
    actions = policy.act(OBSERVATIONS)
    np.testing.assert_allclose(actions.reshape(40, -1), expected, atol=1e-5)
    if "choice_critic.0.weight" in policy.tensors:
        np.testing.assert_allclose(policy.value(OBSERVATIONS), outputs.max(axis=-1), atol=1e-5)


def test_saves_loads_and_resumes(action_trial, tmp_path):
    policy, run = action_trial.run.policy, action_trial.run
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert np.array_equal(policy.act(OBSERVATIONS, 3), loaded.act(OBSERVATIONS, 3))
    assert loaded.action_columns == run.dataset.info.action_columns
    stopped = make_run(action_trial.name, tmp_path / "run", run.dataset)
    share_programs(stopped, run)
    for number, progress in enumerate(stopped.progress()):
        if number == 1:
            stopped.checkpoint(progress)
            break
    resumed = Run.open(tmp_path / "run", run.dataset).begin()
    share_programs(resumed, run)
    for ours, theirs in zip(resumed.train().policies, run.policies, strict=True):
        assert all(np.array_equal(ours.tensors[name], theirs.tensors[name]) for name in theirs.tensors)


@pytest.mark.parametrize("name", OWN_METHODS)
@pytest.mark.parametrize("kind", ["discrete", "several", "mixed"])
def test_a_method_that_cannot_says_which_can(name, kind, tmp_path):
    if kind in METHODS[name].actions:
        return
    with pytest.raises(SettingsError, match=f"{name} cannot learn .*; these can: vem, bc, awr, bail") as caught:
        make_run(name, tmp_path / "run", tiny_dataset(kind=kind))
    assert ("cql" in str(caught.value).split("these can")[1]) == (kind == "discrete")
    assert not (tmp_path / "run").exists()
