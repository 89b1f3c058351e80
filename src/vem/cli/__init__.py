"""The command line: one file a verb; each parses, calls one library function, and prints."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vem.terminal import Stream

VERBS = {
    "train": "train policies on a dataset",
    "evaluate": "run the policies of a run in their environment",
    "estimate": "value the policies of a run on held-out trajectories, without a simulator",
    "select": "choose among runs on the same data, without a simulator",
    "compare": "train and evaluate several methods on several datasets",
    "sweep": "train and evaluate one method with several settings",
    "export": "write a policy as an ONNX file",
    "report": "draw runs: one HTML page with tables and figures",
    "data": "describe, map, list, make and convert datasets",
    "theory": "the paper's theory: operators, lemmas and figures on random MDPs",
}


WORK = {
    "train": "vem.api",
    "evaluate": "vem.evaluation.evaluate",
    "estimate": "vem.estimation.estimate",
    "select": "vem.estimation.select",
    "compare": "vem.comparison.compare",
    "sweep": "vem.comparison.compare",
    "export": "vem.training.export",
    "report": "vem.reports.report",
    "data": "vem.data",
    "theory": "vem.theory.output",
}
"""Verb → the module that does its work, with all that it imports."""
LONG_WORD = re.compile(r"\S{500,}")
"""A name that an error does not show in full."""

_PLACES = {
    "train": ("train", "register"),
    "evaluate": ("runs", "register"),
    "estimate": ("runs", "register_estimate"),
    "select": ("runs", "register_select"),
    "compare": ("compare", "register"),
    "sweep": ("compare", "register_sweep"),
    "export": ("runs", "register_export"),
    "report": ("runs", "register_report"),
    "data": ("data", "register"),
    "theory": ("theory", "register"),
}
"""Verb → file and function that adds its options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``vem`` command and return its exit code: 0 done, 1 failed, 2 usage, 130 interrupted."""
    from vem.terminal import standard_streams

    end = None
    with standard_streams() as output:
        try:
            code = _run_safely(arguments, output) if output.failure is None else 1
        except SystemExit as end_of_parser:  # after a help text, or what was wrong with the flags
            code, end = 1, end_of_parser
        output.finish()
        if output.failure is not None:
            print(f"error: cannot write to the standard output: {output.failure.strerror}", file=sys.stderr)
            return 1
    if end is not None:
        raise end
    return code


def _run_safely(arguments: Sequence[str] | None, output: Stream) -> int:
    """The verb's exit code; what ends it early is one line on the standard error."""
    try:
        return _run(arguments)
    except KeyboardInterrupt as stop:
        if str(stop) or output.failure is None:
            print(str(stop) or "interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if _is_interrupted(error):
            print("interrupted", file=sys.stderr)
            return 130
        sentence = _sentence(error)
        if sentence is None:
            raise
        print(f"error: {LONG_WORD.sub(_shortened, sentence)}", file=sys.stderr)
        return 1


def _shortened(word: re.Match[str]) -> str:
    return f"{word[0][:200]}…{word[0][-100:]}"


def _sentence(error: Exception) -> str | None:
    """What to say of an error that is no fault of the program; None: it is one."""
    from vem.errors import VemError, explain

    if isinstance(error, VemError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        missing = explain(error)
        return None if missing is None else str(missing)
    if isinstance(error, MemoryError):
        return f"there is not enough memory ({error or 'nothing more is known'}); free some, or use less data"
    if isinstance(error, RecursionError):
        return "a file is nested too deeply to be read; it was not written by vem, or is damaged"
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # Path.expanduser
        return "a path begins with ~ and a name that no user of this machine has; give the whole path"
    if isinstance(error, OSError):
        names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
        return ": ".join([*names, error.strerror or str(error) or type(error).__name__])
    return None


def _is_interrupted(error: BaseException | None) -> bool:
    """Whether an error stands for Ctrl-C: compiled code turns it into errors of its own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def _importing() -> Iterator[None]:
    """Ctrl-C ends the program at once: nothing was begun, and imports of compiled code may swallow an exception."""

    def end(number: int, frame: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(130)

    is_ours = threading.current_thread() is threading.main_thread()
    is_ours = is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(arguments: Sequence[str] | None) -> int:
    from vem import __version__

    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(
        prog="vem",
        description="Offline reinforcement learning with Value-based Episodic Memory.",
        epilog="Start with: vem train    (records a small maze, trains, evaluates, draws a report)",
    )
    parser.add_argument("--version", action="version", version=f"vem {__version__}")
    verbs = parser.add_subparsers(title="verbs", dest="verb", required=True, metavar="VERB")
    for name, summary in VERBS.items():
        if name in arguments[:1]:
            with _importing():
                verb = importlib.import_module(f"vem.cli.{name}")
                verb.register(verbs, arguments) if name in ("train", "sweep") else verb.register(verbs)
        else:
            verbs.add_parser(name, help=summary)
    options = parser.parse_args(arguments)
    with _importing():
        importlib.import_module(WORK[options.verb])
    return options.run(options) or 0
