"""What the policies of a run are worth, from recordings that training did not see."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vem.data import Dataset
from vem.data.hold_out import Parts, part_dataset
from vem.data.shards import resident
from vem.errors import RunError, SettingsError
from vem.estimation import fitted_q
from vem.estimation.acting import check_fit, policy_actions
from vem.estimation.density import Density, fit_behavior, policy_density
from vem.estimation.importance import (
    Decisions,
    doubly_robust,
    effective_sample,
    importance_sampling,
    lay_side_by_side,
)
from vem.estimation.log import Log, find_horizon, read_log, require_starts
from vem.estimation.result import FEWEST_RECORDINGS, Estimate, GroupEstimate, PolicyEstimate, Value, judge
from vem.evaluation.statistics import CONFIDENCE
from vem.policy import Policy
from vem.runs.capacity import refusing_to_run_out
from vem.runs.programs import keep_programs
from vem.runs.run import Run, open_run, read_data

if TYPE_CHECKING:
    from vem.policy import Tensors

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

    A run, or the path of its directory, is valued on the recordings that it held out (``vem.train(…, hold_out=0.2)``),
    and the result is kept in its directory; one that held out nothing is valued on all of its data, with a warning.
    ``data`` is other data to value it on, and needed for a policy alone, for which nothing is written.

    ``discount`` is γ (default: that of the policies' training, or 0.99). ``steps`` are those of fitted Q evaluation
    (default: by the size of the data). ``progress`` says what is being done.
    """
    say = print if progress else lambda text: None
    if isinstance(run_or_policy, Policy):
        policies = {str(run_or_policy.info.get("member", "policy")): run_or_policy}
        if not isinstance(data, Dataset):
            raise SettingsError("a policy alone has no recordings; give them: vem.estimate(policy, vem.load(PATH))")
        parts, kind, share = _parts_of_policy(run_or_policy, data)
        return estimate_policies(policies, data, parts, kind, share, {}, discount, steps, seed, say)
    run = run_or_policy if isinstance(run_or_policy, Run) else _open(run_or_policy)
    missing = [path.stem for path in run.policy_paths if not path.exists()]
    if missing:
        raise RunError(
            f"{run.directory} has no policy of {', '.join(missing)}: the run has not finished; go on with "
            f"vem train --resume {run.directory}, then estimate it"
        )
    policies = {member.name: policy for member, policy in zip(run.config.members, run.policies, strict=True)}
    swept = {member.name: member.swept for member in run.config.members}
    if data is None:
        dataset, parts, share = run.dataset, run.parts, run.config.hold_out
        kind, name = ("held out" if share else "all"), None
    else:
        dataset = data if isinstance(data, Dataset) else read_data(str(data), run.config.rules, run.config.data_dir)
        parts, share = Parts(dataset, None), 0.0
        kind, name = "other", dataset.info.name
    found = estimate_policies(policies, dataset, parts, kind, share, swept, discount, steps, seed, say)
    run.files.write_estimate(found.to_json(), name)
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
    """The estimates of policies by name; ``parts`` are the recordings to fit to and to take means over."""
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
        recordings=kind,
        hold_out=share,
        num_recordings=len(valued_on.starts),
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

    def __init__(self, fitted_to: Log, valued_on: Log, steps: int | None, seed: int) -> None:
        self.fitted_to, self.log, self.steps, self.seed = fitted_to, valued_on, steps, seed

    @cached_property
    def behavior(self) -> Density:
        """The density of the log's actions."""
        return fit_behavior(self.fitted_to.dataset)

    @cached_property
    def _rows(self) -> np.ndarray:
        """The rows of the recordings that are valued, up to the horizon."""
        steps = [np.arange(at, at + count) for at, count in zip(self.log.starts, self.log.lengths, strict=True)]
        return np.concatenate(steps)

    @cached_property
    def _firsts(self) -> np.ndarray:
        """Where each recording begins among those rows."""
        return np.cumsum(self.log.lengths) - self.log.lengths

    def value(self, policy: Policy) -> PolicyEstimate:
        """The estimates of one policy."""
        from vem.estimation.acting import scale_actions

        log, dataset, rows = self.log, self.log.dataset, self._rows
        acted = policy_actions(policy, self.fitted_to.dataset)
        fitted = fitted_q.fit(self.fitted_to, acted, self.steps, seed=self.seed)
        own = acted if log is self.fitted_to else policy_actions(policy, dataset)
        observed, mass = dataset.observations[rows], log.mass[rows]
        recorded = scale_actions(dataset.actions[rows], dataset)
        q, v = (fitted.values(observed, mass, actions) for actions in (recorded, own[rows]))
        factors = log.discount ** (np.arange(len(rows)) - np.repeat(self._firsts, log.lengths))
        gains = np.add.reduceat(factors * (v - q), self._firsts, axis=1)
        value, difference, facts = _combined(v[:, self._firsts], gains, log.start_returns)
        weighted = self._weighted(policy, fitted, q.mean(0), recorded)
        verdict, reason = judge(difference, len(log.starts))
        return PolicyEstimate(value, difference, *weighted, **facts, verdict=verdict, reason=reason)

    def _weighted(
        self, policy: Policy, fitted: fitted_q.FittedQ, q: np.ndarray, recorded: np.ndarray
    ) -> tuple[Value, Value]:
        """The two estimates that weigh recordings, of the policy with sampled actions."""
        density = policy_density(policy)
        if density is None:
            nothing = Value(None, problem="the policy always acts the same in a state, so its actions have no density")
            return nothing, nothing
        log, rows = self.log, self._rows
        observed = log.dataset.observations[rows]
        ratios = density(observed, recorded) - self.behavior(observed, recorded)
        sampled = policy_actions(policy, log.dataset, self.seed)[rows]
        v = fitted.values(observed, log.mass[rows], sampled).mean(0)
        columns = [log.dataset.rewards[rows].astype(np.float64), ratios, q, v]
        laid = (lay_side_by_side(column, self._firsts, log.lengths) for column in columns)
        decisions = Decisions(*laid, discount=log.discount)
        left = effective_sample(decisions)
        problem = None
        if left < FEWEST_RECORDINGS:
            problem = (
                f"its weights leave {left:.1f} of {len(log.starts)} recordings, and fewer than {FEWEST_RECORDINGS} say "
                "nothing"
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
    """Value and difference from Q at the starts and gains along the recordings, (networks, recordings)."""
    fitted = q.mean()
    anchored = returns.mean() + gains.mean()
    return (
        Value(float(fitted), None),
        Value(float(fitted - returns.mean()), None),
        {"fitted": float(fitted), "anchored": float(anchored), "refits": tuple(map(float, q.mean(1))),
         "raw": [q.mean(1).tolist(), gains.mean(1).tolist(), q.mean(0).tolist(), gains.mean(0).tolist(), returns.tolist()]},
    )


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("inf")


def _around(value: float, error: float, freedom: int) -> tuple[float, float] | None:
    """The 95 % interval of Student's t; None where it is not finite."""
    from scipy.stats import t

    if freedom < 1 or not np.isfinite(error):
        return None
    half = float(t.ppf(0.5 + CONFIDENCE / 2, freedom)) * error
    return value - half, value + half
