"""``vem train`` with no dataset: the built-in maze, one method beside behavior cloning, one table, one report."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vem.evaluation.results import Evaluation
    from vem.training.run import Run


MAZE = "pointmaze-medium"
FILE = "example.json"
VERSION = 1
NUM_EPISODES = 100
NUM_STEPS = 16_000
NUM_BC_STEPS = 6_000
"""Behavior cloning has one network of VEM's three and has settled by then."""

NEXT = """what to try next:
  open {report}
  vem train pointmaze-large --seeds 3                          a longer maze
  vem train --expectile 0.1,0.5,0.9                            what the expectile does
  vem train YOUR_FILE.hdf5 --seeds 3                           your own logs (docs/data.md)
  vem data describe {maze} --plot maze.png         look at the data first"""


@dataclass(frozen=True)
class Part:
    """One run of the example."""

    algorithm: str
    steps: int
    seeds: int | list[int]
    preset: str = "default"
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    rules: dict[str, Any] = dataclasses.field(default_factory=dict)
    evaluate_every: float | None = None


def is_example(path: str | Path) -> bool:
    """Whether a directory holds the example rather than one run."""
    return (Path(path) / FILE).is_file()


def run(options: argparse.Namespace) -> int:
    """Record, train both methods, evaluate them and the behavior, write the report."""
    from vem.errors import require

    require("jax", "gymnasium", "gymnasium_robotics", "mujoco", "matplotlib", "jinja2")
    from vem.api import free_directory
    from vem.storage import write_json
    from vem.training.run import Run

    parts = _parts(options)
    if options.out is None:
        files = free_directory("first")
    else:
        files = Run(options.out)
        files.reserve()
    try:
        write_json(files.directory / FILE, {"version": VERSION, "parts": [dataclasses.asdict(part) for part in parts]})
        if not options.json:
            print(f"no dataset given: the built-in {MAZE}, recorded by a noisy walker that seldom solves the task")
        return _complete(files, parts, options)
    finally:
        files.release()


def resume(options: argparse.Namespace) -> int:
    """Do what is left of the example in ``options.resume``."""
    from vem.errors import SettingsError
    from vem.training.run import Run

    given = [name for name in ("dataset", "data_dir", "evaluate_every", "steps") if getattr(options, name) is not None]
    if given:
        names = ", ".join(name.replace("_", "-") for name in given)
        raise SettingsError(f"the example keeps its data and settings; leave out {names}")
    files = Run(options.resume)
    with files.lock():
        return _complete(files, _read_parts(files.directory / FILE), options)


def _parts(options: argparse.Namespace) -> list[Part]:
    """The runs that the options ask for, checked: the chosen method, and behavior cloning beside it."""
    from vem.cli.train import given_rules, given_settings, parse_seeds
    from vem.errors import SettingsError
    from vem.training.request import make_request

    unused = [name for name in ("data_dir", "task") if getattr(options, name) is not None]
    if unused:
        flags = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise SettingsError(f"without a dataset the built-in {MAZE} is used; leave out {flags}, or give a dataset")
    algorithm, rules = options.algorithm or "vem", given_rules(options)
    seeds = int(options.seeds or 3) if options.seed is None else parse_seeds(options.seed)
    num_steps = NUM_BC_STEPS if algorithm == "bc" else NUM_STEPS
    chosen = Part(
        algorithm,
        num_steps if options.steps is None else options.steps,
        seeds,
        options.preset or "default",
        given_settings(options),
        rules,
        options.evaluate_every,
    )
    parts = [chosen]
    if algorithm != "bc":
        parts.append(Part("bc", NUM_BC_STEPS if options.steps is None else options.steps, seeds, rules=rules))
    for part in parts:
        make_request(
            MAZE, part.algorithm, preset=part.preset, settings=part.settings, seeds=part.seeds, rules=part.rules
        )
    return parts


