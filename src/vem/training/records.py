"""The records that a run's files hold, one line of JSON each."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import numpy as np

from vem import __version__
from vem.data.dataset import DataInfo, Dataset, info_from_json
from vem.errors import DataError
from vem.storage import misfit


@dataclass(frozen=True)
class DataFacts:
    """What a run knows about the data it was trained on."""

    info: DataInfo
    sha256: str
    """Fingerprint of the rows."""
    num_rows: int

    @classmethod
    def of(cls, dataset: Dataset) -> DataFacts:
        """The facts of a dataset in hand."""
        return cls(dataset.info, dataset.fingerprint(), dataset.num_rows)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> DataFacts:
        """The facts as config.json holds them; names that this version does not know are left out."""
        facts = cls(info_from_json(stored), str(stored["sha256"]), int(stored["num_rows"]))
        if (part := misfit(facts, cls)) is not None:
            raise DataError(f"{part} in data is of another kind than it must be")
        return facts

    def to_json(self) -> dict[str, Any]:
        """The facts as config.json holds them."""
        return {**dataclasses.asdict(self.info), "sha256": self.sha256, "num_rows": self.num_rows}


@dataclass(frozen=True)
class MetricLine:
    """Training metrics after ``steps`` steps: means over one chunk."""

    steps: int
    stage: str
    seconds: float
    """Since training was started or resumed."""
    trials: dict[str, dict[str, float]]
    """Name of each trial → its metrics."""
    core_seconds: float | None = None
    """Time that training took on all cores together, over all resumes, without compiling; None if not known."""

    @classmethod
    def from_json(cls, record: Any) -> MetricLine | None:
        """The line, or None if it is damaged."""
        if not isinstance(record, dict) or misfit(record.get("steps"), int) is not None:
            return None
        trials: Any = record.get("trials")
        is_good = isinstance(trials, dict) and all(
            isinstance(metrics, dict) and all(map(_is_float, metrics.values())) for metrics in trials.values()
        )
        if not is_good:
            return None
        seconds: Any = record.get("seconds")
        seconds = float(seconds) if _is_float(seconds) else float("nan")
        core: Any = record.get("core_seconds")
        core = float(core) if _is_float(core) else None
        return cls(int(record["steps"]), str(record.get("stage", "")), seconds, trials, core)


def metric_columns(lines: Sequence[MetricLine]) -> dict[str, np.ndarray]:
    """The lines as columns of equal length, one row for each line and trial; NaN where a line lacks a metric."""
    rows = [(line, name) for line in lines for name in line.trials]
    names = list(dict.fromkeys(metric for line, name in rows for metric in line.trials[name]))
    columns = {
        "steps": np.array([line.steps for line, _ in rows], np.int64),
        "stage": np.array([line.stage for line, _ in rows], np.str_),
        "seconds": np.array([line.seconds for line, _ in rows], np.float64),
        "trial": np.array([name for _, name in rows], np.str_),
    }
    for metric in names:
        values = [line.trials[name].get(metric, np.nan) for line, name in rows]
        columns[metric] = np.array(values, np.float64)
    return columns


@dataclass(frozen=True)
class EpisodeRecord:
    """What one episode gave. A failed one has an ``error`` and no numbers."""

    trial: str
    """Whose episode: the name of a run's trial, or of another actor."""
    episode: int
    seed: int
    steps: int | None = None
    """Training steps behind the policy."""
    episode_return: float | None = None
    """Σ r_t."""
    discounted_return: float | None = None
    """Σ γᵗ·r_t with the policy's discount (0.99 for actors that have none); nothing after a time limit."""
    length: int | None = None
    success: bool | None = None
    """Whether any step reported ``info["success"]``; None where the environment reports none."""
    terminated: bool | None = None
    truncated: bool | None = None
    value_start: float | None = None
    """V(s_0)."""
    target_start: float | None = None
    """G_0, in V's units."""
    value_mean: float | None = None
    """Mean of V(s_t) over the episode's steps."""
    target_mean: float | None = None
    """Mean of G_t over the episode's steps."""
    path: list[list[float]] | None = None
    """x, y along the episode, at most 200 points, in mazes."""
    error: str | None = None
    environment: str | None = None
    """Where, if not in the environment of the run's data."""

    @classmethod
    def from_json(cls, record: Any) -> EpisodeRecord | None:
        """The record, or None if it is damaged."""
        try:
            episode = cls(**record)
        except TypeError:
            return None
        return episode if misfit(episode, cls) is None else None

    def to_json(self) -> dict[str, Any]:
        """The record as its line holds it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class PointEstimate:
    """The held-out estimates of a run's policies after some steps."""

    steps: int
    trials: dict[str, float]
    """Name of each trial → its estimated return."""

    @property
    def mean(self) -> float:
        """The mean over the trials."""
        return sum(self.trials.values()) / len(self.trials)

    @classmethod
    def from_json(cls, record: Any) -> PointEstimate | None:
        """The estimates, or None if the line is damaged."""
        try:
            line = cls(**record)
        except TypeError:
            return None
        return line if misfit(line, cls) is None and line.trials else None


