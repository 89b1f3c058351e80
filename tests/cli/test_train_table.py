"""A table from the command line to a policy: the mapping is kept in the run, so that it can go on without its file."""

import json

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet

import vem
from heating_log import MAPPING, table
from small_runs import quick_compilation
from vem.cli import main
from vem.data.mapping import to_toml
from vem.reports.page import config_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run on the heating log, started from a mapping file that is gone."""
    directory = tmp_path_factory.mktemp("tables")
    pyarrow.parquet.write_table(table(), directory / "log.parquet")
    (directory / "map.toml").write_text(to_toml({**MAPPING, "terminal": "done"}), encoding="utf-8")
    flags = ["--map", str(directory / "map.toml"), "--action-low", "0", "--action-high", "1"]
    small = ["--algorithm", "bc", "--steps", "3", "--batch-size", "4", "--policy-hidden", "8", "--json"]
    with quick_compilation(directory / "programs"):
        out = str(directory / "run")
        assert main(["train", str(directory / "log.parquet"), *flags, *small, "--out", out]) == 0
    (directory / "map.toml").unlink()
    return directory / "run"


def test_the_mapping_is_in_the_run(run):
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
    assert config["rules"]["mapping"] == {**MAPPING, "terminal": "done"}
    assert config["rules"]["action_bounds"] == [0.0, 1.0]
    opened = vem.open_run(run)
    assert opened.dataset.info.action_high == (1.0,)
    assert opened.facts.info == opened.dataset.info
    assert config_rows(opened.config)["mapping.reward"] == "reward"


def test_the_policy_takes_the_logs_columns(run):
    policy = vem.load_policy(run)
    action = policy.act({"temp_in": 20.0, "mode": "eco", "window": False})
    assert list(action) == ["valve"]
    assert 0 <= action["valve"] <= 1


def test_a_run_keeps_the_bounds_it_was_started_with(run):
    dataset = vem.load(run.parent / "log.parquet", mapping={**MAPPING, "terminal": "done"})
    assert dataset.info.action_high[0] < 1
    assert vem.open_run(run, dataset).dataset.info.action_high == (1.0,)


def test_wrong_tables_end_in_one_sentence(run, capsys, tmp_path):
    log = str(run.parent / "log.parquet")
    assert main(["train", log, "--reward", "gain", "--out", str(tmp_path / "other")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert "column 'gain', mapped as reward, is not in the table" in error
    assert not (tmp_path / "other").exists()
    assert main(["train", "--resume", str(run), "--reward", "gain"]) == 1
    assert "leave out --reward" in capsys.readouterr().err
