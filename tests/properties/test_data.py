"""Properties of reading data: nothing is lost or mixed up, and whatever is malformed ends in DataError."""

import io
import tempfile
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset
from vem.data.load import load
from vem.errors import DataError, DataWarning

SPLITS = ("terminals", "first-success", "time-limits")
TIME_LIMITS = ("bootstrap", "end")
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}


@st.composite
def trajectories(draw, min_rows=1):
    """Columns with random flags; observations are the row number, so that each row can be recognized."""
    num_rows = draw(st.integers(min_rows, 25))
    flags = st.lists(st.booleans(), min_size=num_rows, max_size=num_rows)
    row = np.arange(num_rows, dtype=np.float32)
    columns = {
        "observations": np.stack([row, -row], axis=1),
        "actions": np.stack([row / 30 + 0.01] * 3, axis=1),
        "rewards": row + 1,
    }
    for name in ("terminals", "timeouts"):
        if draw(st.booleans()):
            columns[name] = np.array(draw(flags))
    if draw(st.booleans()):
        # 1000 + row marks a successor that is not the following row.
        apart = np.array(draw(flags)) | (row == num_rows - 1)
        columns["next_observations"] = columns["observations"] + np.where(apart, 1000, 1)[:, None] * [1, -1]
    return columns


def read(columns, **rules):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return from_arrays(**columns, teleports="keep", **rules)


def plain_reading(columns, split, time_limit):
    """The rules as a loop over rows: lists of (first column of the observation, reward, valid, terminal)."""
    num_rows = len(columns["rewards"])
    nothing = np.zeros(num_rows, bool)
    terminals, timeouts = columns.get("terminals", nothing), columns.get("timeouts")
    successors = columns.get("next_observations")
    rows, episode, skipping = [], [], False
    for row in range(num_rows):
        ends_trajectory = row == num_rows - 1 or (timeouts is not None and timeouts[row])
        if successors is not None:
            ends_trajectory |= successors[row, 0] != row + 1
        elif timeouts is None:
            ends_trajectory |= terminals[row]
        is_terminal = terminals[row] and (split != "time-limits" or ends_trajectory)
        if not skipping:
            final = row if successors is None else successors[row, 0]
            if not (is_terminal or ends_trajectory):
                episode.append((row, row + 1, True, False))
            elif is_terminal or time_limit == "end":
                rows += [*episode, (row, row + 1, True, True), (final, 0, False, False)]
            elif successors is not None:
                rows += [*episode, (row, row + 1, True, False), (final, 0, False, False)]
            elif episode:
                rows += [*episode, (row, 0, False, False)]
            if is_terminal or ends_trajectory:
                episode = []
            skipping = is_terminal and split == "first-success"
        if ends_trajectory:
            skipping = False
    return rows


@given(trajectories(), st.sampled_from(SPLITS), st.sampled_from(TIME_LIMITS))
@settings(max_examples=500, **RELAXED)
def test_every_rule_agrees_with_a_loop_over_rows(columns, split, time_limit):
    expected = plain_reading(columns, split, time_limit)
    if not expected:
        with pytest.raises(DataError, match="no valid transition"):
            read(columns, split=split, time_limit=time_limit)
        return
    dataset = read(columns, split=split, time_limit=time_limit)
    rows = zip(dataset.observations[:, 0], dataset.rewards, dataset.valid, dataset.terminal, strict=True)
    assert [tuple(row) for row in rows] == expected
    np.testing.assert_array_equal(dataset.observations[:, 1], -dataset.observations[:, 0])


@given(trajectories(), st.sampled_from(SPLITS), st.sampled_from(TIME_LIMITS))
@settings(max_examples=200, **RELAXED)
def test_invariants_of_a_dataset(columns, split, time_limit):
    try:
        dataset = read(columns, split=split, time_limit=time_limit)
    except DataError:
        return
    valid, terminal = dataset.valid, dataset.terminal
    assert not valid[-1]
    assert valid[0]
    assert not (~valid[:-1] & ~valid[1:]).any(), "every episode has at least one step"
    assert not (terminal & ~valid).any()
    assert not valid[np.flatnonzero(terminal) + 1].any(), "a terminal step is the last of its episode"
    assert not dataset.actions[~valid].any()
    assert not dataset.rewards[~valid].any()
    assert (dataset.actions[valid] > 0).all()
    assert dataset.num_rows == dataset.num_transitions + dataset.num_episodes
    if time_limit == "end":
        assert terminal.sum() == dataset.num_episodes
    if split == "terminals" and time_limit == "end":
        assert dataset.rewards.sum() == columns["rewards"].sum()


