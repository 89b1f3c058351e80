import dataclasses
import json
import shutil

import numpy as np
import pytest

from comparison_cases import SETTINGS, write_data
from evaluation_cases import guided_policy
from small_runs import quick_compilation
from vem.comparison import grid as cells
from vem.comparison.grid import cell_state, check_cells, make_cells, matching_evaluation, read_failure, run_cell
from vem.comparison.results import read_comparison
from vem.errors import DataError, DivergenceError, RunError, SettingsError, SimulatorError, Stopped
from vem.evaluation.evaluate import evaluate
from vem.evaluation.statistics import Spread, mark_best
from vem.policy import load_policy

EPISODES = 2


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


class Training:
    """Trains like ``vem compare`` does and remembers what was trained; stops after the first chunk if told to."""

    def __init__(self, stops=False):
        self.stops = stops
        self.trained = []

    def __call__(self, run):
        self.trained.append(run.config.algorithm)
        for progress in run.progress():
            if self.stops:
                run.checkpoint(progress)
                raise Stopped("stopped and saved")


def cells_of(data, out, algorithms=("bc", "awr"), steps=500, **changes):
    given = {"seeds": 2, "settings": SETTINGS, **changes}
    return make_cells([str(data)], algorithms, out, steps=steps, **given)


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """Two cells run to their end."""
    cells = cells_of(data, tmp_path_factory.mktemp("finished"))
    training = Training()
    for cell in cells:
        run_cell(cell, EPISODES, 1, training)
    assert training.trained == ["bc", "awr"]
    return cells


def test_cells_are_complete(data, tmp_path):
    cells = make_cells(
        [str(data), "minari:D4RL/pen/human-v2"], ["vem", "bc"], tmp_path, steps={"vem": 7}, preset="paper", seeds=[4, 5]
    )
    assert [str(cell.directory.relative_to(tmp_path)) for cell in cells] == [
        "pointmaze-umaze/vem", "pointmaze-umaze/bc", "D4RL-pen-human-v2/vem", "D4RL-pen-human-v2/bc",
    ]  # fmt: skip
    assert [cell.config().steps for cell in cells[:2]] == [7, 100_000]
    assert [cell.config().preset for cell in cells[:2]] == ["paper", "default"]
    assert cells[0].config().seeds == (4, 5)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("datasets", "algorithms", "changes", "message"),
    [
        (["a"], ["bc", "bc"], {}, "the algorithm bc is given twice"),
        (["a", "a"], ["bc"], {}, "the dataset a is given twice"),
        (["a/x.npz", "b/x.npz"], ["bc"], {}, "the dataset directory x is given twice"),
        (["a"], [], {}, "at least one algorithm"),
        (["a"], ["dqn"], {}, "no algorithm 'dqn'"),
        (["a"], ["bc"], {"preset": "paper"}, "none of bc has a preset 'paper'"),
        (["a"], ["bc"], {"steps": 0}, "--steps is 0"),
        (["a"], ["bc"], {"steps": {"dqn": 5}}, "no algorithm 'dqn'"),
        (["a"], ["bc"], {"settings": {"dqn": {}}}, "no algorithm 'dqn'"),
    ],
)
def test_cells_that_mean_nothing(datasets, algorithms, changes, message, tmp_path):
    with pytest.raises(SettingsError, match=message):
        make_cells(datasets, algorithms, tmp_path, **changes)


def test_data_that_is_not_there_is_found_out_before_any_work(data, tmp_path):
    cells = make_cells([str(data), str(tmp_path / "absent.npz")], ["bc"], tmp_path / "out")
    with pytest.raises(DataError, match=r"absent\.npz"):
        check_cells(cells, EPISODES)
    assert not (tmp_path / "out").exists()


