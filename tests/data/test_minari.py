import json
import warnings

import gymnasium as gym
import numpy as np
import pytest

from vem.data.actions import ActionColumn
from vem.data.load import load
from vem.data.minari import read_minari
from vem.errors import DataError

minari = pytest.importorskip("minari")
Box = gym.spaces.Box


@pytest.fixture(autouse=True)
def local_datasets(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def episode(first, length, terminated=False, truncated=True, observations=None):
    """Observation t is (first + t, −t); reward t is first + t."""
    from minari.data_collector import EpisodeBuffer

    time = np.arange(length + 1, dtype=np.float32)
    ends = np.arange(length) == length - 1
    return EpisodeBuffer(
        observations=np.stack([first + time, -time], axis=1) if observations is None else observations(time),
        actions=np.stack([time[:-1] / 10, -time[:-1] / 10], axis=1),
        rewards=list(first + time[:-1]),
        terminations=list(ends & terminated),
        truncations=list(ends & truncated),
    )


def write(episodes, dataset_id="test/points-v0", observation_space=None, action_space=None, **facts):
    with warnings.catch_warnings():
        # Minari asks for an author, a description and more, which this dataset has no use for.
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            dataset_id=dataset_id,
            buffer=episodes,
            observation_space=observation_space or Box(-1000, 1000, (2,), np.float32),
            action_space=action_space or Box(-2, 2, (2,), np.float32),
            **facts,
        )


def test_observations_stay_aligned_and_ends_stay_apart():
    timed_out, ended = episode(0, 3), episode(100, 2, terminated=True, truncated=False)
    write([timed_out, ended, episode(200, 1, truncated=False)])
    dataset = load("minari:test/points-v0")
    np.testing.assert_array_equal(dataset.observations[:, 0], [0, 1, 2, 3, 100, 101, 102, 200, 201])
    np.testing.assert_array_equal(dataset.observations[:, 1], [0, -1, -2, -3, 0, -1, -2, 0, -1])
    np.testing.assert_array_equal(dataset.rewards, [0, 1, 2, 0, 100, 101, 0, 200, 0])
    np.testing.assert_array_equal(np.flatnonzero(~dataset.valid), [3, 6, 8])
    np.testing.assert_array_equal(np.flatnonzero(dataset.terminal), [5])
    np.testing.assert_allclose(dataset.actions[:4, 0], [0, 0.1, 0.2, 0])
    assert dataset.info.action_low == (-2.0, -2.0)
    assert dataset.info.source == "minari:test/points-v0"
    assert "observation_keys" not in dataset.info.rules


def test_rules_apply():
    write([episode(0, 3), episode(100, 2)])
    assert load("minari:test/points-v0", time_limit="end").terminal.sum() == 2


def test_dict_observations_are_flattened_by_sorted_keys():
    def observations(time):
        return {
            "observation": np.stack([time, time + 10], axis=1),
            "achieved": {"b": time[:, None] + 20, "a": time[:, None] + 30},
        }

    space = gym.spaces.Dict(
        {
            "observation": Box(-99, 99, (2,), np.float32),
            "achieved": gym.spaces.Dict({"b": Box(-99, 99, (1,), np.float32), "a": Box(-99, 99, (1,), np.float32)}),
        }
    )
    write([episode(0, 2, observations=observations)], observation_space=space)
    dataset = read_minari("test/points-v0")
    assert dataset.info.rules["observation_keys"] == ["achieved/a", "achieved/b", "observation"]
    np.testing.assert_array_equal(dataset.observations, [[30, 20, 0, 10], [31, 21, 1, 11], [32, 22, 2, 12]])


def test_metadata_holds_environment_and_reference_scores():
    write([episode(0, 2)], env="Pendulum-v1", ref_min_score=-5.0, ref_max_score=7.0)
    info = read_minari("test/points-v0").info
    assert info.metadata["environment"] == "Pendulum-v1"
    assert (info.metadata["ref_min_score"], info.metadata["ref_max_score"]) == (-5.0, 7.0)
    json.dumps(info.metadata, allow_nan=False)


