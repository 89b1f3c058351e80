"""AntMaze data recorded with a policy that walks."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

import vem
from ant_walkers import guided_policy
from vem.cli import main
from vem.collect import benchmark as walked
from vem.collect import recorder
from vem.collect.benchmark import TARGETS, WaypointController, count_arrivals, draw_ends, load_walker, write_walked
from vem.envs.mazes import maze_layout
from vem.errors import DataError, DataWarning, RunError
from vem.tasks import TASKS


@pytest.fixture(scope="module")
def walker(tmp_path_factory):
    path = tmp_path_factory.mktemp("walker") / "seed0.safetensors"
    guided_policy().save(path)
    return path


@pytest.fixture
def short(monkeypatch):
    """Trajectories of 21 steps."""
    tasks = {name: replace(TASKS[name], max_steps=20) for name in walked.WALKED_TASKS}
    monkeypatch.setattr(walked, "find_task", tasks.get)


def write_onnx(path, num_inputs=31, num_outputs=8, names=("x",)):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", num_inputs]) for name in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", num_outputs])
    weight = np.zeros((num_inputs, num_outputs), np.float32)
    weight[-2, 0] = 0.1
    constant = helper.make_tensor("w", TensorProto.FLOAT, weight.shape, weight.tobytes(), raw=True)
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[0], "w"], ["y"])], "walker", given, [result], [constant]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def test_the_executor_is_asked_for_a_usual_move_toward_the_waypoint(walker):
    walk = load_walker(walker)
    # Moves are usually 2 m in x and in y, so the executor is asked for 2·√2 m, which are √2 in its own unit.
    observation = np.random.default_rng(0).normal(size=29)
    np.testing.assert_allclose(walk(observation, np.array([0.5, 0.0]))[0], np.tanh(np.sqrt(0.5)), rtol=1e-5)
    np.testing.assert_allclose(walk(observation, np.array([-7.0, 7.0]))[0], np.tanh(-0.5), rtol=1e-5)
    assert walk(observation, np.zeros(2))[0] == 0


def test_an_onnx_file_gets_the_observation_and_the_way(tmp_path):
    walk = load_walker(write_onnx(tmp_path / "walker.onnx"))
    np.testing.assert_allclose(walk(np.ones(29), np.array([3.0, 9.0])), [0.3, *[0] * 7], rtol=1e-6)


def test_an_onnx_file_without_outputs_or_with_actions_that_are_no_numbers_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx")
    path = write_onnx(tmp_path / "walker.onnx")
    whole = onnx.load(path)
    weight = whole.graph.initializer[0]
    weight.raw_data = np.full((31, 8), np.nan, np.float32).tobytes()
    onnx.save(whole, path)
    with pytest.raises(RunError, match="gives NaN or infinity as an action"):
        load_walker(path)
    del whole.graph.output[:]
    onnx.save(whole, path)
    with pytest.raises(RunError, match=r"walker\.onnx .*ONNX|has no output"):
        load_walker(path)


def test_an_onnx_file_whose_actions_are_no_numbers_later_is_refused_there(tmp_path):
    walk = load_walker(write_onnx(tmp_path / "walker.onnx"))
    with pytest.raises(RunError, match="gives NaN or infinity as an action"):
        walk(np.full(29, np.nan), np.array([3.0, 9.0]))


def test_files_that_do_not_walk(tmp_path):
    def refused(name, message, write=lambda path: path.write_bytes(b"nothing")):
        write(tmp_path / name)
        with pytest.raises(RunError, match=message):
            load_walker(tmp_path / name)

    with pytest.raises(RunError, match="does not exist; give the file of a guided policy"):
        load_walker(tmp_path / "absent.onnx")
    with pytest.raises(RunError, match="is a directory"):
        load_walker(tmp_path)
    refused("a.txt", "is no file of a policy that walks")
    refused("a.safetensors", "not a readable policy file")
    refused("b.safetensors", "of kind gaussian, which takes no direction", guided_policy(kind="gaussian").save)
    refused("c.safetensors", "takes 4 numbers and gives 2, so it moves no ant", guided_policy(1.0, 4, 2).save)
    refused("d.safetensors", "leave out x and y", guided_policy(0.0).save)
    pytest.importorskip("onnxruntime")
    refused("a.onnx", "cannot be read as ONNX")
    refused("b.onnx", "takes other inputs than 31 numbers", lambda path: write_onnx(path, num_inputs=29))
    refused("c.onnx", "gives 7 numbers instead of 8", lambda path: write_onnx(path, num_outputs=7))
    refused("d.onnx", r"has 2 inputs \(x, z\)", lambda path: write_onnx(path, names=("x", "z")))


def test_starts_and_targets_are_as_the_name_says():
    rng = np.random.default_rng(0)
    for name in walked.WALKED_TASKS:
        layout = maze_layout(name)
        ends = [draw_ends(TASKS[name], layout, rng) for _ in range(300)]
        starts = {layout.cell(*start) for start, _ in ends if start is not None}
        # A target is up to 1.5 m from the center of its cell, which ends 2 m from it.
        targets = {layout.cell(*target) for _, target in ends}
        if name == "antmaze-umaze":
            assert (starts, targets) == (set(), {layout.goal_cell})
        elif name.endswith("-play"):
            assert targets == set(TARGETS[name.split("-")[1]])
            assert starts == set(layout.free_cells) - targets
        else:
            assert starts == targets == set(layout.free_cells)


def test_the_controller_leads_along_free_cells():
    layout = maze_layout("antmaze-large-play")
    target = np.array(layout.center((7, 9))) + 0.3
    controller = WaypointController(layout, target, np.random.default_rng(0))
    position, cells = np.array(layout.center((1, 1))), []
    for _ in range(200):
        position = position + np.clip(controller.way(position), -1, 1)
        cells.append(layout.cell(*position))
    np.testing.assert_allclose(position, target, atol=1e-6)
    assert not any(layout.walls[cell] for cell in cells)


def test_a_trajectory_is_of_its_task_and_has_d4rls_ends(walker, tmp_path, short):
    path = write_walked(tmp_path / "data.hdf5", "antmaze-medium-play", walker, num_rows=50, seed=3)
    with h5py.File(path) as file:
        rows = {name: file[name][()] for name in (*recorder.COLUMNS, "infos/goal", "infos/target")}
        assert "walker seed0.safetensors, action noise 0.2, random starts and hand-picked" in file.attrs["recipe"]
    assert np.flatnonzero(rows["timeouts"]).tolist() == [20, 41, 49]
    goal = np.array(maze_layout("antmaze-medium-play").goal, np.float32)
    np.testing.assert_array_equal(rows["infos/goal"], np.tile(goal, (50, 1)))
    assert len(np.unique(rows["infos/target"], axis=0)) == 3
    assert np.abs(rows["actions"]).max() <= 1
    assert 0.1 < rows["actions"][:, 1].std() < 0.3
    with pytest.warns(DataWarning, match="zero in every step"):
        dataset = vem.load(path)
    assert (dataset.info.task, dataset.observation_size) == ("antmaze-medium-play", 29)
    assert count_arrivals(path)[1] == 3


def test_rewards_are_those_of_the_evaluation_goal(walker, tmp_path, short, monkeypatch):
    layout = maze_layout("antmaze-umaze-diverse")
    monkeypatch.setattr(walked, "draw_ends", lambda task, layout, rng: (np.array(layout.goal), np.array(layout.goal)))
    path = write_walked(tmp_path / "data.hdf5", "antmaze-umaze-diverse", walker, num_rows=20)
    with h5py.File(path) as file:
        near = np.hypot(*(file["observations"][1:, :2] - np.array(layout.goal)).T) <= 0.5
        assert near.any()
        np.testing.assert_array_equal(file["terminals"][:-1], near)
        np.testing.assert_array_equal(file["rewards"][:-1], near)
    assert count_arrivals(path) == (1, 1)


def test_rows_depend_on_the_seed_and_an_interrupted_trajectory_goes_on(walker, tmp_path, short, monkeypatch):
    monkeypatch.setattr(recorder, "PART_ROWS", 21)

    def actions(name, seed=0, **given):
        path = write_walked(tmp_path / name, "antmaze-umaze", walker, num_rows=60, seed=seed, **given)
        with h5py.File(path) as file:
            return file["actions"][()]

    def stop(what, done, total):
        if done > 40:
            raise KeyboardInterrupt

    whole = actions("whole.hdf5")
    with pytest.raises(KeyboardInterrupt):
        actions("part.hdf5", report=stop)
    counts = []
    np.testing.assert_array_equal(actions("part.hdf5", report=lambda what, done, total: counts.append(done)), whole)
    assert counts == [60]
    assert not np.array_equal(actions("other.hdf5", seed=1), whole)


def test_the_command(walker, tmp_path, capsys):
    out = str(tmp_path / "data.hdf5")
    given = ["data", "make", "antmaze-umaze", "--rows", "40", "--out", out]
    assert main([*given, "--walker", str(walker)]) == 0
    assert "0 of 1 trajectories came within 0.5 m of where they were sent" in capsys.readouterr().out
    for arguments, message in (
        (given, "give its file with --walker FILE"),
        (["data", "make", "hopper-random", "--walker", str(walker)], "--walker is for AntMaze data"),
        ([*given, "--walker", out], "is no file of a policy that walks"),
    ):
        assert main(arguments) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(DataError, match="expected one of antmaze-umaze"):
        write_walked(out, "hopper-random", walker)