def _read_parts(path: Path) -> list[Part]:
    from vem.errors import RunError

    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["version"] != VERSION:
            raise RunError(f"{path} has version {stored['version']}; this vem reads version {VERSION}")
        return [Part(**part) for part in stored["parts"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}); start the example again with vem train") from None


def _complete(files: Run, parts: list[Part], options: argparse.Namespace) -> int:
    """Train what is not trained, evaluate everything, write the report and print the table."""
    from vem.errors import Stopped
    from vem.reports.report import write_report

    started, directory = time.monotonic(), files.directory
    paths = [directory / part.algorithm for part in parts]
    try:
        for part, path in zip(parts, paths, strict=True):
            _train(part, path, options)
    except Stopped:
        raise Stopped(f"stopped and saved; go on with: vem train --resume {directory}") from None
    except KeyboardInterrupt:
        raise Stopped(f"stopped; go on with: vem train --resume {directory}") from None
    if not options.json:
        print(f"evaluating {NUM_EPISODES} episodes of each policy and of the walker itself", flush=True)
    evaluations = _evaluate(paths)
    report = write_report(paths, directory / "report").page
    if options.json:
        scores = {name: evaluation.to_json() for name, evaluation in evaluations.items()}
        print(json.dumps({"runs": [str(path) for path in paths], "report": str(report), "scores": scores}))
        return 0
    _print_table(evaluations)
    print(NEXT.format(report=report, maze=MAZE))
    print(f"done in {time.monotonic() - started:.0f} s")
    return 0


def _train(part: Part, path: Path, options: argparse.Namespace) -> None:
    """Train a part of the example, or go on with it."""
    from vem import api

    watching: dict[str, Any] = {
        "progress": not options.json,
        "checkpoint_seconds": options.checkpoint_seconds,
        "keep_programs": not options.no_cache,
    }
    if (path / "config.json").exists():
        api.resume(path, evaluate_every=part.evaluate_every, **watching)
        return
    api.train(
        MAZE,
        part.algorithm,
        preset=part.preset,
        seeds=part.seeds,
        steps=part.steps,
        settings=part.settings,
        rules=part.rules,
        evaluate_every=part.evaluate_every,
        out=path,
        **watching,
    )


def _evaluate(paths: list[Path]) -> dict[str, Evaluation]:
    """The evaluations of the runs, and that of the behavior itself from the same starts."""
    from vem.evaluation.environments import find_target
    from vem.evaluation.evaluate import evaluate
    from vem.evaluation.results import summarize
    from vem.evaluation.rollout import waypoint_actor
    from vem.evaluation.workers import Evaluator

    found = {path.name: evaluate(path, episodes=NUM_EPISODES) for path in paths}
    target = find_target(paths[0])
    with Evaluator(target.environment) as evaluator:
        records = evaluator.evaluate({"behavior": waypoint_actor}, NUM_EPISODES)
    trials, groups = summarize(records, {"behavior": {}}, target.references)
    first = next(iter(found.values()))
    return {**found, "behavior": dataclasses.replace(first, steps=None, trials=trials, groups=groups)}


def _print_table(evaluations: dict[str, Evaluation]) -> None:
    from vem.evaluation.statistics import Table

    rows = []
    for name, evaluation in evaluations.items():
        for group in evaluation.groups:
            label = " ".join([name, *(f"{key} {value:g}" for key, value in group.settings.items())])
            success, length = group.quantities["success"], group.quantities["length"]
            spread = "" if success.std is None else f" ± {100 * success.std:.1f}"
            low, high = success.interval or (success.mean,) * 2
            mean, interval = f"{100 * success.mean:.1f}{spread}", f"[{100 * low:.1f}, {100 * high:.1f}]"
            rows.append([label, str(len(group.trials)), mean, interval, f"{length.mean:.0f}"])
    header = ["method", "seeds", "success %, mean ± std", "IQM's 95 % interval", "steps"]
    Table(f"{MAZE}: {NUM_EPISODES} episodes a seed", header, rows).print()