def test_finished_cells_are_never_run_again(finished):
    training = Training()
    before = {cell.name: (cell.directory / "evaluation.json").stat().st_mtime_ns for cell in finished}
    assert set(check_cells(finished, EPISODES).values()) == {"done"}
    for cell in finished:
        run_cell(cell, EPISODES, 1, training)
    assert training.trained == []
    assert before == {cell.name: (cell.directory / "evaluation.json").stat().st_mtime_ns for cell in finished}


def test_another_number_of_episodes_costs_an_evaluation_alone(finished, data, tmp_path, monkeypatch):
    assert cell_state(finished[0], 3) == "trained"
    evaluated = []
    monkeypatch.setattr(cells, "evaluate", lambda directory, episodes, **_: evaluated.append((directory, episodes)))
    training = Training()
    run_cell(finished[0], 3, 1, training)
    assert training.trained == []
    assert evaluated == [(finished[0].directory, 3)]


@pytest.mark.parametrize(
    "given", [{"seed": 1}, {"stochastic": True}, {"episodes": 3}, {"environment": "pointmaze-medium"}]
)
def test_only_an_evaluation_like_its_own_counts(finished, tmp_path, given):
    cell = dataclasses.replace(finished[0], directory=tmp_path / "run")
    shutil.copytree(finished[0].directory, cell.directory)
    (cell.directory / "evaluation.json").unlink()
    other = evaluate(cell.directory, workers=1, **{"episodes": EPISODES, **given})
    assert cell_state(cell, EPISODES) == "trained"
    assert matching_evaluation(cell.files, EPISODES) is None
    (result,) = read_comparison([cell], EPISODES).results
    assert (result.spread, result.mark) == (None, "")
    run_cell(cell, EPISODES, 1, lambda run: pytest.fail("trained again"))
    assert cell_state(cell, EPISODES) == "done"
    assert matching_evaluation(cell.files, EPISODES) != other


def test_a_guided_policy_is_compared_with_drawn_actions(finished, tmp_path):
    cell = dataclasses.replace(finished[0], directory=tmp_path / "run")
    shutil.copytree(finished[0].directory, cell.directory)
    for path in cell.files.policy_paths:
        guided_policy().save(path)
    assert cell_state(cell, EPISODES) == "trained"  # evaluated with mean actions
    evaluate(cell.directory, episodes=EPISODES, workers=1)
    found = matching_evaluation(cell.files, EPISODES)
    assert found is not None
    assert found.actions == "sampled"
    evaluate(cell.directory, episodes=EPISODES, workers=1, stochastic=False)
    assert matching_evaluation(cell.files, EPISODES) is None


def test_a_score_in_another_environment_is_never_taken_for_the_cells_own(finished, tmp_path):
    """A version before this one wrote every evaluation to the same file."""
    cell = dataclasses.replace(finished[0], directory=tmp_path / "run")
    shutil.copytree(finished[0].directory, cell.directory)
    path = cell.directory / "evaluation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "environment": "vem/PointMaze-Large-v0"}))
    assert cell_state(cell, EPISODES) == "trained"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 600}, "was started with steps 500, not 600"),
        ({"seeds": 3}, "was started with seeds 0,1, not 0,1,2"),
        ({"settings": {"bc": {**SETTINGS["bc"], "policy_hidden": "8,8"}}}, "with policy-hidden 8, not 8,8"),
    ],
)
def test_a_cell_started_with_other_settings_is_refused(finished, data, changes, message):
    (cell,) = cells_of(data, finished[0].directory.parents[1], ["bc"], **changes)
    with pytest.raises(RunError, match=message):
        check_cells([cell], EPISODES)


def test_a_stopped_cell_ends_like_one_that_was_not(finished, data, tmp_path):
    (cell,) = cells_of(data, tmp_path, ["bc"])
    with pytest.raises(Stopped):
        run_cell(cell, EPISODES, 1, Training(stops=True))
    assert cell_state(cell, EPISODES) == "unfinished"
    assert not (cell.directory / "evaluation.json").exists()
    resumed = []

    def train(run):
        resumed.extend(run.messages)
        Training()(run)

    run_cell(cell, EPISODES, 1, train)
    assert "at step 200 of 500" in resumed[-1]
    observations = np.random.default_rng(0).normal(size=(5, 4))
    for name in ("seed0", "seed1"):
        policies = [load_policy(c.directory / "policies" / f"{name}.safetensors") for c in (cell, finished[0])]
        np.testing.assert_array_equal(*(policy.act(observations) for policy in policies))


