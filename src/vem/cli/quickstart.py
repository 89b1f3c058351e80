"""``vem train`` with no dataset: the built-in maze, VEM beside cloning, one table, one report."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

MAZE = "pointmaze-medium"
NUM_EPISODES = 100
NUM_STEPS = {"vem": 16_000, "bc": 6_000}
"""Cloning has one network of VEM's three and has settled by then."""

NEXT = """what to try next:
  open {report}
  vem train pointmaze-large --seeds 3                          a longer maze
  vem train --expectile 0.1,0.5,0.9                            what the expectile does
  vem train YOUR_FILE.hdf5 --seeds 3                           your own logs (docs/data.md)
  vem data describe {maze} --plot maze.png         look at the data first"""


def run(options: argparse.Namespace) -> int:
    """Record, train both methods, evaluate them and the behavior, write the report."""
    from vem.cli.train import free_directory, headline, make_config, train
    from vem.report import write_report
    from vem.runs.run import create_run, load_data

    started = time.monotonic()
    say = lambda text: print(text, file=sys.stderr if options.json else sys.stdout, flush=True)
    directory = Path(options.out) if options.out else free_directory("first")
    say(f"no dataset given: the built-in {MAZE}, recorded by a noisy walker that never solves the task from its start")
    summaries: dict[str, Any] = {}
    paths = []
    for algorithm, num_steps in NUM_STEPS.items():
        chosen = (
            options if algorithm == "vem" else argparse.Namespace(**{**vars(options), **_without_settings(options)})
        )
        config = make_config(chosen, MAZE, algorithm, num_seeds="3", num_steps=num_steps)
        training = create_run(directory / algorithm, config, load_data(config))
        training.seconds_per_checkpoint = options.checkpoint_seconds
        say(headline(training))
        if train(training, options.json):
            say(f"stopped and saved; go on with: vem train --resume {training.directory}")
            return 130
        paths.append(training.directory)
    summaries = _evaluate(paths, say)
    report = write_report(paths, directory / "report").page
    if options.json:
        print(json.dumps({"runs": [str(path) for path in paths], "report": str(report), "scores": summaries}))
        return 0
    _print_table(summaries)
    print(NEXT.format(report=report, maze=MAZE))
    print(f"done in {time.monotonic() - started:.0f} s")
    return 0


def _without_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Flags of VEM's settings are not cloning's."""
    return {name: None for name in vars(options) if name.startswith("set_")} | {"preset": "default"}


def _evaluate(paths: list[Path], say: Any) -> dict[str, Any]:
    """The summaries of both runs, and the means of the behavior itself from the same starts."""
    from vem.evaluation.environments import find_target
    from vem.evaluation.evaluate import evaluate_run, summarize
    from vem.evaluation.rollout import waypoint_actor
    from vem.evaluation.workers import Evaluator

    say(f"evaluating {NUM_EPISODES} episodes of each policy and of the walker itself")
    summaries = {path.name: evaluate_run(path, NUM_EPISODES) for path in paths}
    target = find_target(paths[0])
    with Evaluator(target.environment) as evaluator:
        records = evaluator.evaluate({"behavior": waypoint_actor}, NUM_EPISODES)
    summaries["behavior"] = summarize(records, {"behavior": {}}, target.references)
    return summaries


def _print_table(summaries: dict[str, Any]) -> None:
    from vem.cli.evaluate import print_table

    rows = []
    for name, summary in summaries.items():
        for group in summary["groups"]:
            label = " ".join([name, *(f"{key} {value:g}" for key, value in group["settings"].items())])
            success, length = group["success"], group["length"]
            spread = "" if success["std"] is None else f" ± {100 * success['std']:.1f}"
            low, high = success["interval"] or (success["mean"],) * 2
            interval = f"[{100 * low:.1f}, {100 * high:.1f}]"
            rows.append(
                [
                    label,
                    str(len(group["members"])),
                    f"{100 * success['mean']:.1f}{spread}",
                    interval,
                    f"{length['mean']:.0f}",
                ]
            )
    header = ["method", "seeds", "success %, mean ± std", "IQM's 95 % interval", "steps"]
    print_table(f"{MAZE}: {NUM_EPISODES} episodes a seed", header, rows)
