"""Jobs on a real Ray cluster of a head and two worker nodes, on loopback."""

import _thread
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from comparison_cases import FLAGS, jobs_of, write_data
from ray_cluster import running_cluster
from vem.cli import main
from vem.comparison import cluster as cluster_module
from vem.comparison.cluster import check_node, run_on_node
from vem.comparison.worker import STOPPED, explain_end, start_process
from vem.errors import RunError

STEPS = 20_000
DATASETS = ("pointmaze-umaze", "pointmaze-medium", "pointmaze-large")


def command(data: list[Path], out: object, *arguments: str) -> list[str]:
    given = [*data, "--algorithms", "bc", "--steps", STEPS, "--seeds", 1, "--episodes", 2, "--out", out]
    given += ["--no-report", "--checkpoint-seconds", 0]
    return [sys.executable, "-m", "vem", "compare", *map(str, given), *FLAGS, *arguments]


def results(out: Path) -> dict[str, object]:
    """The bytes of every file but logs, times and locks."""
    found: dict[str, object] = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
        elif path.is_file() and path.suffix != ".log" and not path.name.startswith(".") and "checkpoints" not in name:
            found[name] = path.read_bytes()
    return found


def wait_until(condition, process, seconds=240.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if condition():
            return
        time.sleep(0.1)
    raise TimeoutError


def start(arguments, variables, folder):
    return subprocess.Popen(
        arguments, env=variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def on_this_node(job):
    job = dataclasses.replace(job, episodes=1)
    return run_on_node(job.to_json(), str(job.log_path), {"OMP_NUM_THREADS": "1"}, str(job.directory.parents[1]))


def test_without_ray_one_sentence_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    data = write_data(tmp_path)
    assert main(["compare", str(data), "--engine", "ray", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error == "error: Ray is not installed: pip install 'vem[ray]', or leave out --engine ray\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "slurm"], "--engine is 'slurm'; choose from local, ray"),
        (["--engine", "ray", "--jobs", "2"], "--jobs is for this machine"),
        (["--address", "127.0.0.1:6379"], "add --engine ray"),
        (["--checkpoint-seconds", "-1"], "--checkpoint-seconds is -1.0"),
    ],
)
def test_engines_that_mean_nothing(tmp_path, capsys, arguments, message):
    assert main(["compare", str(write_data(tmp_path)), "--out", str(tmp_path / "out"), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_address_without_a_cluster_is_one_sentence(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray", reason="needs vem[ray]")
    given = [
        "compare",
        str(write_data(tmp_path)),
        "--algorithms",
        "bc",
        "--out",
        str(tmp_path / "out"),
        "--engine",
        "ray",
    ]
    monkeypatch.setattr(cluster_module, "CONNECT_SECONDS", 0.5)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{other.getsockname()[1]}"
        assert main([*given, "--address", closed]) == 1
        assert f"no Ray cluster was found at {closed} (" in capsys.readouterr().err
        other.listen()  # something that is not Ray
        assert main([*given, "--address", closed]) == 1
        assert f"no Ray cluster was found at {closed} (no answer within" in capsys.readouterr().err
    for address, message in (("nonsense", "give HOST:PORT"), ("ray://127.0.0.1:1", "an address of Ray Client")):
        assert main([*given, "--address", address]) == 1
        assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").rglob("*.json"))


def test_a_node_that_cannot_do_jobs_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "LOOK_SECONDS", 0.0)
    check_node("0.1.0", None)
    with pytest.raises(RunError, match=r"has vem 0\.1\.0, not 7; install the same"):
        check_node("7", None)
    with pytest.raises(RunError, match=r"does not see .*out: give an --out that all nodes share, or an address"):
        check_node("0.1.0", str(tmp_path / "out" / ".cluster"))


def test_a_cancelled_job_saves(tmp_path):
    """Ray cancels a task by an interrupt in its process."""
    (job,) = jobs_of(write_data(tmp_path), tmp_path, seeds=1, steps=10**8)

    def interrupt():
        while not job.files.newest_metrics():
            time.sleep(0.05)
        _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # the suite's workers ignore it
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        code, _, last_line = on_this_node(job)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, last_line[:17]) == (STOPPED, "stopped and saved")
    assert list(job.files.checkpoints.glob("*.safetensors"))


@pytest.mark.parametrize("kills", [1, 2])
def test_a_job_whose_process_is_killed_is_started_again_once(tmp_path, monkeypatch, kills):
    (job,) = jobs_of(write_data(tmp_path), tmp_path, seeds=1, steps=200)
    started = []

    def start_and_kill(*arguments, **given):
        process = start_process(*arguments, **given)
        if len(started) < kills:
            process.process.kill()
        started.append(process)
        return process

    monkeypatch.setattr(cluster_module, "start_process", start_and_kill)
    code, _, _ = on_this_node(job)
    assert len(started) == 2
    assert code == (0 if kills == 1 else -signal.SIGKILL)
    assert job.files.is_run == (kills == 1)


def test_a_job_that_was_killed_says_what_to_do():
    assert explain_end(3, "its process") == "its process ended with exit code 3"
    assert "killed by signal 9" in explain_end(-9, "its process")
    assert "the same command goes on" in explain_end(-9, "its process")


@pytest.mark.slow
def test_a_lost_nodes_jobs_go_on_elsewhere_to_the_same_bytes(tmp_path):
    pytest.importorskip("ray", reason="needs vem[ray]")
    data = [write_data(tmp_path, name) for name in DATASETS]
    local, out, address = tmp_path / "local", tmp_path / "out", f"file://{tmp_path}/mirror"
    subprocess.run(command(data, local, "--jobs", "2"), check=True, stdout=subprocess.DEVNULL)
    expected = results(local)
    assert {path for path in expected if "policies" in path} == {
        f"{name}/bc/policies/seed0.safetensors" for name in DATASETS
    }
    with running_cluster(2) as cluster:
        variables = dict(cluster.variables)
        ray = ["--engine", "ray", "--address", cluster.address]

        # One of two nodes is killed in mid-run.
        process = start(command(data, out, *ray), variables, tmp_path)
        wait_until(lambda: list(out.glob("*/*/checkpoints/0*")), process)
        wait_until(lambda: any(map(cluster.has_job, (1, 2))), process)
        cluster.kill(1 if cluster.has_job(1) else 2)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output
        assert results(out) == expected
        logs = "".join(path.read_text() for path in out.glob("*/*.log"))
        assert "resuming" in logs
        assert not list(out.glob(".cluster*"))

        # Ctrl-C saves, and the same command goes on; the runs are at an address.
        process = start(command(data, address, *ray), variables, tmp_path)
        place = tmp_path / "mirror"
        wait_until(lambda: list(place.glob("*/*/checkpoints/0*.safetensors")), process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
        assert process.returncode == STOPPED, output
        assert "Traceback" not in output
        assert results(place) != expected
        process = start(command(data, address, *ray), variables, tmp_path)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output
        assert results(place) == expected
