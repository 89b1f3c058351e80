"""Choosing among runs on the same data by what their policies are worth on the trajectories held out of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vem.errors import RunError, SettingsError
from vem.estimation.estimate import estimate, training_discount
from vem.estimation.result import Estimate, GroupEstimate, Value, Verdict, plain, read_estimate
from vem.evaluation.statistics import Table
from vem.policy import load_policy
from vem.training.run import Run

MOST_CANDIDATES = 1000


@dataclass(frozen=True)
class Candidate:
    """A method with one choice of settings: the policies of a run that differ by their seed alone."""

    run: Path
    algorithm: str
    settings: dict[str, float]
    """Swept inside the run."""
    trials: tuple[str, ...]
    value: Value
    difference: Value
    supported: float
    """How far the log holds actions like its policies'."""
    verdict: Verdict
    is_close: bool = False
    """Whether its value is within the interval of the highest one's."""

    @property
    def label(self) -> str:
        """For tables: the run directory's name and the swept settings."""
        return " ".join([self.run.name, *(f"{name} {value:g}" for name, value in self.settings.items())])


@dataclass(frozen=True)
class Selection:
    """Candidates, the highest value first; printing it gives a table."""

    data: str
    discount: float
    horizon: int
    hold_out: float
    num_trajectories: int
    log: Value
    candidates: tuple[Candidate, ...]
    warnings: tuple[str, ...] = ()

    @property
    def choice(self) -> Candidate:
        """The candidate that stays closest to the log among those whose values cannot be told from the highest."""
        return max((one for one in self.candidates if one.is_close), key=lambda one: one.supported)

    @property
    def reason(self) -> str:
        """Why it was chosen, and how sure that is."""
        chosen, others = self.choice, len(self.candidates) - 1
        close = sum(candidate.is_close for candidate in self.candidates) - 1
        first = f"choice: {chosen.label} ({chosen.run}), the highest of {len(self.candidates)} estimated values"
        if not others:
            first = f"choice: {chosen.label} ({chosen.run}), the only candidate"
        elif close:
            first = f"choice: {chosen.label} ({chosen.run}), the closest to the log of those with the highest values"
        told = f"; the trajectories cannot tell it from {close} of the {others} others (≈)"
        log = {
            "better": "it is better than the log with 95 % confidence",
            "worse": "yet it is worse than the log with 95 % confidence: keep what you do now",
            "cannot tell": "whether it is better than the log cannot be told",
        }
        return first + (told if close else "") + f"; {log[chosen.verdict]}"

    @property
    def table(self) -> Table:
        """The table that ``vem select`` prints."""
        rows = [["the log", "", self.log.text, "", "", ""]]
        for candidate in self.candidates:
            sign = " *" if candidate is self.choice else " ≈" if candidate.is_close else ""
            count = str(len(candidate.trials))
            facts = [candidate.value.text, candidate.difference.text, f"{100 * candidate.supported:.0f} %"]
            rows.append([candidate.label + sign, count, *facts, candidate.verdict])
        title = (
            f"{self.data}: estimated discounted return of the first {self.horizon} steps (γ = {self.discount:g}), over "
            f"{self.num_trajectories} trajectories"
        )
        header = ["candidate", "seeds", "value [95 %]", "minus the log", "in support", "verdict"]
        return Table(title, header, rows, [self.reason, *self.warnings])

    def __str__(self) -> str:
        """The table as text."""
        return str(self.table)

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return self.table._repr_html_()

    def to_json(self) -> dict[str, Any]:
        """The selection as JSON values."""
        candidates = [
            {**plain(candidate), "run": str(candidate.run), "label": candidate.label} for candidate in self.candidates
        ]
        facts = {name: getattr(self, name) for name in ("data", "discount", "horizon", "hold_out", "num_trajectories")}
        choice = {"run": str(self.choice.run), "settings": self.choice.settings, "trials": list(self.choice.trials)}
        log = plain(self.log)
        return {
            **facts,
            "log": log,
            "candidates": candidates,
            "choice": choice,
            "reason": self.reason,
            "warnings": list(self.warnings),
        }


