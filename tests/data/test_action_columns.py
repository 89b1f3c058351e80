"""What the columns of recorded actions are: numbers or choices, said or asked."""

import json
import warnings

import gymnasium as gym
import h5py
import numpy as np
import pytest

from vem.data.actions import ActionColumn, action_kind, choices_of, discrete_column
from vem.data.arrays import from_arrays
from vem.data.description import describe
from vem.data.load import load
from vem.data.spaces import from_space, space_columns, to_space
from vem.errors import DataError, DataWarning, SettingsError

RANDOM = np.random.default_rng(0)
NUM = 100
CODES = np.arange(NUM) * 7 % 5 % 3


def record(actions, **rules):
    return from_arrays(RANDOM.normal(size=(NUM, 2)), actions, np.ones(NUM), teleports="keep", **rules)


def quietly(actions, **rules):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return record(actions, **rules)


def taken(dataset):
    return dataset.actions[dataset.valid]


def test_integers_are_choices():
    dataset = record(CODES)
    assert dataset.info.action_columns == (ActionColumn("action 0", "discrete", 0.0, 2.0, ("0", "1", "2")),)
    assert dataset.actions.dtype == np.float32
    assert np.array_equal(taken(dataset)[:, 0], CODES[: NUM - 1])
    assert (dataset.info.action_low, dataset.info.action_high) == ((0.0,), (2.0,))
    assert not dataset.info.warnings
    several = record(np.stack([CODES, CODES % 2], axis=1).astype(np.uint8))
    assert choices_of(several.info.action_columns) == (3, 2)
    assert choices_of(record(CODES > 0).info.action_columns) == (2,)


def test_a_choice_that_is_never_taken_keeps_its_code():
    dataset = record(np.where(CODES == 1, 3, CODES))
    assert dataset.info.action_columns[0].labels == ("0", "1", "2", "3")
    assert set(taken(dataset)[:, 0]) == {0, 2, 3}


def test_other_whole_numbers_are_coded_in_their_order():
    dataset = record(np.array([-5, 10, 70_000])[CODES])
    assert dataset.info.action_columns[0].labels == ("-5", "10", "70000")
    assert np.array_equal(taken(dataset)[:, 0], CODES[: NUM - 1])
    assert not dataset.actions[~dataset.valid].any()


