"""Logs without an environment: compared, swept and chosen among by estimates on trajectories that were held out."""

import json

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet

import vem
from heating_log import MAPPING, table
from small_runs import quick_compilation
from vem.cli import main
from vem.data.mapping import to_toml
from vem.training.run import Run

SMALL = {"steps": 20, "seeds": 2, "batch_size": 8, "policy_hidden": "8", "progress": False}


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture(autouse=True)
def short_estimates(monkeypatch):
    monkeypatch.setattr("vem.estimation.fitted_q.choose_steps", lambda log: 5)
    monkeypatch.setattr("vem.estimation.fitted_q.RETURNS_STEPS", 5)


@pytest.fixture
def log(tmp_path):
    pyarrow.parquet.write_table(table(), tmp_path / "log.parquet")
    (tmp_path / "map.toml").write_text(to_toml(MAPPING), encoding="utf-8")
    return [str(tmp_path / "log.parquet"), "--map", str(tmp_path / "map.toml"), "--no-report", "--seeds", "1"]


def test_a_table_is_compared_and_what_was_compared_is_chosen_among(log, tmp_path, capsys):
    given = ["--algorithms", "bc,awr", "--set", "batch_size=4", "--set", "policy_hidden=8", "--steps", "5"]
    command = ["compare", *log, *given, "--out", str(tmp_path / "out")]
    assert main(command) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if line.startswith("estimated discounted return (γ = 0.99), no score")]
    assert len(titles) == 1
    assert lines[lines.index(titles[0]) + 1].split() == ["dataset", "bc", "awr"]
    assert lines[lines.index(titles[0]) + 2].startswith("log  ")
    assert "estimates on the 20 % of trajectories that were held out" in lines[-1]
    assert Run.open(tmp_path / "out/log/bc").config.hold_out == 0.2
    assert main(["select", str(tmp_path / "out" / "log")]) == 0
    assert "choice: " in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("0 of 2 runs")
    runs = json.loads(printed.out)["runs"]
    assert [run["quantity"] for run in runs] == ["estimate", "estimate"]
    assert np.isfinite([runs[0]["mean"], runs[0]["log"]["value"]]).all()


def test_a_table_is_swept(log, tmp_path, capsys):
    given = ["--algorithm", "bc", "--policy-lr", "0.001,0.01", "--batch-size", "4", "--policy-hidden", "8"]
    assert main(["sweep", *log, *given, "--steps", "5", "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("policy-lr")] == ["policy-lr=0.001", "policy-lr=0.01"]


def test_a_frame_is_compared_by_the_same_words(tmp_path):
    frame = table().to_pandas() if hasattr(table(), "to_pandas") else table()
    found = vem.compare(frame, "bc", mapping=MAPPING, out=tmp_path, **SMALL)
    (result,) = found.results
    assert found.failures == {}
    assert result.quantity == "estimate"
    assert result.estimate is not None
    assert result.estimate.trajectories == "held out"
    assert "no score" in found.table.title
    assert found.over_datasets is None
    again = vem.compare(frame, "bc", mapping=MAPPING, out=tmp_path, **SMALL)
    assert again == found


def test_nothing_held_out_is_refused(log, tmp_path, capsys):
    given = ["--algorithms", "bc", "--hold-out", "0", "--steps", "5", "--out", str(tmp_path / "out")]
    assert main(["compare", *log, *given]) == 1
    assert "nothing is held out to estimate policies on; leave out --hold-out 0" in capsys.readouterr().err
