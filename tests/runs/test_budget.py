import dataclasses
import json

import pytest

from small_runs import quick_compilation, tiny_dataset, tiny_settings
from vem.algorithms.base import Algorithm, Stage
from vem.errors import SettingsError
from vem.training import budget, loop
from vem.training.budget import StageCost, fit_steps, measure_costs
from vem.training.request import make_request
from vem.training.run import Run


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


def algorithm_with(*stages):
    """A method that does nothing in stages of so many steps."""
    made = [Stage(name, count, period, 1, tuple, None, None) for name, count, period in stages]  # type: ignore[arg-type]
    return Algorithm("none", None, tuple(made), None, "none")  # type: ignore[arg-type]


def config_of(name, minutes=1.0, **changes):
    return make_request("tiny", name, settings=tiny_settings(name), seeds=2, minutes=minutes, **changes)


@pytest.mark.parametrize(
    ("costs", "seconds", "steps"),
    [
        ({"one": StageCost(0.003), "two": StageCost(0.003)}, 300, 100_000),
        ({"one": StageCost(0.001), "two": StageCost(0.006)}, 300, 86_000),
        ({"one": StageCost(0.003, first_refresh=150.0), "two": StageCost(0.003)}, 300, 50_000),
        ({"one": StageCost(0.003, 0.0, 0.6, 200), "two": StageCost(0.003)}, 300, 67_000),
    ],
)
def test_the_steps_that_fit(costs, seconds, steps):
    found = fit_steps(lambda n: algorithm_with(("one", n // 2, None), ("two", n - n // 2, None)), costs, seconds)
    assert found == steps


def test_a_time_in_which_nothing_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "measure_costs", lambda run: {"policy": StageCost(7.0)})
    with pytest.raises(SettingsError, match=r"--minutes 1 is too short for bc: its first 10 steps take 1\.2 core-min"):
        Run.create(tmp_path / "run", config_of("bc"), tiny_dataset())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("minutes", [0, -1.0, float("inf"), float("nan"), True, "5"])
def test_minutes_that_mean_nothing(minutes):
    with pytest.raises(SettingsError, match="--minutes is"):
        config_of("bc", minutes)


def test_costs_are_measured_by_the_clock(tmp_path, monkeypatch):
    """A clock that a step moves by 1 s, a first refresh by 50 s and a later one by 20 s."""
    now = 0.0
    compile_chunk = budget.compile_chunk

    def timed(stage, mesh):
        program = compile_chunk(stage, mesh)

        def run(state, memory, rows, keys, counts, done, refresh):
            nonlocal now
            now += int(counts.max()) + (0 if refresh < 0 else 20 if refresh else 50)
            return program(state, memory, rows, keys, counts, done, refresh)

        return run

    monkeypatch.setattr(budget, "compile_chunk", timed)
    monkeypatch.setattr(budget, "core_clock", lambda: now)
    run = Run.create(tmp_path / "run", dataclasses.replace(config_of("awr"), minutes=None), tiny_dataset())
    assert measure_costs(run) == {"joint": StageCost(1.0, 50.0, 20.0, 5)}
    run.release()


def test_steps_are_decided_once_and_kept(tmp_path, monkeypatch):
    costs = {"bc": {"policy": StageCost(0.1)}, "awr": {"joint": StageCost(0.1, 10.0, 1.0, 5)}}
    monkeypatch.setattr(budget, "measure_costs", lambda run: costs[run.config.algorithm])
    runs = {name: Run.create(tmp_path / name, config_of(name), tiny_dataset()) for name in costs}
    assert {name: run.config.steps for name, run in runs.items()} == {"bc": 600, "awr": 170}
    assert "bc: 600 steps fit into 1 core-minute (100 ms a step)" in runs["bc"].messages
    stored = json.loads((tmp_path / "bc" / "config.json").read_text())["config"]
    assert (stored["steps"], stored["minutes"]) == (600, 1.0)
    for progress in runs["bc"].progress():
        runs["bc"].checkpoint(progress)
        break
    monkeypatch.setattr(budget, "measure_costs", lambda run: pytest.fail("measured again"))
    again = Run.open(tmp_path / "bc", tiny_dataset()).begin()
    assert (again.config.steps, again.steps_done) == (600, 200)
    runs["awr"].release()
    again.release()


def test_the_time_of_training_is_recorded_over_resumes(tmp_path, monkeypatch):
    """A clock that moves by 1 s at each look: every chunk takes 1 s."""
    looks = iter(range(1000))
    monkeypatch.setattr(loop, "core_clock", lambda: float(next(looks)))
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 5)
    config = make_request("tiny", "bc", settings=tiny_settings("bc"), steps=30)
    run = Run.create(tmp_path / "run", config, tiny_dataset())
    assert run.core_seconds is None
    for progress in run.progress():
        if progress.steps == 10:
            run.checkpoint(progress)
            break
    again = Run.open(tmp_path / "run", tiny_dataset()).train()
    assert again.core_seconds == 6
    assert [line.core_seconds for line in again.metric_lines().records] == [1, 2, 3, 4, 5, 6]


def test_a_pool_is_measured_too(tmp_path):
    config = config_of("awr", 0.001, pool_rows=64)
    run = Run.create(tmp_path / "run", config, tiny_dataset(lengths=(12,) * 40))
    assert run.config.pool_rows == 64
    assert run.config.steps >= 10
    run.train()
    assert run.is_finished
