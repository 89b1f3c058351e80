"""``vem train``: a dataset in, a run directory with policies out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vem.runs.progress import progress_display, stop_requests

if TYPE_CHECKING:
    from vem.runs.loop import Progress
    from vem.runs.run import Config, Run

EXAMPLES = """examples:
  vem train                                          the built-in maze: records, trains, evaluates, reports
  vem train logs/antmaze-umaze.hdf5 --seeds 3        a D4RL file; three seeds in one program
  vem train hopper-medium --data-dir ~/data --preset paper
  vem train door-human --expectile 0.1,0.3,0.5,0.7,0.9 --seeds 3    a sweep, still one program
  vem train --resume runs/antmaze-umaze-vem          go on where a run was stopped, bit for bit
"""


def register(verbs: Any, arguments: Sequence[str]) -> None:
    """Add the verb; its method flags depend on ``--algorithm``, looked up in ``arguments``."""
    parser = verbs.add_parser(
        "train",
        help="train policies on a dataset",
        description="Train policies on recorded trajectories. Everything is written to a run directory.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("dataset", nargs="?", metavar="DATASET", help="a file (.hdf5, .npz), a benchmark name, or minari:ID")
    add("--algorithm", default="vem", metavar="NAME", help="the method (default: vem)")
    add("--preset", default="default", metavar="NAME", help="default, or for vem: paper, authors")
    add(
        "--steps",
        type=int,
        default=None,
        metavar="N",
        help="steps in all, for each policy (default: 100000)",
    )
    add("--seeds", metavar="N|A,B,…", help="how many seeds, or which (default: 1)")
    add("--out", metavar="DIR", help="run directory (default: runs/DATASET-ALGORITHM, numbered)")
    add("--resume", metavar="RUN", help="continue the run in this directory")
    add(
        "--evaluate-every",
        type=int,
        metavar="N",
        help="evaluate 20 episodes after every N steps, 100 at the end, and draw the curve in the run directory",
    )
    add(
        "--checkpoint-seconds", type=float, default=60.0, metavar="S", help="how often the state is saved (default: 60)"
    )
    add("--json", action="store_true", help="print the result as JSON, and progress to standard error")
    reading = parser.add_argument_group("reading the data (see docs/data.md)")
    reading.add_argument("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    reading.add_argument("--split", choices=("terminals", "first-success", "time-limits"), help="what ends an episode")
    reading.add_argument("--time-limit", choices=("bootstrap", "end"), help="what follows a cut recording")
    _add_settings(parser, _chosen_algorithm(arguments))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train or resume, showing progress; Ctrl-C saves and says how to go on."""
    from vem.evaluation.environments import find_environment
    from vem.runs.run import create_run, load_data, resume_run

    _check_options(options)
    if options.dataset is None and not options.resume:
        from vem.cli import quickstart

        return quickstart.run(options)
    say = lambda text: print(text, file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.resume:
        training = resume_run(options.resume)
        for message in training.messages:
            say(message)
        if training.is_finished:
            say(f"{options.resume} is finished; its policies are in {training.directory / 'policies'}")
    else:
        config = make_config(options, str(options.dataset), options.algorithm)
        dataset = load_data(config)
        if options.evaluate_every is not None:
            find_environment(dataclasses.asdict(dataset.info))  # fail before anything is written
        stem = Path(config.dataset.removeprefix("minari:")).stem
        directory = Path(options.out) if options.out else free_directory(f"{stem}-{config.algorithm}")
        training = create_run(directory, config, dataset)
        say(headline(training))
    training.seconds_per_checkpoint = options.checkpoint_seconds
    if train(training, options.json, options.evaluate_every):
        say(f"\nstopped and saved; go on with: vem train --resume {training.directory}")
        return 130
    _print_result(training, options.json)
    return 0


def _check_options(options: argparse.Namespace) -> None:
    from vem.errors import SettingsError

    if options.resume:
        given = [name for name, value in vars(options).items() if name.startswith("set_") and value is not None]
        others = [
            name for name in ("dataset", "out", "steps", "split", "time_limit") if getattr(options, name) is not None
        ]
        if given or others:
            names = ", ".join(sorted(n.removeprefix("set_").replace("_", "-") for n in given + others))
            raise SettingsError(f"a resumed run keeps its dataset and settings; leave out {names}, or start a new run")
    if options.evaluate_every is not None and options.evaluate_every < 1:
        raise SettingsError(f"--evaluate-every is {options.evaluate_every}; it must be 1 or more")


def make_config(
    options: argparse.Namespace, dataset: str, algorithm: str, num_seeds: str = "1", num_steps: int = 100_000
) -> Config:
    """The Config that the options ask for; the last arguments say what holds where they say nothing."""
    from vem.algorithms import find_method
    from vem.algorithms.config import convert, sweepable
    from vem.runs import run as runs

    names = sweepable(find_method(algorithm).settings)
    settings: dict[str, Any] = {}
    for name, text in vars(options).items():
        if name.startswith("set_") and text is not None:
            name = name.removeprefix("set_")
            settings[name] = text.split(",") if name in names and "," in text else text
    chosen = options.seeds or num_seeds
    seeds = [convert(part, int, "seeds") for part in chosen.split(",")]
    rules = {name: value for name in ("split", "time_limit") if (value := getattr(options, name)) is not None}
    return runs.make_config(
        dataset,
        algorithm=algorithm,
        preset=options.preset,
        settings=settings,
        seeds=seeds if "," in chosen else seeds[0],
        steps=num_steps if options.steps is None else options.steps,
        rules=rules,
        data_dir=options.data_dir,
    )


def headline(run: Run) -> str:
    """What is about to be trained, in two lines."""
    config, data = run.config, run.dataset
    count = len(config.members)
    return (
        f"{config.algorithm} (preset {config.preset}) on {data.info.name}: {data.num_transitions:,} transitions in "
        f"{data.num_episodes:,} episodes; {count} {'policy' if count == 1 else 'policies'}, "
        f"{config.steps:,} steps each\nrun directory: {run.directory}"
    )


def train(run: Run, quiet_stdout: bool = False, evaluate_every: int | None = None) -> bool:
    """Train with a progress display, evaluating on the way if asked; True if a signal stopped it (after saving)."""
    with stop_requests() as requests, progress_display(sys.stderr if quiet_stdout else sys.stdout) as show, _curve(run, evaluate_every) as evaluate:
        for progress in run.progress():
            show(progress)
            evaluate(progress)
            if requests:
                run.checkpoint(progress)
                return True
    return False


@contextmanager
def _curve(run: Run, evaluate_every: int | None) -> Iterator[Callable[[Progress], None]]:
    """A function that evaluates the policies whenever another ``evaluate_every`` steps are done, and at the end."""
    if evaluate_every is None or run.is_finished:
        yield lambda progress: None
        return
    from vem.evaluation.environments import find_target
    from vem.evaluation.evaluate import NUM_PATHS, evaluate_run_at
    from vem.evaluation.workers import Evaluator
    from vem.report import write_score_curve

    target = find_target(run.directory)
    with Evaluator(target.environment) as evaluator:
        before = 0

        def evaluate(progress: Progress) -> None:
            nonlocal before
            is_last = progress.steps == progress.num_steps
            due = progress.steps // evaluate_every > before // evaluate_every
            before = progress.steps
            if is_last or (due and progress.stage.trains_policy):
                policies = run.export(progress.snapshot.state)
                paths = NUM_PATHS if is_last else 0
                evaluate_run_at(target, policies, progress.steps, evaluator, 100 if is_last else 20, num_paths=paths)
                write_score_curve(run.directory)

        yield evaluate


def _print_result(run: Run, as_json: bool) -> None:
    if as_json:
        paths = [str(path) for path in run.policy_paths]
        members = [{"name": m.name, "policy": path} for m, path in zip(run.config.members, paths, strict=True)]
        print(json.dumps({"run": str(run.directory), "members": members}))
        return
    print(f"done: {len(run.policy_paths)} in {run.directory / 'policies'}")
    print(f"use it:  policy = vem.load_policy('{run.policy_paths[0]}'); policy.act(observation)")


def free_directory(name: str) -> Path:
    """A directory below ``runs`` that does not exist yet, numbered from the second on."""
    number, path = 1, Path("runs") / name
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path


def _chosen_algorithm(arguments: Sequence[str]) -> str:
    for index, text in enumerate(arguments):
        if text.startswith("--algorithm="):
            return text.split("=", 1)[1]
        if text == "--algorithm" and index + 1 < len(arguments):
            return arguments[index + 1]
    return "vem"


def _add_settings(parser: argparse.ArgumentParser, algorithm: str) -> None:
    """A flag for each setting of the method; checked later, by the same code as settings from Python."""
    from vem.algorithms import METHODS

    if algorithm not in METHODS:
        return
    method = METHODS[algorithm]
    group = parser.add_argument_group(f"settings of {algorithm}, {method.summary}")
    hints = typing.get_type_hints(method.settings)
    for field in dataclasses.fields(method.settings):
        default = ",".join(map(str, field.default)) if isinstance(field.default, tuple) else field.default
        choices = [
            str(a) for a in typing.get_args(hints[field.name]) if a is not type(None) and not isinstance(a, type)
        ]
        several = "; several with commas" if field.metadata["sweep"] else ""
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            dest=f"set_{field.name}",
            metavar="|".join(choices) if choices and typing.get_origin(hints[field.name]) is not tuple else "X",
            help=f"{field.metadata['meaning']} (default: {str(default).lower()}{several})".replace("%", "%%").strip(),
        )
