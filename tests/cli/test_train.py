import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from tiny import tiny_dataset
from vem.cli import main
from vem.policy import load_policy

FLAGS = ["--value-hidden", "8,8", "--policy-hidden", "8,8", "--batch-size", "16", "--steps-per-refresh", "10"]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    data = tiny_dataset(6)
    valid = data.valid
    path = tmp_path_factory.mktemp("data") / "logs.npz"
    np.savez(
        path,
        observations=data.observations[valid],
        actions=data.actions[valid],
        rewards=data.rewards[valid],
        terminals=data.terminal[valid],
        timeouts=(np.append(~valid[1:], True) & ~data.terminal)[valid],
    )
    return path


def vem(*arguments):
    return main([str(argument) for argument in arguments])


def test_train_prints_where_the_policies_are(logs, tmp_path, capsys):
    assert vem("train", logs, "--steps", 30, "--out", tmp_path / "run", *FLAGS) == 0
    output = capsys.readouterr().out
    assert "vem (preset default) on logs" in output
    assert "30 / 30" in output
    assert load_policy(tmp_path / "run").act(np.zeros(2)).shape == (1,)


def test_a_sweep_with_json(logs, tmp_path, capsys):
    code = vem(
        "train",
        logs,
        "--steps",
        30,
        "--expectile",
        "0.1,0.9",
        "--seeds",
        "2",
        "--json",
        "--out",
        tmp_path / "r",
        *FLAGS,
    )
    assert code == 0
    result = json.loads(capsys.readouterr().out)
    assert [m["name"] for m in result["trials"]] == [
        "seed0-expectile0.1", "seed1-expectile0.1", "seed0-expectile0.9", "seed1-expectile0.9",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expectile", "1.5"], "--expectile is 1.5; it must be between 0 and 1"),
        (["--steps", "0"], "--steps is 0"),
        (["--seeds", "x"], "--seeds is 'x'"),
        (["--seeds", "0"], "seeds is 0; give how many"),
        (["--seeds", "-1"], "seeds is -1"),
        (["--seeds", "99999999"], "from 1 to 10,000"),
        (["--batch-size", "100000000000"], "of memory"),
        (["--policy-hidden", "1000000,1000000"], "of memory"),
        (["--algorithm", "dqn"], "there is no algorithm 'dqn'"),
        (["--preset", "best"], "choose from default"),
        (["--plan", "n-step"], "needs num-plan-steps"),
        (["--evaluate-every", "0"], "--evaluate-every is 0"),
        (["--evaluate-every", "1.5"], "--evaluate-every is 1.5"),
        (["--evaluate-every", "nan"], "--evaluate-every is nan"),
        (["--evaluate-every", "10"], "--task"),
    ],
)
def test_wrong_values_are_one_error_and_leave_nothing(logs, tmp_path, capsys, arguments, message):
    assert vem("train", logs, "--out", tmp_path / "run", *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_missing_files_and_runs(tmp_path, capsys):
    assert vem("train", tmp_path / "absent.hdf5") == 1
    assert "absent.hdf5" in capsys.readouterr().err
    assert vem("train", "--resume", tmp_path / "absent") == 1
    assert "not a run directory" in capsys.readouterr().err


def test_a_resumed_run_takes_no_settings(logs, tmp_path, capsys):
    assert vem("train", logs, "--steps", 10, "--out", tmp_path / "run", *FLAGS) == 0
    assert vem("train", "--resume", tmp_path / "run", "--expectile", "0.5") == 1
    assert "leave out --expectile" in capsys.readouterr().err
    assert vem("train", "--resume", tmp_path / "run") == 0
    assert "is finished" in capsys.readouterr().out


def test_ctrl_c_saves_and_says_how_to_go_on(logs, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, "-m", "vem", "train", logs, "--steps", "100000000", "--out", run, *FLAGS]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    )
    deadline = time.monotonic() + 120
    metrics = run / "metrics.jsonl"
    while time.monotonic() < deadline and not (run / "config.json").exists():
        time.sleep(0.05)
    while time.monotonic() < deadline and not metrics.exists():
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"vem train --resume {run}" in output
    assert "Traceback" not in output
    assert list((run / "checkpoints").glob("*.safetensors"))


