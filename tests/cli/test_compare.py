import json
import os
import signal
import subprocess
import sys
import time

import pytest

from comparison_cases import FLAGS, write_data
from vem.cli import main
from vem.cli.compare import parse_settings, parse_steps
from vem.comparison.launch import share_cores
from vem.training.run import Run


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    return write_data(directory), write_data(directory, "own-logs")


def compare(*arguments):
    return main(["compare", *map(str, arguments), *FLAGS])


def test_jobs_fail_alone_and_finished_ones_stay(data, tmp_path, capsys):
    known, own = data
    given = [known, own, "--algorithms", "bc", "--steps", 20, "--seeds", 2, "--episodes", 2, "--out", tmp_path]
    given += ["--hold-out", 0]
    assert compare(*given, "--jobs", 2) == 1
    printed = capsys.readouterr()
    assert "pointmaze-umaze bc: done" in printed.out
    assert "own-logs bc failed: the data own-logs names no environment, and nothing is held out" in printed.err
    assert "1 of 2 runs failed" in printed.err
    assert json.loads((tmp_path / "own-logs" / "bc.failed.json").read_text())["algorithm"] == "bc"
    assert "20 / 20" in (tmp_path / "pointmaze-umaze" / "bc.log").read_text()
    assert len(list((tmp_path / "pointmaze-umaze" / "bc" / "policies").iterdir())) == 2
    page = (tmp_path / "report" / "report.html").read_text()
    assert "pointmaze-umaze" in page
    table = [line.split() for line in printed.out.splitlines() if line.startswith(("pointmaze-umaze  ", "own-logs  "))]
    assert table == [["pointmaze-umaze", "0.0", "±", "0.0", "[0.0,", "0.0]"], ["own-logs", "failed"]]

    policy = tmp_path / "pointmaze-umaze" / "bc" / "policies" / "seed0.safetensors"
    before = policy.stat().st_mtime_ns
    given[1:2] = []
    assert compare(*given, "--json", "--no-report") == 0
    printed = capsys.readouterr()
    assert printed.err == f"0 of 1 runs in {tmp_path} are left to do\n"
    (run,) = json.loads(printed.out)["runs"]
    assert (run["dataset"], run["algorithm"], run["mean"], run["error"]) == ("pointmaze-umaze", "bc", 0.0, None)
    assert policy.stat().st_mtime_ns == before


def test_results_are_printed_where_the_page_cannot_be_written(data, tmp_path, capsys):
    (tmp_path / "report").write_text("in the way")
    given = [data[0], "--algorithms", "bc", "--seeds", 1, "--steps", 20, "--episodes", 1, "--out", tmp_path]
    assert compare(*given) == 1
    printed = capsys.readouterr()
    assert [line.split()[:2] for line in printed.out.splitlines() if line.startswith("pointmaze-umaze  ")] == [
        ["pointmaze-umaze", "0.0"]
    ]
    assert printed.err == f"error: {tmp_path / 'report'} cannot be written (Not a directory); choose another --out\n"


