"""``vem export`` on runs: which policy, checked on which rows, and runs that cannot be exported."""

import json

import numpy as np
import pytest

import vem
from small_runs import make_run, quick_compilation, tiny_dataset
from vem.cli import main
from vem.errors import RunError
from vem.training.records import EstimateSummary

onnx = pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of two seeds, made from arrays."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        return make_run("bc", tmp_path_factory.mktemp("runs") / "run").train()


def held(path):
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def test_one_of_several_policies_is_chosen(run, tmp_path, capsys):
    assert main(["export", str(run.directory)]) == 1
    assert "2 policies: seed0, seed1; choose one with --seed or --trial" in capsys.readouterr().err
    assert main(["export", str(run.directory), "--seed", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["file"] == str(run.directory / "policies" / "seed1.onnx")
    assert (printed["rows"], printed["data_rows"]) == (4096, 0)  # the arrays are not on disk
    assert held(printed["file"])["data_sha256"] == run.dataset.fingerprint() == run.policy.info["data_sha256"]
    assert main(["export", str(run.directory), "--trial", "seed0", "--out", str(tmp_path / "sub" / "p.onnx")]) == 0
    assert held(tmp_path / "sub" / "p.onnx")["seed"] == "0"
    assert main(["export", str(run.directory), "--seed", "7"]) == 1
    assert "no such policy; it has seed0, seed1" in capsys.readouterr().err
    assert main(["export", str(run.directory), "--seed", "1", "--format", "torch"]) == 1
    assert "no format 'torch'" in capsys.readouterr().err


def test_rows_of_the_data_are_used_where_they_are_there(run, tmp_path):
    made = vem.export(run, tmp_path / "p.onnx", seed=0)
    assert made.check.data_rows == run.dataset.num_rows
    assert f"{run.dataset.num_rows} rows of the data and" in str(made.check)


def test_an_estimate_goes_into_the_file(run, tmp_path):
    stored = dict.fromkeys(EstimateSummary.__required_keys__, 0) | {"policies": {"seed0": {"value": 1.5}}, "groups": []}
    assert "estimate" not in held(vem.export(run, tmp_path / "without.onnx", seed=0).path)
    run.write_estimate(stored)
    made = vem.export(run, tmp_path / "p.onnx", seed=0)
    assert json.loads(held(made.path)["estimate"])["policies"] == {"seed0": {"value": 1.5}}
    run.estimate_path().unlink()


def test_runs_that_cannot_be_exported(tmp_path, capsys):
    unfinished = make_run("bc", tmp_path / "unfinished", tiny_dataset())
    with pytest.raises(RunError, match=r"no policy of seed0 yet; finish it with vem train --resume"):
        vem.export(unfinished, seed=0)
    unfinished.release()
    assert main(["export", str(tmp_path / "absent")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1


def test_a_missing_package_is_one_sentence(run, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    assert main(["export", str(run.directory), "--seed", "0"]) == 1
    assert "pip install 'vem[onnx]'" in capsys.readouterr().err
    assert np.isfinite(run.policy.act(np.zeros(3))).all()
