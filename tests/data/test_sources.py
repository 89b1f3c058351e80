import h5py
import numpy as np
import pytest

from vem.data.load import dataset_files, load, search_directories
from vem.errors import DataError
from vem.tasks import find_task

D4RL_UMAZE = "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed.hdf5"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("VEM_DATA", raising=False)
    return tmp_path / "home"


def put(directory, name, reward=1.0):
    """Write 50 steps in five trajectories, each step with the same reward, in the sizes of the task that is named."""
    task = find_task(name)
    sizes = (task.observation_size, task.action_size) if task else (1, 1)
    columns = {
        "observations": np.linspace(0, 1, 50)[:, None] * np.ones(sizes[0]),
        "actions": np.linspace(-1, 1, 50)[:, None] * np.ones(sizes[1]),
        "rewards": np.full(50, reward),
        "timeouts": np.arange(50) % 10 == 9,
    }
    directory.mkdir(parents=True, exist_ok=True)
    if name.endswith(".npz"):
        np.savez(directory / name, **columns)
        return
    with h5py.File(directory / name, "w") as file:
        for column, values in columns.items():
            file[column] = values


def test_names_are_looked_up_in_order(tmp_path, monkeypatch, home):
    put(home / ".d4rl/datasets", "antmaze-umaze.hdf5", 3.0)
    assert load("antmaze-umaze").rewards.max() == 3
    put(tmp_path / "variable", "antmaze-umaze.hdf5", 2.0)
    monkeypatch.setenv("VEM_DATA", str(tmp_path / "variable"))
    assert load("antmaze-umaze").rewards.max() == 2
    put(tmp_path / "given", "antmaze-umaze.hdf5", 1.0)
    assert load("antmaze-umaze", data_dir=tmp_path / "given").rewards.max() == 1
    assert search_directories(tmp_path / "given") == [
        tmp_path / "given",
        tmp_path / "variable",
        home / ".d4rl/datasets",
    ]
    assert len(dataset_files(tmp_path / "given")) == 3


@pytest.mark.parametrize(
    ("file", "name", "environment"),
    [
        (D4RL_UMAZE, "antmaze-umaze-v2", "vem/AntMaze-UMaze-v0"),
        ("hopper_medium-v2.hdf5", "hopper-medium-v2", "vem/Hopper-v0"),
        ("hopper_medium-v2.hdf5", "hopper-medium", "vem/Hopper-v0"),
        ("door-v0_demos_clipped.hdf5", "door-human-v0", "vem/AdroitDoor-v0"),
        ("my-robot.npz", "my-robot", None),
    ],
)
def test_d4rls_own_file_names_are_known(tmp_path, file, name, environment):
    put(tmp_path, file)
    info = load(name, data_dir=tmp_path).info
    assert (info.name, info.environment, info.source) == (name, environment, str(tmp_path / file))
    assert load(tmp_path / file).info.environment == environment


def test_versions_are_told_apart(tmp_path):
    put(tmp_path, "hopper_medium-v0.hdf5", 1.0)
    put(tmp_path, "hopper_medium-v2.hdf5", 2.0)
    assert load("hopper-medium-v2", data_dir=tmp_path).rewards.max() == 2
    with pytest.raises(DataError, match=r"could be any of .*v0\.hdf5, .*v2\.hdf5; give the path"):
        load("hopper-medium", data_dir=tmp_path)
    with pytest.raises(DataError, match="benchmark is known, its file is not there"):
        load("hopper-medium-v1", data_dir=tmp_path)


def test_unknown_names_say_where_they_were_sought_and_what_there_is(tmp_path):
    put(tmp_path / "data", "my-robot.hdf5")
    with pytest.raises(DataError) as caught:
        load("my-robto", data_dir=tmp_path / "data")
    message = str(caught.value)
    assert "did you mean my-robot?" in message
    assert str(tmp_path / "data") in message
    assert "datasets (absent)" in message
    assert "pointmaze-umaze" in message
    with pytest.raises(DataError, match="no such file"):
        load("some/where/else")
    with pytest.raises(DataError, match="no such file"):
        load("else.hdf5")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the path is empty"),
        ("~no-such-user/x.npz", "no user is called so; give the folder instead of ~no-such-user"),
        ("x" * 5000, "cannot be opened"),
    ],
)
def test_what_is_no_path_is_one_clear_error(source, message):
    with pytest.raises(DataError, match=message):
        load(source)


def test_a_directory_does_not_hide_a_dataset(tmp_path, monkeypatch):
    (tmp_path / "work" / "my-robot").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    put(tmp_path / "data", "my-robot.hdf5")
    assert load("my-robot", data_dir=tmp_path / "data").num_episodes == 5


def test_rules_reach_the_reader(tmp_path):
    put(tmp_path, "my-robot.hdf5")
    dataset = load("my-robot", data_dir=tmp_path, split="time-limits", time_limit="end", name="renamed")
    assert dataset.info.rules["split"] == "time-limits"
    assert dataset.info.name == "renamed"
    assert dataset.terminal.sum() == dataset.num_episodes == 5