def test_a_failure_is_recorded_and_tried_again(data, tmp_path, monkeypatch):
    (cell,) = cells_of(data, tmp_path, ["bc"], steps=20)

    def diverge(run):
        raise DivergenceError("training diverged:\nvalue is nan")

    with pytest.raises(DivergenceError):
        run_cell(cell, EPISODES, 1, diverge)
    assert read_failure(cell) == "training diverged: value is nan"
    (result,) = read_comparison([cell], EPISODES).results
    assert (result.spread, result.error) == (None, "training diverged: value is nan")

    def break_down(run):
        raise MemoryError("too large")

    with pytest.raises(RunError, match="MemoryError: too large"):
        run_cell(cell, EPISODES, 1, break_down)
    monkeypatch.setattr(cells, "evaluate", lambda *_, **__: None)
    run_cell(cell, EPISODES, 1)
    assert read_failure(cell) is None


def test_without_an_environment_nothing_is_trained(tmp_path):
    (cell,) = cells_of(write_data(tmp_path, "own-logs"), tmp_path / "out", ["bc"])
    training = Training()
    with pytest.raises(SimulatorError, match="names no environment"):
        run_cell(cell, EPISODES, 1, training)
    assert training.trained == []
    assert "names no environment" in (read_failure(cell) or "")
    assert not cell.directory.exists()


def test_results_are_the_evaluations(finished):
    comparison = read_comparison(finished, EPISODES)
    bc, awr = comparison.results
    summary = json.loads((finished[0].directory / "evaluation.json").read_text())
    assert bc.spread is not None
    assert bc.spread.mean == summary["groups"][0]["score"]["mean"]
    assert bc.quantity == "score"
    assert (bc.mark, awr.mark) == ("", "")  # neither ever succeeds
    assert comparison.result("pointmaze-umaze", "awr") == awr
    assert comparison.evaluated == [cell.directory for cell in finished]
    assert comparison.failures == {}
    lines = str(comparison).splitlines()
    assert lines[0].startswith("score (references: vem: success rate in percent), mean ± std over 2 seeds")
    assert lines[2].split() == ["pointmaze-umaze", *["0.0", "±", "0.0", "[0.0,", "0.0]"] * 2]
    assert len(lines) == 3  # no mark, so no word about marks
    assert "<th>awr</th>" in comparison._repr_html_()


def test_a_damaged_summary_is_evaluated_again(finished, tmp_path):
    cell = dataclasses.replace(finished[0], directory=tmp_path / "run")
    shutil.copytree(finished[0].directory, cell.directory)
    (cell.directory / "evaluation.json").write_text("{")
    assert cell_state(cell, EPISODES) == "trained"
    cell.failure_path.write_text("[]")
    assert "cannot be read" in (read_failure(cell) or "")


def test_marks():
    best = Spread(50.0, 1.0, 50.0, (45.0, 55.0))
    inside, outside = best._replace(mean=46.0), best._replace(mean=44.0, interval=(40.0, 48.0))
    assert mark_best([outside, best, inside]) == ["", "best", "close"]
    assert mark_best([best]) == [""]
    assert mark_best([best._replace(interval=None), inside]) == ["best", ""]
    rounded = best._replace(mean=50.0 + 1e-12)
    assert mark_best([rounded, outside, best]) == ["best", "", "best"]
    zero = Spread(0.0, 0.0, 0.0, (0.0, 0.0))
    assert mark_best([zero, zero]) == ["", ""]
    assert mark_best([zero, zero, inside]) == ["", "", "best"]
