"""What the policies of a run are worth, from trajectories that training did not see.

First what estimating gives: values of policies beside that of the log, with intervals, and a verdict. Then how.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from vem.data.dataset import Dataset, Parts, part_dataset
from vem.data.shards import resident
from vem.errors import SettingsError
from vem.estimation.fitted_q import FittedQ, fit
from vem.estimation.importance import (
    Decisions,
    Density,
    effective_sample,
    fit_behavior,
    lay_side_by_side,
    policy_density,
    support_border,
    support_weight,
    weighted_estimates,
)
from vem.estimation.log import (
    Log,
    check_fit,
    find_horizon,
    policy_actions,
    read_log,
    require_starts,
    scale_actions,
)
from vem.evaluation.evaluate import finished_policies
from vem.evaluation.results import same_settings, settings_text
from vem.evaluation.statistics import CONFIDENCE, Table, Tabled
from vem.policy import Policy
from vem.storage import misfit
from vem.training.machine import keep_programs, refusing_to_run_out
from vem.training.records import EstimateSummary
from vem.training.request import check_steps
from vem.training.run import Run, open_run

ESTIMATE_VERSION = 3
FEWEST_TRAJECTORIES = 5
"""Trajectories below which no verdict is given, and effective trajectories below which weights are of no use."""

Verdict = Literal["better", "worse", "cannot tell"]
Kind = Literal["held out", "all", "other"]
KINDS: dict[Kind, str] = {
    "held out": "held-out trajectories",
    "all": "trajectories",
    "other": "trajectories of other data",
}

UNJUDGED: dict[str, Any] = {
    "verdict": "cannot tell",
    "reason": "cannot tell: training saw these trajectories, which flatters; train with --hold-out 0.2",
}
"""The verdict on a policy by the trajectories of its own training."""


class Value(NamedTuple):
    """An estimate of E[Σ_{t<H} γᵗ·r_t], or why there is none."""

    value: float | None
    interval: tuple[float, float] | None = None
    """95 %."""
    problem: str | None = None
    """Why it cannot be used, if it cannot."""
    effective_sample: float | None = None
    """Trajectories that importance weights leave."""

    @property
    def text(self) -> str:
        """Value and interval as a table shows them."""
        if self.value is None:
            return "-"
        ends = "" if self.interval is None else f" [{', '.join(map(_number, self.interval))}]"
        return _number(self.value) + ends


@dataclass(frozen=True)
class PolicyEstimate:
    """The estimates of one policy."""

    value: Value
    """From support-weighted fitted Q evaluation: the policy's mean, or likeliest, action; reaches up to ``plain``."""
    difference: Value
    """The policy minus the log."""
    plain: Value
    """The value if Q is right where the log holds no action like the policy's."""
    importance: Value
    """Weighted per-decision importance sampling: the policy with sampled actions."""
    doubly_robust: Value
    """The same, with fitted Q as what is known without weights."""
    fitted: float
    """Mean of Q(s_0, π(s_0)) alone."""
    anchored: float
    """The log's return plus the mean of Σ γᵗ·[Q(s_t, π(s_t)) − Q(s_t, a_t)] along its trajectories."""
    refits: tuple[float, ...]
    """The value by each network, fitted to other draws of the trajectories."""
    supported: float
    """Mean of w over the trajectories: how far the log holds actions like the policy's."""
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class GroupEstimate:
    """The policies that differ by their seed alone."""

    settings: dict[str, float]
    trials: tuple[str, ...]
    value: Value
    difference: Value
    supported: float
    """How far the log holds actions like the policies', in the mean."""
    verdict: Verdict
    reason: str


