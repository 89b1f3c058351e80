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

from vem.errors import RunError, SettingsError
from vem.evaluation.environments import RunTarget, environment_references, find_target, named_environment
from vem.evaluation.results import Evaluation, summarize
from vem.evaluation.rollout import Environment
from vem.evaluation.workers import Evaluator
from vem.policy import Policy, load_policy
from vem.training.records import Actions, EpisodeRecord
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
) -> Evaluation:
    """Evaluate the policies of a finished run, or one policy.

    A run, or the path of its directory, is evaluated in the environment of its data unless another is given, and the
    result is kept in its directory. For a policy nothing is written. ``environment`` is a Gymnasium id, the name of a
    task, or a function that makes an environment. Episode i has the same seed for every policy, and ``workers``, the
    number of processes (default: one a core), changes nothing but the time. Actions are sampled if ``stochastic``, else
    the policy's mean; None: sampled for policies that say so (``Policy.is_drawn``), as guided ones do. ``progress``
    counts the episodes on a terminal.
    """
    if isinstance(run_or_policy, Policy):
        return _evaluate_policy(run_or_policy, environment, episodes, seed, workers, stochastic, progress)
    directory = getattr(run_or_policy, "directory", run_or_policy)
    if not isinstance(directory, str | Path):
        raise SettingsError(f"{run_or_policy!r} cannot be evaluated; give a run, its directory or a policy")
    target = find_target(directory, environment)
    missing = [path.stem for path in target.files.policy_paths if not path.exists()]
    if missing:
        raise RunError(
            f"{directory} has no policy of {', '.join(missing)}: the run has not finished; go on with "
            f"vem train --resume {directory}, then evaluate it"
        )
    policies = [load_policy(path) for path in target.files.policy_paths]
    with Evaluator(target.environment, workers) as evaluator, _counter(progress) as show:
        return evaluate_run_at(
            target,
            policies,
            target.steps,
            evaluator,
            episodes,
            seed,
            is_stochastic=stochastic,
            num_paths=NUM_PATHS,
            show=show,
        )


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
    records = [
        dataclasses.replace(record, steps=steps, environment=target.other_environment)
        for record in _episodes(evaluator, actors, num_episodes, seed, is_stochastic, num_paths, show)
    ]
    target.files.write_episodes(records)
    evaluation = Evaluation(
        target.environment_name,
        target.references,
        num_episodes,
        seed,
        how_acting(policies, is_stochastic),
        steps,
        *summarize(records, target.trials, target.references),
    )
    target.files.write_summary(evaluation.to_json(), target.other_environment)
    return evaluation


def _evaluate_policy(
    policy: Policy,
    environment: Environment | None,
    episodes: int,
    seed: int,
    workers: int | None,
    stochastic: bool | None,
    progress: bool,
) -> Evaluation:
    environment = environment or named_environment(policy.info.get("environment"))
    if environment is None:
        raise SettingsError("the policy names no environment; give one: evaluate(policy, environment)")
    name, references = environment_references(environment)
    trial = str(policy.info.get("trial", "policy"))
    with Evaluator(environment, workers) as evaluator, _counter(progress) as show:
        records = _episodes(evaluator, {trial: policy}, episodes, seed, stochastic, 0, show)
    results = summarize(records, {trial: {}}, references)
    actions = how_acting([policy], stochastic)
    return Evaluation(name, references, episodes, seed, actions, policy.info.get("steps"), *results)


def how_acting(policies: Iterable[Policy], is_stochastic: bool | None = None) -> Actions:
    """How the policies act in an evaluation; None: each as it says."""
    found = {policy.is_drawn for policy in policies} if is_stochastic is None else {is_stochastic}
    return "both" if len(found) > 1 else "sampled" if found == {True} else "mean"


def _episodes(
    evaluator: Evaluator,
    actors: dict[str, Policy],
    num_episodes: int,
    seed: int,
    is_stochastic: bool | None,
    num_paths: int,
    show: Callable[[int, int], None],
) -> list[EpisodeRecord]:
    """The records in the order of the actors and of the episodes."""
    total = num_episodes * len(actors)
    records: list[EpisodeRecord] = []
    for record in evaluator.episodes(actors, num_episodes, seed, is_stochastic=is_stochastic, num_paths=num_paths):
        records.append(record)
        show(len(records), total)
    order = {name: index for index, name in enumerate(actors)}
    return sorted(records, key=lambda record: (order[record.trial], record.episode))


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
