import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from vem import envs
from vem.data import mazes
from vem.data import mazes as waypoints
from vem.envs.mazes import maze_layout
from vem.errors import DataError, SettingsError

NUM_ROWS = 6000
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module", params=["umaze", "medium", "large"])
def trajectory(request):
    name = f"pointmaze-{request.param}"
    return maze_layout(name), mazes.record_maze(name, NUM_ROWS, seed=1)


def episodes(rows):
    ends = np.flatnonzero(rows["terminals"] | rows["timeouts"]) + 1
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def test_columns_have_d4rls_shapes(trajectory):
    _, rows = trajectory
    shapes = {column: (values.shape, values.dtype) for column, values in rows.items()}
    assert shapes == {
        "observations": ((NUM_ROWS, 4), np.float32),
        "actions": ((NUM_ROWS, 2), np.float32),
        "rewards": ((NUM_ROWS,), np.float32),
        "terminals": ((NUM_ROWS,), np.bool_),
        "timeouts": ((NUM_ROWS,), np.bool_),
        "next_observations": ((NUM_ROWS, 4), np.float32),
    }
    assert np.abs(rows["actions"]).max() <= 1
    assert not (rows["terminals"] & rows["timeouts"]).any()
    assert rows["terminals"][-1] or rows["timeouts"][-1]


def test_only_the_goal_is_rewarded_and_it_ends_the_episode(trajectory):
    layout, rows = trajectory
    near = np.linalg.norm(rows["next_observations"][:, :2] - layout.goal, axis=1) <= layout.goal_radius + 1e-6
    np.testing.assert_array_equal(near, rows["terminals"])
    np.testing.assert_array_equal(rows["rewards"], rows["terminals"].astype(np.float32))
    assert rows["terminals"].sum() > 3


def test_no_episode_goes_from_the_start_to_the_goal(trajectory):
    layout, rows = trajectory
    num_from_start = 0
    for episode in episodes(rows):
        cells = {layout.cell(x, y) for x, y in rows["observations"][episode, :2]}
        num_from_start += layout.start_cell in cells
        assert not (layout.start_cell in cells and rows["rewards"][episode].any())
    assert num_from_start > 5


def test_an_episode_from_the_start_to_the_goal_would_be_dropped(monkeypatch):
    """Even a controller that always walks to the goal leaves no such episode in the data."""
    layout = maze_layout("pointmaze-umaze")

    class ToTheGoal(waypoints.WaypointBehavior):
        def __init__(self, layout, rng):
            super().__init__(layout, rng)
            for cell in layout.free_cells:
                self._nearby[cell] = [waypoints.routes_from(layout, cell)[layout.goal_cell]] * 2

    monkeypatch.setattr(waypoints, "WaypointBehavior", ToTheGoal)
    rows = mazes.record_maze("pointmaze-umaze", 4000, seed=0)
    assert rows["terminals"].sum() > 50
    for episode in episodes(rows):
        if rows["terminals"][episode].any():
            cells = {layout.cell(x, y) for x, y in rows["observations"][episode, :2]}
            assert layout.start_cell not in cells


def test_rows_follow_one_another_within_an_episode(trajectory):
    _, rows = trajectory
    lengths = []
    for episode in episodes(rows):
        inside = rows["observations"][episode][1:], rows["next_observations"][episode][:-1]
        np.testing.assert_array_equal(*inside)
        lengths.append(len(rows["rewards"][episode]))
    assert max(lengths) <= 100
    assert not rows["observations"][[episode.start for episode in episodes(rows)], 2:].any()


def test_recorded_steps_are_those_of_the_environment(trajectory):
    layout, rows = trajectory
    env = envs.make({5: "pointmaze-umaze", 8: "pointmaze-medium", 9: "pointmaze-large"}[len(layout.walls)]).unwrapped
    env.reset(seed=0)
    for row in np.random.default_rng(0).integers(0, NUM_ROWS, 50):
        env.set_state(*np.split(rows["observations"][row].astype(float), 2))
        observation, reward, terminated, _, _ = env.step(rows["actions"][row])
        np.testing.assert_allclose(observation, rows["next_observations"][row], atol=1e-3)
        assert (reward, terminated) == (rows["rewards"][row], rows["terminals"][row])


def test_the_seed_decides_the_rows():
    first, again, other = (mazes.record_maze("pointmaze-umaze", 500, seed) for seed in (3, 3, 4))
    for column, values in first.items():
        np.testing.assert_array_equal(values, again[column])
    assert np.any(first["actions"] != other["actions"])


def test_the_dataset_is_read_back_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("VEM_CACHE", str(tmp_path / "cache"))
    dataset = mazes.maze_dataset("pointmaze-medium", 2000, seed=5)
    rows = mazes.record_maze("pointmaze-medium", 2000, seed=5)
    assert dataset.num_transitions == 2000
    assert dataset.num_episodes == len(episodes(rows))
    np.testing.assert_array_equal(dataset.observations[dataset.valid], rows["observations"])
    np.testing.assert_array_equal(dataset.actions[dataset.valid], rows["actions"])
    np.testing.assert_array_equal(dataset.terminal[dataset.valid], rows["terminals"])
    is_last = rows["terminals"] | rows["timeouts"]
    np.testing.assert_array_equal(dataset.observations[~dataset.valid], rows["next_observations"][is_last])
    assert dataset.info.name == "pointmaze-medium"
    assert dataset.info.environment == "vem/PointMaze-Medium-v0"
    assert dataset.info.warnings == ()
    assert dataset.info.metadata["recipe"] == mazes.RECIPE
    assert dataset.info.metadata["seed"] == 5
    (path,) = (tmp_path / "cache").iterdir()
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["infos/goal"][:], np.tile([2.5, -2.5], (2000, 1)))


