"""Training curves in TensorBoard and in Weights & Biases: callbacks for ``vem.train``, off by default.

    vem.train(dataset, out="runs/mine", callbacks=[vem.training.callbacks.TensorBoard()])

Each trial of a run is a run there, with a scalar for each metric (``train/…``) and, where the run is evaluated on the
way, for each mean of its evaluation (``evaluation/…``). A resumed run goes on in the same log: training is exact to the
bit, so the steps that were logged before a crash are not logged again.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vem.errors import RunError, SettingsError, require
from vem.storage import read_json, write_json

if TYPE_CHECKING:
    from vem.training.loop import Progress
    from vem.training.run import Run


Scalars = dict[str, float]


class _Log:
    """What both have in common: the scalars of each trial, each step once."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._last: dict[str, int] = {}
        self._seen: int | None = None

    def __call__(self, run: Run, progress: Progress) -> None:
        """Log what a chunk did."""
        if self._directory != run.directory:
            self.close()
            self._directory, self._seen = run.directory, None
            self._last = {trial.name: self._begin(run, trial.name) for trial in run.config.trials}
        evaluated = self._evaluation(run, progress.steps)
        for index, trial in enumerate(run.config.trials):
            if progress.steps > self._last[trial.name]:
                scalars = {f"train/{name}": float(values[index]) for name, values in progress.metrics.items()}
                self._write(run, trial.name, progress.steps, {**scalars, **evaluated.get(trial.name, {})})
                self._last[trial.name] = progress.steps

    def _evaluation(self, run: Run, steps: int) -> dict[str, Scalars]:
        """The means of each trial's evaluation after ``steps``, if there is one."""
        try:
            changed = run.summary_path().stat().st_mtime_ns
        except OSError:
            return {}
        if changed == self._seen:
            return {}
        self._seen = changed
        summary = run.summary()
        if summary is None or summary["steps"] != steps:
            return {}
        return {
            name: {
                f"evaluation/{quantity}": float(value)
                for quantity, value in means.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            for name, means in summary["trials"].items()
        }

    def _begin(self, run: Run, trial: str) -> int:
        """Open the log of a trial and return the newest step in it that counts, 0 if there is none."""
        raise NotImplementedError

    def _write(self, run: Run, trial: str, steps: int, scalars: Scalars) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close the logs; the next chunk, of this or another run, opens them again."""
        self._directory = None


class TensorBoard(_Log):
    """Writes RUN/tensorboard/TRIAL: see all runs with ``tensorboard --logdir runs``. Needs ``vem[tensorboard]``.

    A resumed run adds a file that tells TensorBoard to forget what an earlier one holds of later steps.
    """

    def __init__(self) -> None:
        super().__init__()
        require("tensorboard")
        self._files: dict[str, Any] = {}

    def _begin(self, run: Run, trial: str) -> int:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = run.directory / "tensorboard" / trial
        try:
            self._files[trial] = EventFileWriter(str(folder))
        except OSError as error:
            raise RunError(f"cannot write {folder}: {error.strerror or error}") from None
        if run.steps_done:
            start = SessionLog(status=SessionLog.START)
            self._add(trial, Event(wall_time=time.time(), step=run.steps_done + 1, session_log=start))
        return run.steps_done

    def _write(self, run: Run, trial: str, steps: int, scalars: Scalars) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        self._add(trial, Event(wall_time=time.time(), step=steps, summary=Summary(value=values)))

    def _add(self, trial: str, event: Any) -> None:
        self._files[trial].add_event(event)
        self._files[trial].flush()

    def close(self) -> None:
        """Close the files."""
        super().close()
        for file in self._files.values():
            file.close()
        self._files = {}


class WandB(_Log):
    """Logs to Weights & Biases: one run a trial, grouped by the run's name. Needs ``vem[wandb]``.

    ``options`` go to ``wandb.init``, such as ``entity`` or ``mode="offline"``. RUN/wandb.json keeps the ids.
    """

    def __init__(self, project: str = "vem", **options: Any) -> None:
        super().__init__()
        require("wandb")
        self.project, self.options = project, options
        self._runs: dict[str, Any] = {}
        self._known: dict[str, dict[str, Any]] = {}

    def _begin(self, run: Run, trial: str) -> int:
        import wandb  # pyright: ignore[reportMissingImports]

        self._known = self._known or _read_ids(run.directory / "wandb.json")
        entry = self._known.setdefault(trial, {"id": uuid.uuid4().hex, "steps": -1})
        settings: dict[str, Any] = {
            "project": self.project,
            "id": entry["id"],
            "resume": "allow",
            "name": f"{run.directory.name}/{trial}",
            "group": run.directory.name,
            "config": {**run.config.to_json(), "trial": trial},
            "dir": str(run.directory),
            "reinit": "create_new",
        }
        self._runs[trial] = wandb.init(**{**settings, **self.options})
        return int(entry["steps"])

    def _write(self, run: Run, trial: str, steps: int, scalars: Scalars) -> None:
        self._runs[trial].log(scalars, step=steps)
        self._known[trial]["steps"] = steps
        write_json(run.directory / "wandb.json", self._known)

    def close(self) -> None:
        """Finish the runs there."""
        super().close()
        for started in self._runs.values():
            started.finish()
        self._runs, self._known = {}, {}


def _read_ids(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return read_json(path, dict)
    except RunError:
        return {}


LOGS = {"tensorboard": TensorBoard, "wandb": WandB}
"""What ``vem train --log`` can name."""


def named(text: str) -> list[_Log]:
    """The callbacks that a list such as ``tensorboard,wandb`` names."""
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in LOGS]
    if wrong:
        raise SettingsError(f"--log is {text!r}; it names {' or '.join(LOGS)}, or both with a comma")
    return [LOGS[name]() for name in dict.fromkeys(names)]
