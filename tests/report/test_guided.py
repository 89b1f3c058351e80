"""Pictures of guided policies: arrows on the landscape, the film of an episode, and agreement with recorded rows."""

import json
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from evaluation_cases import guided_policy
from small_runs import quick_compilation
from vem.cli import main
from vem.data.arrays import from_arrays
from vem.data.load import load
from vem.envs.mazes import maze_layout
from vem.errors import DataError
from vem.reports import mazes as film
from vem.reports import weights as agreement
from vem.reports.mazes import central_rows, draw_landscapes, plane_moves, sort_rows, spread_states
from vem.reports.records import read_run
from vem.reports.report import describe_rows, read_held_out, share_of_known_rows, write_report
from vem.reports.style import looks
from vem.training.records import EpisodeRecord
from vem.training.run import Run

from .conftest import write_maze_data, write_run

GUIDED = {"policy": "guided", "horizon": 5, "value_hidden": [8], "policy_hidden": [8]}
LAYOUT = maze_layout("antmaze-umaze")
CENTERS = np.array([LAYOUT.center(cell) for cell in LAYOUT.free_cells])


def write_traced_episodes(run: Path, lengths: tuple[int, ...] = (40,), environment: str | None = None) -> None:
    """Two evaluated episodes of each trial; the first walks from cell to cell and leaves a trace."""
    files = Run(run)
    records = []
    for number, trial in enumerate(files.config.trials):
        length = lengths[number % len(lengths)]
        walk = np.zeros((length + 1, 29))
        along = np.linspace(0, len(CENTERS) - 1, length + 1)
        walk[:, :2] = np.stack([np.interp(along, np.arange(len(CENTERS)), column) for column in CENTERS.T], axis=1)
        shared = {"steps": 6, "environment": environment, "success": bool(number % 2)}
        records.append(
            EpisodeRecord(trial.name, 0, 11, episode_return=float(number), length=length, observations=walk, **shared)
        )
        records.append(EpisodeRecord(trial.name, 1, 12, episode_return=float(number), length=9, **shared))
    files.write_episodes(records)


@pytest.fixture(scope="module", autouse=True)
def quickly(tmp_path_factory):
    """Compile without optimizing."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield


@pytest.fixture(scope="module")
def guided(tmp_path_factory, maze_data) -> Path:
    """A finished and evaluated guided run of two seeds, not to be changed."""
    run = write_run(tmp_path_factory.mktemp("guided") / "vem", maze_data, "vem", **GUIDED)
    write_traced_episodes(run)
    return run


@pytest.fixture
def guided_run(tmp_path, guided) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(guided, tmp_path / "vem"))


@pytest.fixture(scope="module")
def report(guided, tmp_path_factory):
    return write_report(guided, tmp_path_factory.mktemp("report"))


def captions(report) -> dict[str, str]:
    return {d.name: d.caption for group in report.groups for s in group.sections for d in s.drawings}


def names(report) -> set[str]:
    return set(captions(report))


# The page


def test_a_guided_run_of_several_trials_has_all_pictures(report):
    assert {"landscape-0", "film-0", "agreement-guide", "agreement-executor"} <= names(report)
    text = report.page.read_text(encoding="utf-8")
    assert text.count('data-layer="guide"') == 1
    assert 'id="landscape-0--layer-guide"' in text
    assert "mean over seeds" in captions(report)["landscape-0"]
    for path in report.figures:
        assert path.suffix != ".svg" or not re.search(r"\bnan\b", path.read_text(encoding="utf-8"))
    assert (report.page.parent / "figures" / "film-0.png").stat().st_size < 300_000
    for name in ("agreement-guide", "agreement-executor"):
        assert "351 steps of the training data (seen in training" in captions(report)[name]


def test_a_regression_run_has_none_of_them(trained):
    run = read_run(trained["vem"])
    dataset = run.dataset
    assert dataset is not None
    assert film.draw_films([run], LAYOUT, {id(run): dataset}, "") == ([], "")
    assert agreement.measure(run.series, looks(run.series), [[], []], {id(run): dataset}) == []
    (drawing, _) = draw_landscapes(run.series, sort_rows(dataset, LAYOUT), dataset, "")
    assert "layer-guide" not in drawing.svg
    assert "Arrows" not in drawing.caption


def test_data_without_a_maze_has_agreement_and_no_film_and_takes_held_out_data(tmp_path, maze_data, capsys):
    shutil.copy(maze_data, tmp_path / "logs.hdf5")
    run = write_run(tmp_path / "vem", tmp_path / "logs.hdf5", "vem", **GUIDED)
    write_traced_episodes(run)
    other = write_maze_data(tmp_path / "other.hdf5", seed=1)
    assert main(["report", str(run), "--held-out", str(other)]) == 0
    written = {path.name for path in (run / "report" / "figures").iterdir()}
    assert {"agreement-guide.png", "agreement-executor.png"} <= written
    assert "film-0.png" not in written
    text = (run / "report" / "report.html").read_text(encoding="utf-8")
    assert "An evaluated episode" not in text
    assert "351 steps of the held-out data other, no step of which is in the training data" in text


# Arrows


def test_arrows_start_at_the_recorded_states_nearest_to_the_centers():
    generator = np.random.default_rng(0)
    left, right, bottom, top = LAYOUT.extent
    places = generator.uniform((left, bottom), (right, top), (4000, 2))
    far = np.array([[right + 1, top + 1], [left - 0.1, bottom]])
    rows = central_rows(np.concatenate([places, far, CENTERS]), LAYOUT, 1)
    cells = LAYOUT.walls.size
    assert len(rows) == cells
    assert set(range(4002, 4002 + len(CENTERS))) <= set(rows.tolist())
    assert len(central_rows(places, LAYOUT, 2)) == 4 * cells
    assert central_rows(places[:0], LAYOUT, 2).size == 0


@pytest.mark.parametrize(("length", "per_cell"), [(40.0, 1), (2.0, 2), (0.1, 3), (0.0, 3)])
def test_short_arrows_stand_closer(length, per_cell):
    policy = guided_policy(move=(length, 0.0))
    observations = np.random.default_rng(0).uniform(-2, 2, (3000, 4))
    states = spread_states(observations, LAYOUT, [policy, policy])
    assert plane_moves([policy, policy], states) == pytest.approx(np.tile([length, 0.0], (len(states), 1)))
    assert len(states) == per_cell**2


# The film


def test_the_episode_is_the_first_of_the_median_trial(guided):
    run = read_run(guided)
    episode = film.choose_episode(run)
    assert episode is not None
    # Returns are 0 and 1 in the trials' order: the lower of the two in the middle.
    assert (episode.record.trial, episode.record.episode) == (run.config.trials[0].name, 0)
    assert episode.policy is run.policies[episode.record.trial]
    assert episode.observations.shape == (41, 29)
    assert run.notes == []


def test_frames_go_from_start_to_end():
    assert film.frame_steps(100).tolist() == [0, 20, 40, 60, 80, 100]
    assert film.frame_steps(3).tolist() == [0, 1, 2, 3]
    assert film.frame_steps(1).tolist() == [0, 1]


def films(directory: Path):
    """What ``draw_films`` gives for a run, and the run's notes."""
    run = read_run(directory)
    drawings, missing = film.draw_films([run], LAYOUT, {id(run): run.dataset}, "")
    return drawings, missing, run.notes


