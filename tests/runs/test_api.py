"""``vem.train`` and its relatives: what they take, what they refuse, and what happens on the way."""

import io
import json
import os
import signal
import threading

import numpy as np
import pytest

import vem
from comparison_cases import write_data
from tiny import SMALL, tiny_dataset
from vem.data.dataset import repeat_terminals
from vem.errors import RunError, SettingsError, Stopped
from vem.training import machine as capacity
from vem.training.request import MOST_TRIALS, chosen_seeds, make_request
from vem.training.run import Run


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset()


def train(dataset, path, *arguments, **changes):
    return vem.train(dataset, *arguments, out=path, **{"steps": 60, "progress": False, **SMALL, **changes})


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        ((3,), {}, "the data is 3; give a path"),
        ((None,), {}, "the data is None"),
        ((), {"seed": True}, "seed is True"),
        ((), {"seeds": 2, "seed": 1}, "leave one out"),
        ((), {"steps": 10, "minutes": 1.0}, "leave one out"),
        ((), {"expectil": 0.3}, "did you mean expectile"),
        ((), {"time_limt": "end"}, "did you mean time_limit"),
        ((), {"algorithm": "BC"}, "did you mean bc"),
        ((), {"algorithm": "bc", "expectile": 0.3}, "BC has no setting 'expectile', which is one of vem, iql"),
        ((), {"time_limit": "end"}, "read with time_limit='bootstrap'"),
        ((), {"seeds": "3"}, "seeds is '3'"),
        ((), {"seeds": True}, "seeds is True"),
        ((), {"seeds": -1}, "seeds is -1"),
        ((), {"seeds": [0, 1.5]}, "whole numbers"),
        ((), {"seeds": [0, -1]}, "all different"),
        ((), {"seeds": 99_999_999}, "from 1 to 10,000"),
        ((), {"steps": 1.5}, "steps is 1.5"),
        ((), {"steps": True}, "steps is True"),
        ((), {"algorithm": 3}, "the algorithm is 3"),
        ((), {"evaluate_every": 0}, "evaluate-every is 0"),
        ((), {"evaluate_every": "10"}, "evaluate-every is '10'"),
        ((), {"checkpoint_seconds": float("nan")}, "checkpoint-seconds"),
        ((), {"callbacks": ["print"]}, "give functions"),
    ],
)
def test_wrong_arguments_are_one_clear_error(dataset, tmp_path, arguments, changes, message):
    with pytest.raises(SettingsError, match=message):
        vem.train(*(arguments or (dataset,)), out=tmp_path / "run", progress=False, **changes)
    assert not (tmp_path / "run").exists()


def test_a_configuration_object_is_taken_as_it_is(dataset, tmp_path):
    settings = vem.VEM(**{**SMALL, "expectile": 0.9})
    run = vem.train(dataset, settings, steps=60, out=tmp_path / "run", progress=False)
    assert (run.config.algorithm, run.config.settings["expectile"]) == ("vem", 0.9)
    with pytest.raises(SettingsError, match="put settings into the object"):
        vem.train(dataset, settings, expectile=0.5, out=tmp_path / "other")


def test_callbacks_see_every_chunk_and_stop_the_run(dataset, tmp_path):
    whole = train(dataset, tmp_path / "whole")
    seen = []
    run = train(
        dataset, tmp_path / "run", callbacks=[lambda run, p: seen.append(p.steps), lambda run, p: p.steps >= 24]
    )
    assert seen == [20, 24]
    assert not run.is_finished
    with pytest.raises(RunError, match="resume"):
        _ = run.policy
    assert run.resume(progress=False).is_finished
    for name, tensor in whole.policy.tensors.items():
        np.testing.assert_array_equal(run.policy.tensors[name], tensor)


def test_a_run_is_opened_and_resumed_with_its_arrays(dataset, tmp_path):
    train(dataset, tmp_path / "run", callbacks=[lambda run, p: True])
    with pytest.raises(RunError, match="arrays from Python"):
        vem.open_run(tmp_path / "run").resume(progress=False)
    with pytest.raises(RunError, match="rows differ"):
        vem.open_run(tmp_path / "run", tiny_dataset(seed=1))
    assert vem.open_run(tmp_path / "run", dataset).resume(progress=False).is_finished
    assert vem.resume(tmp_path / "run", dataset).is_finished


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_preset_has_one_meaning_for_files_and_for_datasets_in_hand(dataset, tmp_path, preset):
    given = {"preset": preset, "steps": 20, "progress": False, "value_hidden": (8,), "policy_hidden": (8,)}
    with pytest.raises(SettingsError, match=r"read with time_limit='bootstrap'.*vem\.from_arrays\(…, time_limit='end'"):
        vem.train(dataset, out=tmp_path / "other", **given)
    assert not (tmp_path / "other").exists()
    ended = tiny_dataset(time_limit="end")
    run = vem.train(ended, out=tmp_path / "run", callbacks=[lambda run, progress: True], **given)
    is_repeated = preset == "authors"
    assert run.config.rules["time_limit"] == "end"
    assert run.config.rules.get("repeat_terminals", False) == is_repeated
    assert run.dataset.num_rows == ended.num_rows + is_repeated * ended.num_episodes
    assert vem.resume(tmp_path / "run", ended).is_finished


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_preset_trains_on_the_same_rows_from_python_and_from_the_shell(tmp_path, preset):
    path, small = write_data(tmp_path), {"value_hidden": (8,), "policy_hidden": (8,)}
    given = {"preset": preset, "steps": 20}
    loaded = vem.load(path, time_limit="end")
    python = vem.train(loaded, out=tmp_path / "python", progress=False, **given, **small)
    shell = vem.train(str(path), out=tmp_path / "shell", settings=small, progress=False, **given)
    assert python.facts.sha256 == shell.facts.sha256
    assert vem.open_run(python.directory).dataset.num_rows == python.facts.num_rows  # refused if rows differ