def select(
    runs: str | Path | Sequence[str | Path],
    *,
    discount: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Selection:
    """Rank runs, and the swept settings inside them, by their estimates, and choose.

    Between candidates whose values cannot be told from the highest, the one that stays closest to the log is chosen.

    ``runs`` are run directories, or a folder with runs on one dataset below it, as ``vem sweep`` and ``vem compare``
    make. All must have the same data and have held out the same share of it. Estimates that the runs keep are used
    where they fit; the others are made, with ``steps`` as in ``vem.estimate``. ``discount`` is γ for
    all of them (default: the largest of their training).
    """
    given = [runs] if isinstance(runs, str | Path) else list(runs)
    files, warnings = _find_runs(given)
    _check_same(files)
    chosen = discount if discount is not None else max(map(_discount, files))
    estimates: list[tuple[Run, Estimate]] = []
    for one in files:
        found = _fitting(one, chosen)
        if found is None:
            if progress:
                print(f"{one.directory}: estimating", flush=True)
            found = estimate(one.directory, discount=chosen, steps=steps, seed=seed, progress=progress)
        estimates.append((one, found))
    pairs = [(one, group) for one, found in estimates for group in found.groups]
    if len(pairs) > MOST_CANDIDATES:
        raise SettingsError(f"{len(pairs):,} candidates are too many; choose among {MOST_CANDIDATES:,} at most")
    pairs.sort(key=lambda pair: -_number(pair[1].value))
    low = pairs[0][1].value.interval[0] if pairs[0][1].value.interval else float("-inf")
    candidates = tuple(_candidate(one, group, low) for one, group in pairs)
    first = estimates[0][1]
    if first.trajectories == "all":
        warnings = [*first.warnings, *warnings]
    return Selection(
        first.data,
        chosen,
        first.horizon,
        first.hold_out,
        first.num_trajectories,
        first.log,
        candidates,
        tuple(warnings),
    )


def _find_runs(given: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """The finished runs; in a folder, what is left out is said."""
    if not given:
        raise SettingsError("no run is given; name run directories, or the folder of a sweep")
    found: list[Run] = []
    warnings: list[str] = []
    for path in map(Path, given):
        own = Run(path)
        if own.is_run:
            if not own.is_finished:
                raise RunError(f"{path} has not finished; go on with vem train --resume {path}, or leave it out")
            found.append(own)
            continue
        if not path.is_dir():
            raise RunError(f"{path} does not exist; give run directories, or the folder of a sweep")
        below = [Run(config.parent) for config in sorted(path.rglob("config.json"))]
        for one in below:
            if one.is_finished:
                found.append(one)
            else:
                warnings.append(f"{one.directory} is left out: it has not finished")
        if not any(one.is_finished for one in below):
            raise RunError(f"{path} holds no finished run; make some with vem sweep, vem compare or vem train")
    names = [one.directory.resolve() for one in found]
    if len(set(names)) != len(names):
        raise SettingsError("a run is given twice; each is one candidate")
    return found, warnings


def _check_same(files: Sequence[Run]) -> None:
    """RunError unless all runs have the same data and held out the same share."""
    first = files[0]
    for other in files[1:]:
        if other.facts.sha256 != first.facts.sha256:
            raise RunError(
                f"{first.directory} is on the data {first.facts.info.name} and {other.directory} on "
                f"{other.facts.info.name}, "
                "whose rows differ; values on different data cannot be compared: choose among runs on one "
                "(vem select OUT/DATASET)"
            )
        if other.config.hold_out != first.config.hold_out:
            raise RunError(
                f"{first.directory} held out {first.config.hold_out:g} of the trajectories and {other.directory} "
                f"{other.config.hold_out:g}; train them with the same --hold-out"
            )


def _discount(files: Run) -> float:
    return training_discount([load_policy(path) for path in files.policy_paths[:1]])


def _fitting(files: Run, discount: float) -> Estimate | None:
    """The run's own estimate, if it is of these policies, this data and this discount."""
    found = read_estimate(files)
    if found is None or found.discount != discount or found.hold_out != files.config.hold_out:
        return None
    if found.data_sha256 != files.facts.sha256 or list(found.policies) != [m.name for m in files.config.trials]:
        return None
    newest = max(path.stat().st_mtime for path in files.policy_paths)
    return found if files.estimate_path().stat().st_mtime >= newest else None


def _number(value: Value) -> float:
    return float("-inf") if value.value is None else value.value


def _candidate(files: Run, group: GroupEstimate, low: float) -> Candidate:
    facts = (group.settings, group.trials, group.value, group.difference, group.supported, group.verdict)
    return Candidate(files.directory, files.config.algorithm, *facts, is_close=_number(group.value) >= low)
