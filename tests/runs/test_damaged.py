"""Run directories that were damaged, swapped or made up: one error or a note, and nothing outside is touched."""

import dataclasses
import json
import shutil
import warnings

import numpy as np
import pytest

from tiny import SMALL, tiny_dataset
from vem import api
from vem.errors import DataError, RunError, VemError
from vem.estimation.estimate import read_estimate
from vem.evaluation.results import read_evaluation
from vem.reports.records import read_run
from vem.reports.report import write_report
from vem.training import run as checkpoints
from vem.training.request import MOST_TRIALS, make_request
from vem.training.run import Run

DEEP = "[" * 200_000


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset()


def half_done(path, dataset, **changes):
    """A run that was stopped after its first checkpoint."""
    run = Run.create(path, make_request("tiny", **{"settings": SMALL, "steps": 60, **changes}), dataset)
    chunks = run.progress()
    run.checkpoint(next(chunks))
    next(chunks)
    chunks.close()
    return path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, dataset):
    return half_done(tmp_path_factory.mktemp("stopped") / "run", dataset)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, dataset, stopped):
    path = tmp_path_factory.mktemp("finished") / "run"
    shutil.copytree(stopped, path)
    Run.open(path, dataset).begin().train()
    return path


@pytest.fixture
def run(tmp_path, stopped):
    return shutil.copytree(stopped, tmp_path / "run")


def edit(path, change):
    """Change what ``path/config.json`` holds."""
    stored = json.loads((path / "config.json").read_text())
    change(stored)
    (path / "config.json").write_text(json.dumps(stored))


