"""A run's files: what is written is read back, damage is counted, and one process at a time."""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from tiny import SMALL, tiny_dataset
from vem.errors import RunError
from vem.training import run as checkpoints
from vem.training.records import DataFacts, EpisodeRecord, MetricLine
from vem.training.request import make_request
from vem.training.run import Run

SUMMARY = {
    "version": 1,
    "steps": 40,
    "environment": "vem/PointMaze-UMaze-v0",
    "references": None,
    "num_episodes": 2,
    "seed": 0,
    "actions": "mean",
    "trials": {"seed0": {"return": 1.0}},
    "groups": [{"settings": {}, "trials": ["seed0"]}],
}


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset()


def new_run(path, dataset, **changes):
    return Run.create(path, make_request("tiny", settings=SMALL, **{"steps": 60, **changes}), dataset)


def test_config_and_facts_are_read_back(tmp_path, dataset):
    run = new_run(tmp_path / "run", dataset, seeds=2)
    files = Run(tmp_path / "run")
    assert files.config == run.config
    assert files.facts == DataFacts.of(dataset)
    assert [path.stem for path in files.policy_paths] == ["seed0", "seed1"]
    assert not files.is_finished


def test_a_run_of_another_version_is_one_sentence_that_names_it(tmp_path, dataset):
    new_run(tmp_path / "run", dataset)
    path = tmp_path / "run/config.json"
    stored = json.loads(path.read_text())
    for version in (1, 2, "3"):
        path.write_text(json.dumps({**stored, "version": version, "packages": {"vem": "0.0.9"}}))
        with pytest.raises(RunError, match=r"was written by another vem \(0\.0\.9\)"):
            Run.open(tmp_path / "run")


def test_damaged_metric_lines_are_counted(tmp_path):
    files = Run(tmp_path)
    assert files.metric_lines().records == []
    files.write_metrics(MetricLine(20, "value", 0.1, {"seed0": {"value_loss": 0.5}}))
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"steps": 40, "stage": "value", "seconds": 1, "trials": {}}\n')
        file.write(b'[1]\n\xff\xfe\n{"steps": "x", "trials": {}}\n{"steps": 60, "sta')
    lines = files.metric_lines()
    assert [line.steps for line in lines.records] == [20, 40]
    assert lines.num_damaged == 4
    assert lines.problem == "4 of 6 lines of metrics.jsonl are damaged and left out."
    files.cut_metrics(20)
    assert files.metric_lines() == ([lines.records[0]], 0, None)


def test_newer_episodes_replace_older_ones_of_the_same_steps(tmp_path):
    files = Run(tmp_path)
    files.write_episodes([EpisodeRecord("seed0", 0, 1, steps=40), EpisodeRecord("seed0", 0, 1, steps=80)])
    with (tmp_path / "evaluations.jsonl").open("a") as file:
        file.write('{"trial": "seed1", "episode": 0, "seed": 1, "steps": 40}\n{"trial": 3}\n')
    files.write_episodes([EpisodeRecord("seed0", 0, 1, steps=80, episode_return=2.0)])
    found = {(record.trial, record.steps): record.episode_return for record in files.episodes().records}
    assert found == {("seed0", 40): None, ("seed0", 80): 2.0, ("seed1", 40): None}


def test_summaries(tmp_path):
    files = Run(tmp_path)
    assert files.summary() is None
    files.write_summary(SUMMARY)
    assert files.summary() == SUMMARY
    for text in ("{", "[]", "{}", json.dumps({**SUMMARY, "groups": []})):
        (tmp_path / "evaluation.json").write_text(text)
        assert files.summary() is None


def test_creating_a_run_takes_the_lock_before_anything_is_written(tmp_path, dataset):
    run = new_run(tmp_path / "run", dataset)
    before = (tmp_path / "run/config.json").read_bytes()
    for attempt in (
        lambda: new_run(tmp_path / "run", dataset, steps=70),
        lambda: Run.open(tmp_path / "run", dataset).begin(),
    ):
        with pytest.raises(RunError, match=r"not empty|another process"):
            attempt()
    assert (tmp_path / "run/config.json").read_bytes() == before
    first = Run(tmp_path / "other")
    first.reserve()
    with pytest.raises(RunError, match="another process"):
        new_run(tmp_path / "other", dataset)
    first.abandon()
    assert not (tmp_path / "other").exists()
    run.release()


