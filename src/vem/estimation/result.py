"""What estimating gave: values of policies beside that of the log, with intervals, and a verdict."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from vem.evaluation.statistics import Table
from vem.storage import misfit
from vem.training.records import EstimateSummary
from vem.training.run import Run

ESTIMATE_VERSION = 2
FEWEST_TRAJECTORIES = 5
"""Trajectories below which no verdict is given, and effective trajectories below which weights are of no use."""

Verdict = Literal["better", "worse", "cannot tell"]


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
        return _number(self.value) + _ends(self.interval)


@dataclass(frozen=True)
class PolicyEstimate:
    """The estimates of one policy."""

    value: Value
    """From cautious fitted Q evaluation: the policy's mean, or likeliest, action; reaches up to the bold value."""
    difference: Value
    """The policy minus the log."""
    bold: Value
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


@dataclass(frozen=True)
class Estimate:
    """The estimates of one or more policies on one log; printing it gives a table."""

    data: str
    """Name of the data."""
    data_sha256: str
    """Fingerprint of the data that the estimates were made on, held out or not."""
    trajectories: Literal["held out", "all", "other"]
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
        header.append("verdict")
        rows = [["the log", self.log.text, *[""] * 5]]
        for name, found in self.policies.items():
            weighted = [_weighted(value) for value in (found.importance, found.doubly_robust)]
            share = f"{100 * found.supported:.0f} %"
            rows.append([name, found.value.text, found.difference.text, share, *weighted, found.verdict])
        for group in self.groups:
            if len(group.trials) > 1:
                label = " ".join(f"{name} {value:g}" for name, value in group.settings.items())
                title = f"{label} mean of {len(group.trials)} seeds".strip()
                rows.append([title, group.value.text, group.difference.text, "", "", "", group.verdict])
        kinds = {"held out": "held-out trajectories", "all": "trajectories", "other": "trajectories of other data"}
        title = (
            f"{self.data}: discounted return of the first {self.horizon} steps (γ = {self.discount:g}), over "
            f"{self.num_trajectories} {kinds[self.trajectories]}; networks fitted to {self.num_fitted}"
        )
        return Table(title, header, rows, self._notes())

    def _notes(self) -> list[str]:
        notes = [f"{_label(group)}: {group.reason}" for group in self.groups]
        problems: dict[str, list[str]] = {}
        for name, found in self.policies.items():
            for what, value in (("importance sampling", found.importance), ("doubly robust", found.doubly_robust)):
                if value.problem:
                    problems.setdefault(f"{what} cannot be used: {value.problem}", []).append(name)
        return [*notes, *(f"{', '.join(names)}: {text}" for text, names in problems.items()), *self.warnings]

    def __str__(self) -> str:
        """The table as text."""
        return str(self.table)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return self.table._repr_html_()

    def to_json(self) -> EstimateSummary:
        """The estimates as JSON values, as a run directory keeps them."""
        summary: Any = {"version": ESTIMATE_VERSION, **plain(self)}
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


def read_estimate(files: Run, data: str | None = None) -> Estimate | None:
    """The newest estimate of a run on other ``data`` (None: on its own), or None."""
    stored = files.estimate(data)
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


def _label(group: GroupEstimate) -> str:
    settings = ", ".join(f"{name} {value:g}" for name, value in group.settings.items())
    return settings or (group.trials[0] if len(group.trials) == 1 else "the run")


def plain(value: Any) -> Any:
    """Estimates as JSON values."""
    if isinstance(value, Value):
        return plain(value._asdict())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    return [plain(entry) for entry in value] if isinstance(value, tuple | list) else value


def _values(row: dict[str, Any]) -> dict[str, Any]:
    names = ("value", "difference", "bold", "importance", "doubly_robust")
    found = {name: _value(entry) if name in names else entry for name, entry in row.items()}
    return {name: tuple(entry) if isinstance(entry, list) else entry for name, entry in found.items()}


def _value(stored: dict[str, Any]) -> Value:
    interval = stored["interval"]
    return Value(**{**stored, "interval": None if interval is None else tuple(interval)})


def _weighted(value: Value) -> str:
    return "-" if value.problem else value.text


def _number(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{_number(interval[0])}, {_number(interval[1])}]"
