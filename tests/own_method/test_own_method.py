"""The whole round with a method that a package of its own registers: every verb and every process knows it by name."""

import json
import sys
from pathlib import Path

import pytest

from comparison_cases import write_data
from small_runs import quick_compilation
from vem.algorithms.base import METHODS
from vem.cli import main
from vem.training.run import Run

PACKAGE = "filtered_bc"
SMALL = ["--steps", "20", "--batch-size", "8", "--policy-hidden", "8"]


def vem(*arguments):
    """The exit code of a command in a process that does not know the method yet."""
    METHODS.pop("filtered-bc", None)
    sys.modules.pop(PACKAGE, None)
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield
    METHODS.pop("filtered-bc", None)


@pytest.fixture
def own(monkeypatch):
    """The flag that names the package, which other processes find, too."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{':'.join(sys.path)}")
    return ["--import", PACKAGE]


def test_every_verb_knows_the_method(own, tmp_path, capsys):
    data, run = write_data(tmp_path), tmp_path / "run"
    given = ["--algorithm", "filtered-bc", "--kept", "0.25", "--out", run]
    assert vem("train", data, *given, *SMALL, *own) == 0
    assert Run.open(run).config.settings["kept"] == 0.25
    assert vem("train", "--resume", run, "--steps", "40", *own) == 0
    assert vem("train", "--resume", run, "--steps", "60") == 1
    assert "'filtered-bc', a method that is not known here" in capsys.readouterr().err
    assert vem("evaluate", run, "--episodes", "1", "--workers", "1", *own) == 0
    assert vem("report", run, *own) == 0
    assert (run / "report" / "report.html").is_file()
    assert vem("train", data, "--config", run, "--out", tmp_path / "again", *own) == 0
    assert Run.open(tmp_path / "again").config.settings["kept"] == 0.25


def test_jobs_and_sweeps_know_the_method(own, tmp_path, capsys):
    data = write_data(tmp_path)
    small = ["--steps", "20", "--seeds", "1", "--episodes", "1", "--no-report", "--json"]
    sets = ["--set", "policy_hidden=8", "--set", "batch_size=8", "--set", "filtered-bc:kept=0.25"]
    given = ["compare", data, "--algorithms", "filtered-bc,bc", *sets, *small, *own]
    assert vem(*given, "--jobs", "2", "--out", tmp_path / "compared") == 0, capsys.readouterr().err
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["algorithm"], run["mean"]) for run in runs] == [("filtered-bc", 0.0), ("bc", 0.0)]
    given = ["sweep", data, "--algorithm", "filtered-bc", "--kept", "0.25,0.5", *small, *own]
    assert vem(*given, "--batch-size", "8", "--policy-hidden", "8", "--out", tmp_path / "swept") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["swept"] for run in runs] == [{"kept": 0.25}, {"kept": 0.5}]
