import json

import pytest

import evaluation_cases as cases
from vem.cli import main
from vem.evaluation.statistics import Table


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return cases.make_run(tmp_path_factory.mktemp("evaluate") / "run", seeds=2)


def test_one_table(directory, capsys):
    assert main(["evaluate", str(directory), "--episodes", "2", "--workers", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("vem/PointMaze-UMaze-v0: 2 episodes a policy, mean actions, after 7 steps")
    assert lines[1].split("  ")[0] == "policy"
    assert lines[2].split()[:5] == ["seed0", "0", "0.0", "0.0", "120.0"]
    assert lines[3].startswith("seed1")
    assert lines[4].startswith("mean ± std, 2 seeds")
    assert lines[5].startswith("IQM [95 %]")
    assert lines[6] == "score: 0 at return 0, 100 at 1 (vem: success rate in percent)"


def test_a_terminal_gets_a_drawn_table(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    Table("a title", ["policy", "return"], [["seed0 [a]", "1.5"]], ["a note"]).print()
    printed = capsys.readouterr().out
    assert "a title" in printed
    assert "━" in printed
    assert "seed0 [a]" in printed
    assert "1.5" in printed
    assert printed.endswith("a note\n")


def test_json_is_the_summary(directory, capsys):
    arguments = ["--episodes", "1", "--workers", "1", "--seed", "5", "--stochastic", "--json"]
    assert main(["evaluate", str(directory), *arguments]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((directory / "evaluation.json").read_text())
    assert (summary["actions"], summary["seed"], summary["num_episodes"]) == ("sampled", 5, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--env", "PointMaze-UMase-v0"], "Did you mean vem/PointMaze-UMaze-v0"),
        (["--env", "vem/Hopper-v0"], "policy seed0 takes observations of 4 numbers"),
        (["--episodes", "0"], "0 episodes"),
        (["--workers", "-1"], "number of workers is -1"),
    ],
)
def test_mistakes_are_one_sentence(directory, capsys, arguments, message):
    assert main(["evaluate", str(directory), "--workers", "1", *arguments]) == 1
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("error: ")
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_directories_that_cannot_be_evaluated(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err
    unfinished = cases.make_run(tmp_path / "unfinished", policies=False)
    assert main(["evaluate", str(unfinished)]) == 1
    assert f"vem train --resume {unfinished}" in capsys.readouterr().err
    nameless = cases.make_run(tmp_path / "nameless", environment=None)
    assert main(["evaluate", str(nameless)]) == 1
    assert "own-data names no environment; give vem evaluate an environment (--env ID)" in capsys.readouterr().err