@dataclass(frozen=True, repr=False)
class Estimate(Tabled):
    """The estimates of one or more policies on one log; printing it gives a table."""

    data: str
    """Name of the data."""
    data_sha256: str
    """Fingerprint of the data that the estimates were made on, held out or not."""
    trajectories: Kind
    """Which trajectories the values are of: held out of training, all that training saw, or other data."""
    hold_out: float
    num_trajectories: int
    """Trajectories whose return is known, that the values are means over."""
    num_fitted: int
    """Trajectories that the networks were fitted to."""
    discount: float
    horizon: int
    """H: steps over which returns are compared."""
    log: Value
    """The discounted return of the trajectories."""
    policies: dict[str, PolicyEstimate]
    groups: tuple[GroupEstimate, ...]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """That of the first group."""
        return self.groups[0].verdict

    @property
    def value(self) -> Value:
        """That of the first group."""
        return self.groups[0].value

    @property
    def difference(self) -> Value:
        """That of the first group."""
        return self.groups[0].difference

    @property
    def table(self) -> Table:
        """The table that ``vem estimate`` prints."""
        header = ["policy", "value [95 %]", "minus the log", "in support", "importance sampling", "doubly robust"]
        rows = [["the log", self.log.text, *[""] * 5]]
        notes, problems = [f"{_label(group)}: {group.reason}" for group in self.groups], {}
        for name, found in self.policies.items():
            weighted = {"importance sampling": found.importance, "doubly robust": found.doubly_robust}
            for what, value in weighted.items():
                if value.problem:
                    problems.setdefault(f"{what} cannot be used: {value.problem}", []).append(name)
            texts = ["-" if value.problem else value.text for value in weighted.values()]
            rows.append([name, *estimate_texts(found), *texts, found.verdict])
        for group in self.groups:
            if len(group.trials) > 1:
                title = f"{settings_text(group.settings)} mean of {len(group.trials)} seeds".strip()
                rows.append([title, *estimate_texts(group)[:2], "", "", "", group.verdict])
        title = (
            f"{self.data}: discounted return of the first {self.horizon} steps (γ = {self.discount:g}), over "
            f"{self.num_trajectories} {KINDS[self.trajectories]}; networks fitted to {self.num_fitted}"
        )
        notes += [f"{', '.join(names)}: {text}" for text, names in problems.items()]
        return Table(title, [*header, "verdict"], rows, [*notes, *self.warnings])

    def to_json(self) -> EstimateSummary:
        """The estimates as JSON values, as a run directory keeps them."""
        summary: Any = {"version": ESTIMATE_VERSION, **to_json(self)}
        return summary

    @classmethod
    def from_json(cls, stored: Any) -> Estimate | None:
        """The estimates that ``to_json`` gave, or None if they are damaged."""
        try:
            facts = {name: stored[name] for name in (field.name for field in dataclasses.fields(cls))}
            facts["log"] = _value(facts["log"])
            facts["policies"] = {name: PolicyEstimate(**_values(row)) for name, row in facts["policies"].items()}
            facts["groups"] = tuple(GroupEstimate(**_values(row)) for row in facts["groups"])
            facts["warnings"] = tuple(facts["warnings"])
            found = cls(**facts)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        is_whole = found.groups and all(group.trials for group in found.groups) and misfit(found, cls) is None
        return found if is_whole else None


def read_estimate(run: Run, data: str | None = None) -> Estimate | None:
    """The newest estimate of a run on other ``data`` (None: on its own), or None."""
    stored = run.estimate(data)
    return None if stored is None else Estimate.from_json(stored)


def judge(difference: Value, num_trajectories: int) -> tuple[Verdict, str]:
    """Whether a policy is better than the log, and the sentence that says so."""
    assert difference.value is not None
    if num_trajectories < FEWEST_TRAJECTORIES or difference.interval is None:
        return (
            "cannot tell",
            f"cannot tell: {num_trajectories} trajectories are too few; hold out {FEWEST_TRAJECTORIES} or more",
        )
    low, high = difference.interval
    if low > 0:
        return "better", f"better than the log with 95 % confidence, by {_number(low)} to {_number(high)}"
    if high < 0:
        return "worse", f"worse than the log with 95 % confidence, by {_number(-high)} to {_number(-low)}"
    return "cannot tell", f"cannot tell: it may earn between {_number(low)} and {_number(high)} more than the log"


def to_json(value: Any) -> Any:
    """Estimates as JSON values."""
    if isinstance(value, Value):
        return to_json(value._asdict())
    if isinstance(value, Path):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: to_json(entry) for name, entry in value.items()}
    return [to_json(entry) for entry in value] if isinstance(value, tuple | list) else value


def _label(group: GroupEstimate) -> str:
    return settings_text(group.settings) or (group.trials[0] if len(group.trials) == 1 else "the run")


def estimate_texts(found: Any) -> list[str]:
    """Value, difference and support of a policy, a group or a candidate, as tables show them."""
    return [found.value.text, found.difference.text, f"{100 * found.supported:.0f} %"]


def _values(row: dict[str, Any]) -> dict[str, Any]:
    names = ("value", "difference", "plain", "importance", "doubly_robust")
    found = {name: _value(entry) if name in names else entry for name, entry in row.items()}
    return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in found.items()}


def _value(stored: dict[str, Any]) -> Value:
    interval = stored["interval"]
    return Value(**{**stored, "interval": None if interval is None else tuple(interval)})


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


# Estimating: the policies of a run, or one, on a log.


DEFAULT_DISCOUNT = 0.99