def test_an_episode_of_one_step(guided_run):
    write_traced_episodes(guided_run, (1,))
    ((drawing,), missing, notes) = films(guided_run)
    assert "in 1 step." in drawing.caption
    assert [axes.get_title(loc="left") for axes in drawing.figure.axes] == ["step 0", "step 1"]
    assert (missing, notes) == ("", [])


def test_a_run_without_traces_has_no_film_and_no_complaint(guided_run):
    shutil.rmtree(guided_run / "traces")
    drawings, missing, notes = films(guided_run)
    assert (drawings, notes) == ([], [])
    assert "left no trace" in missing


def test_a_truncated_trace_is_said_with_the_command_that_writes_it_again(guided_run):
    for path in (guided_run / "traces").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    drawings, _, (note,) = films(guided_run)
    assert drawings == []
    assert "is damaged" in note
    assert note.endswith(f"vem evaluate {guided_run}")


def test_a_trace_of_another_evaluation_is_not_shown(guided_run):
    records = Run(guided_run).episodes().records
    lines = [json.dumps({**record.to_json(), "seed": 77}) + "\n" for record in records]
    (guided_run / "evaluations.jsonl").write_text("".join(lines))
    assert films(guided_run)[0] == []


def test_without_the_data_the_film_has_walls_alone(guided):
    run = read_run(guided)
    (drawing,), _ = film.draw_films([run], LAYOUT, {id(run): None}, "")
    assert "Floor:" not in drawing.caption


# Agreement


def test_r_squared_by_hand():
    recorded = np.array([[0.0, 1.0, 5.0], [2.0, 1.0, 5.0], [4.0, 4.0, 5.0]])
    predicted = np.array([[0.0, 2.0, 5.0], [2.0, 2.0, 5.0], [4.0, 2.0, 9.0]])
    scores = agreement.explained(recorded, predicted, np.ones(3))
    # The third column is constant: it has no R².
    assert scores == {0: pytest.approx(1.0), 1: pytest.approx(0.0)}
    # With the weights 1, 0, 1 the mean of the second is 2.5: errors 1 + 4 against 2·1.5².
    assert agreement.explained(recorded, predicted, np.array([1.0, 0.0, 1.0]))[1] == pytest.approx(1 - 5 / 4.5)
    assert agreement.explained(recorded, predicted, np.zeros(3)) == {}


