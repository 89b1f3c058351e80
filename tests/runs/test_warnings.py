"""Warnings: what each is found by, and where it is kept."""

import json

import numpy as np
import pytest

from small_runs import make_run
from vem.data.arrays import from_arrays
from vem.training.diagnostics import few_rows, measure_luck, small_effective_sample, unsettled_values
from vem.training.records import MetricLine, RunWarning
from vem.training.run import RunDirectory


def lines(values, name="value_mean"):
    """A metric line for each value of one trial."""
    return [MetricLine(i, "value", 0.0, {"seed-0": {name: float(value)}}) for i, value in enumerate(values)]


def test_values_that_still_rise_have_not_settled():
    time = np.linspace(0, 1, 100)
    noise = 0.01 * np.random.default_rng(0).standard_normal(100)
    found = unsettled_values(lines(time + noise))
    assert found is not None
    assert "up" in found.text
    assert "--steps" in found.advice
    assert unsettled_values(lines(1 - np.exp(-20 * time) + noise)) is None
    assert unsettled_values(lines(noise)) is None  # nothing but noise
    assert unsettled_values(lines(np.arange(7.0))) is not None
    assert unsettled_values(lines(time[:3])) is None  # too few to tell
    assert unsettled_values(lines(time, "policy_loss")) is None
    assert unsettled_values([]) is None


def test_small_effective_sample():
    assert small_effective_sample(lines([0.5], "effective_share"), 1000) is None
    few = small_effective_sample(lines([0.9, 0.05], "effective_share"), 1000)
    assert few is not None
    assert "about 50 of 1,000" in few.text
    assert small_effective_sample(lines([0.005], "effective_share"), 1_000_000) is not None
    assert small_effective_sample(lines([1.0]), 10) is None  # a method without weights


def walk(noise, num_episodes=30, length=20):
    """A walk toward or away from 0 by one's skill; its twin is pushed about by noise."""
    random, rows = np.random.default_rng(0), []
    for _ in range(num_episodes):
        state, skill = random.standard_normal(), random.uniform(-1, 1)
        for step in range(length):
            action = np.clip(-skill * state + 0.5 * random.standard_normal(), -1, 1)
            following = state + 0.3 * action + noise * random.standard_normal()
            rows.append((state, action, -(following**2), step == length - 1))
            state = following
    states, actions, rewards, timeouts = map(np.array, zip(*rows, strict=True))
    return from_arrays(
        states[:, None], actions[:, None], rewards, np.zeros(len(rows), bool), timeouts, teleports="keep"
    )


def test_luck_of_a_walk_and_of_its_deterministic_twin():
    assert measure_luck(walk(0.0), 0.99) < 0.03
    assert measure_luck(walk(0.5), 0.99) > 0.15


def test_few_rows_cannot_calibrate():
    found = few_rows(None)
    assert found is not None
    assert "0 held-out steps" in found.text


def test_warnings_are_kept_and_printed(tmp_path, capsys):
    run = make_run("vem", tmp_path / "run")
    assert run.files.warnings() is None
    assert run.warnings == []
    run.train(progress=True)
    kinds = [warning.kind for warning in run.warnings]
    assert "few-rows" in kinds
    assert "effective-sample" in kinds
    printed = capsys.readouterr().out
    assert all(f"warning: {warning}" in printed for warning in run.warnings)
    assert json.loads((tmp_path / "run" / "warnings.json").read_text())[0]["advice"]


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"kind": "luck"}]', "[3]", "null"])
def test_damaged_warnings_are_none(tmp_path, text):
    (tmp_path / "warnings.json").write_text(text)
    assert RunDirectory(tmp_path).warnings() is None


def test_warnings_read_as_written(tmp_path):
    files, found = RunDirectory(tmp_path), [RunWarning("luck", "So it is.", "Do that.")]
    files.write_warnings(found)
    assert files.warnings() == found
    assert str(found[0]) == "So it is. Do that."