class Trajectories(NamedTuple):
    """What policies are valued on."""

    dataset: Dataset
    parts: Parts
    """Those to fit to, and those to take means over; the second None: the same."""
    kind: Kind
    hold_out: float = 0.0


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
    if isinstance(run_or_policy, Policy):
        if not isinstance(data, Dataset):
            raise SettingsError("a policy alone has no trajectories; give them: vem.estimate(policy, vem.load(PATH))")
        policies = {str(run_or_policy.info.get("trial", "policy")): run_or_policy}
        on = _trajectories_of_policy(run_or_policy, data)
        return estimate_policies(policies, {}, on, discount, steps, seed, progress)
    if not isinstance(run_or_policy, Run | str | Path):
        raise SettingsError(f"{run_or_policy!r} cannot be estimated; give a run, its directory or a policy")
    run = run_or_policy if isinstance(run_or_policy, Run) else open_run(run_or_policy)
    policies = finished_policies(run)
    if data is None:
        share = run.config.hold_out
        on, name = Trajectories(run.dataset, run.parts, "held out" if share else "all", share), None
    else:
        dataset = data if isinstance(data, Dataset) else run.config.load(data)
        on, name = Trajectories(dataset, Parts(dataset, None), "other"), dataset.info.name
    swept = {trial.name: trial.swept for trial in run.config.trials}
    found = estimate_policies(policies, swept, on, discount, steps, seed, progress)
    run.write_estimate(found.to_json(), name)
    return found


def estimate_policies(
    policies: Mapping[str, Policy],
    swept: Mapping[str, Mapping[str, float]],
    on: Trajectories,
    discount: float | None,
    steps: int | None,
    seed: int,
    progress: bool,
) -> Estimate:
    """The estimates of policies by name, and of those that differ by their seed alone; ``swept``: name → settings."""
    started = time.monotonic()
    keep_programs()
    for name, policy in policies.items():
        check_fit(policy, on.dataset, name)
    if steps is not None:
        check_steps(steps)
    discount = _discount(discount, list(policies.values()))
    dataset, training = resident(on.dataset), resident(on.parts.training)
    horizon = find_horizon(dataset, discount)
    fitted_to = read_log(training, discount, horizon)
    valued_on = fitted_to if on.parts.held_out is None else read_log(on.parts.held_out, discount, horizon)
    require_starts(valued_on, "the held-out data" if on.kind == "held out" else f"the data {dataset.info.name}")
    valuation, found = Valuation(fitted_to, valued_on, steps, seed), {}
    with refusing_to_run_out():
        for name, policy in policies.items():
            if progress:
                print(f"{name}: fitted Q evaluation on {training.num_transitions:,} transitions", flush=True)
            found[name] = valuation.value(policy)
    returns = valued_on.start_returns
    mean, count = float(returns.mean()), len(returns)
    groups = [
        _group(settings, trials, [found[trial] for trial in trials], count)
        for settings, trials in same_settings({name: swept.get(name, {}) for name in found})
    ]
    if on.kind == "all":
        found = {name: dataclasses.replace(one, **UNJUDGED) for name, one in found.items()}
        groups = [dataclasses.replace(group, **UNJUDGED) for group in groups]
    return Estimate(
        data=dataset.info.name,
        data_sha256=dataset.fingerprint(),
        trajectories=on.kind,
        hold_out=on.hold_out,
        num_trajectories=count,
        num_fitted=int(fitted_to.episode[-1]) + 1,
        discount=discount,
        horizon=horizon,
        log=Value(mean, _around(mean, _error_of_mean(returns), count - 1)),
        policies=found,
        groups=tuple(groups),
        warnings=tuple(_warnings(on.kind, count)),
        seconds=round(time.monotonic() - started, 2),
    )


def _trajectories_of_policy(policy: Policy, data: Dataset) -> Trajectories:
    """Those of a policy alone: its file says what was held out of which data."""
    share = float(policy.info.get("hold_out", 0.0))
    if share and policy.info.get("data_sha256") == data.fingerprint():
        return Trajectories(data, part_dataset(data, share), "held out", share)
    return Trajectories(data, Parts(data, None), "other")


def training_discount(policies: Sequence[Policy]) -> float:
    """The largest discount that the policies were trained with; 0.99 for methods that have none."""
    return max(float(policy.info.get("settings", {}).get("discount", DEFAULT_DISCOUNT)) for policy in policies)


def _discount(discount: float | None, policies: Sequence[Policy]) -> float:
    if discount is None:
        return training_discount(policies)
    if isinstance(discount, bool) or not isinstance(discount, int | float) or not 0 <= discount < 1:
        raise SettingsError(f"--discount is {discount!r}; it must be at least 0 and below 1")
    return float(discount)


