"""What TensorBoard and Weights & Biases are told, each step once, also after a stop."""

import importlib.util
import json

import numpy as np
import pytest

import vem
from small_runs import make_run, quick_compilation, tiny_dataset
from vem.errors import RunError, SettingsError
from vem.training import loop
from vem.training.callbacks import TensorBoard, WandB, named
from vem.training.run import Run

pytest.importorskip("tensorboard")


@pytest.fixture(autouse=True)
def quickly(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 3)
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield


def events(run, trial):
    """Tag → (steps, values) as TensorBoard itself reads them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(run.directory / "tensorboard" / trial), purge_orphaned_data=True).Reload()
    found = {tag: read.Scalars(tag) for tag in read.Tags()["scalars"]}
    return {tag: ([e.step for e in entries], [e.value for e in entries]) for tag, entries in found.items()}


def evaluated_at(run, steps, score):
    """Leave what an evaluation on the way leaves."""
    trials = {trial.name: {"score": score + i, "first_error": None} for i, trial in enumerate(run.config.trials)}
    facts = {"version": 1, "environment": "own", "references": None, "num_episodes": 1, "seed": 0, "actions": "mean"}
    summary = {**facts, "steps": steps, "trials": trials, "groups": [{}]}
    run.write_summary(summary)


def test_tensorboard_has_every_metric_of_every_trial_once(tmp_path):
    run = make_run("bc", tmp_path / "run")
    seen = {}

    def watch(run, progress):
        seen[progress.steps] = {name: np.array(values) for name, values in progress.metrics.items()}
        if progress.steps == 6:
            evaluated_at(run, 6, 40.0)

    run.train([watch, TensorBoard()])
    for index, trial in enumerate(("seed0", "seed1")):
        found = events(run, trial)
        names = {f"train/{name}" for metrics in seen.values() for name in metrics}
        assert set(found) == names | {"evaluation/score"}
        for name in names:
            steps, values = found[name]
            assert steps == list(seen)
            expected = [metrics[name.removeprefix("train/")][index] for metrics in seen.values()]
            np.testing.assert_array_equal(np.float32(values), np.float32(expected))
        assert found["evaluation/score"] == ([6], [40.0 + index])


def test_a_resumed_run_goes_on_and_what_was_lost_is_forgotten(tmp_path):
    run = make_run("bc", tmp_path / "run")

    def crash_after_a_checkpoint(run, progress):
        if progress.steps == 3:
            run.checkpoint(progress)
        if progress.steps == 6:
            raise RunError("the machine is gone")

    with pytest.raises(RunError, match="gone"):
        run.train([TensorBoard(), crash_after_a_checkpoint])
    seen = {}
    resumed = Run.open(run.directory, tiny_dataset())
    resumed.train([TensorBoard(), lambda run, progress: seen.update({progress.steps: progress.metrics["policy_loss"]})])
    steps, values = events(run, "seed1")["train/policy_loss"]
    assert steps == [3, 6, 9, 10]
    np.testing.assert_array_equal(np.float32(values[1:]), [np.float32(loss[1]) for loss in seen.values()])


def test_a_log_that_cannot_be_written_is_one_sentence(tmp_path):
    run = make_run("bc", tmp_path / "run")
    (run.directory / "tensorboard").touch()
    with pytest.raises(RunError, match=r"cannot write .*tensorboard"):
        run.train([TensorBoard()])


def test_flags_name_the_logs():
    assert [type(log) for log in named("tensorboard,tensorboard")] == [TensorBoard]
    with pytest.raises(SettingsError, match="tensorboard or wandb"):
        named("tensorbored")
    with pytest.raises(SettingsError, match="tensorboard or wandb"):
        named("")


def test_the_class_is_no_callback(tmp_path):
    with pytest.raises(SettingsError, match="callbacks hold"):
        vem.train(tiny_dataset(), "bc", steps=2, callbacks=[TensorBoard], progress=False, out=tmp_path / "run")


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline(tmp_path):
    run = make_run("bc", tmp_path / "run")
    run.train([WandB(mode="offline"), lambda run, progress: progress.steps == 3])
    ids = json.loads((run.directory / "wandb.json").read_text())
    assert {trial: entry["steps"] for trial, entry in ids.items()} == {"seed0": 3, "seed1": 3}
    Run.open(run.directory, tiny_dataset()).train([WandB(mode="offline")])
    after = json.loads((run.directory / "wandb.json").read_text())
    assert [entry["id"] for entry in after.values()] == [entry["id"] for entry in ids.values()]
    assert {entry["steps"] for entry in after.values()} == {10}
    assert len({entry["id"] for entry in after.values()}) == 2
    for entry in after.values():
        assert list((run.directory / "wandb").glob(f"offline-run-*-{entry['id']}/*.wandb"))