def files_of(path):
    return {file.relative_to(path): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# Checkpoints of another run


@pytest.mark.parametrize(
    "changes", [{"seeds": [7]}, {"settings": {**SMALL, "expectile": 0.8}}, {"steps": 61}, {"hold_out": 0.2}]
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(tmp_path, run, dataset, changes):
    other = half_done(tmp_path / "other", dataset, **changes)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    before = files_of(run)
    with pytest.raises(RunError, match=r"checkpoints/0000000020\.safetensors belongs to another run"):
        Run.open(run, dataset).begin()
    assert files_of(run) == before


def test_a_checkpoint_of_other_data_is_refused(tmp_path, run, dataset):
    other = half_done(tmp_path / "other", tiny_dataset(seed=1))
    shutil.copytree(other / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
    with pytest.raises(RunError, match="belongs to another run"):
        Run.open(run, dataset).begin()


@pytest.mark.parametrize(
    ("name", "value"), [("steps", 80), ("seeds", [3]), ("settings", {"expectile": 0.9}), ("preset", "paper")]
)
def test_a_setting_that_was_edited_under_checkpoints_is_noticed(run, dataset, name, value):
    def change(stored):
        config = stored["config"]
        config[name] = {**config[name], **value} if isinstance(value, dict) else value

    edit(run, change)
    with pytest.raises(RunError, match=r"config\.json"):
        Run.open(run, dataset).begin()


def test_bounds_that_were_edited_under_checkpoints_are_noticed(run, dataset):
    edit(run, lambda stored: stored["data"].update(action_high=[5.0]))
    with pytest.raises(RunError, match="belongs to another run"):
        Run.open(run, dataset).begin()


def test_data_may_move(run, dataset, finished):
    edit(run, lambda stored: stored["config"].update(data_dir="elsewhere", data="moved"))
    resumed = Run.open(run, dataset).begin().train()
    assert resumed.policy_paths[0].read_bytes() == (finished / "policies/seed0.safetensors").read_bytes()


def test_a_checkpoint_whose_place_does_not_exist_is_refused(run, dataset):
    opened = Run.open(run, dataset)
    tree = {"state": opened.initial().state, "memory": opened.initial().memory}
    for place in ({"stage": 9, "done": 0}, {"stage": "0", "done": 0}, {"stage": 0, "done": 10**30}, {"stage": 0}):
        facts = {"request": opened.digest, **place}
        checkpoints.save_checkpoint(run / "checkpoints", 40, tree, facts)
        with pytest.raises(RunError, match="is damaged"):
            Run.open(run, dataset).begin()


def test_damaged_checkpoints_do_not_push_out_newer_ones(tmp_path):
    tree = {"a": np.ones(3, np.float32)}
    for steps in (100, 120):
        checkpoints.save_checkpoint(tmp_path, steps, tree, {}).write_bytes(b"damaged")
    checkpoints.save_checkpoint(tmp_path, 20, tree, {"done": 20})
    found = checkpoints.load_newest(tmp_path, lambda text: None, {None: 100})
    assert found is not None
    assert found[1]["done"] == 20


# config.json


def product_of_hundreds(stored):
    names = ("expectile", "temperature", "policy_lr", "value_lr")
    stored["config"]["sweep"] = {name: [0.001 + i / 1000 for i in range(100)] for name in names}


CONFIGS = {
    "a sweep of no setting": lambda s: s["config"].update(sweep={"expectile/../../../EVIL_": [0.5, 1.0]}),
    "a sweep of a setting that has one value": lambda s: s["config"].update(sweep={"batch_size": [16, 32]}),
    "seeds that are a path": lambda s: s["config"].update(seeds=["/../../EVIL"]),
    "seeds that are a number": lambda s: s["config"].update(seeds=3),
    "seeds below 0": lambda s: s["config"].update(seeds=[-1]),
    "a million seeds": lambda s: s["config"].update(seeds=list(range(1_000_000))),
    "no seeds": lambda s: s["config"].update(seeds=[]),
    "sweep: true": lambda s: s["config"].update(sweep=True),
    "sweep: []": lambda s: s["config"].update(sweep=[]),
    "a swept text": lambda s: s["config"].update(sweep={"expectile": ["../../EVIL", 0.5]}),
    "a sweep of one number": lambda s: s["config"].update(sweep={"expectile": 0.5}),
    "swept values with one name": lambda s: s["config"].update(sweep={"expectile": [0.5, 0.50000001]}),
    "a swept value out of limits": lambda s: s["config"].update(sweep={"expectile": [0.5, 7.0]}),
    "too many trials": product_of_hundreds,
    "steps that are text": lambda s: s["config"].update(steps="60"),
    "steps of 30 digits": lambda s: s["config"].update(steps=10**30),
    "rules that are a list": lambda s: s["config"].update(rules=[1]),
    "a dataset that is a number": lambda s: s["config"].update(data=5),
    "a data_dir that is a number": lambda s: s["config"].update(data_dir=5),
    "an algorithm that is a list": lambda s: s["config"].update(algorithm=[]),
    "a preset that is a number": lambda s: s["config"].update(preset=1),
    "settings that are a list": lambda s: s["config"].update(settings=[]),
    "pool rows that are text": lambda s: s["config"].update(pool_rows="all"),
    "hold_out above its limit": lambda s: s["config"].update(hold_out=3),
    "minutes that are a list": lambda s: s["config"].update(minutes=[1]),
    "a task that is a number": lambda s: s["data"].update(task=5),
    "a name that is a list": lambda s: s["data"].update(name=[]),
    "an environment that is a number": lambda s: s["data"].update(environment=5),
    "metadata that is text": lambda s: s["data"].update(metadata="x"),
    "bounds that are text": lambda s: s["data"].update(action_low=["x"]),
    "bounds without a size": lambda s: s["data"].update(action_low=0),
    "warnings that are numbers": lambda s: s["data"].update(warnings=[1]),
    "an infinite number of rows": lambda s: s["data"].update(num_rows=float("inf")),
    "an encoder that is text": lambda s: s["data"].update(encoder="x"),
    "a label that is a number": lambda s: s["data"].update(
        action_columns=[{"name": "a", "kind": "discrete", "low": 0, "high": 1, "labels": [1, 2]}]
    ),
    "data that is a list": lambda s: s.update(data=[]),
    "a config that is a list": lambda s: s.update(config=[]),
    "an evaluation period of text": lambda s: s["config"].update(evaluate_every="often"),
}


@pytest.mark.parametrize("what", CONFIGS)
def test_a_config_that_was_made_up_is_one_error_and_touches_nothing(tmp_path, run, dataset, what):
    edit(run, CONFIGS[what])
    shutil.rmtree(run / "checkpoints")
    before = files_of(tmp_path)
    for use in (lambda: Run.open(run, dataset).begin().train(), lambda: read_run(run)):
        with pytest.raises(RunError, match=r"config\.json does not describe a run"):
            use()
    assert files_of(tmp_path) == before


def test_too_many_trials_are_refused_before_they_are_made():
    values = [0.001 + i / 1000 for i in range(100)]
    settings = dict.fromkeys(("expectile", "temperature"), values)
    with pytest.raises(VemError, match=f"make 20,000 policies; train at most {MOST_TRIALS:,}"):
        make_request("tiny", settings=settings, seeds=2)


# JSON of a run


@pytest.mark.parametrize(
    "text", [DEEP, "[" * 500 + "]" * 500, '{"a":' * 200_000, "\ud800".encode(errors="surrogatepass")]
)
def test_deep_or_odd_json_is_one_error_or_left_out(tmp_path, finished, text):
    run = shutil.copytree(finished, tmp_path / "run")
    content = text if isinstance(text, bytes) else text.encode()
    for name in ("warnings.json", "evaluation.json", "estimate.json"):
        (run / name).write_bytes(content)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(content + b"\n")
    files = Run(run)
    assert files.checks() is None
    assert files.summary() is None
    assert files.estimate() is None
    assert files.metric_lines().num_damaged == 1
    notes = " ".join(read_run(run).notes)
    for name in ("warnings.json", "evaluation.json", "estimate.json"):
        assert f"{name} is damaged" in notes
    (run / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=r"config\.json .*cannot be read"):
        Run.open(run)


def test_json_that_is_no_regular_file_or_too_large_is_refused(tmp_path, run, monkeypatch):
    config = run / "config.json"
    content = config.read_bytes()
    monkeypatch.setattr("vem.storage.MOST_JSON_BYTES", 100)
    with pytest.raises(RunError, match="cannot be read"):
        Run.open(run)
    monkeypatch.undo()
    config.unlink()
    config.mkdir()
    with pytest.raises(RunError, match="cannot be read"):
        Run.open(run)
    config.rmdir()
    config.write_bytes(content)
    assert Run(run).config.steps == 60


def test_metric_lines_with_numbers_that_nothing_holds_are_left_out(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"steps": 10**30, "stage": "values", "trials": {"seed0": {"loss": 1.0}}}) + "\n")
        file.write(json.dumps({"steps": 70, "stage": "values", "trials": {"seed0": {"loss": 10**400}}}) + "\n")
        file.write('{"steps": Infinity, "stage": "values", "trials": {}}\n')
        file.write('{"steps": 70, "seconds": 1' + 400 * "0" + ', "stage": "values", "trials": {}}\n')
    found = Run(run).metric_lines()
    assert found.num_damaged == 3
    assert (found.records[-1].steps, np.isnan(found.records[-1].seconds)) == (70, True)
    assert max(Run.open(run).metrics["steps"]) < 70


def test_lines_of_episodes_with_wrong_types_are_left_out(run):
    good = {"trial": "seed0", "episode": 0, "seed": 1}
    wrong = ({"path": 5}, {"environment": 5}, {"error": []}, {"success": "yes"}, {"steps": 10**30}, {"length": "x"})
    lines = [good, *({**good, **change} for change in wrong)]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = Run(run).episodes()
    assert (len(found.records), found.num_damaged) == (1, len(wrong))


VALUE = {"value": 1.0, "interval": [0.5, 1.5], "problem": None, "effective_sample": 3.0}
POLICY = {
    **dict.fromkeys(("value", "difference", "plain", "importance", "doubly_robust"), VALUE),
    **{"fitted": 1.0, "anchored": 1.0, "refits": [1.0], "supported": 0.5, "verdict": "better", "reason": "text"},
}
GROUP = {
    **{"settings": {}, "trials": ["seed0"], "value": VALUE, "difference": VALUE, "supported": 0.5},
    **{"verdict": "better", "reason": "better than the log"},
}
ESTIMATE = {
    **{"version": 3, "data": "tiny", "data_sha256": "0", "trajectories": "held out", "hold_out": 0.2, "seconds": 1.0},
    **{"num_trajectories": 9, "num_fitted": 3, "discount": 0.9, "horizon": 10, "log": VALUE, "warnings": []},
    **{"policies": {"seed0": POLICY}, "groups": [GROUP]},
}
WRONG_ESTIMATES = {
    "a group that is a number": {"groups": [1]},
    "no groups": {"groups": []},
    "settings that are a list": {"groups": [{**GROUP, "settings": [1]}]},
    "a setting that is text": {"groups": [{**GROUP, "settings": {"expectile": "x"}}]},
    "a verdict that is a number": {"groups": [{**GROUP, "verdict": 3}]},
    "trials that are numbers": {"groups": [{**GROUP, "trials": [1]}]},
    "no trials": {"groups": [{**GROUP, "trials": []}]},
    "a value that is text": {"log": {**VALUE, "value": "x"}},
    "an interval of three": {"log": {**VALUE, "interval": [1, 2, 3]}},
    "an interval of texts": {"groups": [{**GROUP, "difference": {**VALUE, "interval": ["a", "b"]}}]},
    "a problem that is a number": {"policies": {"seed0": {**POLICY, "importance": {**VALUE, "problem": 1}}}},
    "a policy that is a list": {"policies": {"seed0": []}},
    "support that is text": {"policies": {"seed0": {**POLICY, "supported": "x"}}},
    "refits that are texts": {"policies": {"seed0": {**POLICY, "refits": ["x"]}}},
    "warnings that are numbers": {"warnings": [1]},
    "other trajectories than there are": {"trajectories": "some"},
    "a horizon that is text": {"horizon": "x"},
    "a discount of 400 digits": {"discount": 10**400},
    "a log that is missing": {"log": None},
}


def test_an_estimate_is_read_back(run):
    (run / "estimate.json").write_text(json.dumps(ESTIMATE))
    found = read_estimate(Run(run))
    assert found is not None
    assert found.to_json() == ESTIMATE


@pytest.mark.parametrize("what", WRONG_ESTIMATES)
def test_an_estimate_with_wrong_types_is_left_out(tmp_path, finished, what):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "estimate.json").write_text(json.dumps({**ESTIMATE, **WRONG_ESTIMATES[what]}))
    assert read_estimate(Run(run)) is None
    assert any("estimate.json is damaged" in note for note in read_run(run).notes)


