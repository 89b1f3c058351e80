"""The command line: a verb parses its options, calls one library function, and prints."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from vem.terminal import Stream


class Verb(NamedTuple):
    """What a verb is for, and where its parts are."""

    summary: str
    file: str
    """The module of this package with a function of the verb's name (``data_map``), which adds its options."""
    work: str
    """The module that does its work, with all that it imports."""


VERBS = {
    "train": Verb("train policies on a dataset", "train", "vem.api"),
    "evaluate": Verb("run the policies of a run in their environment", "runs", "vem.evaluation.evaluate"),
    "estimate": Verb("value policies on held-out trajectories, without a simulator", "runs", "vem.estimation.estimate"),
    "select": Verb("choose among runs on the same data, without a simulator", "runs", "vem.estimation.select"),
    "compare": Verb("train and evaluate several methods on several datasets", "compare", "vem.comparison.compare"),
    "sweep": Verb("train and evaluate one method with several settings", "compare", "vem.comparison.compare"),
    "export": Verb("write a policy as an ONNX file", "runs", "vem.training.export"),
    "report": Verb("draw runs: one HTML page with tables and figures", "runs", "vem.reports.report"),
    "data describe": Verb("say what a dataset holds, and what is odd about it", "data", "vem.data"),
    "data map": Verb("propose which column of a table is what, and explain why", "data", "vem.data"),
    "data list": Verb("list benchmark and built-in datasets, and which are on this machine", "data", "vem.data"),
    "data make": Verb("record data that needs no foreign file", "data", "vem.data"),
    "data convert": Verb("write a dataset as shards, for data larger than memory", "data", "vem.data"),
    "data verify": Verb("compare every shard with its checksum", "data", "vem.data"),
    "theory": Verb("the paper's theory: operators, lemmas and figures on random MDPs", "theory", "vem.theory.output"),
}
ABOUT = "Offline reinforcement learning with Value-based Episodic Memory."
FIRST = "Start with: vem train    (records a small maze, trains, evaluates, draws a report)"
LONG_WORD = re.compile(r"\S{500,}")
"""A name that an error does not show in full."""


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
        return _run(list(sys.argv[1:] if arguments is None else arguments))
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


def _run(arguments: list[str]) -> int:
    name, rest = _find_verb(arguments)
    verb = VERBS[name]
    with _importing():
        from vem.cli.options import Parser

        parser = Parser(prog=f"vem {name}", summary=verb.summary)
        add_options = getattr(importlib.import_module(f"vem.cli.{verb.file}"), name.replace(" ", "_"))
        add_options(parser, rest)
    options = parser.parse(rest)
    with _importing():
        importlib.import_module(verb.work)
    return options.run(options) or 0


def _find_verb(arguments: list[str]) -> tuple[str, list[str]]:
    """The verb that the first words name, and the rest; a help text or a mistake ends the program."""
    from vem import __version__

    if arguments[:1] == ["--version"]:
        print(f"vem {__version__}")
        raise SystemExit(0)
    group = "data " if arguments[:1] == ["data"] else ""
    words = arguments[1:] if group else arguments
    if words[:1] in (["--help"], ["-h"]):
        print(_overview(group))
        raise SystemExit(0)
    name = group + words[0] if words else ""
    if name not in VERBS:
        _refuse_verb(group, words)
    return name, words[1:]


def _overview(group: str) -> str:
    """The help text of ``vem``, or of ``vem data``."""
    summaries = {name.removeprefix(group): verb.summary for name, verb in VERBS.items() if name.startswith(group)}
    if not group:
        summaries = {name: text for name, text in summaries.items() if " " not in name}
        summaries["data"] = "describe, map, list, make and convert datasets"
    about = "Look at recorded data before training on it." if group else ABOUT
    lines = [f"usage: vem {group}VERB …", "", about, "", *(f"  {name:10} {text}" for name, text in summaries.items())]
    return "\n".join([*lines, "", f"vem {group}VERB --help says more.", FIRST])


def _refuse_verb(group: str, words: list[str]) -> NoReturn:
    """Say which verbs there are, on one line, and end the program."""
    import difflib

    known = [name.removeprefix(group) for name in VERBS if name.startswith(group)]
    known = known if group else [*(name for name in known if " " not in name), "data"]
    if not words or words[0].startswith("-"):
        text = f"vem {group}VERB: the verb is missing"
    else:
        close = difflib.get_close_matches(words[0].lower(), known, n=1, cutoff=0.5)
        text = f"vem {group}has no verb {words[0]!r}" + (f"; did you mean {close[0]}?" if close else "")
    print(f"error: {LONG_WORD.sub(_shortened, text)}; choose from {', '.join(known)}", file=sys.stderr)
    raise SystemExit(2)