@st.composite
def episode_lists(draw):
    """Episodes as (observations with the final one, rewards, ends by a terminal)."""
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=6))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [
        (generator.normal(size=(length + 1, 2)), generator.normal(size=length), bool(generator.integers(2)))
        for length in lengths
    ]


def joined(episodes):
    last = np.concatenate([np.arange(len(rewards)) == len(rewards) - 1 for _, rewards, _ in episodes])
    ends = np.concatenate([np.full(len(rewards), ends) for _, rewards, ends in episodes])
    rewards = np.concatenate([rewards for _, rewards, _ in episodes])
    return {
        "observations": np.concatenate([observations[:-1] for observations, _, _ in episodes]),
        "next_observations": np.concatenate([observations[1:] for observations, _, _ in episodes]),
        "actions": np.tanh(rewards)[:, None],
        "rewards": rewards,
        "terminals": last & ends,
        "timeouts": last & ~ends,
    }


@given(episode_lists())
@settings(max_examples=200, **RELAXED)
def test_episodes_come_back_as_they_went_in(episodes):
    dataset = read(joined(episodes))
    assert dataset.episode_lengths.tolist() == [len(rewards) for _, rewards, _ in episodes]
    np.testing.assert_array_equal(
        dataset.observations, np.concatenate([observations for observations, _, _ in episodes]).astype(np.float32)
    )
    np.testing.assert_allclose(dataset.episode_returns, [rewards.sum() for _, rewards, _ in episodes], atol=1e-5)
    assert dataset.terminal.sum() == sum(ends for _, _, ends in episodes)


@given(episode_lists(), st.randoms(use_true_random=False), st.sampled_from(TIME_LIMITS))
@settings(max_examples=200, **RELAXED)
def test_permuting_episodes_permutes_rows(episodes, random, time_limit):
    def by_episode(dataset):
        parts = np.split(np.arange(dataset.num_rows), dataset.episode_ends[:-1] + 1)
        columns = (dataset.observations, dataset.actions, dataset.rewards, dataset.valid, dataset.terminal)
        return [tuple(column[rows].tobytes() for column in columns) for rows in parts]

    order = list(range(len(episodes)))
    random.shuffle(order)
    straight = by_episode(read(joined(episodes), time_limit=time_limit))
    permuted = by_episode(read(joined([episodes[index] for index in order]), time_limit=time_limit))
    assert permuted == [straight[index] for index in order]


MATRICES = ("observations", "actions", "next_observations")
NEEDED = ("observations", "actions", "rewards")
FLAGS = ("terminals", "timeouts")
BAD_NUMBERS = (np.nan, np.inf, -np.inf, 1e39, -1e300)
BAD_FLAGS = (2, -1, 0.5, np.nan, np.inf)
BAD_TYPES = ("complex64", "S3", "U3", "M8[s]", "m8[s]", "object", [("a", "f4")])


def all_columns(num_rows):
    row = np.arange(num_rows, dtype=np.float64)
    return {
        "observations": np.stack([row, -row], axis=1),
        "next_observations": np.stack([row + 1, -row - 1], axis=1),
        "actions": np.stack([np.cos(row), np.sin(row), row * 0], axis=1),
        "rewards": row,
        "terminals": row % 5 == 3,
        "timeouts": row % 7 == 6,
    }


def without(draw, columns):
    columns[draw(st.sampled_from(NEEDED))] = None


def wrong_length(draw, columns):
    name = draw(st.sampled_from(sorted(columns)))
    size = draw(st.integers(0, 40).filter(lambda size: size != len(columns["rewards"])))
    columns[name] = np.resize(columns[name], (size, *columns[name].shape[1:]))


def wrong_shape(draw, columns):
    name = draw(st.sampled_from(sorted(columns)))
    values = columns[name]
    matrix = name in MATRICES
    shapes = [(), (len(values), 2, 2), (len(values), 0), (1, len(values), 2), (len(values), 1, 1)]
    shapes += [(len(values),)] if matrix else [(len(values), 2), (len(values), 7)]
    columns[name] = np.ones(draw(st.sampled_from(shapes)))


