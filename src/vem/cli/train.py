"""``vem train``: a dataset in, a run directory with policies out."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
import time
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vem.experiment import Config, Run
    from vem.training import Progress

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
        help="updates in all, for each policy (default: 100000)",
    )
    add("--seeds", default="1", metavar="N|A,B,…", help="how many seeds, or which (default: 1)")
    add("--out", metavar="DIR", help="run directory (default: runs/DATASET-ALGORITHM, numbered)")
    add("--resume", metavar="RUN", help="continue the run in this directory")
    add("--json", action="store_true", help="print the result as JSON, and progress to standard error")
    reading = parser.add_argument_group("reading the data (see docs/data.md)")
    reading.add_argument("--data-dir", metavar="DIR", help="where benchmark names are looked up first")
    reading.add_argument("--split", choices=("terminals", "first-success", "time-limits"), help="what ends an episode")
    reading.add_argument("--time-limit", choices=("bootstrap", "end"), help="what follows a cut recording")
    _add_settings(parser, _chosen_algorithm(arguments))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Train or resume, showing progress; Ctrl-C saves and says how to go on."""
    from vem.experiment import create_run, load_data, resume_run

    _check_options(options)
    say = lambda text: print(text, file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.resume:
        training = resume_run(options.resume)
        for message in training.messages:
            say(message)
        if training.is_finished:
            say(f"{options.resume} is finished; its policies are in {training.directory / 'policies'}")
    else:
        config = _config(options)
        dataset = load_data(config)
        directory = Path(options.out) if options.out else _free_directory(config)
        training = create_run(directory, config, dataset)
        say(_headline(training))
    interrupted = _train(training, options.json)
    if interrupted:
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
    elif options.dataset is None:
        options.dataset = "pointmaze-medium"


def _config(options: argparse.Namespace) -> Config:
    from vem.algorithms import find_method
    from vem.algorithms.settings import convert, sweepable
    from vem.experiment import make_config

    names = sweepable(find_method(options.algorithm).settings)
    settings: dict[str, Any] = {}
    for name, text in vars(options).items():
        if name.startswith("set_") and text is not None:
            name = name.removeprefix("set_")
            settings[name] = text.split(",") if name in names and "," in text else text
    seeds = [convert(part, int, "seeds") for part in options.seeds.split(",")]
    rules = {name: value for name in ("split", "time_limit") if (value := getattr(options, name)) is not None}
    return make_config(
        options.dataset,
        algorithm=options.algorithm,
        preset=options.preset,
        settings=settings,
        seeds=seeds if "," in options.seeds else seeds[0],
        num_updates=100_000 if options.steps is None else options.steps,
        rules=rules,
        data_dir=options.data_dir,
    )


def _headline(run: Run) -> str:
    config, data = run.config, run.dataset
    count = len(config.members)
    return (
        f"{config.algorithm} (preset {config.preset}) on {data.info.name}: {data.num_transitions:,} transitions in "
        f"{data.num_episodes:,} episodes; {count} {'policy' if count == 1 else 'policies'}, "
        f"{config.num_updates:,} updates each\nrun directory: {run.directory}"
    )


def _train(run: Run, quiet_stdout: bool) -> bool:
    """Train with a progress display; True if a signal stopped it (after saving)."""
    with _stop_requests() as requests, _display(run, quiet_stdout) as show:
        for progress in run.progress():
            show(progress)
            if requests:
                run.checkpoint(progress)
                return True
    return False


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in mid-chunk; a second one interrupts at once."""
    requests: list[int] = []

    def handle(number: int, _: Any) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        print("\nstopping after this chunk (again to stop at once) …", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _display(run: Run, quiet_stdout: bool) -> Iterator[Any]:
    """A function that shows progress: a live bar on a terminal, a line every ten seconds elsewhere."""
    stream = sys.stderr if quiet_stdout else sys.stdout
    started, first, last = time.monotonic(), None, 0.0

    def describe(progress: Progress) -> tuple[str, float, float]:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = (progress.updates, now)
        rate = (
            (progress.updates - first[0]) / (now - first[1]) if now > first[1] and progress.updates > first[0] else 0.0
        )
        left = (progress.num_updates - progress.updates) / rate if rate else float("nan")
        shown = ("value_mean", "value_loss", "log_likelihood", "policy_loss")
        metrics = "  ".join(f"{name} {progress.metrics[name].mean():.3g}" for name in shown if name in progress.metrics)
        return metrics, rate, left

    if stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.fields[stage]:>7}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%  {task.fields[text]}"),
        )
        with Bar(*columns, console=Console(file=stream), transient=False) as bar:
            task = bar.add_task("train", total=None, stage="compile", text="")

            def show(progress: Progress) -> None:
                metrics, rate, left = describe(progress)
                ending = f"{rate:,.0f} steps/s  {_clock(left)} left  {metrics}" if rate else metrics
                bar.update(
                    task,
                    total=progress.num_updates,
                    completed=progress.updates,
                    stage=progress.stage.name,
                    text=ending,
                )

            yield show
        return

    def line(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        metrics, rate, left = describe(progress)
        if now - last >= 10 or progress.updates == progress.num_updates:
            last = now
            speed = f"{rate:,.0f} steps/s  {_clock(left)} left" if rate else f"{now - started:.0f} s"
            text = f"{progress.stage.name:>7}  {progress.updates:>9,} / {progress.num_updates:,}  {speed}  {metrics}"
            print(text, file=stream, flush=True)

    yield line


def _clock(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"


def _print_result(run: Run, as_json: bool) -> None:
    if as_json:
        paths = [str(path) for path in run.policy_paths]
        members = [{"name": m.name, "policy": path} for m, path in zip(run.config.members, paths, strict=True)]
        print(json.dumps({"run": str(run.directory), "members": members}))
        return
    print(f"done: {len(run.policy_paths)} in {run.directory / 'policies'}")
    print(f"use it:  policy = vem.load_policy('{run.policy_paths[0]}'); policy.act(observation)")


def _free_directory(config: Config) -> Path:
    base = f"{Path(config.dataset.removeprefix('minari:')).stem}-{config.algorithm}"
    number, path = 1, Path("runs") / base
    while path.exists():
        number += 1
        path = Path("runs") / f"{base}-{number}"
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
