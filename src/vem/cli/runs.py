"""The verbs about finished runs: ``evaluate``, ``estimate``, ``select``, ``report`` and ``export``."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from vem.cli.options import Parser
from vem.errors import SettingsError


def _add_run(parser: Parser) -> None:
    """Add the run, what makes its method known, and the form of the output."""
    parser.add_argument("directory", metavar="RUN", help="a run directory")
    _add_common(parser)


def _add_common(parser: Parser) -> None:
    parser.add_argument(
        "--import", dest="imports", action="append", metavar="NAME", help="a file that registers methods"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _import(options: argparse.Namespace) -> None:
    """Make the user's own methods known."""
    if options.imports:
        from vem.algorithms.base import import_methods

        import_methods(options.imports)


def evaluate(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Run the policies of a finished run in their environment, and keep the result in its directory.
Episode i has the same seed for every policy; the number of workers changes nothing."""
    parser.epilog = """examples:
  vem evaluate runs/antmaze-umaze-vem                      100 episodes for each policy
  vem evaluate runs/door-human-vem --episodes 20 --workers 4
  vem evaluate runs/logs-vem --task hopper-medium          in an environment that the data does not name
  vem evaluate runs/antmaze-umaze-vem --video videos       and a video of each policy"""
    _add_run(parser)
    add = parser.add_argument
    add("--episodes", type=int, default=100, metavar="N", help="episodes for each policy (default: 100)")
    add("--seed", type=int, default=0, metavar="N", help="decides the episodes' seeds (default: 0)")
    add("--workers", type=int, metavar="N", help="processes (default: one a core)")
    add("--task", metavar="NAME", help="the benchmark task to evaluate in (default: the data's own)")
    add("--env", metavar="ID", help="the Gymnasium id to evaluate in")
    add(
        "--stochastic",
        action=argparse.BooleanOptionalAction,
        help="sample actions, or take their mean (default: sample those of guided policies)",
    )
    add("--video", metavar="DIR", help="record the first episode of each policy as a video in DIR")
    parser.set_defaults(run=_evaluate)


def _evaluate(options: argparse.Namespace) -> None:
    """Evaluate, and print the table."""
    from vem.evaluation.evaluate import evaluate

    if options.task and options.env:
        raise SettingsError("--task and --env both name where to evaluate; leave one out")
    _import(options)
    evaluation = evaluate(
        options.directory,
        options.task or options.env,
        options.episodes,
        options.seed,
        options.workers,
        options.stochastic,
        video=options.video,
    )
    if options.json:
        print(json.dumps(evaluation.to_json(), indent=2))
    else:
        evaluation.table.print()
        videos = f", videos in {options.video}" if options.video else ""
        print(f"kept in {options.directory}{videos}; draw it with: vem report {options.directory}")


def _add_estimation(parser: Parser) -> None:
    """Add what decides an estimate."""
    add = parser.add_argument
    add("--discount", type=float, metavar="X", help="discount γ of the values (default: the largest of training)")
    add("--steps", type=int, metavar="N", help="steps of fitted Q evaluation (default: by the size of the data)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the networks and of resampling (default: 0)")


def _estimation(options: argparse.Namespace) -> dict[str, Any]:
    names = ("discount", "steps", "seed")
    return {**{name: getattr(options, name) for name in names}, "progress": not options.json}


def estimate(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Estimate the discounted return of a run's policies by fitted Q evaluation, and by importance
sampling where that can be used, beside what the trajectories earned, with 95 % intervals and a
verdict. The result is kept in RUN/estimate.json. Train with --hold-out first."""
    parser.epilog = """examples:
  vem train logs.npz --hold-out 0.2 --out runs/logs      keep a fifth of the trajectories apart
  vem estimate runs/logs                                 is it better than what the log did?
  vem estimate runs/logs --data june.npz                 on trajectories that were made later"""
    _add_run(parser)
    _add_estimation(parser)
    parser.add_argument(
        "--data", metavar="DATASET", help="other trajectories, read as the run's own (default: held out)"
    )
    parser.set_defaults(run=_estimate)


def _estimate(options: argparse.Namespace) -> None:
    """Estimate, and print the table."""
    from vem.estimation.estimate import estimate

    _import(options)
    result = estimate(options.directory, options.data, **_estimation(options))
    if options.json:
        print(json.dumps(result.to_json(), indent=2))
        return
    result.table.print()
    print(f"kept in {options.directory}; choose among several runs with: vem select")


def select(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Rank runs on the same data, and the settings swept inside them, by their estimates on the
trajectories that all of them held out, and name the choice. Estimates that the runs keep are used
again."""
    parser.epilog = """examples:
  vem train logs.npz --expectile 0.1,0.3,0.5,0.7 --seeds 3 --hold-out 0.2 --out runs/logs
  vem select runs/logs                           which expectile?
  vem select runs/logs-vem runs/logs-iql         which method?
  vem select runs/sweep/logs                     all runs of a sweep or a comparison on one dataset"""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or a folder with runs on one dataset")
    _add_common(parser)
    _add_estimation(parser)
    parser.set_defaults(run=_select)


def _select(options: argparse.Namespace) -> None:
    """Select, and print the table."""
    from vem.estimation.select import select

    _import(options)
    selection = select(options.runs, **_estimation(options))
    if options.json:
        print(json.dumps(selection.to_json(), indent=2))
    else:
        selection.table.print()


def report(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Write one self-contained HTML page about one or more runs, and its figures as PNG and SVG. Scores,
returns and value errors appear once the runs are evaluated (vem evaluate)."""
    parser.epilog = """examples:
  vem report runs/antmaze-umaze-vem                           writes runs/antmaze-umaze-vem/report/report.html
  vem report runs/medium-vem runs/medium-bc --out comparison  several runs side by side"""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory; several are compared")
    parser.add_argument("--out", metavar="DIR", help="where to write (default: the directory report in the first RUN)")
    _add_common(parser)
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> None:
    """Write the report, and say where it is and what it lacks."""
    from rich.console import Console
    from rich.markup import escape

    from vem.errors import printable
    from vem.reports.report import write_report

    _import(options)
    console = Console(stderr=True)
    with console.status("reading") if console.is_terminal else nullcontext() as status:
        show = (lambda text: status.update(escape(printable(text)))) if status else lambda text: None
        written = write_report(options.runs, options.out, show)
    if options.json:
        print(json.dumps(written.to_dict(), indent=2))
        return
    if len(written.groups) > 1:
        print(f"the runs have {len(written.groups)} datasets; each has its own part of the page")
    for group in written.groups:
        for note in group.notes:
            print(f"{group.name}: {note}")
    print(f"report: {written.page}    figures: {written.page.parent / 'figures'} ({len(written.figures)} files)")


def export(parser: Parser, arguments: Sequence[str]) -> None:
    """Add the options."""
    parser.description = """\
Write a policy with its encoder, normalizer and bounds as one ONNX file. It is compared with the
policy on thousands of rows first, and written only if both act alike."""
    parser.epilog = """examples:
  vem export runs/antmaze-umaze-vem                        beside the policy: policies/seed0.onnx
  vem export runs/antmaze-umaze-vem --seed 1 --out policy.onnx
  vem export policy.safetensors --out policy.onnx          a policy file alone, checked on random rows"""
    add = parser.add_argument
    add("source", metavar="RUN", help="a run directory, or a policy file")
    add("--format", default="onnx", metavar="NAME", help="onnx (default)")
    add("--seed", type=int, metavar="N", help="which policy, in a run of several seeds")
    add("--trial", metavar="NAME", help="which policy, in a sweep: the name of its file")
    add("--out", metavar="FILE", help="the file to write (default: beside the policy's)")
    _add_common(parser)
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    """Export, and say how the file compares."""
    from vem.training.export import export

    _import(options)
    made = export(options.source, options.out, format=options.format, seed=options.seed, trial=options.trial)
    if options.json:
        print(json.dumps({"file": str(made.path), **dataclasses.asdict(made.check)}))
    else:
        print(f"{made.path}: {made.check}")
