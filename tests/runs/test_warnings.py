"""Warnings: what each is found by, and where it is kept."""

import json

import numpy as np
import pytest

from small_runs import make_run
from vem.training.diagnostics import few_rows, small_effective_sample, summarize_weights, unsettled_values
from vem.training.records import MetricLine, RunWarning
from vem.training.run import Run


def lines(values, name="value_mean"):
    """A metric line for each value of one trial."""
    return [MetricLine(i, "value", 0.0, {"seed-0": {name: float(value)}}) for i, value in enumerate(values)]


def verdict(check):
    """What a check said, or None if it does not concern the method."""
    return None if check is None else check.verdict


def test_values_that_still_rise_have_not_settled():
    time = np.linspace(0, 1, 100)
    noise = 0.01 * np.random.default_rng(0).standard_normal(100)
    found = unsettled_values(lines(time + noise))
    assert found is not None
    assert found.verdict == "found"
    assert "up" in found.text
    assert "--steps" in found.advice
    assert verdict(unsettled_values(lines(1 - np.exp(-20 * time) + noise))) == "passed"
    assert verdict(unsettled_values(lines(noise))) == "passed"  # nothing but noise
    assert verdict(unsettled_values(lines(np.arange(7.0)))) == "found"
    short = unsettled_values(lines(time[:3]))
    assert verdict(short) == "untold"
    assert "too short to tell (3 readings" in str(short)
    assert unsettled_values(lines(time, "policy_loss")) is None  # a method without values
    assert unsettled_values([]) is None


def test_small_effective_sample():
    assert verdict(small_effective_sample(lines([0.5], "effective_share"), 1000)) == "passed"
    few = small_effective_sample(lines([0.9, 0.05], "effective_share"), 1000)
    assert verdict(few) == "found"
    assert "about 50 of 1,000" in str(few)
    assert verdict(small_effective_sample(lines([0.005], "effective_share"), 1_000_000)) == "found"
    assert small_effective_sample(lines([1.0]), 10) is None  # a method without weights


def test_few_rows_cannot_calibrate():
    found = few_rows(None)
    assert found is not None
    assert "0 held-out steps" in found.text


def test_warnings_are_kept_and_printed(tmp_path, capsys):
    run = make_run("vem", tmp_path / "run")
    assert run.checks() is None
    assert run.warnings == []
    run.train(progress=True)
    checks = {check.kind: check.verdict for check in run.checks() or ()}
    assert checks["unsettled"] == "untold"  # after so few steps nobody knows
    assert checks["few-rows"] == checks["effective-sample"] == "found"
    assert {warning.kind for warning in run.warnings} == {
        kind for kind, verdict in checks.items() if verdict == "found"
    }
    printed = capsys.readouterr().out
    assert all(f"warning: {warning}" in printed for warning in run.warnings)
    assert json.loads((tmp_path / "run" / "warnings.json").read_text())[0]["advice"]


def test_weights_are_summarized():
    equal = summarize_weights(np.ones(50))
    assert (equal["num_rows"], equal["effective_share"], equal["zero_share"]) == (50, pytest.approx(1.0), 0.0)
    assert equal["concentration"][50] == pytest.approx(0.5)
    single = summarize_weights(np.eye(1, 50)[0])
    assert (single["effective_share"], single["zero_share"]) == (pytest.approx(0.02), 0.98)
    assert sum(single["shares"]) == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"kind": "outside"}]', "[3]", "null"])
def test_damaged_warnings_are_none(tmp_path, text):
    (tmp_path / "warnings.json").write_text(text)
    assert Run(tmp_path).checks() is None


def test_warnings_read_as_written(tmp_path):
    files, found = Run(tmp_path), [RunWarning("outside", "So it is.", "Do that.")]
    files.write_checks(found)
    assert files.checks() == files.warnings == found
    assert str(found[0]) == "So it is. Do that."
