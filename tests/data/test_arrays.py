import warnings

import numpy as np
import pytest

from vem.data.arrays import from_arrays
from vem.errors import DataError, DataWarning, SettingsError


def steps(num_rows=6, **flags):
    """Observations 0, 1, 2, …, actions −0.1·row, rewards 1 + row; flags as lists of rows."""
    columns = {
        "observations": np.arange(num_rows, dtype=np.float32)[:, None],
        "actions": -0.1 * np.arange(num_rows, dtype=np.float32)[:, None],
        "rewards": 1.0 + np.arange(num_rows, dtype=np.float32),
    }
    for name, rows in flags.items():
        columns[name] = np.isin(np.arange(num_rows), rows)
    return columns


def shape_of(dataset):
    """Each row's observation, with ``t`` after a terminal step and ``|`` before a final observation."""
    words = []
    for observation, valid, terminal in zip(dataset.observations[:, 0], dataset.valid, dataset.terminal, strict=True):
        words.append(f"{observation:g}{'t' if terminal else ''}" if valid else f"|{observation:g}")
    return " ".join(words)


def test_timed_out_row_becomes_the_final_observation():
    dataset = from_arrays(**steps(timeouts=[2, 5], terminals=[]))
    assert shape_of(dataset) == "0 1 |2 3 4 |5"
    np.testing.assert_array_equal(dataset.rewards, [1, 2, 0, 4, 5, 0])
    np.testing.assert_allclose(dataset.actions[:, 0], [0, -0.1, 0, -0.3, -0.4, 0], rtol=1e-6)


def test_terminal_step_is_kept_and_repeats_its_observation():
    dataset = from_arrays(**steps(terminals=[2], timeouts=[5]))
    assert shape_of(dataset) == "0 1 2t |2 3 4 |5"
    np.testing.assert_array_equal(dataset.rewards, [1, 2, 3, 0, 4, 5, 0])


def test_time_limit_end_keeps_the_row_and_marks_it_terminal():
    dataset = from_arrays(**steps(terminals=[], timeouts=[2, 5]), time_limit="end")
    assert shape_of(dataset) == "0 1 2t |2 3 4 5t |5"


def test_next_observations_are_the_final_ones_and_nothing_is_dropped():
    columns = steps(terminals=[2], timeouts=[5])
    columns["next_observations"] = columns["observations"] + 1
    columns["next_observations"][[2, 5]] = [[77], [88]]
    assert shape_of(from_arrays(**columns)) == "0 1 2t |77 3 4 5 |88"
    assert shape_of(from_arrays(**columns, time_limit="end")) == "0 1 2t |77 3 4 5t |88"


def test_both_flags_mean_a_terminal():
    assert shape_of(from_arrays(**steps(3, terminals=[2], timeouts=[2]))) == "0 1 2t |2"


def test_run_of_terminals_under_each_split():
    columns = steps(8, terminals=[2, 3, 6], timeouts=[4, 7])
    assert shape_of(from_arrays(**columns)) == "0 1 2t |2 3t |3 5 6t |6"
    assert shape_of(from_arrays(**columns, split="first-success")) == "0 1 2t |2 5 6t |6"
    assert shape_of(from_arrays(**columns, split="time-limits")) == "0 1 2 3 |4 5 6 |7"


def test_time_limits_keep_the_terminal_of_a_trajectories_last_step():
    columns = steps(6, terminals=[1, 2], timeouts=[2, 5])
    assert shape_of(from_arrays(**columns, split="time-limits")) == "0 1 2t |2 3 4 |5"


def test_without_timeouts_the_file_ends_like_a_time_limit():
    assert shape_of(from_arrays(**steps(terminals=[2]))) == "0 1 2t |2 3 4 |5"
    assert shape_of(from_arrays(**steps())) == "0 1 2 3 4 |5"
    for split in ("first-success", "time-limits"):
        assert shape_of(from_arrays(**steps(terminals=[2]), split=split)) == "0 1 2t |2 3 4 |5"


def test_without_timeouts_next_observations_show_the_resets():
    columns = steps(terminals=[4])
    columns["next_observations"] = columns["observations"] + 1
    columns["next_observations"][2] = 77
    assert shape_of(from_arrays(**columns)) == "0 1 2 |77 3 4t |5 5 |6"
    assert shape_of(from_arrays(**columns, split="time-limits")) == "0 1 2 |77 3 4 5 |6"


def test_disagreeing_next_observations_split_with_one_warning():
    columns = steps(terminals=[], timeouts=[5])
    columns["next_observations"] = columns["observations"] + 1
    columns["next_observations"][2] = 77
    with pytest.warns(DataWarning, match=r"'next_observations' differs .* at 1 steps .* row 2") as caught:
        dataset = from_arrays(**columns)
    assert len(caught) == 1
    assert shape_of(dataset) == "0 1 2 |77 3 4 5 |6"
    assert len(dataset.info.warnings) == 1


