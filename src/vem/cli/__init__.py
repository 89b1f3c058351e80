"""The command line: one file a verb; each parses, calls one library function, and prints."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

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
    """Run the ``vem`` command and return its exit code: 0 done, 1 failed, 2 usage."""
    from vem.errors import VemError, explain

    try:
        return _run(arguments)
    except ModuleNotFoundError as error:
        missing = explain(error)
        if missing is None:
            raise
        print(f"error: {missing}", file=sys.stderr)
        return 1
    except VemError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt as stop:
        print(str(stop) or "interrupted", file=sys.stderr)
        return 130


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
            module, function = _PLACES[name]
            register = getattr(importlib.import_module(f"vem.cli.{module}"), function)
            register(verbs, arguments) if name in ("train", "sweep") else register(verbs)
        else:
            verbs.add_parser(name, help=summary)
    options = parser.parse_args(arguments)
    return options.run(options) or 0