def test_the_cache_is_used_and_a_damaged_file_is_made_again(tmp_path, monkeypatch):
    first = mazes.maze_dataset("pointmaze-umaze", 400, cache_dir=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(mazes, "record_maze", lambda *_: pytest.fail("recorded again"))
        assert mazes.maze_dataset("pointmaze-umaze", 400, cache_dir=tmp_path).fingerprint() == first.fingerprint()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    for damaged in (b"", b"not HDF5", whole[:-500], flipped):
        path.write_bytes(damaged)
        assert mazes.maze_dataset("pointmaze-umaze", 400, cache_dir=tmp_path).fingerprint() == first.fingerprint()
        assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("VEM_CACHE", str(tmp_path / "a"))
    assert mazes.cache_directory() == tmp_path / "a"
    monkeypatch.delenv("VEM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert mazes.cache_directory() == tmp_path / "vem"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert mazes.cache_directory() == tmp_path / ".cache" / "vem"


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="VEM_CACHE"):
        mazes.maze_dataset("pointmaze-umaze", 100, cache_dir=tmp_path / "file")


def test_no_room_is_said_before_trajectory(tmp_path, monkeypatch):
    monkeypatch.setattr(mazes, "record_maze", lambda *_: pytest.fail("recorded in vain"))
    monkeypatch.setattr(mazes.shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with pytest.raises(DataError, match=r"maze\.hdf5: 100,000 rows need at least 3\.0 MB and 1\.0 MB are free"):
        mazes.write_maze(tmp_path / "new" / "maze.hdf5", "pointmaze-umaze", 100_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are POSIX")
def test_a_disk_that_fills_up_leaves_nothing_behind(tmp_path):
    program = (
        "import resource, sys, vem.cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
        "sys.exit(vem.cli.main(['data', 'make', 'pointmaze-umaze', '--rows', '500', '--out', 'a/b/maze.hdf5']))"
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "maze.hdf5: cannot be written (File too large)" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_recorded_is_refused():
    for name in ("antmaze-umaze", "pointmaze-huge", "hopper-medium", ""):
        with pytest.raises(DataError, match=r"no data that vem can record.*hopper-random.*pointmaze-medium"):
            mazes.record_maze(name, 10)
    for num_rows, seed, message in ((0, 0, "num_rows is 0"), (10, -1, "seed is -1")):
        with pytest.raises(SettingsError, match=message):
            mazes.record_maze("pointmaze-umaze", num_rows, seed)


def test_a_minari_dataset_holds_the_same_episodes(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    pytest.importorskip("minari")
    dataset = mazes.write_minari("vem/test-v0", "pointmaze-umaze", 600, seed=2)
    rows = mazes.record_maze("pointmaze-umaze", 600, seed=2)
    assert dataset.total_steps == 600
    for episode, expected in zip(dataset.iterate_episodes(), episodes(rows), strict=True):
        np.testing.assert_array_equal(episode.observations[:-1], rows["observations"][expected])
        np.testing.assert_array_equal(episode.observations[-1], rows["next_observations"][expected][-1])
        np.testing.assert_array_equal(episode.actions, rows["actions"][expected])
        np.testing.assert_array_equal(episode.rewards, rows["rewards"][expected])
        np.testing.assert_array_equal(episode.terminations, rows["terminals"][expected])
        np.testing.assert_array_equal(episode.truncations, rows["timeouts"][expected])
    assert dataset.spec.env_spec.id == "vem/PointMaze-UMaze-v0"
    with pytest.raises(DataError, match="exists already"):
        mazes.write_minari("vem/test-v0", "pointmaze-umaze", 100)
    with pytest.raises(DataError, match="Minari refused"):
        mazes.write_minari("no version", "pointmaze-umaze", 100)


def test_discrete_pushes_follow_the_same_walk(tmp_path):
    rows = mazes.record_maze("pointmaze-umaze-discrete", 600, seed=2)
    assert rows["actions"].shape == (600,)
    assert rows["actions"].dtype == np.int64
    assert set(rows["actions"]) == {0, 1, 2, 3}
    np.testing.assert_array_equal(rows["actions"], mazes.record_maze("pointmaze-umaze-discrete", 600, 2)["actions"])
    dataset = mazes.maze_dataset("pointmaze-umaze-discrete", 600, seed=2, cache_dir=tmp_path)
    assert dataset.info.action_columns[0].labels == ("0", "1", "2", "3")
    assert dataset.info.environment == "vem/PointMaze-UMaze-Discrete-v0"
    np.testing.assert_array_equal(dataset.actions[dataset.valid][:, 0], rows["actions"])
