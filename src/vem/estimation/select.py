"""Choosing among runs on the same data by what their policies are worth on the trajectories held out of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vem.errors import RunError, SettingsError
from vem.estimation.estimate import (
    Estimate,
    GroupEstimate,
    Value,
    Verdict,
    estimate,
    estimate_texts,
    read_estimate,
    to_json,
    training_discount,
)
from vem.evaluation.results import settings_text
from vem.evaluation.statistics import Table, Tabled
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
        return f"{self.run.name} {settings_text(self.settings)}".strip()


@dataclass(frozen=True, repr=False)
class Selection(Tabled):
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
        return max((candidate for candidate in self.candidates if candidate.is_close), key=lambda best: best.supported)

    @property
    def reason(self) -> str:
        """Why it was chosen, and how sure that is."""
        chosen, others = self.choice, len(self.candidates) - 1
        close = sum(candidate.is_close for candidate in self.candidates) - 1
        why = f"the highest of {others + 1} estimated values"
        if not others:
            why = "the only candidate"
        elif close:
            why = (
                "the closest to the log of those with the highest values; the trajectories cannot tell it from "
                f"{close} of the {others} others (≈)"
            )
        against_log = {
            "better": "it is better than the log with 95 % confidence",
            "worse": "yet it is worse than the log with 95 % confidence: keep what you do now",
            "cannot tell": "whether it is better than the log cannot be told",
        }
        return f"choice: {chosen.label} ({chosen.run}), {why}; {against_log[chosen.verdict]}"

    @property
    def table(self) -> Table:
        """The table that ``vem select`` prints."""
        rows = [["the log", "", self.log.text, "", "", ""]]
        for candidate in self.candidates:
            sign = " *" if candidate is self.choice else " ≈" if candidate.is_close else ""
            facts = [str(len(candidate.trials)), *estimate_texts(candidate), candidate.verdict]
            rows.append([candidate.label + sign, *facts])
        title = (
            f"{self.data}: estimated discounted return of the first {self.horizon} steps (γ = {self.discount:g}), over "
            f"{self.num_trajectories} trajectories"
        )
        header = ["candidate", "seeds", "value [95 %]", "minus the log", "in support", "verdict"]
        return Table(title, header, rows, [self.reason, *self.warnings])

    def to_json(self) -> dict[str, Any]:
        """The selection as JSON values."""
        choice = {"run": str(self.choice.run), "settings": self.choice.settings, "trials": list(self.choice.trials)}
        labels = [{"run": str(candidate.run), "label": candidate.label} for candidate in self.candidates]
        facts = to_json(self)
        facts["candidates"] = [{**row, **label} for row, label in zip(facts["candidates"], labels, strict=True)]
        return {**facts, "choice": choice, "reason": self.reason}


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
    files, warnings = _find_runs([runs] if isinstance(runs, str | Path) else list(runs))
    _check_same(files)
    if discount is None:
        discount = max(training_discount([load_policy(run.policy_paths[0])]) for run in files)
    estimates = []
    for run in files:
        stored = _stored_estimate(run, discount)
        if stored is None and progress:
            print(f"{run.directory}: estimating", flush=True)
        estimates.append(
            stored or estimate(run.directory, discount=discount, steps=steps, seed=seed, progress=progress)
        )
    pairs = [(run, group) for run, made in zip(files, estimates, strict=True) for group in made.groups]
    if len(pairs) > MOST_CANDIDATES:
        raise SettingsError(f"{len(pairs):,} candidates are too many; choose among {MOST_CANDIDATES:,} at most")
    pairs.sort(key=lambda pair: -_number(pair[1].value))
    low, _ = pairs[0][1].value.interval or (float("-inf"), None)
    first = estimates[0]
    if first.trajectories == "all":
        warnings = [*first.warnings, *warnings]
    return Selection(
        first.data,
        discount,
        first.horizon,
        first.hold_out,
        first.num_trajectories,
        first.log,
        tuple(_candidate(run, group, low) for run, group in pairs),
        tuple(warnings),
    )


def _find_runs(paths: Sequence[str | Path]) -> tuple[list[Run], list[str]]:
    """The finished runs; in a folder, what is left out is said."""
    if not paths:
        raise SettingsError("no run is given; name run directories, or the folder of a sweep")
    runs: list[Run] = []
    warnings: list[str] = []
    for path in map(Path, paths):
        named = Run(path)
        if named.is_run:
            if not named.is_finished:
                raise RunError(f"{path} has not finished; go on with vem train --resume {path}, or leave it out")
            runs.append(named)
            continue
        if not path.is_dir():
            raise RunError(f"{path} does not exist; give run directories, or the folder of a sweep")
        below = [Run(config.parent) for config in sorted(path.rglob("config.json"))]
        finished = [run for run in below if run.is_finished]
        if not finished:
            raise RunError(f"{path} holds no finished run; make some with vem sweep, vem compare or vem train")
        runs += finished
        warnings += [f"{run.directory} is left out: it has not finished" for run in below if run not in finished]
    if len({run.directory.resolve() for run in runs}) != len(runs):
        raise SettingsError("a run is given twice; each is one candidate")
    return runs, warnings


def _check_same(runs: Sequence[Run]) -> None:
    """RunError unless all runs have the same data and held out the same share."""
    first = runs[0]
    for other in runs[1:]:
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


def _stored_estimate(run: Run, discount: float) -> Estimate | None:
    """The run's own estimate, if it is of these policies, this data and this discount."""
    stored = read_estimate(run)
    asked = (discount, run.config.hold_out, run.facts.sha256, [trial.name for trial in run.config.trials])
    if stored is None or asked != (stored.discount, stored.hold_out, stored.data_sha256, list(stored.policies)):
        return None
    newest = max(path.stat().st_mtime for path in run.policy_paths)
    return stored if run.estimate_path().stat().st_mtime >= newest else None


def _number(value: Value) -> float:
    return float("-inf") if value.value is None else value.value


def _candidate(run: Run, group: GroupEstimate, low: float) -> Candidate:
    facts = (group.settings, group.trials, group.value, group.difference, group.supported, group.verdict)
    return Candidate(run.directory, run.config.algorithm, *facts, is_close=_number(group.value) >= low)