def walk(num_rows=2000, teleport_after=None, size=3):
    generator = np.random.default_rng(0)
    observations = np.cumsum(generator.normal(scale=0.1, size=(num_rows, size)), axis=0)
    if teleport_after is not None:
        observations[teleport_after + 1 :, 1] += 20
    return {
        "observations": observations,
        "actions": generator.uniform(-1, 1, (num_rows, 2)),
        "rewards": np.ones(num_rows),
        "timeouts": np.arange(num_rows) == num_rows - 1,
    }


def test_teleport_splits_with_one_warning_or_is_kept():
    with pytest.warns(DataWarning, match="jumps at 1 steps inside an episode, first after row 700") as caught:
        dataset = from_arrays(**walk(teleport_after=700))
    assert len(caught) == 1
    assert "--teleports keep on the command line" in str(caught[0].message)
    np.testing.assert_array_equal(dataset.episode_lengths, [700, 1298])
    assert not dataset.terminal.any()
    assert from_arrays(**walk(teleport_after=700), teleports="keep").num_episodes == 1
    assert from_arrays(**walk()).num_episodes == 1


def test_teleport_is_not_believed_as_a_successor():
    columns = walk(teleport_after=700)
    columns["next_observations"] = np.concatenate([columns["observations"][1:], columns["observations"][-1:]])
    with pytest.warns(DataWarning, match="jumps"):
        dataset = from_arrays(**columns)
    np.testing.assert_array_equal(dataset.episode_lengths, [700, 1299])
    np.testing.assert_allclose(dataset.observations[700], columns["observations"][700], rtol=1e-6)


def test_reset_after_a_terminal_ends_the_trajectory_quietly():
    columns = walk(teleport_after=700)
    columns["terminals"] = np.arange(2000) == 700
    for split in ("terminals", "first-success", "time-limits"):
        dataset = from_arrays(**columns, split=split)
        np.testing.assert_array_equal(dataset.episode_lengths, [701, 1298])
        np.testing.assert_array_equal(np.flatnonzero(dataset.terminal), [700])


def test_types_and_shapes_that_are_accepted():
    columns = steps(terminals=[2], timeouts=[5])
    expected = from_arrays(**columns)
    loose = {
        "observations": columns["observations"].astype(np.int64),
        "actions": columns["actions"].astype(np.float64).tolist(),
        "rewards": columns["rewards"].astype(np.float16)[:, None],
        "terminals": columns["terminals"].astype(np.float32)[:, None],
        "timeouts": columns["timeouts"].astype(np.uint8),
    }
    dataset = from_arrays(**loose)
    assert dataset.fingerprint() == expected.fingerprint()
    assert dataset.observations.dtype == dataset.actions.dtype == dataset.rewards.dtype == np.float32


def test_input_is_never_changed():
    columns = steps(terminals=[2], timeouts=[5])
    before = {name: column.copy() for name, column in columns.items()}
    dataset = from_arrays(**columns)
    dataset.observations[:] = 9
    for name, column in columns.items():
        np.testing.assert_array_equal(column, before[name])


def test_bounds_whose_distance_float32_cannot_hold_are_taken_without_a_word():
    ends = np.array([0, 1])
    info = from_arrays(np.zeros((2, 1)), np.array([[-1.0], [1.0]]), ends, ends, action_bounds=(-3.3e38, 3.3e38)).info
    assert info.action_high == (np.float32(3.3e38),)


def test_action_bounds():
    columns = steps()
    columns["actions"] = np.linspace(0, 1, 6)[:, None]
    info = from_arrays(**columns, time_limit="end").info
    assert (info.action_low, info.action_high, info.bounds_source) == ((0.0,), (1.0,), "data")
    columns["actions"] = np.stack([np.linspace(0, 5, 6), np.full(6, 3.0)], axis=1)
    info = from_arrays(**columns, time_limit="end").info
    assert (info.action_low, info.action_high) == ((0.0, 2.0), (5.0, 4.0))
    info = from_arrays(**columns, action_bounds=(-9, [8, 9])).info
    assert (info.action_high, info.bounds_source) == ((8.0, 9.0), "given")
    assert info.rules["action_bounds"] == [[-9.0, -9.0], [8.0, 9.0]]
    info = from_arrays(**columns, action_bounds=(None, 10)).info
    assert (info.action_low, info.bounds_source) == ((0.0, 2.0), "given and data")
    with pytest.warns(DataWarning, match=r"dimension 0 holds 5 .*\[-4, 4\].*clip the actions"):
        from_arrays(**columns, action_bounds=(-4, 4), time_limit="end")
    for wrong in ((1, -1), (np.nan, 1), ([0, 0, 0], 1), ("low", 1)):
        with pytest.raises(SettingsError, match="action_bounds"):
            from_arrays(**columns, action_bounds=wrong)


