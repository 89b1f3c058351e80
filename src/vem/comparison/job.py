"""One run of a comparison or a sweep: what is trained, where it is kept, and what it is judged by.

OUT/<dataset>/<label>/              the run (``vem.training.files``), with its evaluation or its estimate
OUT/<dataset>/<label>.failed.json   why the newest attempt failed
OUT/<dataset>/<label>.log           what the run's own process printed, if it had one

The label is the method's name in a comparison, and the swept values in a sweep.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from vem.algorithms.base import import_methods
from vem.data.dataset import DataInfo
from vem.errors import RunError, SettingsError, VemError
from vem.estimation.estimate import DEFAULT_DISCOUNT, Estimate, estimate
from vem.evaluation.environments import NAME_ONE, own_environment
from vem.evaluation.evaluate import evaluate, how_acting
from vem.evaluation.results import Evaluation, read_evaluation
from vem.policy import load_policy
from vem.storage import write_json
from vem.tasks import task_of
from vem.training.files import RunFiles
from vem.training.request import Request
from vem.training.run import Run

UNDECIDED = (None, "auto")
"""Settings that the data decide when a run is created; what was decided then stays."""
HELD_OUT = 0.2
"""Share of the trajectories that is held out where no environment can judge the policies."""
State = Literal["absent", "unfinished", "trained", "done"]


@dataclass(frozen=True)
class Job:
    """A request, the directory of its run, and how the run is judged."""

    request: Request
    dataset: str
    """The dataset's name in directories and tables."""
    label: str
    """What tells the run from others on its dataset, in directories and tables."""
    directory: Path
    """The run directory."""
    swept: dict[str, Any] = field(default_factory=dict)
    """Settings that differ between the runs of a sweep → their values here."""
    episodes: int = 100
    """Evaluation episodes of each policy."""
    hold_out: float = 0.0
    """Share of the trajectories that is held out if the data name no environment."""
    discount: float = DEFAULT_DISCOUNT
    """Of the estimates, if the data name no environment; the same for all runs on a dataset."""
    checkpoint_seconds: float = 60.0
    remote: str | None = None
    """The address that holds the run, if its directory is a copy (``vem.comparison.remote``)."""
    sha256: str | None = None
    """The fingerprint that the dataset must have when it is read again."""

    @property
    def name(self) -> str:
        """For messages: dataset and label."""
        return f"{self.dataset} {self.label}"

    @property
    def files(self) -> RunFiles:
        """The run's files."""
        return RunFiles(self.directory)

    @property
    def failure_path(self) -> Path:
        """Where a failed attempt is recorded; beside the run, which may not exist."""
        return self.directory.with_name(f"{self.directory.name}.failed.json")

    @property
    def log_path(self) -> Path:
        """What the run's own process printed, if it had one."""
        return self.directory.with_name(f"{self.directory.name}.log")

    def at(self, directory: Path) -> Self:
        """The same with the run in another directory."""
        return dataclasses.replace(self, directory=directory)

    def to_json(self) -> dict[str, Any]:
        """The job as another process is told it, which reads the dataset again."""
        sha256 = self.sha256 if self.request.dataset is None else self.request.load().fingerprint()
        plain = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {**plain, "request": self.request.to_json(), "directory": str(self.directory), "sha256": sha256}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """The job that ``to_json`` gave, with the methods known that its user named."""
        import_methods(stored["request"]["imports"])
        request = Request.from_json(stored["request"])
        return cls(**{**stored, "request": request, "directory": Path(stored["directory"])})

    @property
    def has_environment(self) -> bool:
        """Whether the run is judged in an environment; without one, by estimates."""
        return _environment(self.files.facts.info) is not None

    def request_on(self, info: DataInfo) -> Request:
        """What is trained on this data: without an environment some of it is held out."""
        if self.request.hold_out or _environment(info) is not None:
            return self.request
        if not self.hold_out:
            raise SettingsError(
                f"the data {info.name} names no environment, and nothing is held out to estimate policies on; "
                f"leave out --hold-out 0, or {NAME_ONE}"
            )
        return dataclasses.replace(self.request, hold_out=self.hold_out)

    def state(self) -> State:
        """How far the run is; RunError if its directory was started with other settings."""
        files = self.files
        if not files.is_run:
            return "absent"
        self._check_same(files)
        if not files.is_finished:
            return "unfinished"
        return "trained" if self.result(files) is None else "done"

    def _check_same(self, files: RunFiles) -> None:
        stored, info = files.config, files.facts.info
        wanted = self.request_on(info).for_task(task_of(info))
        for name in ("algorithm", "preset", "seeds", "sweep", "rules", "hold_out"):
            self._check_equal(name, getattr(stored, name), getattr(wanted, name))
        self._check_length(stored, wanted)
        for name, value in wanted.settings.items():
            if value not in UNDECIDED:
                self._check_equal(name, getattr(stored.configuration, name), value)

    def _check_equal(self, name: str, stored: Any, wanted: Any) -> None:
        if stored != wanted:
            raise self._started_otherwise(f"{name.replace('_', '-')} {_plain(stored)}", _plain(wanted))

    def _check_length(self, stored: Request, wanted: Request) -> None:
        """RunError if training was to take other steps, or other minutes."""
        texts = [f"steps {r.steps}" if r.minutes is None else f"minutes {r.minutes:g}" for r in (stored, wanted)]
        first, second = texts
        if first != second:
            is_same_kind = (stored.minutes is None) == (wanted.minutes is None)
            raise self._started_otherwise(first, second.rpartition(" ")[2] if is_same_kind else second)

    def _started_otherwise(self, stored: str, wanted: str) -> RunError:
        return RunError(
            f"{self.directory} was started with {stored}, not {wanted}; "
            "give the old settings to go on with it, or another --out"
        )

    def result(self, files: RunFiles) -> Evaluation | Estimate | None:
        """What the finished run is judged by, if it is there: episodes, or an estimate without an environment."""
        if self.has_environment:
            return matching_evaluation(files, self.episodes)
        return matching_estimate(files, self.discount)

    def run(self, train: Callable[[Run], Any] = Run.train, num_workers: int | None = None) -> None:
        """Do what is left; ``train(run)`` trains to the end.

        A failure is recorded beside the run and raised as a VemError; the next attempt goes on from the newest
        checkpoint.
        """
        self.failure_path.unlink(missing_ok=True)
        try:
            if (state := self.state()) in ("absent", "unfinished"):
                dataset = self.request.load()
                request = self.request_on(dataset.info)
                run = Run.create(self.directory, request, dataset) if state == "absent" else self._opened().begin()
                train(run)
            # Training may have evaluated its last policies itself.
            if self.state() != "done":
                self._judge(num_workers)
        except Exception as error:
            # Whatever it is, it must not cost the runs that come after it.
            text = str(error) if isinstance(error, VemError) else f"{type(error).__name__}: {error}"
            self.record_failure(text)
            if isinstance(error, VemError):
                raise
            raise RunError(text) from error

    def _opened(self) -> Run:
        return Run.open(self.directory, None if self.request.dataset is None else self.request.load())

    def _judge(self, num_workers: int | None) -> None:
        if self.has_environment:
            evaluate(self.directory, episodes=self.episodes, workers=num_workers, progress=False)
        else:
            estimate(self._opened(), discount=self.discount)

    def record_failure(self, text: str) -> None:
        """Write why the newest attempt failed."""
        facts = {"dataset": self.dataset, "algorithm": self.request.algorithm, **self.swept}
        write_json(self.failure_path, {**facts, "error": " ".join(text.split())})

    def failure(self) -> str | None:
        """Why the newest attempt failed, or None."""
        try:
            return str(json.loads(self.failure_path.read_text(encoding="utf-8"))["error"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return f"{self.failure_path} cannot be read"


def _environment(info: DataInfo) -> str | None:
    return own_environment(info)


def matching_evaluation(files: RunFiles, num_episodes: int | None = None) -> Evaluation | None:
    """The evaluation of a run that a comparison takes, or None.

    It is one of the final policies in the data's own environment, with seed 0, each policy's own way of acting and
    that many episodes; None: any number.
    """
    found = read_evaluation(files)
    if found is None or found.seed != 0 or found.steps != files.config.steps:
        return None
    if num_episodes not in (None, found.episodes) or found.environment != _environment(files.facts.info):
        return None
    try:
        own = how_acting(map(load_policy, files.policy_paths))
    except RunError:
        return None
    return found if found.actions == own else None


def matching_estimate(files: RunFiles, discount: float) -> Estimate | None:
    """The estimate of a run's final policies on the trajectories that it held out, or None."""
    stored = files.estimate()
    found = None if stored is None else Estimate.from_json(stored)
    if found is None or (found.trajectories, found.discount) != ("held out", discount):
        return None
    if found.data_sha256 != files.facts.sha256 or list(found.policies) != [t.name for t in files.config.trials]:
        return None
    newest = max(path.stat().st_mtime for path in files.policy_paths)
    return found if files.estimate_path().stat().st_mtime >= newest else None


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