def test_a_report_is_written_about_a_run_with_damaged_files(tmp_path, finished):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "estimate.json").write_text(json.dumps({**ESTIMATE, "policies": {}, "groups": [1]}))
    (run / "evaluation.json").write_text(DEEP)
    report = write_report([run], tmp_path / "report")
    page = report.page.read_text()
    assert "estimate.json is damaged" in page
    assert "evaluation.json is damaged" in page


TRIAL = {"return": 1.0, "num_failed": 0, "first_error": None}
SUMMARY = {
    **{"version": 1, "steps": 60, "environment": "x", "references": None, "num_episodes": 2, "seed": 0},
    **{"actions": "mean", "trials": {"seed0": TRIAL}, "groups": [{"settings": {}, "trials": ["seed0"]}]},
}


@pytest.mark.parametrize(
    "change",
    [
        {"groups": [1]},
        {"groups": [{"settings": {"expectile": "x"}, "trials": ["seed0"]}]},
        {"groups": [{"settings": {}, "trials": 5}]},
        {"groups": [{"settings": {}, "trials": ["seed0"], "return": {"mean": "x"}}]},
        {"trials": {"seed0": {**TRIAL, "return": "x"}}},
        {"trials": {"seed0": {**TRIAL, "num_failed": "x"}}},
        {"references": {"minimum": "a", "maximum": 1, "source": "b"}},
        {"references": 5},
        {"num_episodes": "x"},
        {"environment": 5},
    ],
)
def test_an_evaluation_with_wrong_types_is_left_out(tmp_path, finished, change):
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "evaluation.json").write_text(json.dumps(SUMMARY))
    assert read_evaluation(Run(run)) is not None
    (run / "evaluation.json").write_text(json.dumps({**SUMMARY, **change}))
    assert read_evaluation(Run(run)) is None
    assert any("evaluation.json is damaged" in note for note in read_run(run).notes)


