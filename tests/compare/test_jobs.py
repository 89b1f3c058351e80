"""One job: when it is trained, judged, gone on with, refused and recorded as failed."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from comparison_cases import jobs_of, write_data
from evaluation_cases import guided_policy
from small_runs import quick_compilation
from vem.comparison import job as module
from vem.comparison.compare import check_jobs
from vem.comparison.job import Job, matching_evaluation
from vem.comparison.results import read_comparison
from vem.errors import DataError, DivergenceError, RunError, SettingsError, Stopped
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


def jobs(data, out, algorithms=("bc", "awr"), **words):
    return [dataclasses.replace(job, episodes=EPISODES) for job in jobs_of(data, out, algorithms, **words)]


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """Two jobs that are done."""
    made = jobs(data, tmp_path_factory.mktemp("finished"))
    training = Training()
    for job in made:
        job.run(training, 1)
    assert training.trained == ["bc", "awr"]
    return made


@pytest.fixture
def copied(finished, tmp_path):
    """The first of them, on a copy of its run."""
    shutil.copytree(finished[0].directory, tmp_path / "run")
    return finished[0].at(tmp_path / "run")


def test_jobs_are_complete_and_another_process_is_told_all_of_it(data, tmp_path):
    steps, settings = {"vem": 7}, {"bc": {"policy_hidden": "8,8"}}
    made = jobs_of(
        [data, "minari:D4RL/pen/human-v2"], tmp_path, ["vem", "bc"], settings, steps=steps, preset="paper", seed=[4, 5]
    )
    assert [str(job.directory.relative_to(tmp_path)) for job in made] == [
        "pointmaze-umaze/vem", "pointmaze-umaze/bc", "D4RL-pen-human-v2/vem", "D4RL-pen-human-v2/bc",
    ]  # fmt: skip
    assert [job.request.steps for job in made[:2]] == [7, 100_000]
    assert [job.request.preset for job in made[:2]] == ["paper", "default"]
    assert made[0].request.seeds == (4, 5)
    assert [Job.from_json(json.loads(json.dumps(job.to_json()))) for job in made] == made
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "algorithms", "words", "message"),
    [
        ("a", ["bc", "bc"], {}, "the algorithm bc is given twice"),
        (["a/x.npz", "b/x.npz"], ["bc"], {}, "the dataset x is given twice"),
        ("a", [], {}, "at least one algorithm"),
        ("a", ["dqn"], {}, "no algorithm 'dqn'"),
        ("a", ["bc"], {"preset": "paper"}, "none of bc has a preset 'paper'"),
        ("a", ["bc"], {"steps": 0}, "--steps is 0"),
        ("a", ["bc"], {"steps": {"dqn": 5}}, "no algorithm 'dqn'"),
        ("a", ["bc"], {"settings": {"dqn": {}}}, "no algorithm 'dqn'"),
        ("a", ["bc", "vem"], {"policy_lrs": 1}, "no setting 'policy_lrs'; did you mean"),
        ("a", ["bc"], {"seeds": 2, "seed": 3}, "--seeds .* and --seed .* are both given"),
        (None, ["bc"], {}, "the data is None"),
    ],
)
def test_comparisons_that_mean_nothing(data, algorithms, words, message, tmp_path):
    settings = words.pop("settings", {})
    with pytest.raises(SettingsError, match=message):
        jobs_of(data, tmp_path, algorithms, settings, **{"steps": 5, **words})


def test_a_setting_is_for_the_methods_that_have_it(tmp_path):
    made = jobs_of("a", tmp_path, ["vem", "bc"], {}, expectile=0.4, batch_size=3)
    assert [job.request.settings for job in made] == [{"expectile": 0.4, "batch_size": 3}, {"batch_size": 3}]


def test_a_file_says_what_is_compared(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text('data = "a.npz"\nsteps = 7\nseed = 5\nexpectile = 0.4\nsplit = "time-limits"\n')
    made = jobs_of(None, tmp_path, ["vem", "bc"], {}, config=file, steps=None)
    assert [(job.dataset, job.request.steps, job.request.seeds) for job in made] == [("a", 7, (5,))] * 2
    assert [job.request.settings for job in made] == [{"expectile": 0.4}, {}]
    assert made[0].request.rules == {"split": "time-limits"}
    (job,) = jobs_of("b.npz", tmp_path, ["bc"], {}, config=file, seeds=2, minutes=1.0, steps=None)
    assert (job.request.data, job.request.seeds, job.request.minutes) == ("b.npz", (0, 1), 1.0)


def test_data_that_is_not_there_is_found_out_before_any_work(data, tmp_path):
    made = jobs([data, str(tmp_path / "absent.npz")], tmp_path / "out", ["bc"])
    with pytest.raises(DataError, match=r"absent\.npz"):
        check_jobs(made)
    assert not (tmp_path / "out").exists()


def test_finished_runs_are_never_done_again(finished):
    training = Training()
    before = [(job.directory / "evaluation.json").stat().st_mtime_ns for job in finished]
    assert check_jobs(finished) == []
    for job in finished:
        job.run(training, 1)
    assert training.trained == []
    assert before == [(job.directory / "evaluation.json").stat().st_mtime_ns for job in finished]


def test_another_number_of_episodes_costs_an_evaluation_alone(finished, monkeypatch):
    job = dataclasses.replace(finished[0], episodes=3)
    assert job.state() == "trained"
    evaluated = []
    monkeypatch.setattr(module, "evaluate", lambda directory, episodes, **_: evaluated.append((directory, episodes)))
    job.run(lambda run: pytest.fail("trained again"), 1)
    assert evaluated == [(job.directory, 3)]


@pytest.mark.parametrize(
    "given", [{"seed": 1}, {"stochastic": True}, {"episodes": 3}, {"environment": "pointmaze-medium"}]
)
def test_only_an_evaluation_like_its_own_counts(copied, given):
    (copied.directory / "evaluation.json").unlink()
    evaluate(copied.directory, workers=1, **{"episodes": EPISODES, **given})
    assert copied.state() == "trained"
    (result,) = read_comparison([copied]).results
    assert (result.spread, result.mark) == (None, "")
    copied.run(lambda run: pytest.fail("trained again"), 1)
    assert copied.state() == "done"


def test_a_guided_policy_is_compared_with_drawn_actions(copied):
    for path in copied.files.policy_paths:
        guided_policy().save(path)
    assert copied.state() == "trained"  # evaluated with mean actions
    evaluate(copied.directory, episodes=EPISODES, workers=1)
    found = matching_evaluation(copied.files, EPISODES)
    assert found is not None
    assert found.actions == "sampled"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"steps": 600}, "was started with steps 500, not 600"),
        ({"seeds": 3}, "was started with seeds 0,1, not 0,1,2"),
        ({"policy_hidden": "8,8"}, "with policy-hidden 8, not 8,8"),
        ({"hold_out": 0.5}, "with hold-out 0.0, not 0.5"),
    ],
)
def test_a_run_started_with_other_settings_is_refused(finished, data, words, message):
    given = {"settings": {"bc": {"batch_size": "8"}}, "policy_hidden": "8", **words}
    (job,) = jobs(data, finished[0].directory.parents[1], ["bc"], **given)
    with pytest.raises(RunError, match=message):
        check_jobs([job])


def test_a_stopped_run_ends_like_one_that_was_not(finished, data, tmp_path):
    (job,) = jobs(data, tmp_path, ["bc"])
    with pytest.raises(Stopped):
        job.run(Training(stops=True), 1)
    assert job.state() == "unfinished"
    resumed = []

    def train(run):
        resumed.extend(run.messages)
        Training()(run)

    job.run(train, 1)
    assert "at step 200 of 500" in resumed[-1]
    observations = np.random.default_rng(0).normal(size=(5, 4))
    for name in ("seed0", "seed1"):
        policies = [load_policy(j.directory / "policies" / f"{name}.safetensors") for j in (job, finished[0])]
        np.testing.assert_array_equal(*(policy.act(observations) for policy in policies))


def test_a_failure_is_recorded_and_tried_again(data, tmp_path, monkeypatch):
    (job,) = jobs(data, tmp_path, ["bc"], steps=20)

    def diverge(run):
        raise DivergenceError("training diverged:\nvalue is nan")

    with pytest.raises(DivergenceError):
        job.run(diverge, 1)
    assert job.failure() == "training diverged: value is nan"
    (result,) = read_comparison([job]).results
    assert (result.spread, result.error) == (None, "training diverged: value is nan")

    def break_down(run):
        raise MemoryError("too large")

    with pytest.raises(RunError, match="MemoryError: too large"):
        job.run(break_down, 1)
    job.failure_path.write_text("[]")
    assert "cannot be read" in (job.failure() or "")
    monkeypatch.setattr(module, "evaluate", lambda *_, **__: None)
    job.run()
    assert job.failure() is None


def test_results_are_the_evaluations(finished):
    comparison = read_comparison(finished)
    bc, awr = comparison.results
    summary = json.loads((finished[0].directory / "evaluation.json").read_text())
    assert bc.spread is not None
    assert bc.spread.mean == summary["groups"][0]["score"]["mean"]
    assert (bc.quantity, bc.mark, awr.mark) == ("score", "", "")  # neither ever succeeds
    assert comparison.result("pointmaze-umaze", "awr") == awr
    assert comparison.evaluated == [job.directory for job in finished]
    assert comparison.failures == {}
    lines = str(comparison).splitlines()
    assert lines[0].startswith("score (references: vem: success rate in percent), mean ± std over 2 seeds")
    assert lines[2].split() == ["pointmaze-umaze", *["0.0", "±", "0.0", "[0.0,", "0.0]"] * 2]
    assert len(lines) == 3  # no mark, so no word about marks
    assert "<th>awr</th>" in comparison._repr_html_()


def test_a_damaged_summary_is_evaluated_again(copied):
    (copied.directory / "evaluation.json").write_text("{")
    assert copied.state() == "trained"


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