def test_numbers_beside_choices_have_bounds():
    numbers = RANDOM.uniform(-3, 3, NUM)
    actions = np.stack([numbers, CODES, numbers / 10], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = record(actions, discrete=[1], action_bounds=(-3.0, [3.0, 9.0, 3.0]))
    assert [column.kind for column in dataset.info.action_columns] == ["box", "discrete", "box"]
    assert dataset.info.action_low == (-3.0, 0.0, -3.0)
    assert dataset.info.action_high == (3.0, 2.0, 3.0)
    assert dataset.info.rules["discrete"] == [1]
    free = record(np.stack([numbers / 5, 40 * CODES], axis=1), discrete=[1])
    assert free.info.action_low == (np.float32(numbers[:-1].min() / 5), 0.0), "choices do not widen them"


@pytest.mark.parametrize(
    ("actions", "question"),
    [
        (
            CODES[:, None] * 1.0,
            r"actions look like 3 whole numbers 0, 1, 2: discrete\? Then say discrete=True \(",
        ),
        (np.stack([CODES - 1.0, np.linspace(0, 1, NUM)], 1), r"column 0 of the actions looks like .* discrete=\[0\]"),
        (np.stack([CODES, CODES % 2], 1) * 1.0, "actions look like few whole numbers, such as 0, 1, 2"),
        (np.eye(3)[CODES], "one of 3 choices in one-hot form"),
    ],
)
def test_floats_that_look_discrete_are_asked_about(actions, question):
    with pytest.warns(DataWarning, match=question):
        dataset = record(actions)
    assert dataset.info.action_columns == ()
    assert len(dataset.info.warnings) == 1
    silent = record(actions, discrete=False)
    assert silent.info.warnings == ()
    assert np.array_equal(silent.actions, dataset.actions)


@pytest.mark.parametrize("actions", [np.zeros((NUM, 1)), np.arange(NUM)[:, None] * 1.0, CODES[:, None] / 2])
def test_other_floats_are_not_asked_about(actions):
    assert record(actions).info.warnings == ()


def test_said_to_be_discrete():
    assert choices_of(record(CODES * 1.0, discrete=True).info.action_columns) == (3,)
    one_hot = record(np.eye(3)[CODES], discrete=True)
    assert np.array_equal(taken(one_hot)[:, 0], CODES[: NUM - 1])
    assert choices_of(one_hot.info.action_columns) == (3,)
    assert choices_of(record(np.eye(3)[CODES], discrete=[0, 1, 2]).info.action_columns) == (2, 2, 2)
    assert record(CODES[:, None], discrete=False).info.action_columns == ()


@pytest.mark.parametrize(
    ("actions", "discrete", "error", "message"),
    [
        (CODES / 2, True, DataError, "column 0 of 'actions' holds 0.5; choices are whole numbers"),
        (np.arange(NUM) * 2.0**24, True, DataError, "below 2²⁴"),
        (CODES[:, None], [1], SettingsError, "does not fit actions of 1 columns"),
        (CODES[:, None], "yes", SettingsError, "does not fit actions"),
        (CODES, False, DataError, r"use actions\[:, None\]"),
    ],
)
def test_what_cannot_be_discrete(actions, discrete, error, message):
    with pytest.raises(error, match=message):
        record(actions, discrete=discrete)


def test_too_many_choices_are_asked_about():
    with pytest.raises(DataError, match=r"holds 299 different whole numbers.*discrete=False"):
        from_arrays(RANDOM.normal(size=(300, 2)), np.arange(300), np.ones(300), teleports="keep")


def test_described_columns():
    columns = [discrete_column("gear", ("low", "mid", "high")), ActionColumn("push", "box", -2.0, float("inf"))]
    actions = np.stack([CODES, np.linspace(-2, 5, NUM)], axis=1)
    dataset = record(actions, action_columns=columns)
    assert dataset.info.action_columns[0] == columns[0]
    assert dataset.info.action_columns[1].low == -2
    assert 4.9 < dataset.info.action_columns[1].high < 5
    with pytest.raises(DataError, match="'gear' is discrete with 2 labels and holds values from 0 to 2"):
        record(actions, action_columns=[discrete_column("gear", ("low", "high")), columns[1]])
    with pytest.raises(DataError, match="1 action columns are described"):
        record(actions, action_columns=columns[:1])


def test_files_keep_their_type(tmp_path):
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        file["observations"], file["actions"] = RANDOM.normal(size=(NUM, 2)), CODES
        file["rewards"] = np.ones(NUM)
    dataset = load(tmp_path / "log.hdf5", teleports="keep")
    assert choices_of(dataset.info.action_columns) == (3,)
    np.savez(tmp_path / "log.npz", observations=np.zeros((NUM, 1)), actions=CODES, rewards=np.ones(NUM))
    assert choices_of(load(tmp_path / "log.npz").info.action_columns) == (3,)


def test_description_counts_choices():
    dataset = quietly(np.stack([np.linspace(-1, 1, NUM), CODES], axis=1), discrete=[1])
    description = describe(dataset)
    counts = np.bincount(CODES[: NUM - 1])
    assert description.actions[1].counts == {"0": counts[0], "1": counts[1], "2": counts[2]}
    text = str(description)
    assert "1 number in [-1, 0.9798]" in text
    assert "action 1" in text
    assert f"3 choices: 1 {counts[1] / 99:.1%}, 0 {counts[0] / 99:.1%}" in text
    assert '"counts"' in json.dumps(description.to_dict())


SPACES = {
    "box": (gym.spaces.Box(-2.0, 2.0, (2, 2), np.float32), "box"),
    "discrete": (gym.spaces.Discrete(3, start=-1), "discrete"),
    "several": (gym.spaces.MultiDiscrete([3, 2]), "several"),
    "tuple": (gym.spaces.Tuple((gym.spaces.Discrete(4), gym.spaces.Box(-1.0, 1.0, (2,), np.float32))), "mixed"),
    "dict": (gym.spaces.Dict(b=gym.spaces.Discrete(2), a=gym.spaces.MultiDiscrete([3, 4])), "several"),
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_and_columns_say_the_same(name):
    space, kind = SPACES[name]
    space.seed(0)
    columns = space_columns(space)
    assert action_kind(choices_of(columns)) == kind
    for _ in range(20):
        action = space.sample()
        batch = gym.vector.utils.concatenate(space, [action], gym.vector.utils.create_empty_array(space, 1))
        row = from_space(space, batch)[0]
        again = to_space(space, row)
        assert space.contains(again)
        assert str(again) == str(action)
        assert all(column.low <= value <= column.high for column, value in zip(columns, row, strict=True))


def test_actions_are_kept_within_the_space():
    assert to_space(SPACES["box"][0], np.full(4, 9.0)).tolist() == [[2, 2], [2, 2]]
    assert to_space(SPACES["discrete"][0], np.array([7])) == 1
    assert to_space(SPACES["several"][0], np.array([-1.0, 1.2])).tolist() == [0, 1]
