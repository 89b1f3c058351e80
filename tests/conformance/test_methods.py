"""What holds for every method: DESIGN's list, on tiny data."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from small_runs import NUM_STEPS, OWN_METHODS, bits, make_run, shape_of, share_programs, tiny_dataset
from vem.algorithms import bcq
from vem.algorithms.base import METHODS, sweepable
from vem.networks import apply_network, apply_networks, policy_mean
from vem.policy import load_policy
from vem.training import loop
from vem.training.loop import start, train
from vem.training.request import Trial
from vem.training.rows import draw_batch
from vem.training.run import Run

OBSERVATIONS = np.random.default_rng(5).standard_normal((6, 3)).astype(np.float32)


def trained(run, trials=None):
    """The state after all steps of a run's algorithm."""
    trials = trials or run.config.trials
    swept = {name: getattr(run.settings, name) for name in sweepable(type(run.settings))}
    swept = {name: value for name, value in swept.items() if value is not None}
    snapshot = start(run.algorithm, trials, swept)
    state = None
    for progress in train(run.algorithm, run.rows, trials, snapshot):
        state = progress.snapshot.state
    return state


def test_state_keeps_its_structure_and_types(trial):
    assert all(shape == trial.shapes[0] for shape in trial.shapes)
    assert "swept" in trial.state._fields


def test_every_update_is_done_and_measured(trial):
    assert trial.chunks[-1][1] == NUM_STEPS
    assert sum(stage.num_steps for stage in trial.run.algorithm.stages) == NUM_STEPS
    for metrics in trial.metrics:
        assert all(values.shape == (2,) and np.isfinite(values).all() for values in metrics.values())
    if trial.name != "bc":
        assert any("value_largest" in metrics for metrics in trial.metrics)


def test_training_changes_the_policy(trial):
    fresh = trial.run.initial().state
    before = bits(trial.run.algorithm.export(jax.tree.map(lambda leaf: leaf[0], fresh)))
    after = bits(trial.run.algorithm.export(jax.tree.map(lambda leaf: leaf[0], trial.state)))
    assert any(not np.array_equal(old, new) for old, new in zip(before, after, strict=True))


def test_compiles_once_for_each_stage(trial):
    assert len(trial.chunks) > len(trial.run.algorithm.stages)
    sizes = [loop.compile_chunk(stage, None)._cache_size() for stage in trial.run.algorithm.stages]
    # The first stage's program may have been compiled ahead, for one set of shapes.
    assert sizes[0] in (0, 1)
    assert sizes[1:] == [1] * (len(sizes) - 1)


def test_same_seed_same_bits(trial):
    again = trained(trial.run)
    assert all(np.array_equal(a, b) for a, b in zip(bits(trial.state), bits(again), strict=True))


