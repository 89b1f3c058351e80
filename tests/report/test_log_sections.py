"""The report of data without a simulator: warnings, data, differences and support."""

import numpy as np
import pyarrow.parquet
import pytest

import heating_log
import vem
from small_runs import make_run, quick_compilation, tiny_dataset, tiny_settings
from vem.reports.log import estimate_section, followed_returns, warning_section
from vem.reports.records import read_run
from vem.training.records import RunWarning


@pytest.fixture(scope="module")
def heating(tmp_path_factory):
    """A run on a table, its page and the names of its figures."""
    place = tmp_path_factory.mktemp("heating")
    table = heating_log.pa.table(heating_log.columns(num_days=10, num_steps=12))
    pyarrow.parquet.write_table(table, place / "log.parquet")
    dataset = vem.load(place / "log.parquet", mapping=heating_log.MAPPING)
    with quick_compilation(place / "programs"):
        run = vem.train(dataset, "vem", steps=10, out=place / "run", progress=False, **tiny_settings("vem"))
        report = vem.report(place / "run")
    return run, report.page.read_text(encoding="utf-8"), {path.stem for path in report.figures}


def test_a_log_gets_its_own_sections(heating):
    _, page, figures = heating
    for title in ("Warnings", "Data", "Values against the log", "What the policy does differently", "Support"):
        assert f"<h2>{title}</h2>" in page
    assert "<h2>Where it differs most</h2>" in page
    assert "<h2>Estimate" not in page
    assert "<h2>Value landscape" not in page
    assert {"calibration", "differences-numbers", "actions-valve", "support", "support-states"} <= figures
    assert "temp_in" in page
    assert "valve: log → policy" in page


def test_warnings_come_with_what_to_do(heating):
    run, page, _ = heating
    assert run.warnings
    for warning in run.warnings:
        assert warning.advice.replace("&", "&amp;") in page


def test_arrays_that_a_run_holds_are_used(tmp_path):
    run = make_run("bc", tmp_path / "run", tiny_dataset(kind="mixed")).train()
    figures = {path.stem for path in vem.report(run).figures}
    assert {"differences-numbers", "differences-choices", "support"} <= figures


def test_what_the_warnings_say(tmp_path):
    make_run("bc", tmp_path / "run").train()
    record = read_run(tmp_path / "run")
    record.files.write_checks([])
    assert warning_section([record]).lead.startswith("None")
    record.files.write_checks([RunWarning("luck", "So it is.", "Do that.")])
    assert warning_section([record]).tables[0].rows == [["So it is.", "Do that."]]
    (tmp_path / "run" / "warnings.json").unlink()
    assert "earlier version" in warning_section([record]).lead
    assert not estimate_section([record]).has_content


def test_returns_that_followed_by_hand(tmp_path):
    run = make_run("vem", tmp_path / "run", tiny_dataset(lengths=(2, 1))).train()
    dataset, values = run.dataset, np.array([0.0, 0.0, 7.0, 0.0, 5.0])
    returns = followed_returns(run.policy, dataset, values)
    discount, rewards = run.policy.info["settings"]["discount"], dataset.rewards
    expected = [rewards[0] + discount * rewards[1], rewards[1], 7, rewards[3] + discount * 5, 5]
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-6)