def test_bounds_of_the_task_and_the_environment_come_before_the_data():
    columns = steps()
    columns["observations"], columns["actions"] = np.zeros((6, 11)), np.linspace(0, 0.5, 18).reshape(6, 3)
    info = from_arrays(**columns, task="hopper-medium").info
    assert (info.action_low, info.action_high, info.bounds_source) == ((-1.0,) * 3, (1.0,) * 3, "task")
    columns["actions"] *= 3
    assert from_arrays(**columns, task="hopper-medium").info.bounds_source == "data"
    columns["observations"], columns["actions"] = np.zeros((6, 3)), columns["actions"][:, :1]
    info = from_arrays(**columns, environment="Pendulum-v1").info
    assert (info.action_low, info.action_high, info.bounds_source) == ((-2.0,), (2.0,), "environment")
    assert from_arrays(**columns, environment="Unknown-v0").info.bounds_source == "data"


def test_rules_and_names_travel_with_the_data():
    info = from_arrays(**steps(), name="mine", split="first-success", time_limit="end").info
    assert info.name == "mine"
    assert info.rules == {"split": "first-success", "time_limit": "end", "teleports": "split"}
    for rule in ("split", "time_limit", "teleports"):
        with pytest.raises(SettingsError, match=f"{rule}='never' is unknown"):
            from_arrays(**steps(), **{rule: "never"})


def test_no_reward_anywhere_warns():
    columns = steps()
    columns["rewards"][:] = 0
    with pytest.warns(DataWarning, match="'rewards' is zero in every step"):
        assert len(from_arrays(**columns).info.warnings) == 1


def broken(**changes):
    return {**steps(), **changes}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (broken(observations=None), "'observations' is missing"),
        (broken(observations=np.arange(6.0)), r"'observations' has shape \(6,\).*observations\[:, None\]"),
        (broken(observations=np.ones((6, 0))), r"'observations' has shape \(6, 0\)"),
        (broken(observations=np.ones((6, 2, 2))), "flatten each step"),
        (broken(observations=np.ones((0, 2))), "'observations' is empty"),
        (broken(observations=np.float32(3)), r"'observations' has shape \(\)"),
        (broken(observations=[[1], [1, 2]]), "'observations' is no array"),
        (broken(actions=np.arange(6.0)), r"for one number per step use actions\[:, None\]"),
        (broken(actions=np.ones((5, 1))), "'actions' has 5 rows and 'observations' has 6: row 5"),
        (broken(rewards=np.ones((6, 2))), r"'rewards' has shape \(6, 2\), expected \(6,\)"),
        (broken(rewards=np.ones(7)), "'rewards' has 7 rows"),
        (broken(rewards=["a"] * 6), "'rewards' holds text"),
        (broken(rewards=np.array([None] * 6)), "'rewards' holds Python objects"),
        (broken(rewards=np.ones(6) * 1j), "'rewards' holds complex numbers"),
        (broken(rewards=np.array([1, 2, np.nan, 3, np.inf, 0])), "'rewards' has 2 rows .* first at row 2"),
        (broken(observations=np.full((6, 2), 1e300)), "'observations' has 6 rows .* beyond float32"),
        (broken(actions=np.full((6, 1), -np.inf)), "'actions' has 6 rows"),
        (broken(terminals=np.array([0, 0, 2, 0, 3, 1])), r"'terminals' holds .*2.* at row 2 \(2 such rows\)"),
        (broken(timeouts=np.full(6, np.nan)), "'timeouts' holds .*nan"),
        (broken(timeouts=np.ones(6, bool)), "no valid transition in 6 rows"),
        (broken(terminals=np.zeros(5)), "'terminals' has 5 rows"),
        (broken(next_observations=np.ones((6, 2))), "'next_observations' has shape .* must agree"),
        (broken(next_observations=np.full((6, 1), np.nan)), "'next_observations' has 6 rows"),
        (broken(next_observations=np.ones((5, 1))), "'next_observations' has 5 rows"),
    ],
)
def test_what_is_wrong_is_said_in_one_error(columns, message):
    with warnings.catch_warnings(), pytest.raises(DataError, match=message):
        from_arrays(**columns)


def test_one_row_needs_its_successor():
    with pytest.raises(DataError, match="no valid transition"):
        from_arrays(**steps(1))
    assert shape_of(from_arrays(**steps(1), time_limit="end")) == "0t |0"
    assert shape_of(from_arrays(**steps(1), next_observations=np.ones((1, 1)))) == "0 |1"


def test_long_columns_are_read_in_blocks(monkeypatch):
    columns = walk(teleport_after=700)
    columns["terminals"] = np.arange(2000) % 97 == 50
    with pytest.warns(DataWarning):
        expected = from_arrays(**columns)
    monkeypatch.setattr("vem.data.checks.BLOCK_BYTES", 256)
    with pytest.warns(DataWarning):
        assert from_arrays(**columns).fingerprint() == expected.fingerprint()
    columns["observations"][[1500, 1600], 0] = np.nan
    with pytest.raises(DataError, match=r"'observations' has 2 rows .* first at row 1500"):
        from_arrays(**columns)