# Links


@pytest.mark.parametrize("name", ["checkpoints", "policies", "metrics.jsonl"])
def test_nothing_is_written_or_deleted_through_a_link(tmp_path, run, dataset, name):
    outside = tmp_path / "outside"
    place = run / name
    if place.is_dir():
        shutil.move(place, outside)
        for steps in (1, 2, 3):
            (outside / f"{steps:010d}.safetensors").write_text("somebody's")
    elif name == "policies":
        outside.mkdir()
    else:
        place.unlink()  # and nothing is where the link leads to
    place.symlink_to(outside)
    before = files_of(tmp_path)
    with pytest.raises(RunError, match=f"{name} is a link"):
        Run.open(run, dataset).begin().train()
    assert files_of(tmp_path) == before


# Policies that could not be read


def test_actions_whose_difference_float32_cannot_hold_are_refused_before_training(tmp_path):
    data = tiny_dataset()
    info = dataclasses.replace(data.info, action_low=(-3.3e38,), action_high=(3.3e38,))
    data = dataclasses.replace(data, info=info)
    with pytest.raises(DataError, match=r"action column 0 .*divide"):
        Run.create(tmp_path / "run", make_request("tiny", settings=SMALL, steps=60), data)
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_end_with_a_policy_that_cannot_be_read(tmp_path, run, dataset, monkeypatch):
    from vem.training import run as policies

    measure = policies.measure_support

    def broken(data):
        model = measure(data)
        model.novelties[:] = np.nan
        return model

    monkeypatch.setattr(policies, "measure_support", broken)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RunError, match=r"seed0.*novelties holds NaN"):
            Run.open(run, dataset).begin().train()
    assert not Run(run).is_finished
    assert checkpoints.list_checkpoints(run / "checkpoints")


# Evaluation on the way


def test_a_resumed_run_is_evaluated_as_it_was_started(tmp_path, monkeypatch, dataset):
    seen = []

    class Stopping:
        def __call__(self, run, progress):
            return progress.steps < 60

    from contextlib import contextmanager

    @contextmanager
    def evaluating(run, every, after):
        seen.append(every)
        yield []

    monkeypatch.setattr("vem.evaluation.evaluate.evaluating", evaluating)
    monkeypatch.setattr("vem.evaluation.environments.find_environment", lambda facts: None)
    quiet = {"progress": False, "keep_programs": False}
    api.train(dataset, steps=60, out=tmp_path / "run", evaluate_every=20, callbacks=[Stopping()], **quiet, **SMALL)
    assert Run(tmp_path / "run").config.evaluate_every == 20
    api.resume(tmp_path / "run", dataset, evaluate_every=0.5, callbacks=[Stopping()], **quiet)
    api.resume(tmp_path / "run", dataset, **quiet)
    assert seen == [20, 0.5, 20]