def test_evaluating_on_the_way_draws_the_curve(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("VEM_CACHE", str(tmp_path / "cache"))
    assert vem("data", "make", "pointmaze-umaze", "--rows", 2000, "--out", tmp_path / "maze.hdf5") == 0
    run = tmp_path / "run"
    code = vem("train", tmp_path / "maze.hdf5", "--steps", 900, "--evaluate-every", 300, "--out", run, *FLAGS)
    assert code == 0, capsys.readouterr().err
    points = {json.loads(line)["steps"] for line in (run / "evaluations.jsonl").read_text().splitlines()}
    assert len(points) >= 2
    assert max(points) == 900
    assert (run / "curve-score.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def stopped(logs, tmp_path_factory):
    """A run on a copy of the logs, stopped after its first chunk."""
    directory = tmp_path_factory.mktemp("stopped")
    data = directory / "copy.npz"
    data.write_bytes(logs.read_bytes())
    from vem.api import train

    settings = {"value_hidden": "8,8", "policy_hidden": "8,8", "batch_size": "16", "steps_per_refresh": "10"}
    stop = [lambda run, progress: True]
    train(str(data), steps=30, settings=settings, out=directory / "run", progress=False, callbacks=stop)
    return directory / "run"


def test_resuming_refuses_what_cannot_change(stopped, capsys):
    flags = ["--seeds", "3", "--algorithm", "vem", "--preset", "paper", "--steps", "5", "--task", "hopper-medium"]
    assert vem("train", "--resume", stopped, *flags) == 1
    error = capsys.readouterr().err
    assert "leave out --algorithm, --preset, --seeds, --task" in error
    assert error.count("\n") == 1


def test_resuming_with_moved_data(stopped, logs, tmp_path, capsys):
    data = stopped.parent / "copy.npz"
    moved = tmp_path / "moved.npz"
    data.rename(moved)
    assert vem("train", "--resume", stopped) == 1
    assert "copy.npz" in capsys.readouterr().err
    other = tiny_dataset(6, seed=5)
    np.savez(tmp_path / "other.npz", observations=other.observations[other.valid], actions=other.actions[other.valid],
             rewards=other.rewards[other.valid], terminals=other.terminal[other.valid])  # fmt: skip
    assert vem("train", "--resume", stopped, tmp_path / "other.npz") == 1
    assert "rows differ" in capsys.readouterr().err
    assert vem("train", "--resume", stopped, moved) == 0
    assert len(list((stopped / "policies").iterdir())) == 1


@pytest.mark.parametrize("arguments", [["--resume", ""], ["--out", ""], [""]])
def test_an_empty_name_is_not_the_example(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert vem("train", *arguments) == 1
    assert "is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_out_is_checked_before_the_data_is_read(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file/run", tmp_path / ("x" * 300)):
        assert vem("train", tmp_path / "absent.hdf5", "--out", out) == 1
        assert "cannot make the run directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_preset_follows_the_task_of_the_data_not_the_name_of_its_file(logs, tmp_path, monkeypatch, capsys):
    from vem.data.load import load
    from vem.training.run import Run

    # A task that has settings of its own for IQL: the file's name says nothing, the loaded data does.
    def load_antmaze(source, **rules):
        data = load(source, **rules)
        return replace(data, info=replace(data.info, task="antmaze-umaze", task_source="given"))

    monkeypatch.setattr("vem.training.request.load", load_antmaze)
    hidden = ["--value-hidden", "8", "--policy-hidden", "8", "--batch-size", "8"]
    assert vem("train", logs, "--algorithm", "iql", "--steps", 10, "--out", tmp_path / "run", *hidden) == 0
    assert Run(tmp_path / "run").config.settings["expectile"] == 0.9
    assert "task: antmaze-umaze (decided by: given)" in capsys.readouterr().out


EXAMPLE = ["--steps", 40, "--seeds", 1, "--value-hidden", "8", "--policy-hidden", "8", "--batch-size", "8"]


@pytest.mark.parametrize(
    "flags", [["--data-dir", "here"], ["--task", "hopper-medium"], ["--preset", "best"], ["--expectile", "0.1,0.5"]]
)
def test_the_example_refuses_what_it_does_not_know(flags, tmp_path, capsys):
    assert vem("train", "--out", tmp_path / "first", *flags) == 1
    assert flags[0] in capsys.readouterr().err or flags[0] == "--preset"
    assert not (tmp_path / "first").exists()


def test_the_example_is_a_comparison_that_the_same_command_goes_on_with(tmp_path, monkeypatch, capsys):
    from vem.cli import compare
    from vem.errors import Stopped
    from vem.training.run import Run

    monkeypatch.setattr(compare, "EXAMPLE_EPISODES", 2)
    out = tmp_path / "first"
    arguments = ["train", "--algorithm", "iql", "--out", out, *EXAMPLE]
    with monkeypatch.context() as stopping:
        stopping.setattr(Run, "train", lambda *_, **__: (_ for _ in ()).throw(Stopped("stopped and saved")))
        assert vem(*arguments) == 130
    assert "the same command goes on from here" in capsys.readouterr().out
    assert vem(*arguments) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    table = [line.split() for line in lines[-6:-2]]
    assert [row[0] for row in table] == ["method", "iql", "bc", "recorded"]
    assert float(table[-1][-1]) > 0  # the recorded walker arrives now and then
    assert lines[-2:] == [
        f"report: {out}/report/report.html",
        "next: vem train FILE, with data of yours (vem data describe FILE says what it holds)",
    ]
    assert (out / "report/report.html").is_file()
    assert {path.parent.name for path in out.rglob("config.json")} == {"iql", "bc"}
    assert vem("train", "--resume", out) == 1
    assert f"the same command goes on: vem train --out {out}" in capsys.readouterr().err


@pytest.fixture
def choices(tmp_path):
    """A log whose actions are a choice among three, kept as floats, beside a number."""
    path = tmp_path / "choices.npz"
    number = np.linspace(-1, 1, 60)
    actions = np.stack([np.arange(60) % 3, number], axis=1)
    ends = np.arange(60) % 20 == 19
    np.savez(path, observations=np.sin(number)[:, None], actions=actions, rewards=number, timeouts=ends)
    return path


@pytest.mark.parametrize(
    ("flags", "rule", "action"),
    [(["--discrete-columns", "0"], [0], (2,)), (["--no-discrete"], False, (2,))],
)
def test_which_columns_are_choices_is_kept_with_the_run(choices, tmp_path, capsys, flags, rule, action):
    small = ["--algorithm", "bc", "--steps", 4, "--policy-hidden", "8", "--batch-size", 8]
    assert vem("train", choices, *flags, *small, "--out", tmp_path / "run") == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["config"]["rules"]["discrete"] == rule
    policy = load_policy(tmp_path / "run")
    assert policy.action_choices == ((3, 0) if rule else ())
    assert policy.act(np.zeros(1)).shape == action
    assert vem("train", "--resume", tmp_path / "run") == 0
    capsys.readouterr()
    assert vem("train", "--resume", tmp_path / "run", "--discrete") != 0
    assert "leave out --discrete" in capsys.readouterr().err


def test_a_method_that_cannot_learn_choices_says_so_before_anything_is_written(choices, tmp_path, capsys):
    small = ["--discrete-columns", "0", "--algorithm", "td3bc", "--steps", 4]
    assert vem("train", choices, *small, "--out", tmp_path / "run") != 0
    assert "td3bc cannot learn actions with numbers and discrete columns; these can: vem, bc" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    with pytest.raises(SystemExit):
        vem("train", choices, "--discrete-columns", "first")
    assert "'first' is no list of column numbers" in capsys.readouterr().err


def test_floats_that_look_discrete_are_asked_about_on_the_command_line(choices, capsys):
    assert vem("data", "describe", choices) == 0
    assert "column 0 of the actions looks like 3 whole numbers 0, 1, 2: discrete?" in capsys.readouterr().out
    assert vem("data", "describe", choices, "--discrete-columns", "0") == 0
    output = capsys.readouterr().out
    assert "discrete?" not in output
    assert "3 choices: " in output