def _warnings(kind: Kind, num_trajectories: int) -> list[str]:
    texts = []
    if kind == "all":
        texts.append(
            "warning: nothing was held out, so the trajectories are those that training saw and the estimate flatters; "
            "train with --hold-out 0.2"
        )
    if kind == "other":
        texts.append("the trajectories are other data than the run's own: whether training saw some is not known")
    if num_trajectories < FEWEST_TRAJECTORIES:
        texts.append(f"warning: {num_trajectories} trajectories are too few for an interval; hold out more")
    return texts


def _group(
    settings: dict[str, float], trials: tuple[str, ...], policies: Sequence[PolicyEstimate], num_trajectories: int
) -> GroupEstimate:
    """Means over policies.

    Their errors come from the same trajectories, so averaging does not make the interval narrower.
    """
    value, difference = (_mean([getattr(policy, name) for policy in policies]) for name in ("value", "difference"))
    supported = float(np.mean([policy.supported for policy in policies]))
    return GroupEstimate(settings, trials, value, difference, supported, *judge(difference, num_trajectories))


def _mean(values: Sequence[Value]) -> Value:
    mean = float(np.mean([value.value for value in values if value.value is not None]))
    intervals = [value.interval for value in values if value.interval is not None]
    if len(intervals) < len(values):
        return Value(mean)
    low, high = np.mean(intervals, axis=0)
    return Value(mean, (float(low), float(high)))


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
        """The log-density of actions below which they leave support."""
        return support_border(self.behavior, self.log.dataset)

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
        support = support_weight(self.behavior, self.border, self.fitted_to.dataset.observations, acted)
        fitted = fit(self.fitted_to, acted, support, self.steps, seed=self.seed)
        own = acted if log is self.fitted_to else policy_actions(policy, dataset)
        observed, mass = dataset.observations[rows], log.mass[rows]
        recorded = scale_actions(dataset.actions[rows], dataset)
        weight = support_weight(self.behavior, self.border, observed, own[rows])
        q, v = (fitted.values(observed, mass, actions) for actions in (recorded, own[rows]))
        v[1] = weight * v[1] + (1 - weight) * fitted.unit.lost(mass)
        factors = log.discount ** (np.arange(len(rows)) - np.repeat(self._firsts, log.lengths))
        gains = np.add.reduceat(factors * (v - q), self._firsts, axis=2)
        # No trajectory can earn more or less than the steps that the log has.
        gains = fitted.unit.clip(log.start_returns + gains, np.ones(1)) - log.start_returns
        plain, weighted = (combine(v[i][:, self._firsts], gains[i], log.start_returns) for i in (0, 1))
        value, difference = _reaching(weighted[0], plain[0]), _reaching(weighted[1], plain[1])
        importance, doubly_robust = self._by_weights(policy, fitted, q[0].mean(0), recorded)
        verdict, reason = judge(difference, len(log.starts))
        supported = float(weight.mean())
        return PolicyEstimate(
            value,
            difference,
            plain[0],
            importance,
            doubly_robust,
            **weighted[2],
            supported=supported,
            verdict=verdict,
            reason=reason,
        )

    def _by_weights(self, policy: Policy, fitted: FittedQ, q: np.ndarray, recorded: np.ndarray) -> tuple[Value, Value]:
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
        columns = (log.dataset.rewards[rows].astype(np.float64), ratios, q, v)
        laid = (lay_side_by_side(column, self._firsts, log.lengths) for column in columns)
        decisions = Decisions(*laid, discount=log.discount)
        left = effective_sample(decisions)
        if left < FEWEST_TRAJECTORIES:
            nothing = Value(
                None,
                None,
                f"its weights leave {left:.1f} of {len(log.starts)} trajectories, and fewer than {FEWEST_TRAJECTORIES} "
                "say nothing",
                left,
            )
            return nothing, nothing
        first, second = (Value(*found, None, left) for found in weighted_estimates(decisions, self.seed))
        return first, second


def combine(q: np.ndarray, gains: np.ndarray, returns: np.ndarray) -> tuple[Value, Value, dict[str, Any]]:
    """Value and difference from Q at the starts and gains along the trajectories, (networks, trajectories).

    Third: the fields ``fitted``, ``anchored`` and ``refits`` of a PolicyEstimate.
    """
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


def _reaching(weighted: Value, plain: Value) -> Value:
    """The support-weighted value, whose interval reaches as far up as the plain one's."""
    if weighted.interval is None or plain.interval is None:
        return weighted
    return weighted._replace(interval=(weighted.interval[0], max(weighted.interval[1], plain.interval[1])))


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def _around(value: float, error: float, freedom: int) -> tuple[float, float] | None:
    """The 95 % interval of Student's t; None where it is not finite."""
    from scipy.stats import t

    if freedom < 1 or not np.isfinite(error):
        return None
    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    return value - half, value + half