def walk_dataset():
    """Two walks of 30 steps in which the position follows the action, and two idle dimensions."""
    generator = np.random.default_rng(0)
    actions = generator.uniform(-0.9, 0.9, (60, 2))
    places = np.cumsum(np.arctanh(actions), axis=0) - np.arctanh(actions)
    observations = np.concatenate([places, generator.normal(size=(60, 2))], axis=1).astype(np.float32)
    final = observations[-1:] + np.array([[*np.arctanh(actions[-1]), 0, 0]])
    following = np.concatenate([observations[1:], final]).astype(np.float32)
    ends = np.arange(60) % 30 == 29
    return from_arrays(observations, actions, np.ones(60), timeouts=ends, next_observations=following, name="walk")


def test_moves_end_with_their_trajectory():
    dataset = walk_dataset()
    rows = np.flatnonzero(dataset.valid)
    moves = agreement.recorded_moves(dataset, rows, np.full(rows.size, 5))
    assert moves[0] == pytest.approx(dataset.observations[5] - dataset.observations[0])
    assert moves[28] == pytest.approx(dataset.observations[30] - dataset.observations[28])
    assert moves[30] == pytest.approx(dataset.observations[36] - dataset.observations[31])


def test_an_exact_executor_and_a_guide_that_knows_nothing():
    dataset = walk_dataset()
    policy = guided_policy(move=(0.0, 0.0))
    # With a horizon of 1 every move is one step, and tanh of it is the action.
    assert agreement.executor_scores(policy, dataset, 1) == {0: pytest.approx(1), 1: pytest.approx(1)}
    scores = agreement.guide_scores(policy, dataset, 1, np.ones(60))
    # Dimensions that moves leave out have none.
    assert set(scores) == {0, 1}
    assert all(-0.2 < score <= 0 for score in scores.values())


def test_thirty_dimensions_have_thirty_lines_and_more_are_cut(guided):
    series = read_run(guided).series
    look = looks(series)[0]
    scores = {dimension: [1 - dimension / 20, 0.9 - dimension / 20] for dimension in range(60)}
    few = {dimension: scores[dimension] for dimension in range(30)}
    (drawing,) = agreement.draw_agreement([agreement.Agreement(0, "a", look, few, {})], "some rows", {0: "x"}, "")
    labels = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    assert labels == ["x", *map(str, range(1, 30))]
    assert drawing.figure.get_size_inches()[1] < 9
    assert "−0.5 and less" in drawing.caption
    found = [agreement.Agreement(0, "a", look, {}, scores)]
    (drawing,) = agreement.draw_agreement(found, "some rows", {}, "")
    labels = [text.get_text() for text in drawing.figure.axes[0].get_yticklabels()]
    assert labels == [str(dimension) for dimension in range(20, 60)]
    assert "40 lowest of 60" in drawing.caption


# Held-out data


def test_steps_that_training_saw_are_counted(guided, maze_data, tmp_path):
    mixed = tmp_path / "mixed.hdf5"
    shutil.copy(maze_data, mixed)
    with h5py.File(mixed, "r+") as file:
        file["actions"][:90] *= 0.5
    run = read_run(guided)
    (dataset,) = read_held_out(mixed, [run]).values()
    assert share_of_known_rows(dataset, load(maze_data)) == pytest.approx(1 - 87 / 351)
    assert "75.2% of whose steps are in the training data too" in describe_rows(run, dataset, dataset)
    run.__dict__["dataset"] = None
    assert "cannot be read to check" in describe_rows(run, dataset, dataset)


def test_the_training_data_is_no_held_out_data(guided, maze_data, tmp_path, capsys):
    assert main(["report", str(guided), "--out", str(tmp_path / "out"), "--held-out", str(maze_data)]) == 1
    error = capsys.readouterr().err
    assert "give trajectories that training did not see" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_held_out_data_of_another_task_or_place_is_refused(guided, tmp_path):
    with pytest.raises(DataError, match=r"has observations of 4 numbers and actions of 2; .* takes 29 and 8"):
        write_report(guided, tmp_path, held_out=walk_dataset())
    with pytest.raises(DataError):
        write_report(guided, tmp_path, held_out=tmp_path / "absent.hdf5")


def test_held_out_data_without_a_guided_run_is_said(trained, maze_data, tmp_path):
    report = write_report(trained["bc"], tmp_path, held_out=maze_data)
    assert report.groups[0].notes == [
        "Held-out data was given, and none of these runs has a guided policy to compare it with."
    ]
