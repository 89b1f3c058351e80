import dataclasses
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tiny import SMALL, tiny_dataset
from vem.errors import RunError, SettingsError
from vem.training import run as checkpoints
from vem.training.request import make_request
from vem.training.run import Run

SETTINGS = {**SMALL, "expectile": [0.2, 0.6]}


def start(directory, dataset, **changes):
    config = make_request("tiny", settings={**SETTINGS, **changes}, seeds=2, steps=100)
    return Run.create(directory, config, dataset)


def tensors(run):
    return [policy.tensors for policy in run.policies]


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset()


@pytest.fixture(scope="module")
def finished(tmp_path_factory, dataset):
    return start(tmp_path_factory.mktemp("run") / "finished", dataset).train()


def test_a_run_directory_holds_what_it_should(finished, dataset):
    names = ["seed0-expectile0.2", "seed1-expectile0.2", "seed0-expectile0.6", "seed1-expectile0.6"]
    assert [path.stem for path in finished.policy_paths] == names
    facts = json.loads((finished.directory / "config.json").read_text())
    assert facts["data"]["sha256"] == dataset.fingerprint()
    assert facts["packages"].keys() >= {"vem", "jax", "numpy"}
    assert facts["config"]["settings"].keys() == {f.name for f in dataclasses.fields(vem_settings())}
    lines = [json.loads(line) for line in (finished.directory / "metrics.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines] == [20, 40, 100]
    assert set(lines[0]["trials"]) == set(names)
    assert finished.policies[2].info["settings"]["expectile"] == 0.6


def vem_settings():
    from vem.algorithms.vem import VEM

    return VEM


def test_policies_act_within_the_bounds(finished, dataset):
    for policy in finished.policies:
        actions = policy.act(dataset.observations, key=1)
        assert actions.shape == (dataset.num_rows, 1)
        assert (np.abs(actions) <= 1).all()
        np.testing.assert_allclose(policy.act(dataset.observations[3]), policy.act(dataset.observations)[3], rtol=1e-5)
        assert np.isfinite(policy.value(dataset.observations)).all()


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_stopping_and_resuming_gives_the_same_bits(tmp_path, dataset, finished, chunks):
    run = start(tmp_path / "run", dataset)
    progress = run.progress()
    for _ in range(chunks):
        last = next(progress)
    run.checkpoint(last)
    progress.close()
    assert_same(tensors(Run.open(tmp_path / "run", dataset).begin().train()), tensors(finished))


def test_metrics_are_those_of_an_uninterrupted_run(tmp_path, dataset, finished):
    run = start(tmp_path / "run", dataset)
    progress = run.progress()
    run.checkpoint(next(progress))
    next(progress)
    progress.close()
    with (tmp_path / "run/metrics.jsonl").open("a") as file:
        file.write('{"steps": 60, "sta')
    Run.open(tmp_path / "run", dataset).begin().train()
    trials = [
        [json.loads(line)["trials"] for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (tmp_path / "run", finished.directory)
    ]
    assert trials[0] == trials[1]


def test_a_damaged_checkpoint_falls_back_and_ends_the_same(tmp_path, dataset, finished):
    run = start(tmp_path / "run", dataset)
    progress = run.progress()
    for _ in range(2):
        run.checkpoint(next(progress))
    progress.close()
    newest = checkpoints.list_checkpoints(tmp_path / "run/checkpoints")[-1]
    newest.write_bytes(newest.read_bytes()[:1000])
    resumed = Run.open(tmp_path / "run", dataset).begin()
    assert any("falling back" in message for message in resumed.messages)
    assert_same(tensors(resumed.train()), tensors(finished))


def test_two_processes_cannot_train_in_one_directory(tmp_path, dataset):
    run = start(tmp_path / "run", dataset)
    progress = run.progress()
    next(progress)
    with pytest.raises(RunError, match="another process"):
        next(Run.open(tmp_path / "run", dataset).begin().progress())
    progress.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"expectile": 0}}, "--expectile is 0"),
        ({"settings": {"expectile": "a"}}, "must be a number"),
        ({"settings": {"expectile": [0.1, 0.1]}}, "give different numbers"),
        ({"settings": {"batch_size": 2.5}}, "whole number"),
        ({"settings": {"discount": 1.0}}, "below 1"),
        ({"settings": {"expectil": 0.1}}, "did you mean expectile"),
        ({"settings": {"plan": "best"}}, "choose from episodic"),
        ({"settings": {"value_lr": float("nan")}}, "above 0"),
        ({"settings": {"policy_hidden": (0,)}}, "above 0"),
        ({"seeds": []}, "at least one"),
        ({"seeds": (1, 1)}, "all different"),
        ({"steps": 0}, "1 or more"),
        ({"algorithm": "dqn"}, "choose from"),
        ({"preset": "best"}, "choose from"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(SettingsError, match=message):
        make_request("tiny", **changes)


def spawn(arguments):
    command = [sys.executable, "-m", "vem", "train", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_kill_9_at_several_moments_and_resume_gives_the_same_bits(tmp_path):
    data = tiny_dataset(40)
    valid = data.valid
    np.savez(
        tmp_path / "logs.npz",
        observations=data.observations[valid],
        actions=data.actions[valid],
        rewards=data.rewards[valid],
        terminals=data.terminal[valid],
        timeouts=(np.append(~valid[1:], True) & ~data.terminal)[valid],
    )
    flags = [tmp_path / "logs.npz", "--steps", 12000, "--seeds", 2, "--checkpoint-seconds", 0.05]
    flags += ["--value-hidden", "16,16", "--policy-hidden", "16,16", "--batch-size", 32, "--steps-per-refresh", 10]
    whole = spawn([*flags, "--out", tmp_path / "whole"])
    output, _ = whole.communicate(timeout=300)
    assert whole.returncode == 0, output

    run = tmp_path / "killed"
    process, kills = spawn([*flags, "--out", run]), 0
    for wanted in (1, 1000, 5000, 9000):
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            stored = checkpoints.list_checkpoints(run / "checkpoints")
            if stored and int(stored[-1].stem) >= wanted:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        process.communicate(timeout=60)
        process = spawn(["--resume", run, "--checkpoint-seconds", 0.05])
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert kills >= 3
    for path in (tmp_path / "whole/policies").iterdir():
        assert path.read_bytes() == (run / "policies" / path.name).read_bytes()


def test_two_settings_are_swept_together():
    config = make_request("tiny", "iql", settings={"expectile": [0.5, 0.7], "inverse_temperature": [1, 2]})
    assert [trial.swept for trial in config.trials] == [
        {"expectile": tau, "inverse_temperature": beta} for tau in (0.5, 0.7) for beta in (1.0, 2.0)
    ]