def test_a_config_that_says_other_rows_is_refused(dataset, tmp_path):
    for rules in ({"repeat_terminals": True}, {"time_limit": "end"}):
        with pytest.raises(SettingsError, match=f"{next(iter(rules))}=.* and the run's config says"):
            Run.create(tmp_path / "run", make_request("tiny", rules=rules), dataset)
    with pytest.raises(SettingsError, match="read with repeat_terminals=True and the run's config says False"):
        Run.create(tmp_path / "run", make_request("tiny"), repeat_terminals(dataset))
    assert not (tmp_path / "run").exists()


def test_metrics_are_columns_of_equal_length(dataset, tmp_path):
    metrics = train(dataset, tmp_path / "run", seeds=2).metrics
    assert {"steps", "stage", "seconds", "trial"} < metrics.keys()
    assert len({len(column) for column in metrics.values()}) == 1
    assert metrics["trial"].tolist()[:2] == ["seed0", "seed1"]
    assert np.isfinite(metrics["value_loss"][metrics["stage"] == "value"]).all()
    assert np.isnan(metrics["value_loss"][metrics["stage"] == "policy"]).all()


def test_progress_goes_where_it_is_asked_to(dataset, tmp_path, capsys):
    stream = io.StringIO()
    train(dataset, tmp_path / "shown", progress=stream)
    assert "60 / 60" in stream.getvalue()
    assert "run directory" in stream.getvalue()
    train(dataset, tmp_path / "silent")
    assert capsys.readouterr().out == ""


def test_ctrl_c_saves_and_raises(dataset, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match="--resume"):
        train(dataset, tmp_path / "run", callbacks=[lambda run, p: os.kill(os.getpid(), signal.SIGINT)])
    assert signal.getsignal(signal.SIGINT) is before
    assert vem.resume(tmp_path / "run", dataset).is_finished


def test_training_works_outside_the_main_thread(dataset, tmp_path):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train(dataset, tmp_path / "run")))
    thread.start()
    thread.join()
    assert runs[0].is_finished


def test_without_out_runs_are_numbered_and_a_failure_leaves_none(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError):
        vem.train(dataset, expectile=7, progress=False)
    with pytest.raises(SettingsError):
        vem.train(dataset, time_limit="end", progress=False)
    assert list(tmp_path.iterdir()) == []
    runs = [vem.train(dataset, steps=20, progress=False, **SMALL) for _ in range(2)]
    assert [str(run.directory) for run in runs] == ["runs/tiny-vem", "runs/tiny-vem-2"]


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 100_000_000}, {"policy_hidden": (1_000_000, 1_000_000)}, {"value_hidden": (10**7, 10**7)}],
)
def test_more_than_the_memory_is_refused_with_numbers(dataset, tmp_path, monkeypatch, settings):
    monkeypatch.setattr(capacity, "available_bytes", lambda: 4_000_000_000)
    with pytest.raises(SettingsError, match=r"at least [\d,.]+ [GTP]B of memory and 4.0 GB"):
        train(dataset, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_an_allocation_that_fails_is_one_error(dataset, tmp_path):
    def fail(run, progress):
        raise MemoryError("Unable to allocate 9.9 TiB")

    with pytest.raises(MemoryError):
        train(dataset, tmp_path / "callback", callbacks=[fail])
    with pytest.raises(SettingsError, match=r"memory does not suffice .*9.9 TiB"), capacity.refusing_to_run_out():
        fail(None, None)


def test_the_memory_of_this_machine_is_known():
    assert capacity.available_bytes() > 0


def test_seeds():
    assert chosen_seeds(3) == (0, 1, 2)
    assert chosen_seeds([7, 3]) == (7, 3)
    assert chosen_seeds(7, "seed") == (7,)
    assert chosen_seeds([7, 9], "seed") == (7, 9)
    assert len(chosen_seeds(MOST_TRIALS)) == MOST_TRIALS
    with pytest.raises(SettingsError, match="say which with --seed 0"):
        make_request("tiny", seeds=0)


def test_the_run_says_which_files_are_its_own(dataset, tmp_path):
    run = train(dataset, tmp_path / "run")
    assert Run(tmp_path / "run").is_finished
    assert json.loads((tmp_path / "run/config.json").read_text())["version"] == 3
    assert "finished" in repr(run)
