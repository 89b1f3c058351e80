"""Support data: made when training ends, kept in the policy file, returned with actions."""

import numpy as np
import pytest

import heating_log
import vem
from small_runs import make_run, tiny_dataset
from vem.data.arrays import from_arrays
from vem.errors import RunError
from vem.policy import Policy, load_policy
from vem.policy.support import PREFIX, Support, measure_support, split_rows


@pytest.mark.parametrize("kind", ["box", "discrete", "several", "mixed"])
def test_policies_score_states_and_actions(tmp_path, kind):
    dataset = tiny_dataset(kind=kind)
    run = make_run("bc", tmp_path / "run", dataset).train()
    policy = run.policy
    assert policy.has_support
    state = dataset.observations[0]
    action, support = policy.act(state, with_support=True)
    np.testing.assert_array_equal(action, policy.act(state))
    assert isinstance(support, Support)
    assert isinstance(support.state, float)
    assert 0 < support.action <= 1
    actions, scores = policy.act(np.stack([state, state + 1000]), key=0, with_support=True)
    assert len(actions) == 2
    assert np.shape(scores.action) == (2,)
    assert scores.state[1] == min(scores.state) < scores.state[0] == support.state
    again = load_policy(run.policy_paths[0])
    assert again.act(state, with_support=True)[1] == support


def test_tables_score_their_own_columns(tmp_path):
    log = heating_log.columns(num_days=8, num_steps=12)
    dataset = vem.from_table(heating_log.pa.table(log), mapping=heating_log.MAPPING)
    policy = make_run("bc", tmp_path / "run", dataset).train().policy
    row = {"temp_in": float(log["temp_in"][3]), "mode": "eco", "window": False}
    action, support = policy.act(row, with_support=True)
    assert set(action) == {"valve"}
    assert isinstance(support.state, float)
    _, far = policy.act({**row, "temp_in": -500.0}, with_support=True)
    assert far.state < support.state


def test_an_old_file_says_that_it_has_none(tmp_path):
    policy = make_run("bc", tmp_path / "run").train().policy
    tensors = {name: tensor for name, tensor in policy.tensors.items() if not name.startswith(PREFIX)}
    Policy(policy.kind, tensors, policy.info).save(tmp_path / "old.safetensors")
    old, state = load_policy(tmp_path / "old.safetensors"), np.zeros(3)
    assert not old.has_support
    np.testing.assert_array_equal(old.act(state), policy.act(state))
    with pytest.raises(RunError, match=r"no support data.*train it again"):
        old.act(state, with_support=True)
    model = measure_support(tiny_dataset())
    assert model is not None
    assert old.with_support(model).act(state, with_support=True)[1] == policy.act(state, with_support=True)[1]
    with pytest.raises(RunError, match="other observations"):
        Policy("x", {**tensors, "observation_mean": np.zeros(5)}, {}).with_support(model)


def test_damaged_support_is_refused(tmp_path):
    policy = make_run("bc", tmp_path / "run").train().policy
    tensors = {**policy.tensors, "support.states": np.zeros((4, 9), np.float32)}
    Policy(policy.kind, tensors, policy.info).save(tmp_path / "bad.safetensors")
    with pytest.raises(RunError, match="support"):
        load_policy(tmp_path / "bad.safetensors")


def test_the_same_data_give_the_same_bits():
    first, second = measure_support(tiny_dataset()), measure_support(tiny_dataset())
    assert first is not None
    assert second is not None
    for name, tensor in first.tensors().items():
        np.testing.assert_array_equal(tensor, second.tensors()[name])


def test_whole_episodes_are_held_out():
    dataset = tiny_dataset(lengths=(4, 3, 5, 2, 6, 4, 3, 5, 4, 4))
    known, held = split_rows(dataset)
    assert dataset.valid[known].all()
    assert dataset.valid[held].all()
    assert len(known) + len(held) == dataset.num_transitions
    episodes = [set(np.searchsorted(dataset.episode_ends, rows).tolist()) for rows in (known, held)]
    assert not episodes[0] & episodes[1]
    assert len(episodes[1]) == 2


def test_one_episode_and_one_step():
    random = np.random.default_rng(0)
    ends = np.zeros(10, bool)
    ends[-1] = True
    dataset = from_arrays(random.normal(size=(10, 2)), random.normal(size=(10, 1)), np.arange(10), ends)
    known, held = split_rows(dataset)
    assert (known.max(), held.min()) == (7, 8)
    single = from_arrays(np.zeros((1, 2)), np.ones((1, 1)), np.ones(1), np.ones(1, bool))
    assert measure_support(single) is None
