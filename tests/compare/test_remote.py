import dataclasses
import io
import json
import shutil

import pytest

import vem
from comparison_cases import SETTINGS, jobs_of, write_data
from small_runs import quick_compilation
from vem.comparison import remote as module
from vem.comparison.launch import run_here
from vem.comparison.remote import Remote, working_copy
from vem.errors import RunError
from vem.policy import load_policy

fsspec = pytest.importorskip("fsspec", reason="needs vem[ray]")
GIVEN = {"seeds": 1, "steps": 500, "episodes": 1, "settings": {"bc": SETTINGS["bc"]}}


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return str(write_data(tmp_path))


def test_runs_at_an_address_are_those_in_a_folder(data, tmp_path):
    address, shown = f"file://{tmp_path}/there", io.StringIO()
    found = vem.compare(data, "bc", out=address, progress=shown, **GIVEN)
    local = vem.compare(data, "bc", out=tmp_path / "here", progress=False, **GIVEN)
    assert found.failures == {}
    (result,) = found.results
    assert result.spread == local.results[0].spread
    for name in ("policies/seed0.safetensors", "evaluation.json", "evaluations.jsonl", "config.json"):
        there = (tmp_path / "there/pointmaze-umaze/bc" / name).read_bytes()
        assert there == (tmp_path / "here/pointmaze-umaze/bc" / name).read_bytes()
        assert there == (result.directory / name).read_bytes()
    assert not (result.directory / "checkpoints").exists()
    assert list((tmp_path / "there/pointmaze-umaze/bc/checkpoints").iterdir())
    shutil.rmtree(tmp_path / "runs")  # another machine
    again = io.StringIO()
    assert vem.compare(data, "bc", out=address, progress=again, **GIVEN) == found
    assert again.getvalue().startswith("0 of 1 runs")


def test_another_machine_goes_on_from_the_last_checkpoint(data, tmp_path):
    address = f"file://{tmp_path}/there"
    (job,) = jobs_of(data, tmp_path / "copy", seeds=1)
    job = dataclasses.replace(job, remote=address, episodes=1)

    class PowerCut(BaseException):
        pass

    from vem.training.run import Run

    lost = tmp_path / "lost"
    try:
        with working_copy(job, print) as (copy, push):
            run = Run.create(copy.directory, copy.request)
            for progress in run.progress():
                run.checkpoint(progress)
                push(run, progress)
                shutil.copytree(tmp_path / "there", lost)  # what is there when the machine is lost
                raise PowerCut
    except PowerCut:
        pass
    checkpoints = lost / "pointmaze-umaze/bc/checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["0000000200.safetensors"]
    log = io.StringIO()
    assert run_here(dataclasses.replace(job, remote=f"file://{lost}"), log, 1)
    assert "at step 200 of 500" in log.getvalue()
    vem.compare(data, "bc", out=tmp_path / "here", progress=False, **GIVEN)
    policy = "pointmaze-umaze/bc/policies/seed0.safetensors"
    assert (lost / policy).read_bytes() == (tmp_path / "here" / policy).read_bytes()
    assert load_policy(lost / policy)


def test_failures_reach_the_address_and_go_with_success(data, tmp_path):
    own = str(write_data(tmp_path, "own-logs"))
    address = f"file://{tmp_path}/there"
    failed = vem.compare(own, "bc", out=address, progress=False, hold_out=0.0, **GIVEN)
    assert "names no environment, and nothing is held out" in failed.failures["own-logs bc"]
    record = tmp_path / "there/own-logs/bc.failed.json"
    assert json.loads(record.read_text())["algorithm"] == "bc"
    assert not vem.compare(own, "bc", out=address, task="pointmaze-umaze", progress=False, **GIVEN).failures
    assert not record.exists()


def test_a_push_that_fails_on_the_way_is_said_and_made_up_for(data, tmp_path, monkeypatch):
    address = f"file://{tmp_path}/there"
    (job,) = jobs_of(data, tmp_path / "copy")
    said = []
    with working_copy(dataclasses.replace(job, remote=address), said.append) as (copy, push):
        copy.files.checkpoints.mkdir(parents=True)
        (copy.directory / "config.json").write_text("{}")
        (copy.files.checkpoints / "0000000001.safetensors").write_text("state")
        with monkeypatch.context() as broken:
            broken.setattr(Remote, "put", lambda *_: (_ for _ in ()).throw(RunError("no network")))
            push(None, None)
        assert said == ["no network"]
    assert (tmp_path / "there/pointmaze-umaze/bc/checkpoints/0000000001.safetensors").read_text() == "state"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("memory://study", "memory://study is the memory of one process"),
        ("nothing-like-it://study", "cannot open nothing-like-it://study: Protocol not known"),
        ("file:///proc/study", "cannot write to file:///proc/study: "),
    ],
)
def test_addresses_that_cannot_be_used(data, tmp_path, address, message):
    with pytest.raises(RunError, match=message):
        vem.compare(data, "bc", out=address, progress=False, **GIVEN)


def test_without_fsspec(data, monkeypatch):
    monkeypatch.setattr(module.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(RunError, match=r"needs fsspec: pip install 'vem\[ray\]'"):
        Remote("s3://bucket/study")
