"""``vem evaluate``: the policies of a run in their environment, as one table."""

from __future__ import annotations

import argparse
import dataclasses
import json
from contextlib import nullcontext
from typing import Any

EXAMPLES = """examples:
  vem evaluate runs/antmaze-umaze-vem                      100 episodes for each policy
  vem evaluate runs/door-human-vem --episodes 20 --workers 4
  vem evaluate runs/logs-vem --env vem/Hopper-v0 --json    in an environment that the data does not name
"""


def register(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "evaluate",
        help="run the policies of a run in their environment",
        description="Run the policies of a finished run and keep the result in its directory: episodes in "
        "evaluations.jsonl, the summary in evaluation.json (evaluation-ENV.json with --env). "
        "Episode i has the same seed for every policy; the number of workers changes nothing.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="RUN", help="a run directory")
    add("--episodes", type=int, default=100, metavar="N", help="episodes for each policy (default: 100)")
    add("--seed", type=int, default=0, metavar="N", help="decides the episodes' seeds (default: 0)")
    add("--workers", type=int, default=None, metavar="N", help="processes (default: one a core)")
    add("--env", default=None, metavar="ID", help="a Gymnasium id or a benchmark task (default: the data's own)")
    add(
        "--stochastic",
        action=argparse.BooleanOptionalAction,
        help="sample actions, or take their mean (default: sample those of guided policies)",
    )
    add("--json", action="store_true", help="print the summary as JSON")
    parser.set_defaults(run=run)


def add_evaluate_every(parser: argparse.ArgumentParser, text: str) -> None:
    """Add the flag for evaluations while a run trains: a number of steps, or a share of them below 1."""

    def period(given: str) -> int | float:
        return int(given) if given.lstrip("-").isdigit() else float(given)

    parser.add_argument("--evaluate-every", type=period, metavar="N|X", help=f"{text} (X: such as 0.2)")


def run(options: argparse.Namespace) -> None:
    """Evaluate, and print the table."""
    from vem.evaluation.evaluate import evaluate

    evaluation = evaluate(
        options.directory, options.env, options.episodes, options.seed, options.workers, options.stochastic
    )
    if options.json:
        print(json.dumps(evaluation.to_json(), indent=2))
    else:
        evaluation.table.print()
        print(f"kept in {options.directory}; draw it with: vem report {options.directory}")


# ``vem estimate``: what the policies of a run are worth, from trajectories alone.


ESTIMATE_EXAMPLES = """examples:
  vem train logs.npz --hold-out 0.2 --out runs/logs      keep a fifth of the trajectories apart
  vem estimate runs/logs                                 is it better than what the log did?
  vem estimate runs/logs --data june.npz                 on trajectories that were made later
"""


def register_estimate(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "estimate",
        help="value the policies of a run on held-out trajectories, without a simulator",
        description="Estimate the discounted return of a run's policies by fitted Q evaluation, and by importance "
        "sampling where that can be used, beside what the trajectories earned, with 95 % intervals and a verdict. The "
        "result is kept in RUN/estimate.json. Train with --hold-out first.",
        epilog=ESTIMATE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="RUN", help="a run directory")
    add("--data", metavar="DATA", help="other trajectories, read as the run's own were (default: those held out)")
    add("--discount", type=float, metavar="X", help="discount γ of the values (default: that of training, or 0.99)")
    add("--steps", type=int, metavar="N", help="steps of fitted Q evaluation (default: by the size of the data)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the networks and of resampling (default: 0)")
    add("--json", action="store_true", help="print the estimate as JSON")
    parser.set_defaults(run=run_estimate)


def run_estimate(options: argparse.Namespace) -> None:
    """Estimate, and print the table."""
    from vem.estimation.estimate import estimate

    found = estimate(
        options.directory,
        options.data,
        discount=options.discount,
        steps=options.steps,
        seed=options.seed,
        progress=not options.json,
    )
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
        return
    found.table.print()
    print(f"kept in {options.directory}; choose among several runs with: vem select")


# ``vem select``: runs on the same data, ranked by what their policies are worth, without a simulator.


SELECT_EXAMPLES = """examples:
  vem train logs.npz --expectile 0.1,0.3,0.5,0.7 --seeds 3 --hold-out 0.2 --out runs/logs
  vem select runs/logs                           which expectile?
  vem select runs/logs-vem runs/logs-iql         which method?
  vem select runs/sweep/logs                     all cells of a sweep or a comparison on one dataset
"""


def register_select(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "select",
        help="choose among runs on the same data, without a simulator",
        description="Rank runs on the same data, and the settings swept inside them, by their estimates on the "
        "trajectories that all of them held out, and name the choice. Estimates that the runs keep are used again.",
        epilog=SELECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories, or a folder with runs on one dataset below it")
    add("--discount", type=float, metavar="X", help="discount γ of the values (default: the largest of training)")
    add("--steps", type=int, metavar="N", help="steps of fitted Q evaluation (default: by the size of the data)")
    add("--seed", type=int, default=0, metavar="N", help="seed of the networks and of resampling (default: 0)")
    add("--json", action="store_true", help="print the selection as JSON")
    parser.set_defaults(run=run_select)


def run_select(options: argparse.Namespace) -> None:
    """Select, and print the table."""
    from vem.estimation.select import select

    found = select(
        options.runs, discount=options.discount, steps=options.steps, seed=options.seed, progress=not options.json
    )
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        found.table.print()


# ``vem report``: run directories in, one HTML page with figures out.


REPORT_EXAMPLES = """examples:
  vem report runs/antmaze-umaze-vem                           writes runs/antmaze-umaze-vem/report/report.html
  vem report runs/medium-vem runs/medium-bc --out comparison  several runs side by side
"""


def register_report(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "report",
        help="draw runs: one HTML page with tables and figures",
        description="Write one self-contained HTML page about one or more runs, and its figures as PNG and SVG. "
        "Scores, returns and value errors appear once the runs are evaluated (vem evaluate).",
        epilog=REPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="a run directory; several are compared")
    add("--out", default=None, metavar="DIR", help="where to write (default: the directory report in the first RUN)")
    add("--json", action="store_true", help="print what was written, the scores and the notes as JSON")
    parser.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> None:
    """Write the report, and say where it is and what it lacks."""
    from rich.console import Console

    from vem.reports.report import write_report

    console = Console(stderr=True)
    with console.status("reading") if console.is_terminal else nullcontext() as status:
        show = status.update if status else lambda text: None
        report = write_report(options.runs, options.out, show)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
        return
    if len(report.groups) > 1:
        print(f"the runs have {len(report.groups)} datasets; each has its own part of the page")
    for group in report.groups:
        for note in group.notes:
            print(f"{group.name}: {note}")
    print(f"report: {report.page}    figures: {report.page.parent / 'figures'} ({len(report.figures)} files)")


# ``vem export``: a policy as a file that runs without Python.


EXPORT_EXAMPLES = """examples:
  vem export runs/antmaze-umaze-vem                        beside the policy: policies/seed0.onnx
  vem export runs/antmaze-umaze-vem --seed 1 --out policy.onnx
  vem export policy.safetensors --out policy.onnx          a policy file alone, checked on random rows
"""


def register_export(verbs: Any) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "export",
        help="write a policy as an ONNX file",
        description="Write a policy with its encoder, normalizer and bounds as one ONNX file. It is compared with the "
        "policy on thousands of rows first, and written only if both act alike.",
        epilog=EXPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("source", metavar="RUN", help="a run directory, or a policy file")
    add("--format", default="onnx", metavar="NAME", help="onnx (default)")
    add("--seed", type=int, metavar="N", help="which policy, in a run of several seeds")
    add("--trial", metavar="NAME", help="which policy, in a sweep: the name of its file")
    add("--out", metavar="FILE", help="the file to write (default: beside the policy's)")
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run_export)


def run_export(options: argparse.Namespace) -> None:
    """Export, and say how the file compares."""
    from vem.training.export import export

    made = export(options.source, options.out, format=options.format, seed=options.seed, trial=options.trial)
    if options.json:
        print(json.dumps({"file": str(made.path), **dataclasses.asdict(made.check)}))
    else:
        print(f"{made.path}: {made.check}")
