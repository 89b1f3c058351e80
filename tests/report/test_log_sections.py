"""The report of data without a simulator: warnings, data, differences and support."""

import re

import numpy as np
import pyarrow.parquet
import pytest

import heating_log
import vem
from small_runs import make_run, quick_compilation, tiny_dataset, tiny_settings
from vem.reports.log import followed_returns
from vem.reports.page import checks_section
from vem.reports.records import list_series, read_run
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
    titles = re.findall("<h2>(.*?)</h2>", page)
    assert titles == [
        "What the policy does differently",
        "Returns and values",
        "Checks",
        "Data",
        "Weights of rows",
        "Training curves",
        "Column by column",
        "Support",
        "Settings",
    ]
    assert "where it differs most" in page
    assert "the data names no simulator. What it does otherwise is below." in page
    assert {"calibration", "differences-numbers", "actions-valve", "support", "support-states"} <= figures
    assert "temp_in" in page
    assert "valve: log → policy" in page
    assert "training was too short to tell" in page
    assert "Values had settled" not in page


def test_warnings_come_with_what_to_do(heating):
    run, page, _ = heating
    assert run.warnings
    for warning in run.warnings:
        assert warning.advice.replace("&", "&amp;") in page


def test_arrays_that_a_run_holds_are_used(tmp_path):
    run = make_run("bc", tmp_path / "run", tiny_dataset(kind="mixed")).train()
    figures = {path.stem for path in vem.report(run).figures}
    assert {"differences-numbers", "differences-choices", "support"} <= figures


def test_what_the_checks_say(tmp_path):
    make_run("bc", tmp_path / "run").train()
    record = read_run(tmp_path / "run")
    checks = [
        RunWarning("luck", "So it is.", "Do that."),
        RunWarning("outside", "It is near.", verdict="passed"),
        RunWarning("unsettled", "Too short to tell.", verdict="untold"),
    ]
    record.run.write_checks(checks)
    assert record.run.warnings == checks[:1]
    section = checks_section(list_series([record]))
    assert section.tables[0].rows == [
        ["So it is.", "warning"],
        ["It is near.", "passed"],
        ["Too short to tell.", "could not be told"],
    ]
    assert section.summary == "1 warning, 1 passed, 1 could not be told"
    (tmp_path / "run" / "warnings.json").unlink()
    section = checks_section(list_series([read_run(tmp_path / "run")]))
    assert section.lead == "Nothing was checked when bc ended."
    assert section.tables == []


def test_an_estimate_stands_where_scores_would(tmp_path):
    run = make_run("bc", tmp_path / "run", tiny_dataset(lengths=(6,) * 12)).train()
    vem.estimate(run, progress=False)
    report = vem.report(run)
    keys = [section.key for section in report.groups[0].sections]
    assert keys[0] == "estimate"
    assert "scores" not in keys
    (table,) = report.groups[0].sections[0].tables
    assert {"in support", "importance sampling", "doubly robust", "verdict"} <= set(table.header)
    assert report.groups[0].result[0].startswith("Estimated return ")


def test_returns_that_followed_by_hand(tmp_path):
    run = make_run("vem", tmp_path / "run", tiny_dataset(lengths=(2, 1))).train()
    dataset, values = run.dataset, np.array([0.0, 0.0, 7.0, 0.0, 5.0])
    returns = followed_returns(run.policy, dataset, values)
    discount, rewards = run.policy.info["settings"]["discount"], dataset.rewards
    expected = [rewards[0] + discount * rewards[1], rewards[1], 7, rewards[3] + discount * 5, 5]
    np.testing.assert_allclose(returns, expected, rtol=1e-5, atol=1e-6)
