"""Estimates on the way: what the policies of a run without an environment are worth, whenever some steps are done."""

from __future__ import annotations

from vem.estimation.estimate import estimate
from vem.evaluation.evaluate import num_periods
from vem.training.loop import Progress
from vem.training.records import PointEstimate
from vem.training.run import Callback, Run

NUM_STEPS = 2_000
"""Steps of fitted Q evaluation for each policy: a fraction of what ``vem.estimate`` takes, enough to compare points."""


def estimating(run: Run, every: float) -> Callback:
    """A callback that keeps the policies after every period and at the end, with their held-out estimates."""
    before = run.steps_done

    def estimate_point(run: Run, progress: Progress) -> None:
        nonlocal before
        is_last = progress.steps == progress.num_steps
        done, done_before = (num_periods(steps, progress.num_steps, every) for steps in (progress.steps, before))
        before = progress.steps
        if not is_last and not (done > done_before and progress.stage.trains_policy):
            return
        policies = zip(run.config.trials, run.keep_policies(progress), strict=True)
        estimates = {trial.name: estimate(policy, run.dataset, steps=NUM_STEPS) for trial, policy in policies}
        values = {name: found.groups[0].value.value for name, found in estimates.items()}
        if all(value is not None for value in values.values()):
            run.write_point_estimate(
                PointEstimate(progress.steps, {n: float(v) for n, v in values.items() if v is not None})
            )

    return estimate_point
