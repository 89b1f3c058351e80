import json

import numpy as np
import pytest

from vem.data.arrays import from_arrays
from vem.data.description import describe, draw
from vem.data.tables import from_table
from vem.errors import DataError, DataWarning


def dataset(**rules):
    """Three trajectories of four rows; the third repeats the first; row 4's step ended the MDP."""
    observations = np.array([[0, 0, 7], [1, 1, 7], [2, 2, 7], [3, 3, 7]], np.float32)
    rewards = np.array([0, 0, 1, 0], np.float32)
    shift, bonus = np.array([10, 10, 0]), np.array([5, 0, 0, 0])
    return from_arrays(
        observations=np.concatenate([observations, observations + shift, observations]),
        actions=np.tile(np.array([[-1.0, 0.1], [0, 0.2], [1, 0.3], [0.5, 0.4]]), (3, 1)),
        rewards=np.concatenate([rewards, rewards + bonus, rewards]),
        terminals=np.arange(12) == 4,
        timeouts=np.arange(12) % 4 == 3,
        **rules,
    )


def test_numbers_by_hand():
    about = describe(dataset())
    # 0 1 2 |3, then 4t |4, then 5 6 |7, then 8 9 10 |11
    assert (about.rows, about.transitions, about.episodes) == (13, 9, 4)
    assert (about.observation_size, about.action_size) == (3, 2)
    assert (about.lengths.min, about.lengths.median, about.lengths.max) == (1, 2.5, 3)
    assert (about.returns.min, about.returns.median, about.returns.mean, about.returns.max) == (1, 1, 2, 5)
    assert (about.ended_by_terminal, about.ended_by_time_limit) == (1, 3)
    assert (about.usual_reward, about.reward_density) == (0, 4 / 9)
    assert (about.duplicate_transitions, about.duplicate_episodes) == (3, 1)
    assert about.coverage.dimensions == (0, 1)
    assert about.coverage.occupied_cells == 8 / 400
    assert about.coverage.constant_dimensions == pytest.approx(1 / 3)
    first, second = about.actions
    assert (first.min, first.max, first.low, first.high, first.share_at_bounds) == (-1, 1, -1, 1, 6 / 9)
    assert (second.max, second.share_at_bounds) == (pytest.approx(0.3), 6 / 9)
    assert "1 of 4 episodes repeat others exactly" in about.remarks[-1]


def test_json_holds_every_fact():
    about = describe(dataset())
    facts = json.loads(json.dumps(about.to_dict(), allow_nan=False))
    assert facts["rules"]["split"] == "terminals"
    assert facts["lengths"] == {"min": 1.0, "median": 2.5, "mean": 2.25, "max": 3.0}
    assert len(facts["actions"]) == 2
    assert facts["coverage"]["dimensions"] == [0, 1]


def test_it_prints_as_a_table():
    lines = str(describe(dataset(name="<own>"))).splitlines()
    assert lines[0] == "<own>"
    table = dict(line.split("  ", maxsplit=1) for line in lines[1:] if not line.startswith("note: "))
    assert table["task"].strip() == "unknown"
    assert table["transitions"].strip() == "9"
    assert table["episode lengths"].strip() == "min 1   median 2.5   mean 2.25   max 3"
    assert lines[-1].startswith("note: 1 of 4 episodes repeat others exactly")


def test_names_from_files_do_not_move_the_terminal():
    pytest.importorskip("pyarrow")
    columns = {"\x1b[2Jvalve": np.arange(6.0), "\x07temp\nrewards  none": np.arange(6.0), "reward": np.arange(6.0)}
    names = list(columns)
    with pytest.warns(DataWarning):
        about = describe(
            from_table(columns, action=names[:1], observation=names[1:2], name="a\x1bb", split="terminals")
        )
    assert all(line.isprintable() for line in str(about).splitlines())
    assert r"\x1b[2Jvalve" in str(about)
    assert r"\x07temp\nrewards  none" in str(about)
    assert about.observation_names == (names[1],)


@pytest.mark.parametrize("outlier", [1e30, -1e30])
def test_one_reward_beside_which_the_others_vanish_is_named(outlier):
    rewards = np.random.default_rng(0).normal(size=500)
    rewards[7] = outlier
    arrays = {"observations": np.arange(500.0)[:, None], "actions": np.linspace(-1, 1, 500)[:, None]}
    with pytest.warns(
        DataWarning, match=rf"holds {outlier:g}".replace("+", r"\+") + " at row 7 .* beside it they vanish"
    ):
        found = from_arrays(**arrays, rewards=rewards, name="mine")
    assert "beside it they vanish" in str(describe(found))


@pytest.mark.parametrize("rewards", [np.arange(500) == 499, np.where(np.arange(500) % 50, -0.001, 1000.0)])
def test_sparse_and_unequal_rewards_are_nothing_to_warn_of(rewards):
    arrays = {"observations": np.arange(500.0)[:, None], "actions": np.linspace(-1, 1, 500)[:, None]}
    assert from_arrays(**arrays, rewards=rewards, time_limit="end").info.warnings == ()


def test_notebooks_show_escaped_html():
    html = describe(dataset(name="<own>"))._repr_html_()
    assert "<caption>&lt;own&gt;</caption>" in html
    assert "<tr><th>transitions</th><td>9</td></tr>" in html
    assert "<p>note: 1 of 4 episodes" in html


def test_a_dataset_says_what_it_is_in_two_lines():
    text = repr(from_arrays(np.zeros((3, 11)), np.zeros((3, 3)), np.ones(3), name="logs", task="hopper-medium"))
    assert len(text.splitlines()) == 2
    assert all(part in text for part in ("'logs'", "2 transitions in 1 episodes", "3 rows", "task hopper-medium"))


def test_a_repeat_counts_only_if_all_of_it_is_the_same():
    columns = {
        "observations": np.array([[0.0], [1], [2], [0], [1], [2]]),
        "actions": np.zeros((6, 1)),
        "rewards": np.array([1.0, 1, 1, 1, 1, 1]),
        "timeouts": np.array([0, 0, 1, 0, 0, 1]),
    }
    assert describe(from_arrays(**columns)).duplicate_episodes == 1
    assert describe(from_arrays(**columns)).duplicate_transitions == 2
    columns["observations"][5] = 3
    assert describe(from_arrays(**columns)).duplicate_episodes == 0
    assert describe(from_arrays(**columns)).duplicate_transitions == 1
    columns["rewards"][3] = 2
    assert describe(from_arrays(**columns)).duplicate_transitions == 0


def test_runs_of_terminals_are_remarked():
    columns = {
        "observations": np.arange(20.0)[:, None],
        "actions": np.zeros((20, 1)),
        "rewards": np.arange(20) >= 10.0,
        "terminals": np.arange(20) >= 10,
        "timeouts": np.arange(20) == 19,
    }
    assert "terminals come in runs" in describe(from_arrays(**columns)).remarks[0]
    assert describe(from_arrays(**columns, split="first-success")).remarks == ()


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("constant", [False, True])
def test_small_and_constant_data_can_be_described_and_drawn(tmp_path, size, constant):
    observations = np.ones((3, size)) if constant else np.arange(3 * size).reshape(3, size)
    data = from_arrays(observations, np.zeros((3, 1)), np.ones(3))
    about = describe(data)
    assert about.coverage.dimensions == ((0, 0) if constant or size == 1 else (0, 1))
    draw(data, about, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_picture_that_cannot_be_written(tmp_path):
    data = dataset()
    with pytest.raises(DataError, match="picture cannot be drawn"):
        draw(data, describe(data), tmp_path / "a.unknown")
