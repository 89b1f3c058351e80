"""Data that is recorded on the spot: random policies, clones of demonstrations."""

import h5py
import numpy as np
import pytest

import vem
from vem import envs
from vem.cli import main
from vem.collect import benchmark as random_policies
from vem.collect import recorder
from vem.collect.benchmark import repeat, write_cloned
from vem.errors import DataError, SettingsError
from vem.tasks import TASKS

NAME = "hopper-random"


def columns(path):
    with h5py.File(path) as file:
        return {name: file[name][()] for name in recorder.COLUMNS}


def assert_equal(left, right):
    for name in recorder.COLUMNS:
        np.testing.assert_array_equal(left[name], right[name])


def test_a_random_trajectory_is_of_its_task(tmp_path):
    dataset = vem.load(random_policies.write_random(tmp_path / "data.hdf5", NAME, 500, seed=3))
    assert dataset.num_transitions in (499, 500)  # the last row of a trajectory that was cut has no successor
    assert (dataset.info.task, dataset.action_size) == (NAME, 3)
    assert "randomly initialized Gaussian policy" in str(dataset.info.metadata["recipe"])
    actions = dataset.actions[dataset.valid]
    assert np.abs(actions).max() <= 1
    # tanh of a standard Normal: the mean is near 0 and |a| is above tanh(1) in a third of the cases
    np.testing.assert_allclose(actions.mean(0), 0, atol=0.15)
    np.testing.assert_allclose((np.abs(actions) > np.tanh(1)).mean(), 0.317, atol=0.06)


def test_rows_depend_on_the_seed_alone(tmp_path):
    write = lambda name, rows, seed: columns(random_policies.write_random(tmp_path / name, NAME, rows, seed))
    first, again, other, longer = write("a", 200, 0), write("b", 200, 0), write("c", 200, 1), write("d", 300, 0)
    assert_equal(first, again)
    assert not np.array_equal(first["actions"], other["actions"])
    np.testing.assert_array_equal(first["observations"], longer["observations"][:200])


@pytest.mark.parametrize("damage", [None, "truncated", "missing", "foreign"])
def test_an_interrupted_trajectory_goes_on(tmp_path, monkeypatch, damage):
    monkeypatch.setattr(recorder, "PART_ROWS", 60)
    whole = columns(random_policies.write_random(tmp_path / "whole.hdf5", NAME, 400))

    def stop(what, done, total):
        if done > 250:
            raise KeyboardInterrupt

    path = tmp_path / "part.hdf5"
    with pytest.raises(KeyboardInterrupt):
        random_policies.write_random(path, NAME, 400, report=stop)
    parts = sorted((tmp_path / "part.hdf5.parts").iterdir())
    assert len(parts) >= 2
    assert not path.exists()
    if damage == "truncated":
        parts[-1].write_bytes(parts[-1].read_bytes()[:100])
    elif damage == "missing":
        parts[0].unlink()
    elif damage == "foreign":
        with pytest.raises(KeyboardInterrupt):  # parts of another seed are not taken, and are replaced
            random_policies.write_random(path, NAME, 400, seed=1, report=stop)
    counts = []
    random_policies.write_random(path, NAME, 400, report=lambda what, done, total: counts.append(done))
    assert_equal(columns(path), whole)
    assert not (tmp_path / "part.hdf5.parts").exists()
    assert (counts[0] > 60) == (damage in (None, "truncated"))


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory):
    """A file of a few short episodes that says it holds demonstrations of pen."""
    path = tmp_path_factory.mktemp("human") / "pen-human.hdf5"
    env = envs.make(TASKS["pen-human"].environment)
    act = lambda observation, rng: rng.uniform(-1, 1, 24)
    rows = [recorder.record_episode(env, act, 0, number) for number in range(3)]
    env.close()
    with h5py.File(path, "w") as file:
        for name in recorder.COLUMNS:
            file[name] = np.concatenate([part[name] for part in rows])
        file.attrs["name"] = "pen-human"
    return path


def test_cloned_data_is_half_demonstrations_and_half_roll_outs(tmp_path, demonstrations):
    path = write_cloned(tmp_path / "c.hdf5", "pen-cloned", demonstrations, num_rows=161, steps=20)
    rows, human = columns(path), vem.load(demonstrations)
    drawn = human.valid
    count = min(80, drawn.sum())
    np.testing.assert_array_equal(rows["actions"][:count], human.actions[drawn][:count])
    assert len(rows["rewards"]) == 161
    assert rows["timeouts"][79] or rows["terminals"][79]
    assert not np.isin(rows["actions"][80:, 0], human.actions[:, 0]).any()
    again = write_cloned(tmp_path / "d.hdf5", "pen-cloned", demonstrations, num_rows=161, steps=20)
    assert_equal(rows, columns(again))
    assert vem.load(path).info.task == "pen-cloned"


def test_demonstrations_repeat(demonstrations):
    human = vem.load(demonstrations)
    count = int(human.valid.sum())
    rows = repeat(human, 2 * count + 5)
    np.testing.assert_array_equal(rows["rewards"][:count], rows["rewards"][count : 2 * count])
    assert (rows["terminals"] | rows["timeouts"]).sum() == 2 * human.num_episodes + 1
    assert not (rows["terminals"] & rows["timeouts"]).any()
    assert len(repeat(human, 0)["rewards"]) == 0


def test_what_cannot_be_made_is_said(tmp_path, demonstrations, capsys):
    with pytest.raises(DataError, match="expected one of walker2d-random"):
        random_policies.write_random(tmp_path / "x", "hopper-medium")
    with pytest.raises(DataError, match="expected one of door-cloned"):
        write_cloned(tmp_path / "x", "pen-human")
    with pytest.raises(DataError, match="made from demonstrations of door-human, not from pen-human"):
        write_cloned(tmp_path / "x", "door-cloned", demonstrations)
    for rows, seed, problem in ((0, 0, "at least one row"), (5, -1, "zero or a positive")):
        with pytest.raises(SettingsError, match=problem):
            random_policies.write_random(tmp_path / "x", NAME, rows, seed)
    for arguments in (["hopper-random", "--minari", "a/b-v0"], ["hopper-random", "--from", "x"], ["hopper-medium"]):
        assert main(["data", "make", *arguments, "--rows", "5"]) == 1
        assert "error" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        random_policies.write_random(tmp_path / "file" / "x.hdf5", NAME, 30)


def test_the_command_makes_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["data", "make", NAME, "--rows", "40", "--seed", "2"]) == 0
    assert capsys.readouterr().out.strip() == f"{NAME}.hdf5"
    assert len(columns(tmp_path / f"{NAME}.hdf5")["rewards"]) == 40