def test_a_refused_resume_leaves_the_metrics_of_the_one_that_trains(tmp_path, dataset):
    run = new_run(tmp_path / "run", dataset)
    chunks = run.progress()
    run.checkpoint(next(chunks))
    next(chunks)
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="another process"):
        Run.open(tmp_path / "run", dataset).begin()
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
    chunks.close()
    assert Run.open(tmp_path / "run", dataset).begin().train().is_finished


HOLD = """
import sys, time
from vem.training.run import Run
files = Run(sys.argv[1])
files.acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_process_leaves_a_lock_that_can_be_taken(tmp_path, dataset):
    new_run(tmp_path / "run", dataset).release()
    holder = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path / "run"], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="another process"):
            Run(tmp_path / "run").acquire()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    Run(tmp_path / "run").acquire()


def test_what_cannot_be_a_run_directory_is_one_error_and_leaves_nothing(tmp_path, dataset):
    (tmp_path / "file").write_text("")
    impossible = ["file", "file/run", "a" * 300, "new/" + "b" * 300, "nul\0l"]
    for name in impossible:
        with pytest.raises(RunError, match="cannot make the run directory"):
            new_run(tmp_path / name, dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    with pytest.raises(RunError, match="not empty"):
        new_run(tmp_path, dataset)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_cannot_be_written_is_one_error(tmp_path, dataset, monkeypatch):
    new_run(tmp_path / "run", dataset).release()
    opened = os.open

    def refuse(path, *rest, **named):
        if os.fspath(path).endswith(".lock"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(RunError, match=r"cannot write to .*Permission denied"):
        Run.open(tmp_path / "run", dataset).begin()
    with pytest.raises(RunError, match="Permission denied"):
        new_run(tmp_path / "new/run", dataset)
    assert not (tmp_path / "new").exists()


def test_a_config_without_packages_resumes_and_says_so(tmp_path, dataset):
    new_run(tmp_path / "run", dataset).release()
    path = tmp_path / "run/config.json"
    stored = json.loads(path.read_text())
    del stored["packages"]
    path.write_text(json.dumps(stored))
    run = Run.open(tmp_path / "run", dataset).begin()
    assert any("does not name" in message for message in run.messages)
    assert run.train().is_finished


def test_opening_a_run_changes_nothing(tmp_path, dataset):
    run = new_run(tmp_path / "run", dataset)
    chunks = run.progress()
    run.checkpoint(next(chunks))
    next(chunks)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    opened = Run.open(tmp_path / "run")
    assert opened.metrics["steps"].tolist() == [20, 24]
    assert not opened.is_finished
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    chunks.close()
    assert checkpoints.list_checkpoints(opened.checkpoints)


def test_policies_are_read_once(tmp_path, dataset, monkeypatch):
    run = new_run(tmp_path / "run", dataset).train()
    assert run.policy is run.policy
    assert run.policies[0] is run.policy
    monkeypatch.setattr("vem.training.run.load_policy", lambda path: pytest.fail("read again"))
    assert run.policy.act(np.zeros(2)).shape == (1,)


def test_the_lock_of_a_lost_process_is_waited_for(tmp_path, dataset):
    run = new_run(tmp_path / "run", dataset)
    later = Run(tmp_path / "run")
    later.wait_for_lock(0.1)
    with pytest.raises(RunError, match="another process is training"):
        later.acquire()
    timer = threading.Timer(0.3, run.release)
    timer.start()
    later.wait_for_lock(60.0)
    later.acquire()
    later.release()
    timer.join()


def test_what_a_process_left_that_was_killed_at_once_is_no_run(tmp_path, dataset):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".config.json.0123.tmp").write_text("{")
    assert new_run(tmp_path / "run", dataset).is_run