def test_seeds_differ(trial):
    first, second = (bits(jax.tree.map(lambda leaf, i=i: leaf[i], trial.state)) for i in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_swept_settings_are_traced(trial):
    names = [name for name in sweepable(METHODS[trial.name].config) if name in trial.state.swept]
    for name in names:
        value = float(trial.state.swept[name][0])
        state = trained(trial.run, [Trial(0, {}), Trial(0, {name: value * 0.5})])
        halves = [bits(jax.tree.map(lambda leaf, i=i: leaf[i], state._replace(swept={}))) for i in (0, 1)]
        assert any(not np.array_equal(a, b) for a, b in zip(*halves, strict=True)), name
        original = bits(jax.tree.map(lambda leaf: leaf[0], trial.state._replace(swept={})))
        assert all(np.array_equal(a, b) for a, b in zip(halves[0], original, strict=True)), name
    for stage in trial.run.algorithm.stages:
        assert loop.compile_chunk(stage, None)._cache_size() == 1


def test_stop_and_resume_equals_never_stopping(trial, tmp_path):
    for stop_after in (1, len(trial.chunks) - 2):
        directory = tmp_path / f"stopped{stop_after}"
        stopped = make_run(trial.name, directory)
        share_programs(stopped, trial.run)
        for number, progress in enumerate(stopped.progress()):
            if number == stop_after:
                stopped.checkpoint(progress)
                break
        resumed = Run.open(directory, tiny_dataset()).begin()
        assert not resumed.is_finished
        if stop_after > 1:
            share_programs(resumed, trial.run)
        resumed.train()
        for ours, theirs in zip(resumed.policies, trial.run.policies, strict=True):
            assert ours.tensors.keys() == theirs.tensors.keys()
            assert all(np.array_equal(ours.tensors[name], theirs.tensors[name]) for name in ours.tensors)


def test_saves_loads_and_acts_the_same(trial, tmp_path):
    policy = trial.run.policies[1]
    policy.save(tmp_path / "policy.safetensors")
    loaded = load_policy(tmp_path / "policy.safetensors")
    assert np.array_equal(policy.act(OBSERVATIONS), loaded.act(OBSERVATIONS))
    assert np.array_equal(policy.act(OBSERVATIONS, key=3), loaded.act(OBSERVATIONS, key=3))
    assert loaded.info["algorithm"] == trial.name


def test_acts_within_bounds_and_always_the_same(trial):
    policy = trial.run.policy
    far = np.concatenate([OBSERVATIONS * 100, OBSERVATIONS])
    for key in (None, 0, 1):
        actions = policy.act(far, key=key)
        assert actions.shape == (12, 2)
        assert actions.dtype == np.float32
        assert (np.abs(actions) <= 2).all()
        assert np.array_equal(actions, policy.act(far, key=key))
    singly = np.stack([policy.act(observation) for observation in far])
    np.testing.assert_allclose(policy.act(far), singly, atol=1e-4)


def jax_action(kind, parameters, inputs):
    """What the method's own networks do, in the units of the bounds."""
    if kind in ("gaussian", "deterministic"):
        return policy_mean(parameters["actor"], inputs)
    if kind == "guided":
        moves = apply_network(parameters["guide"], inputs) * (parameters["move_scale"] > 0)
        return policy_mean(parameters["actor"], jnp.concatenate([inputs, moves], axis=-1))
    if kind == "tanh-gaussian":
        return jnp.tanh(jnp.split(apply_network(parameters["actor"], inputs), 2, axis=-1)[0])
    count, size = int(parameters["num_actions"]), parameters["decoder"][0].weight.shape[0] - inputs.shape[1]
    latents = np.clip(np.random.default_rng(0).standard_normal((count, size), dtype=np.float32), -0.5, 0.5)
    chosen = []
    for observation in inputs:
        repeated = jnp.tile(observation, (count, 1))
        actions = bcq.generate(parameters["decoder"], repeated, jnp.asarray(latents))
        actions = bcq.perturb(parameters["perturbation"], repeated, actions, parameters["limit"])
        values = apply_network(parameters["chooser"], bcq.join(repeated, actions))[:, 0]
        chosen.append(actions[values.argmax()])
    return jnp.stack(chosen)


def test_numpy_acts_as_the_networks_do(trial):
    parameters = trial.run.algorithm.export(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), trial.state))
    inputs = trial.run.rows.observe(jnp.asarray(OBSERVATIONS))
    expected = 2 * jax_action(trial.run.algorithm.policy_kind, parameters, inputs)
    np.testing.assert_allclose(trial.run.policy.act(OBSERVATIONS), expected, atol=1e-5)
    values = None
    if "critics" in parameters:
        values = apply_networks(parameters["critics"], inputs).mean(0) * trial.run.rows.value_unit
    if "action_critics" in parameters:
        values = apply_networks(parameters["action_critics"], bcq.join(inputs, expected / 2)).mean(0)
    if values is not None:
        np.testing.assert_allclose(trial.run.policy.value(OBSERVATIONS), values, rtol=1e-5, atol=1e-5)
    assert trial.run.policy.has_value == (trial.run.config.algorithm != "bc")


def test_seeds_together_equal_separate_seeds(trial):
    run = trial.run
    together = jax.tree.map(lambda leaf: leaf[1:], trial.state)
    alone = trained(run, [run.config.trials[1]])
    assert shape_of(alone) == shape_of(together)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(bits(alone), bits(together), strict=True))


def test_survives_one_episode_of_one_step(trial, tmp_path):
    run = make_run(trial.name, tmp_path / "run", tiny_dataset((1,)))
    run.train()
    actions = run.policy.act(OBSERVATIONS)
    assert np.isfinite(actions).all()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in OWN_METHODS])
def test_ablations_are_settings_of_their_method(name, tmp_path):
    """Their values train in tests/algorithms/test_vem.py; here every stage is traced, and the state keeps its shape."""
    run = make_run(name, tmp_path / "run")
    for setting, value in METHODS[name].overrides.items():
        assert getattr(run.settings, setting) == value
    rows, state = run.rows, jax.eval_shape(lambda: jax.tree.map(lambda leaf: leaf[0], run.initial().state))
    for stage in run.algorithm.stages:

        def once(state, stage=stage):
            key = jax.random.key(0)
            state, memory = stage.refresh(state, stage.empty(), rows, jnp.asarray(0), key)
            return stage.update(state, memory, draw_batch(stage, memory, rows, key), key)[0]

        assert shape_of(jax.eval_shape(once, state)) == shape_of(state)
