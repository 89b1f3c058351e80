"""What the policies of a run are worth, from trajectories that training did not see."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vem.data.dataset import Dataset, Parts, part_dataset
from vem.data.shards import resident
from vem.errors import RunError, SettingsError
from vem.estimation.fitted_q import FittedQ, fit
from vem.estimation.importance import (
    Decisions,
    Density,
    doubly_robust,
    effective_sample,
    fit_behavior,
    importance_sampling,
    lay_side_by_side,
    policy_density,
)
from vem.estimation.log import (
    Log,
    check_fit,
    find_horizon,
    policy_actions,
    read_log,
    require_starts,
    scale_actions,
    unusual,
    weigh,
)
from vem.estimation.result import FEWEST_TRAJECTORIES, Estimate, GroupEstimate, PolicyEstimate, Value, judge
from vem.evaluation.statistics import CONFIDENCE
from vem.policy import Policy
from vem.training.machine import keep_programs, refusing_to_run_out
from vem.training.request import check_steps
from vem.training.run import Run, open_run

DEFAULT_DISCOUNT = 0.99
NUM_RESAMPLES = 1000


def estimate(
    run_or_policy: Run | Policy | str | Path,
    data: Dataset | str | Path | None = None,
    *,
    discount: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Estimate:
    """Estimate the discounted return of the policies of a finished run, or of one policy, beside that of the log.

    A run, or the path of its directory, is valued on the trajectories it held out (``vem.train(…, hold_out=0.2)``),
    and the result is kept in its directory; one that held out nothing is valued on all of its data, with a warning.
    ``data`` is other data to value it on, and needed for a policy alone, for which nothing is written.

    ``discount`` is γ (default: that of the policies' training, or 0.99). ``steps`` are those of fitted Q evaluation
    (default: by the size of the data). ``progress`` says what is being done.
    """
    say = _say if progress else lambda text: None
    if isinstance(run_or_policy, Policy):
        policies = {str(run_or_policy.info.get("trial", "policy")): run_or_policy}
        if not isinstance(data, Dataset):
            raise SettingsError("a policy alone has no trajectories; give them: vem.estimate(policy, vem.load(PATH))")
        parts, kind, share = _parts_of_policy(run_or_policy, data)
        return estimate_policies(policies, data, parts, kind, share, {}, discount, steps, seed, say)
    run = run_or_policy if isinstance(run_or_policy, Run) else _open(run_or_policy)
    missing = [path.stem for path in run.policy_paths if not path.exists()]
    if missing:
        raise RunError(
            f"{run.directory} has no policy of {', '.join(missing)}: the run has not finished; go on with "
            f"vem train --resume {run.directory}, then estimate it"
        )
    policies = {trial.name: policy for trial, policy in zip(run.config.trials, run.policies, strict=True)}
    swept = {trial.name: trial.swept for trial in run.config.trials}
    if data is None:
        dataset, parts, share = run.dataset, run.parts, run.config.hold_out
        kind, name = ("held out" if share else "all"), None
    else:
        dataset = data if isinstance(data, Dataset) else run.config.load(data)
        parts, share = Parts(dataset, None), 0.0
        kind, name = "other", dataset.info.name
    found = estimate_policies(policies, dataset, parts, kind, share, swept, discount, steps, seed, say)
    run.write_estimate(found.to_json(), name)
    return found


def estimate_policies(
    policies: Mapping[str, Policy],
    dataset: Dataset,
    parts: Parts,
    kind: Literal["held out", "all", "other"],
    share: float,
    swept: Mapping[str, Mapping[str, float]],
    discount: float | None,
    steps: int | None,
    seed: int,
    say: Any,
) -> Estimate:
    """The estimates of policies by name; ``parts`` are the trajectories to fit to and to take means over."""
    started = time.monotonic()
    keep_programs()
    for name, policy in policies.items():
        check_fit(policy, dataset, name)
    discount = _discount(discount, list(policies.values()))
    dataset, training = resident(dataset), resident(parts.training)
    horizon = find_horizon(dataset, discount)
    fitted_to = read_log(training, discount, horizon)
    valued_on = fitted_to if parts.held_out is None else read_log(parts.held_out, discount, horizon)
    require_starts(valued_on, "the held-out data" if kind == "held out" else f"the data {dataset.info.name}")
    valuation = Valuation(fitted_to, valued_on, steps, seed)
    if steps is not None:
        check_steps(steps)
    found = {}
    with refusing_to_run_out():
        for name, policy in policies.items():
            say(f"{name}: fitted Q evaluation on {training.num_transitions:,} transitions")
            found[name] = valuation.value(policy)
    groups = _groups(found, {name: dict(swept.get(name, {})) for name in found}, len(valued_on.starts))
    returns = valued_on.start_returns
    return Estimate(
        data=dataset.info.name,
        data_sha256=dataset.fingerprint(),
        trajectories=kind,
        hold_out=share,
        num_trajectories=len(valued_on.starts),
        num_fitted=int(fitted_to.episode[-1]) + 1,
        discount=discount,
        horizon=horizon,
        log=Value(float(returns.mean()), _around(float(returns.mean()), _error_of_mean(returns), len(returns) - 1)),
        policies=found,
        groups=groups,
        warnings=tuple(_warnings(kind, len(valued_on.starts))),
        seconds=round(time.monotonic() - started, 2),
    )


class Valuation:
    """Values policies on one log; the behavior behind it is fitted once, when a policy needs it."""

    def __init__(self, fitted_to: Log, valued_on: Log, steps: int | None = None, seed: int = 0) -> None:
        self.fitted_to, self.log, self.steps, self.seed = fitted_to, valued_on, steps, seed

    @cached_property
    def behavior(self) -> Density:
        """The density of the log's actions."""
        return fit_behavior(self.fitted_to.dataset)

    @cached_property
    def border(self) -> float:
        """The log-density that all but a quarter of recorded actions exceed."""
        return unusual(self.behavior, self.log.dataset)

    @cached_property
    def _rows(self) -> np.ndarray:
        """The rows of the trajectories that are valued, up to the horizon."""
        steps = [np.arange(at, at + count) for at, count in zip(self.log.starts, self.log.lengths, strict=True)]
        return np.concatenate(steps)

    @cached_property
    def _firsts(self) -> np.ndarray:
        """Where each trajectory begins among those rows."""
        return np.cumsum(self.log.lengths) - self.log.lengths

    def value(self, policy: Policy) -> PolicyEstimate:
        """The estimates of one policy."""
        log, dataset, rows = self.log, self.log.dataset, self._rows
        acted = policy_actions(policy, self.fitted_to.dataset)
        support = weigh(self.behavior, self.border, self.fitted_to.dataset.observations, acted)
        fitted = fit(self.fitted_to, acted, support, self.steps, seed=self.seed)
        own = acted if log is self.fitted_to else policy_actions(policy, dataset)
        observed, mass = dataset.observations[rows], log.mass[rows]
        recorded = scale_actions(dataset.actions[rows], dataset)
        weight = weigh(self.behavior, self.border, observed, own[rows])
        q, v = (fitted.values(observed, mass, actions) for actions in (recorded, own[rows]))
        v[1] = weight * v[1] + (1 - weight) * fitted.unit.lost(mass)
        factors = log.discount ** (np.arange(len(rows)) - np.repeat(self._firsts, log.lengths))
        gains = np.add.reduceat(factors * (v - q), self._firsts, axis=2)
        # No trajectory can earn more or less than the steps that the log has.
        gains = fitted.unit.clip(log.start_returns + gains, np.ones(1)) - log.start_returns
        bold, cautious = (_combined(v[i][:, self._firsts], gains[i], log.start_returns) for i in (0, 1))
        value, difference = _reaching(cautious[0], bold[0]), _reaching(cautious[1], bold[1])
        weighted = self._weighted(policy, fitted, q[0].mean(0), recorded)
        verdict, reason = judge(difference, len(log.starts))
        return PolicyEstimate(
            value,
            difference,
            bold[0],
            *weighted,
            **cautious[2],
            supported=float(weight.mean()),
            verdict=verdict,
            reason=reason,
        )

    def _weighted(self, policy: Policy, fitted: FittedQ, q: np.ndarray, recorded: np.ndarray) -> tuple[Value, Value]:
        """The two estimates that weigh trajectories, of the policy with sampled actions."""
        density = policy_density(policy)
        if density is None:
            nothing = Value(None, problem="the policy always acts the same in a state, so its actions have no density")
            return nothing, nothing
        log, rows = self.log, self._rows
        observed = log.dataset.observations[rows]
        ratios = density(observed, recorded) - self.behavior(observed, recorded)
        sampled = policy_actions(policy, log.dataset, self.seed)[rows]
        v = fitted.values(observed, log.mass[rows], sampled)[0].mean(0)
        columns = [log.dataset.rewards[rows].astype(np.float64), ratios, q, v]
        laid = (lay_side_by_side(column, self._firsts, log.lengths) for column in columns)
        decisions = Decisions(*laid, discount=log.discount)
        left = effective_sample(decisions)
        problem = None
        if left < FEWEST_TRAJECTORIES:
            problem = (
                f"its weights leave {left:.1f} of {len(log.starts)} trajectories, and fewer than {FEWEST_TRAJECTORIES} "
                "say nothing"
            )
            return Value(None, None, problem, left), Value(None, None, problem, left)
        counts = np.random.default_rng(self.seed).multinomial(
            len(log.starts), np.full(len(log.starts), 1 / len(log.starts)), NUM_RESAMPLES
        )
        tail = 50 * (1 - CONFIDENCE)
        values = []
        for of in (importance_sampling, doubly_robust):
            low, high = np.percentile(of(decisions, counts.astype(np.float64)), [tail, 100 - tail])
            values.append(Value(float(of(decisions)[0]), (float(low), float(high)), None, left))
        return values[0], values[1]


def _combined(q: np.ndarray, gains: np.ndarray, returns: np.ndarray) -> tuple[Value, Value, dict[str, Any]]:
    """Value and difference from Q at the starts and gains along the trajectories, (networks, trajectories)."""
    fitted, anchored = float(q.mean()), float(returns.mean() + gains.mean())
    both = (q + returns + gains) / 2
    refits, starts = both.mean(axis=1), both.mean(axis=0)
    value, freedom = float(both.mean()), min(both.shape) - 1
    # What other trajectories would have taught the networks, and how far they are from solving their own equation.
    model = refits.var(ddof=1) + (fitted - anchored) ** 2 / 4
    errors = [float(np.sqrt(model + _error_of_mean(of) ** 2)) for of in (starts, starts - returns)]
    gap = value - float(returns.mean())
    facts = {"fitted": fitted, "anchored": anchored, "refits": tuple(refits.tolist())}
    return Value(value, _around(value, errors[0], freedom)), Value(gap, _around(gap, errors[1], freedom)), facts


def _reaching(cautious: Value, bold: Value) -> Value:
    """The cautious value, whose interval reaches as far up as the bold one's."""
    if cautious.interval is None or bold.interval is None:
        return cautious
    return cautious._replace(interval=(cautious.interval[0], max(cautious.interval[1], bold.interval[1])))


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def _around(value: float, error: float, freedom: int) -> tuple[float, float] | None:
    """The 95 % interval of Student's t; None where it is not finite."""
    from scipy.stats import t

    if freedom < 1 or not np.isfinite(error):
        return None
    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    return value - half, value + half


def _say(text: str) -> None:
    print(text, flush=True)


def _open(path: Any) -> Run:
    if not isinstance(path, str | Path):
        raise SettingsError(f"{path!r} cannot be estimated; give a run, its directory or a policy")
    return open_run(path)


def _parts_of_policy(policy: Policy, data: Dataset) -> tuple[Parts, Literal["held out", "all", "other"], float]:
    """The parts of the data for a policy alone: its file says what was held out of which data."""
    share = float(policy.info.get("hold_out", 0.0))
    if share and policy.info.get("data_sha256") == data.fingerprint():
        return part_dataset(data, share), "held out", share
    return Parts(data, None), "other", 0.0


def training_discount(policies: Sequence[Policy]) -> float:
    """The largest discount that the policies were trained with; 0.99 for methods that have none."""
    return max(float(policy.info.get("settings", {}).get("discount", DEFAULT_DISCOUNT)) for policy in policies)


def _discount(given: float | None, policies: Sequence[Policy]) -> float:
    if given is None:
        return training_discount(policies)
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < 1:
        raise SettingsError(f"--discount is {given!r}; it must be at least 0 and below 1")
    return float(given)


def _warnings(kind: str, num_trajectories: int) -> list[str]:
    found = []
    if kind == "all":
        found.append(
            "warning: nothing was held out, so the trajectories are those that training saw and the estimate flatters; "
            "train with --hold-out 0.2"
        )
    if kind == "other":
        found.append("the trajectories are other data than the run's own: whether training saw some is not known")
    if num_trajectories < FEWEST_TRAJECTORIES:
        found.append(f"warning: {num_trajectories} trajectories are too few for an interval; hold out more")
    return found


def _groups(
    found: Mapping[str, PolicyEstimate], swept: Mapping[str, dict[str, float]], num_trajectories: int
) -> tuple[GroupEstimate, ...]:
    """Means over the policies that differ by their seed alone.

    Their errors come from the same trajectories, so averaging does not make the interval narrower.
    """
    combinations: dict[str, list[str]] = {}
    for name, settings in swept.items():
        combinations.setdefault(json.dumps(settings), []).append(name)
    groups = []
    for text, names in combinations.items():
        value, difference = (
            _mean([getattr(found[name], field) for name in names]) for field in ("value", "difference")
        )
        verdict, reason = judge(difference, num_trajectories)
        supported = float(np.mean([found[name].supported for name in names]))
        groups.append(GroupEstimate(json.loads(text), tuple(names), value, difference, supported, verdict, reason))
    return tuple(groups)


def _mean(values: Sequence[Value]) -> Value:
    known = [value.interval for value in values if value.interval is not None]
    interval = None
    if len(known) == len(values):
        interval = (float(np.mean([ends[0] for ends in known])), float(np.mean([ends[1] for ends in known])))
    return Value(float(np.mean([value.value for value in values if value.value is not None])), interval)
