"""Warnings: what each is found by, and where it is kept."""

import json

import numpy as np
import pytest

from small_runs import make_run, tiny_dataset, tiny_settings
from vem.data.arrays import from_arrays
from vem.training.diagnostics import few_rows, measure_luck, small_effective_sample, summarize_weights, unsettled_values
from vem.training.records import MetricLine, RunWarning
from vem.training.request import make_config
from vem.training.run import RunDirectory, create_run


def lines(values, name="value_mean"):
    """A metric line for each value of one trial."""
    return [MetricLine(i, "value", 0.0, {"seed-0": {name: float(value)}}) for i, value in enumerate(values)]


def verdict(check):
    assert check is not None
    return check.verdict


def test_values_that_still_rise_have_not_settled():
    time = np.linspace(0, 1, 100)
    noise = 0.01 * np.random.default_rng(0).standard_normal(100)
    found = unsettled_values(lines(time + noise))
    assert found is not None
    assert "up" in found.text
    assert "--steps" in found.advice
    assert verdict(unsettled_values(lines(1 - np.exp(-20 * time) + noise))) == "passed"
    assert verdict(unsettled_values(lines(noise))) == "passed"  # nothing but noise
    assert verdict(unsettled_values(lines(np.arange(7.0)))) == "found"
    assert verdict(unsettled_values(lines(time[:3]))) == "untold"
    assert unsettled_values(lines(time, "policy_loss")) is None
    assert unsettled_values([]) is None


def test_small_effective_sample():
    assert verdict(small_effective_sample(lines([0.5], "effective_share"), 1000)) == "passed"
    few = small_effective_sample(lines([0.9, 0.05], "effective_share"), 1000)
    assert few is not None
    assert "about 50 of 1,000" in few.text
    assert verdict(small_effective_sample(lines([0.005], "effective_share"), 1_000_000)) == "found"
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
    assert {"found", "untold"} <= {check.verdict for check in run.files.checks() or []}
    assert not any("could not tell" in str(warning) or "to tell" in str(warning) for warning in run.warnings)
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


def test_weights_by_hand():
    even, one = summarize_weights(np.full(200, 3.0)), summarize_weights(np.eye(4)[0])
    assert even["effective_share"] == pytest.approx(1)
    assert one["effective_share"] == pytest.approx(0.25)
    assert one["zero_share"] == 0.75
    assert even["concentration"] == pytest.approx(np.linspace(0, 1, 101))
    assert one["concentration"][25:] == pytest.approx(np.ones(76))
    assert sum(even["shares"]) == pytest.approx(1)
    assert even["shares"][np.searchsorted(even["edges"], 1.0) - 1] + max(even["shares"]) >= 1
    assert summarize_weights(np.array([1.0, -1.0]))["effective_share"] == pytest.approx(1)


@pytest.mark.parametrize(
    "settings", [{"policy": "regression"}, {"policy": "guided"}, {"preset": "paper", "effective_sample": None}]
)
def test_training_writes_what_the_rows_weighed(tmp_path, settings):
    preset = settings.pop("preset", "default")
    config = make_config("tiny", "vem", preset, settings=tiny_settings("vem", **settings), seeds=2, steps=20)
    run = create_run(tmp_path / "run", config, tiny_dataset()).train()
    weights = run.files.weights()
    assert list(weights) == ["seed0", "seed1"]
    for found in weights.values():
        assert found["num_rows"] == run.dataset.num_transitions
        assert 0 < found["effective_share"] <= 1
    shares = [line.trials["seed1"]["effective_share"] for line in run.files.metrics().records if line.stage == "guide"]
    if shares:
        assert weights["seed1"]["effective_share"] == pytest.approx(shares[-1], rel=1e-3)
    (tmp_path / "run" / "weights.json").write_text("[3")
    assert run.files.weights() == {}


def test_a_method_without_weights_writes_none(tmp_path):
    run = make_run("bc", tmp_path / "run").train()
    assert not (run.directory / "weights.json").exists()