def test_unbounded_actions_take_the_datas_range():
    write([episode(0, 2)], action_space=Box(-np.inf, np.inf, (2,), np.float32))
    info = read_minari("test/points-v0").info
    np.testing.assert_allclose(info.action_high, (0.1, 0), rtol=1e-6)
    assert info.bounds_source == "data"


def test_unknown_id_says_what_is_there():
    write([episode(0, 2)])
    with pytest.raises(DataError, match=r"minari:test/lines-v0: not on this machine.*test/points-v0"):
        load("minari:test/lines-v0")
    with pytest.raises(DataError, match=r"minari:no id at all"):
        load("minari:no id at all")


def acting(actions):
    """An episode of two steps with these actions."""
    from minari.data_collector import EpisodeBuffer

    return EpisodeBuffer(
        observations=np.zeros((3, 2), np.float32),
        actions=actions,
        rewards=[1.0, 1.0],
        terminations=[False, False],
        truncations=[False, True],
    )


def test_the_action_space_says_what_the_actions_are():
    write([acting(np.array([2, 4]))], action_space=gym.spaces.Discrete(3, start=2))
    dataset = read_minari("test/points-v0")
    assert dataset.actions[dataset.valid].tolist() == [[0], [2]]
    assert dataset.info.action_columns == (ActionColumn("action 0", "discrete", 0.0, 2.0, ("2", "3", "4")),)
    write([acting(np.array([[1, 0], [0, 4]]))], "test/several-v0", action_space=gym.spaces.MultiDiscrete([2, 5]))
    dataset = read_minari("test/several-v0")
    assert dataset.actions[dataset.valid].tolist() == [[1, 0], [0, 4]]
    assert [len(column.labels) for column in dataset.info.action_columns] == [2, 5]


def test_spaces_within_a_space_are_columns_in_the_order_of_their_names():
    parts = {"push": Box(-2, 2, (2,), np.float32), "gear": gym.spaces.Discrete(3)}
    actions = {"push": np.array([[0.5, 1], [-1, 2]], np.float32), "gear": np.array([2, 0])}
    write([acting(actions)], action_space=gym.spaces.Dict(parts))
    dataset = read_minari("test/points-v0")
    assert dataset.actions[dataset.valid].tolist() == [[2, 0.5, 1], [0, -1, 2]]
    described = [(column.name, column.kind, column.high) for column in dataset.info.action_columns]
    assert described == [("gear", "discrete", 2.0), ("push 0", "box", 2.0), ("push 1", "box", 2.0)]


def test_other_action_spaces_are_refused():
    write([acting(np.array([[1, 0], [0, 1]], np.int8))], action_space=gym.spaces.MultiBinary(2))
    with pytest.raises(DataError, match=r"minari:test/points-v0: actions are MultiBinary\(2\)"):
        read_minari("test/points-v0")


def test_not_finite_names_the_column():
    write([episode(0, 4, observations=lambda time: np.full((5, 2), np.nan, np.float32))])
    with pytest.raises(DataError, match=r"minari:test/points-v0: column 'observations' holds NaN.* row 0"):
        read_minari("test/points-v0")


def test_what_the_metadata_name_is_not_made_to_learn_the_spaces(tmp_path):
    write([episode(0, 2)], env="Pendulum-v1")
    path = tmp_path / "test/points-v0/data/metadata.json"
    stored = json.loads(path.read_text())
    spec = {**json.loads(stored["env_spec"]), "entry_point": "os:mkdir", "kwargs": {"path": str(tmp_path / "ran")}}
    del stored["action_space"]
    path.write_text(json.dumps({**stored, "env_spec": json.dumps(spec)}))
    with pytest.raises(DataError, match=r"metadata\.json: names no observation_space or action_space"):
        load("minari:test/points-v0")
    assert not (tmp_path / "ran").exists()
    path.write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"metadata\.json: is damaged"):
        load("minari:test/points-v0")


def test_metadata_are_bounded():
    write([episode(0, 2)], description="x" * 1_000_000)
    info = read_minari("test/points-v0").info
    assert "description" not in info.metadata
    assert info.metadata["dataset_id"] == "test/points-v0"