@dataclass(frozen=True)
class RunWarning:
    """A reason not to trust a run's policies, looked for when training ended."""

    kind: str
    """``unsettled``, ``effective-sample``, ``outside`` or ``few-rows``."""
    text: str
    """What was found."""
    advice: str = ""
    """What to do about it."""
    verdict: Literal["found", "passed", "untold"] = "found"
    """Whether it was found, was looked for in vain, or could not be told."""

    @classmethod
    def from_json(cls, record: Any) -> RunWarning | None:
        """The warning, or None if it is damaged."""
        try:
            warning = cls(**record)
        except TypeError:
            return None
        return warning if misfit(warning, cls) is None else None

    def __str__(self) -> str:
        """What was found and what to do, in one line."""
        return f"{self.text} {self.advice}".rstrip()


class RowWeights(TypedDict):
    """How much the rows counted for one trial's policy, as weights.json holds it."""

    num_rows: int
    effective_share: float
    """(Σw)² / (n·Σw²): how many equally weighted rows these are worth, as a share of all."""
    zero_share: float
    edges: list[float]
    """Of the histogram; the mean weight is 1."""
    shares: list[float]
    """Share of the rows in each bin."""
    concentration: list[float]
    """Share of the total weight that the heaviest 0 %, 1 % … 100 % of the rows carry."""


Actions = Literal["mean", "sampled", "both"]
"""How policies acted in an evaluation; both: some by their mean, some by samples."""


class EvaluationSummary(TypedDict):
    """The newest evaluation of a run, as evaluation.json holds it."""

    version: int
    steps: int | None
    """Training steps behind the policies."""
    environment: str
    references: dict[str, Any] | None
    """``minimum``, ``maximum`` and ``source`` of the scores, where known."""
    num_episodes: int
    seed: int
    actions: Actions
    trials: dict[str, dict[str, Any]]
    """Name of each trial → means over its episodes."""
    groups: list[dict[str, Any]]
    """Statistics over the seeds of each combination of swept settings."""


class EstimateSummary(TypedDict):
    """The newest estimate of a run's policies, as estimate.json holds it (``vem.estimation.estimate``)."""

    version: int
    data: str
    data_sha256: str
    trajectories: str
    hold_out: float
    num_trajectories: int
    num_fitted: int
    discount: float
    horizon: int
    log: dict[str, Any]
    policies: dict[str, dict[str, Any]]
    """Name of each trial → its estimates."""
    groups: list[dict[str, Any]]
    """Means over the seeds of each combination of swept settings."""
    warnings: list[str]
    seconds: float


def read_estimate(record: Any) -> EstimateSummary | None:
    """The estimate, or None if it is none."""
    if not isinstance(record, dict) or not EstimateSummary.__required_keys__ <= record.keys():
        return None
    is_good = isinstance(record["policies"], dict) and isinstance(record["groups"], list)
    return EstimateSummary(**record) if is_good else None


def read_summary(record: Any) -> EvaluationSummary | None:
    """The summary, or None if it is none."""
    if not isinstance(record, dict) or not EvaluationSummary.__required_keys__ <= record.keys():
        return None
    is_good = isinstance(record["trials"], dict) and isinstance(record["groups"], list) and record["groups"]
    return EvaluationSummary(**record) if is_good else None


def _is_float(value: Any) -> bool:
    """Whether a float holds it; metrics may be NaN and infinite."""
    return isinstance(value, float) or misfit(value, float) is None


def package_versions() -> dict[str, str]:
    """The versions that a run's numbers depend on."""
    others = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy", "optax")}
    return {"vem": __version__, **others}