def not_finite(draw, columns):
    name = draw(st.sampled_from(sorted({*MATRICES, "rewards"})))
    values = columns[name] = columns[name].copy()
    for _ in range(draw(st.integers(1, 3))):
        values.flat[draw(st.integers(0, values.size - 1))] = draw(st.sampled_from(BAD_NUMBERS))


def wrong_flag(draw, columns):
    name = draw(st.sampled_from(FLAGS))
    values = columns[name] = columns[name].astype(np.float64)
    values[draw(st.integers(0, len(values) - 1))] = draw(st.sampled_from(BAD_FLAGS))


def wrong_type(draw, columns):
    name = draw(st.sampled_from(sorted(columns)))
    columns[name] = np.zeros(columns[name].shape, draw(st.sampled_from(BAD_TYPES)))


def no_rows(draw, columns):
    for name, values in columns.items():
        columns[name] = values[:0]


def no_successor(draw, columns):
    columns["terminals"] = columns["next_observations"] = None
    columns["timeouts"] = np.ones(len(columns["rewards"]))


def other_size(draw, columns):
    size = draw(st.integers(1, 9).filter(lambda size: size != 2))
    columns["next_observations"] = np.ones((len(columns["rewards"]), size))


def no_array(draw, columns):
    name = draw(st.sampled_from(sorted(columns)))
    junk = st.sampled_from(["text", {}, {"a": 1}, object(), [[1], [1, 2]], [None], {1, 2}, b"abc", 3, [[[]]], True])
    columns[name] = draw(junk)


IN_ARRAYS = (without, wrong_length, wrong_shape, not_finite, wrong_flag, wrong_type, no_rows, no_successor, other_size)


@st.composite
def malformed(draw, ways):
    """Columns in which at least one thing is wrong, and the rules to read them with."""
    columns = all_columns(draw(st.integers(1, 30)))
    draw(st.sampled_from(ways))(draw, columns)
    return columns, draw(st.sampled_from(SPLITS))


def test_thousands_of_malformed_arrays_all_end_in_data_error():
    num_seen = 0

    @given(malformed((*IN_ARRAYS, no_array)))
    @settings(max_examples=2000, **RELAXED)
    def check(case):
        nonlocal num_seen
        columns, split = case
        with pytest.raises(DataError):
            from_arrays(**columns, split=split)
        num_seen += 1

    check()
    assert num_seen >= 2000


@pytest.fixture(scope="module")
def directory():
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@given(malformed(IN_ARRAYS))
@settings(max_examples=200, **RELAXED)
def test_malformed_hdf5_files_end_in_data_error(directory, case):
    columns, split = case
    path = directory / "case.hdf5"
    with h5py.File(path, "w", track_order=False) as file:
        for name, values in columns.items():
            if values is not None and values.dtype.kind not in "OUMm":
                file[name] = values
            elif values is not None:
                file.create_group(name)
    with pytest.raises(DataError, match=r"case\.hdf5: "):
        load(path, split=split)


@pytest.fixture(scope="module")
def sound_files():
    columns = all_columns(400)
    hdf5, npz = io.BytesIO(), io.BytesIO()
    with h5py.File(hdf5, "w") as file:
        for name, values in columns.items():
            file.create_dataset(name, data=values, compression="gzip", chunks=True)
    np.savez_compressed(npz, **columns)
    return {"case.hdf5": hdf5.getvalue(), "case.npz": npz.getvalue()}


@given(st.sampled_from(["case.hdf5", "case.npz"]), st.floats(0, 1, exclude_max=True), st.binary(max_size=30))
@settings(max_examples=300, **RELAXED)
def test_truncated_files_end_in_data_error(directory, sound_files, name, share, tail):
    data = sound_files[name]
    path = directory / name
    path.write_bytes(data[: int(share * len(data))] + (tail if share < 0.5 else b""))
    with pytest.raises(DataError):
        load(path)


@given(st.sampled_from(["case.hdf5", "case.npz"]), st.binary(max_size=300))
@settings(max_examples=200, **RELAXED)
def test_arbitrary_bytes_end_in_data_error(directory, name, data):
    (directory / name).write_bytes(data)
    with pytest.raises(DataError):
        load(directory / name)


@given(st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=200, **RELAXED)
def test_changed_bytes_in_an_archive_are_read_or_refused(directory, sound_files, changes):
    content = bytearray(sound_files["case.npz"])
    for place, value in changes:
        content[place % len(content)] = value
    path = directory / "changed.npz"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        try:
            dataset = load(path)
        except DataError:
            return
    assert isinstance(dataset, Dataset)