def test_reading_rules_reach_the_data(data, tmp_path, capsys):
    given = [data[1], "--algorithms", "bc", "--seeds", 1, "--steps", 20, "--episodes", 1, "--no-report"]
    assert compare(*given, "--out", tmp_path, "--task", "pointmaze-umaze", "--teleports", "keep", "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["references"] == "vem: success rate in percent"
    config = Run(tmp_path / "own-logs" / "bc").config
    assert config.rules == {"task": "pointmaze-umaze", "teleports": "keep"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_place_that_cannot_be_written_is_found_before_any_work(data, tmp_path, capsys, jobs):
    (tmp_path / "file").write_text("not a directory")
    assert compare(data[0], "--algorithms", "bc", "--out", tmp_path / "file" / "below", "--jobs", jobs) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: cannot write to {tmp_path / 'file' / 'below'}")
    assert printed.err.endswith("choose another --out\n")
    assert "left to do" not in printed.out


def test_ctrl_c_saves_every_open_run(data, tmp_path):
    command = [sys.executable, "-m", "vem", "compare", data[0], "--algorithms", "bc", "--steps", "100000000"]
    command += ["--seeds", "1", "--jobs", "2", "--out", tmp_path, *FLAGS]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
    )
    run = tmp_path / "pointmaze-umaze" / "bc"
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert "stopped and saved; the same command goes on from here" in output
    assert "Traceback" not in output
    assert list((run / "checkpoints").glob("*.safetensors"))
    assert not run.with_name("bc.failed.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithms", "dqn"], "there is no algorithm 'dqn'"),
        (["--steps", "iql=5"], "--steps names 'iql', which is not among the algorithms bc"),
        (["--steps", "many"], "--steps is 'many'"),
        (["--set", "nonsense=1"], "none of bc has this setting"),
        (["--set", "policy_hidden"], "has no value"),
        (["--set", "policy_lr=-1"], "--policy-lr is -1.0"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--episodes", "0"], "--episodes is 0"),
        (["--seeds", "0"], "say which with --seed 0"),
        (["--seeds", "7,9"], "--seeds is '7,9'; give how many; which ones: --seed 7,9"),
        (["--seed", "7,x"], "--seed is 'x'"),
        (["--set", "expectile=0.5"], "none of bc has this setting"),
        (["--minutes", "0"], "--minutes is 0.0"),
        (["--minutes", "5", "--steps", "9"], "--steps and --minutes are both given"),
        (["--official"], "are for the paper's table"),
        (["--algorithms", "vem-papers"], "there is no algorithm 'vem-papers'"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(data, tmp_path, capsys, arguments, message):
    assert compare(data[0], "--algorithms", "bc", "--out", tmp_path / "out", *arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_papers_table_is_listed_and_present_data_is_run(tmp_path, capsys):
    place, out = tmp_path / "data", tmp_path / "out"
    place.mkdir()
    given = ["paper", "--data-dir", place, "--out", out, "--steps", 20, "--seeds", 1, "--episodes", 1, "--no-report"]
    assert main(["compare", *map(str, given)]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if " absent " in line]
    assert len(rows) == 20
    assert [line.split()[0] for line in printed.splitlines() if " to make " in line] == [
        "walker2d-random", "hopper-random", "halfcheetah-random", "pointmaze-large",
    ]  # fmt: skip
    assert rows[0] == ["antmaze-umaze", "absent", "87.5", "±", "1.1", "62.5", "±", "2.3", "78.9", "74.0", "56.0"]
    assert "The data differ" in printed
    assert "0 of 24 datasets are here and 4 can be made" in printed
    assert f"  hopper-random: make it: vem data make hopper-random --out {place}/hopper-random.hdf5" in printed
    assert "  hammer-human: D4RL's hammer-v0_demos_clipped.hdf5; Minari has D4RL/hammer/human-v2" in printed
    assert "--walker FILE" in printed
    assert main(["compare", *map(str, given), "--algorithms", "bc"]) == 1
    assert "none of the paper's datasets is in" in capsys.readouterr().err

    write_data(place, "hopper-medium", sizes=(11, 3))
    assert compare(*given, "--algorithms", "bc", "--json") == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert len(tasks) == 24
    (hopper,) = [task for task in tasks if task["files"]]
    assert hopper["name"] == "hopper-medium"
    assert hopper["paper"]["vem"] == {"mean": 56.6, "std": 2.3}
    assert -5 < hopper["ours"]["bc"]["mean"] < 20
    assert main(["compare", *map(str, given)]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("hopper-medium ")]
    assert row[:2] == ["hopper-medium", "here"]
    assert float(row[-1]) == pytest.approx(hopper["ours"]["bc"]["mean"], abs=0.06)


def test_steps_and_settings_by_method():
    assert parse_steps("vem=5,9", ["vem", "bc"]) == {"vem": 5, "bc": 9}
    assert parse_steps("vem=5", ["vem", "bc"]) == {"vem": 5, "bc": 100_000}
    assert parse_settings(["batch-size=3", "vem:expectile=0.5"], ["vem", "bc"]) == {
        "vem": {"batch_size": "3", "expectile": "0.5"},
        "bc": {"batch_size": "3"},
    }


def test_cores_are_shared():
    assert share_cores([0, 1], 2) == [[0], [1]]
    assert share_cores([2, 5], 3) == [[2], [5], [2]]
    assert share_cores([0, 1, 2, 3], 2) == [[0, 1], [2, 3]]
    assert share_cores([0, 1, 2], 1) == [[0, 1, 2]]
