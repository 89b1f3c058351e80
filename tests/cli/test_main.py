import subprocess
import sys

import pytest

import vem
from vem.cli import VERBS, main


def said(capsys, *arguments):
    """The exit code of a command that ends the program while it is parsed, and what it printed."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    printed = capsys.readouterr()
    return stop.value.code, printed.out or printed.err


def test_every_verb_has_help_that_begins_with_a_short_usage(capsys):
    for verb in VERBS:
        code, text = said(capsys, *verb.split(), "--help")
        assert (code, text.splitlines()[0].startswith(f"usage: vem {verb}")) == (0, True)
        assert text.splitlines()[1] == ""
    assert said(capsys, "--help")[1].startswith("usage: vem VERB …\n")
    assert "vem data VERB --help" in said(capsys, "data", "--help")[1]


def test_the_help_of_train_is_one_screen_and_the_rest_is_elsewhere(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = said(capsys, "train", "--help")[1]
    flags = [line for line in text.splitlines() if line.startswith("  -")]
    assert 18 <= len(flags) <= 24
    assert "--expectile X" in text
    assert "--algorithm iql --help settings" in text
    assert "more options: vem train --help settings|data|tables" in text
    assert "--clip-quantile" not in text
    settings = said(capsys, "train", "--help", "settings")[1]
    assert "--clip-quantile X" in settings
    assert "--expectile X" in settings
    assert "--normalize-observations true|false" in settings
    assert "--policy-hidden N,…" in settings
    of_paper = " ".join(said(capsys, "train", "--preset", "paper", "--help", "settings")[1].split())
    assert "(preset paper: 100.0;" in of_paper
    assert "--inverse-temperature" in said(capsys, "train", "--algorithm", "iql", "--help", "settings")[1]
    assert "--split terminals|first-success|time-limits" in said(capsys, "compare", "--help", "data")[1]
    assert "--gap X" in said(capsys, "sweep", "--help", "tables")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "vem VERB: the verb is missing; choose from train,"),
        (["data"], "vem data VERB: the verb is missing; choose from describe, map, list, make, convert, verify"),
        (["trian"], "vem has no verb 'trian'; did you mean train?"),
        (["data", "mkae"], "vem data has no verb 'mkae'; did you mean make?"),
        (["train", "x.npz", "--expectil", "0.4"], "there is no option --expectil; did you mean --expectile?"),
        (["train", "x.npz", "--algorithm", "bc", "--expectile=0.5"], "BC has no setting 'expectile', which is one of"),
        (["compare", "x.npz", "--seds", "3"], "there is no option --seds; did you mean --seeds"),
        (["report"], "the following arguments are required: RUN"),
        (["train", "x.npz", "--split", "never"], "argument --split: invalid choice: 'never'"),
        (["train", "x.npz", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["evaluate", "run", "another"], "there is one word too many: 'another'"),
    ],
)
def test_a_mistake_in_a_command_is_one_line_that_says_what_was_meant(capsys, arguments, message):
    code, text = said(capsys, *arguments)
    assert code == 2
    assert text.startswith(f"error: {message}")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "x.npz", "--algorithm", "BC"], "did you mean bc?"),
        (["data", "make", "hopper-medium"], "did you mean hopper-random"),
        (["data", "verify", __file__], "is no folder of shards"),
        (["evaluate", "run", "--env", "a", "--task", "b"], "leave one out"),
        (["compare"], "no data is named"),
    ],
)
def test_a_wrong_name_is_one_line(capsys, arguments, message):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_importing_vem_loads_no_numerics():
    code = "import sys, vem; print(sorted({'jax', 'numpy', 'mujoco', 'matplotlib'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_public_names_exist_and_can_be_called():
    assert set(vem.__all__) <= set(dir(vem))
    for name in vem.__all__:
        assert callable(getattr(vem, name)), name
