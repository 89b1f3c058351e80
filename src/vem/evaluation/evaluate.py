"""Evaluation of a run or a policy: episodes in an environment → scores and statistics.

What a run gives is kept in its directory (``vem.training.run``), evaluations in other environments than the data's
own beside that in its own.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from vem.errors import RunError, SettingsError, require
from vem.evaluation.environments import RunTarget, environment_references, find_target, named_environment
from vem.evaluation.results import Evaluation, summarize
from vem.evaluation.rollout import Environment
from vem.evaluation.video import record_videos
from vem.evaluation.workers import Evaluator
from vem.policy import Policy, load_policy
from vem.training.records import Actions
from vem.training.request import check_period

if TYPE_CHECKING:
    from vem.training.loop import Progress
    from vem.training.run import Callback, Run


NUM_PATHS = 20
"""Episodes of each trial that keep their path in mazes."""


def evaluate(
    run_or_policy: Run | Policy | str | Path,
    environment: Environment | None = None,
    episodes: int = 100,
    seed: int = 0,
    workers: int | None = None,
    stochastic: bool | None = None,
    progress: bool = True,
    video: str | Path | None = None,
) -> Evaluation:
    """Evaluate the policies of a finished run, or one policy.

    A run, or the path of its directory, is evaluated in the environment of its data unless another is given, and the
    result is kept in its directory. For a policy nothing is written. ``environment`` is a Gymnasium id, the name of a
    task, or a function that makes an environment. Episode i has the same seed for every policy, and ``workers``, the
    number of processes (default: one a core), changes nothing but the time. Actions are sampled if ``stochastic``, else
    the policy's mean; None: sampled for policies that say so (``Policy.is_drawn``), as guided ones do. ``progress``
    counts the episodes on a terminal. ``video`` is a directory for a video of each policy's first episode.
    """
    if video is not None:
        require("gymnasium", "moviepy")
    target = None
    if isinstance(run_or_policy, Policy):
        policies = {str(run_or_policy.info.get("trial", "policy")): run_or_policy}
        environment = environment or named_environment(run_or_policy.info.get("environment"))
        if environment is None:
            raise SettingsError("the policy names no environment; give one: evaluate(policy, environment)")
    else:
        target = find_target(_directory(run_or_policy), environment)
        policies = finished_policies(target.files)
        environment = target.environment
    with Evaluator(environment, workers) as evaluator, _counter(progress) as show:
        how = {"is_stochastic": stochastic, "show": show}
        if target is not None:
            acting = list(policies.values())
            found = evaluate_run_at(target, acting, target.steps, evaluator, episodes, seed, num_paths=NUM_PATHS, **how)
        else:
            [(trial, policy)] = policies.items()
            name, references = environment_references(environment)
            results = summarize(evaluator.evaluate(policies, episodes, seed, **how), {trial: {}}, references)
            actions, steps = how_acting([policy], stochastic), policy.info.get("steps")
            found = Evaluation(name, references, episodes, seed, actions, steps, *results)
    if video is not None:
        record_videos(environment, policies, video, seed, stochastic)
    return found


def evaluate_run_at(
    target: RunTarget,
    policies: Sequence[Policy],
    steps: int,
    evaluator: Evaluator,
    num_episodes: int = 20,
    seed: int = 0,
    *,
    is_stochastic: bool | None = None,
    num_paths: int = 0,
    show: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluation:
    """Evaluate ``policies``, in the trials' order, as they are after ``steps``; one point of a training curve.

    Writes the episodes and the summary into the run directory. ``show`` is called with the episodes done and to do.
    """
    actors = dict(zip(target.trials, policies, strict=True))
    done = evaluator.evaluate(actors, num_episodes, seed, is_stochastic=is_stochastic, num_paths=num_paths, show=show)
    records = [dataclasses.replace(record, steps=steps, environment=target.other_environment) for record in done]
    target.files.write_episodes(records)
    results = summarize(records, target.trials, target.references)
    actions = how_acting(policies, is_stochastic)
    found = Evaluation(target.environment_name, target.references, num_episodes, seed, actions, steps, *results)
    target.files.write_summary(found.to_json(), target.other_environment)
    return found


def how_acting(policies: Iterable[Policy], is_stochastic: bool | None = None) -> Actions:
    """How the policies act in an evaluation; None: each as it says."""
    sampled = {policy.is_drawn for policy in policies} if is_stochastic is None else {is_stochastic}
    return "both" if len(sampled) > 1 else "sampled" if sampled == {True} else "mean"


def _directory(run: Run | str | Path) -> str | Path:
    directory = getattr(run, "directory", run)
    if not isinstance(directory, str | Path):
        raise SettingsError(f"{run!r} cannot be evaluated; give a run, its directory or a policy")
    return directory


def finished_policies(run: Run) -> dict[str, Policy]:
    """The policies of a finished run by the names of its trials; RunError if some are missing."""
    missing = [path.stem for path in run.policy_paths if not path.exists()]
    if missing:
        raise RunError(
            f"{run.directory} has no policy of {', '.join(missing)}: the run has not finished; go on with "
            f"vem train --resume {run.directory} first"
        )
    names = [trial.name for trial in run.config.trials]
    return dict(zip(names, map(load_policy, run.policy_paths), strict=True))


@contextmanager
def _counter(is_wanted: bool) -> Iterator[Callable[[int, int], None]]:
    """A function that shows the episodes done, on a terminal."""
    if not (is_wanted and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("episodes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# Evaluation on the way: the policies of a run whenever some more steps are done, and at the end.


NUM_EPISODES = 20
"""Episodes of each policy on the way."""
NUM_LAST_EPISODES = 100


def num_periods(steps: int, num_steps: int, every: float) -> int:
    """How many periods are over after so many of the steps."""
    if isinstance(every, int):
        return steps // every
    return math.floor(steps / num_steps / every + 1e-9)  # 0.6 / 0.2 is 3


@contextmanager
def evaluating(run: Run, every: float | None, after: Callable[[Run], object] | None = None) -> Iterator[list[Callback]]:
    """The callbacks for ``run.train``: one that evaluates after every period and at the end, or none.

    ``after`` is called with the run after each evaluation.
    """
    check_period(every)
    if every is None or run.is_finished:
        yield []
        return
    target = find_target(run.directory)
    before = run.steps_done
    with Evaluator(target.environment) as evaluator:

        def evaluate(run: Run, progress: Progress) -> None:
            nonlocal before
            is_last = progress.steps == progress.num_steps
            done, done_before = (num_periods(steps, progress.num_steps, every) for steps in (progress.steps, before))
            before = progress.steps
            if is_last or (done > done_before and progress.stage.trains_policy):
                policies = run.keep_policies(progress)
                count, num_paths = (NUM_LAST_EPISODES, NUM_PATHS) if is_last else (NUM_EPISODES, 0)
                evaluate_run_at(target, policies, progress.steps, evaluator, count, num_paths=num_paths)
                if after is not None:
                    after(run)

        yield [evaluate]
