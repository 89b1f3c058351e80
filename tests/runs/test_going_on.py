"""A run that has ended goes on: exactly, with its schedules as they ended or anew, and it keeps its points."""

import json
import shutil

import numpy as np
import pytest

import vem
from small_runs import quick_compilation, tiny_dataset, tiny_settings
from vem.errors import RunError, SettingsError
from vem.storage import read_tensors
from vem.training import loop
from vem.training.records import EpisodeRecord, PointEstimate
from vem.training.request import make_request
from vem.training.run import Run


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


def trained(path, name="vem", steps=10, **settings):
    request = make_request("tiny", name, settings=tiny_settings(name, **settings), seeds=2, steps=steps)
    return Run.create(path, request, tiny_dataset()).train()


def assert_same(one, other):
    for first, second in zip(one.policy_paths, other.policy_paths, strict=True):
        ours, theirs = read_tensors(first)[0], read_tensors(second)[0]
        for name, tensor in ours.items():
            np.testing.assert_array_equal(tensor, theirs[name], err_msg=name)


def test_a_finished_run_goes_on_and_says_which_stages_do(tmp_path):
    run = trained(tmp_path / "run", value_share=0.4)
    before = run.policy_paths[0].read_bytes()
    again = vem.open_run(run.directory, tiny_dataset())
    again.resume(steps=20, progress=False)
    assert again.is_finished
    assert [(stage.name, stage.num_steps) for stage in again.algorithm.stages] == [
        ("value", 4),
        ("policy", 6),
        ("value", 4),
        ("policy", 6),
    ]
    assert "10 steps are added to the 10: 4 of value, 6 of policy, with the networks as they are" in again.messages
    stored = json.loads((run.directory / "config.json").read_text())["config"]
    assert (stored["steps"], stored["ends"], stored["restarts"]) == (20, [10], [])
    assert again.points == [10, 20]
    assert again.point_paths(10)[0].read_bytes() == before
    assert again.policies_at(20)[0] is again.policy
    assert again.policy.info["steps"] == 20
    assert again.metrics["steps"][-1] == 20
    assert Run.open(run.directory, tiny_dataset()).train().is_finished
    with pytest.raises(RunError, match="those after: 10, 20"):
        again.policies_at(15)


def test_going_on_is_exact_wherever_it_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 3)
    run = trained(tmp_path / "whole", value_share=0.4)
    shutil.copytree(run.directory, tmp_path / "part")
    shutil.copytree(run.directory, tmp_path / "lost")
    whole = vem.resume(run.directory, tiny_dataset(), steps=20, progress=False)
    # Stopped in the second round, and gone on with by a run that knows only the directory.
    part = vem.open_run(tmp_path / "part", tiny_dataset())
    part.resume([lambda run, progress: progress.steps >= 14], progress=False, steps=20)
    assert not part.is_finished
    assert_same(whole, vem.resume(tmp_path / "part", tiny_dataset(), progress=False))
    # Killed after config.json was written: the checkpoint still bears the mark of the first round.
    lost = vem.open_run(tmp_path / "lost", tiny_dataset())
    lost.go_on_to(20)
    lost.release()
    assert not lost.is_finished
    assert_same(whole, vem.resume(tmp_path / "lost", tiny_dataset(), progress=False))


def test_a_run_that_has_not_ended_trains_its_steps_first(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 3)
    whole = vem.resume(trained(tmp_path / "whole", "bc").directory, tiny_dataset(), steps=20, progress=False)
    request = make_request("tiny", "bc", settings=tiny_settings("bc"), seeds=2, steps=10)
    Run.create(tmp_path / "part", request, tiny_dataset()).train([lambda run, progress: True])
    assert_same(whole, vem.resume(tmp_path / "part", tiny_dataset(), steps=20, progress=False))


def test_a_schedule_that_ended_stays_ended_unless_it_is_restarted(tmp_path):
    run = trained(tmp_path / "run", "bc")
    shutil.copytree(run.directory, tmp_path / "anew")
    before = run.policy.tensors
    stays = vem.resume(run.directory, tiny_dataset(), steps=20, progress=False)
    assert any("--restart-schedule" in message for message in stays.messages)
    anew = vem.resume(tmp_path / "anew", tiny_dataset(), steps=20, restart_schedule=True, progress=False)
    assert not any("--restart-schedule" in message for message in anew.messages)
    assert anew.config.restarts == (10,)
    names = [name for name in before if name.startswith("actor")] or list(before)
    moved = {
        which: max(float(np.abs(after.policy.tensors[name] - before[name]).max()) for name in names)
        for which, after in (("stays", stays), ("anew", anew))
    }
    assert moved["stays"] == 0  # a cosine ends at 0
    assert moved["anew"] > 0


def test_a_start_is_not_trained_again(tmp_path):
    run = trained(tmp_path / "run", "cql", cloning_steps=3)
    run.go_on_to(20)
    assert [(stage.name, stage.num_steps) for stage in run.algorithm.stages] == [
        ("cloning", 3),
        ("policy", 7),
        ("policy", 10),
    ]
    run.release()


def test_what_cannot_go_on_is_one_sentence(tmp_path):
    run = trained(tmp_path / "run", "bc")
    with pytest.raises(SettingsError, match="started with 10; give the steps in all"):
        vem.resume(run.directory, tiny_dataset(), steps=10)
    with pytest.raises(SettingsError, match="give --steps, too"):
        vem.resume(run.directory, tiny_dataset(), restart_schedule=True)
    shutil.rmtree(run.checkpoints)
    with pytest.raises(RunError, match="no readable checkpoint to go on from"):
        vem.resume(run.directory, tiny_dataset(), steps=20)
    assert Run.open(run.directory).is_finished


@pytest.mark.parametrize(("every", "stops"), [(4, [4, 8, 10]), (0.25, [3, 5, 8, 10]), (0.5, [5, 10]), (100, [10])])
def test_chunks_end_where_a_run_is_evaluated_and_change_no_bit(tmp_path, every, stops):
    plain = trained(tmp_path / "plain", "bc")
    request = make_request("tiny", "bc", settings=tiny_settings("bc"), seeds=2, steps=10)
    run, seen = Run.create(tmp_path / "run", request, tiny_dataset()), []
    run.stops_every = every
    run.train([lambda run, progress: seen.append(progress.steps)])
    assert seen == stops
    assert_same(plain, run)


def test_the_best_point_is_told_by_returns_or_else_by_estimates(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 5)
    request = make_request("tiny", "bc", settings=tiny_settings("bc"), steps=10)
    run = Run.create(tmp_path / "run", request, tiny_dataset())
    assert run.best is None
    run.train([lambda run, progress: run.keep_policies(progress) and False])
    assert run.points == [5, 10]
    run.write_point_estimate(PointEstimate(5, {"seed0": 1.0}))
    run.write_point_estimate(PointEstimate(10, {"seed0": 3.0}))
    run.write_point_estimate(PointEstimate(15, {"seed0": 9.0}))  # nothing was kept there
    assert run.best is not None
    assert run.best[:3] == (10, 3.0, "estimate")
    assert run.best.paths == run.policy_paths
    run.write_point_estimate(PointEstimate(10, {"seed0": 0.5}))
    assert (run.best.steps, run.best.paths) == (5, run.point_paths(5))
    episodes = [
        EpisodeRecord("seed0", 0, 1, steps=steps, episode_return=value) for steps, value in ((5, 1.0), (10, 2.0))
    ]
    run.write_episodes(episodes)
    assert run.best[:3] == (10, 2.0, "return")
    assert run.policies_at(5)[0].info["steps"] == 5
