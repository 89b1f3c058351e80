"""Odd terminals, streams and command lines: one line says what is wrong, and what trains is saved."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from comparison_cases import write_data
from vem import cli
from vem.cli import main
from vem.cli.data import _draw_table
from vem.comparison.launch import View
from vem.errors import printable
from vem.evaluation.statistics import Table
from vem.terminal import Stream, standard_streams

VEM = [sys.executable, "-m", "vem"]
SMALL = ["--steps", "200000", "--value-hidden", "8", "--policy-hidden", "8", "--batch-size", "8"]
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
SPELLINGS = [
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path)


def vem(*arguments, variables=None, **given):
    environment = {**os.environ, **(variables or {})}
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given}
    return subprocess.run([*VEM, *map(str, arguments)], env=environment, timeout=120, check=False, **given)


@pytest.mark.parametrize("variables", SPELLINGS)
def test_an_encoding_that_lacks_letters_gets_their_escapes(data, variables):
    described = vem("data", "describe", data, variables=variables)
    assert (described.returncode, described.stderr) == (0, b"")
    assert b"pointmaze-umaze" in described.stdout
    helped = vem("train", "--help", variables=variables)
    assert (helped.returncode, helped.stderr) == (0, b"")
    assert rb"\u2026" in helped.stdout


@needs_full
@pytest.mark.parametrize("arguments", [["data", "list"], ["--help"], ["train", "--help"]])
def test_a_full_disk_behind_the_output_is_one_error(arguments):
    with FULL.open("wb") as full:
        done = vem(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr.decode() == f"error: cannot write to the standard output: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("arguments", ["data list", "--help", "train nothing.npz"])
def test_a_closed_output_is_one_error(arguments, tmp_path):
    command = f"{sys.executable} -m vem {arguments} >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: cannot write to the standard output: it is closed")
    assert done.stderr.count(b"\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_without_a_place_for_errors_the_exit_code_says_it(where, tmp_path):
    command = f"{sys.executable} -m vem data describe nothing.npz {where}"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize("kind", ["pipe", "full"])
def test_training_whose_output_ends_saves_and_says_so(data, tmp_path, kind):
    out = tmp_path / "run"
    if kind == "pipe":
        command = [*VEM, "train", str(data), "--out", str(out), *SMALL]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.readline()
            process.stdout.close()
            error, code = process.stderr.read(), process.wait(120)
    elif FULL.exists():
        with FULL.open("wb") as full:
            done = vem("train", data, "--out", out, *SMALL, stdout=full)
        error, code = done.stderr, done.returncode
    else:
        pytest.skip("needs /dev/full")
    assert code == 1
    assert f"stopped and saved; go on with: vem train --resume {out}" in error.decode()
    assert b"error: cannot write to the standard output: " in error
    assert b"Traceback" not in error
    assert list((out / "checkpoints").glob("*.safetensors"))


@pytest.mark.parametrize("verb", [["train"], ["data", "describe"], ["report"], ["evaluate"], ["export"]])
def test_a_name_of_5000_letters_is_one_short_line(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*verb, "x" * 5000]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert (error.count("\n"), len(error) < 1000) == (1, True)
    assert not list(tmp_path.iterdir())


def test_a_home_that_no_user_has_is_one_line(capsys):
    assert main(["data", "describe", "~no-such-user/x.npz"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ~no-such-user/x.npz: no user is called so")
    assert error.count("\n") == 1


@pytest.mark.parametrize("delay", [0.2, 0.4, 0.7, 1.0])
def test_ctrl_c_while_modules_are_imported_is_one_line(data, tmp_path, delay):
    # Where the tests run in the background Ctrl-C is ignored, which processes inherit.
    begin = "import signal, sys, vem.__main__; signal.signal(signal.SIGINT, signal.default_int_handler)"
    begin += "; print('begun', flush=True); sys.exit(vem.__main__.main())"
    command = [sys.executable, "-c", begin, "train", data, "--out", tmp_path / "run", *SMALL, "--steps", "100000000"]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in error
    assert error.strip().splitlines()[-1].startswith((b"interrupted", b"stopped and saved"))


def raising(error):
    def run(arguments):
        raise error

    return run


def extension_error():
    """What compiled code makes of Ctrl-C."""
    error = ImportError("Encountered an error while initializing the extension")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (extension_error(), 130, "interrupted\n"),
        (RecursionError("maximum recursion depth exceeded"), 1, "error: a file is nested too deeply"),
        (MemoryError("Unable to allocate 9 TiB"), 1, "error: there is not enough memory (Unable to allocate 9 TiB)"),
        (OSError(errno.EIO, "Input/output error", "data.npz"), 1, "error: data.npz: Input/output error\n"),
        (OSError(errno.EIO, "Input/output error"), 1, "error: Input/output error\n"),
    ],
)
def test_errors_of_the_machine_are_one_line(monkeypatch, capsys, error, code, message):
    monkeypatch.setattr(cli, "_run", raising(error))
    assert main([]) == code
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert said.count("\n") == 1


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr(cli, "_run", raising(RuntimeError("a bug")))
    with pytest.raises(RuntimeError, match="a bug"):
        main([])


def test_control_characters_are_shown_as_escapes():
    assert printable("a\x1b[2J\x07\r\x7f\x9b\n\tß", kept="\n\t") == "a\\x1b[2J\\x07\\r\\x7f\\x9b\n\tß"


def test_no_text_of_a_command_line_or_a_file_controls_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "\x1b[2J.npz"]) == 1
    with pytest.raises(SystemExit):
        main(["data", "describe", "a", "\x1b]0;title\x07"])
    lines = "".join(f"{i % 4},{i},{i / 7},{i % 3}\n" for i in range(40))
    Path("log.csv").write_text("episode,time,te\x1b[2Jmp,act\n" + lines)
    assert main(["data", "map", "log.csv", "--action", "act"]) == 0
    shown = capsys.readouterr()
    assert "\\x1b[2J" in shown.err
    assert "te\\x1b[2Jmp" in shown.out.replace("\\u001b", "\\x1b")
    assert "\x1b" not in shown.err + shown.out
    assert "\x07" not in shown.err


def test_tables_that_are_drawn_show_escapes_too(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with standard_streams():
        Table("t\x1b[2Jitle", ["na\x1b[2Jme"], [["va\x1b[2Jlue"]], ["no\x1b[2Jte"]).print()
        _draw_table("t\x1b[2Jitle", ("", ""), [("va\x1b[2Jlue", "[bold]")])
        View(sys.stdout, 1).say("na\x1b[2Jme")
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert shown.count("va\\x1b[2Jlue") == 2
    assert "[bold]" in shown


class Broken:
    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def flush(self):
        pass


def test_a_stream_fails_once():
    calls = []
    stream = Stream(Broken(), lambda: calls.append("failed"))
    stream.write("a")
    stream.write("b")
    assert isinstance(stream.failure, BrokenPipeError)
    assert calls == ["failed"]


def test_a_picture_on_a_full_disk_leaves_no_file(data, tmp_path, monkeypatch, capsys):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pytest.importorskip("matplotlib")
    monkeypatch.setattr("vem.storage.replace_file", full)
    picture = tmp_path / "picture.png"
    assert main(["data", "describe", str(data), "--plot", str(picture)]) == 1
    assert capsys.readouterr().err.startswith(f"error: cannot write {picture}: {os.strerror(errno.ENOSPC)}")
    assert not picture.exists()
    assert main(["data", "describe", str(data), "--plot", str(tmp_path / "picture.odd")]) == 1
    assert "use a name that ends in .png" in capsys.readouterr().err
