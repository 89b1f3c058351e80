"""Evaluation on the way: the policies of a run whenever some more steps are done, and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vem.evaluation.environments import find_target
from vem.evaluation.evaluate import NUM_PATHS, evaluate_run_at
from vem.evaluation.workers import Evaluator
from vem.runs.config import check_period

if TYPE_CHECKING:
    from vem.runs.loop import Progress
    from vem.runs.run import Callback, Run

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
                policies = run.export(progress.snapshot.state)
                count, num_paths = (NUM_LAST_EPISODES, NUM_PATHS) if is_last else (NUM_EPISODES, 0)
                evaluate_run_at(target, policies, progress.steps, evaluator, count, num_paths=num_paths)
                if after is not None:
                    after(run)

        yield [evaluate]
