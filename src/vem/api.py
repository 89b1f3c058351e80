"""Training from Python and from the command line: data in, a finished run out."""

from __future__ import annotations

import dataclasses
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from vem.algorithms.base import Configuration, method_of
from vem.data.dataset import Dataset
from vem.errors import RunError, SettingsError, is_installed
from vem.evaluation.environments import find_environment
from vem.evaluation.evaluate import evaluating
from vem.tasks import task_of
from vem.training.machine import keep_programs
from vem.training.request import Config, check_period, check_rules, make_config, read_data, reading_rules, repeated
from vem.training.run import SECONDS_PER_CHECKPOINT, Callback, Run, RunDirectory, check_callbacks, create_run, open_run

RULES = ("split", "time_limit", "teleports", "task", "discrete", "action_bounds", "mapping", "repeat_terminals")
"""The reading rules that a resumed run gives to ``vem.load`` again."""


@dataclasses.dataclass(frozen=True)
class Watching:
    """What happens while a run trains; nothing of it changes the result."""

    evaluate_every: float | None = None
    """Steps between two evaluations, or a share of all steps; None: no evaluation."""
    callbacks: Sequence[Callback] = ()
    progress: bool | TextIO = True
    checkpoint_seconds: float = SECONDS_PER_CHECKPOINT
    keep_programs: bool = True
    """Keep compiled programs in the user's cache folder for later runs."""

    def check(self) -> None:
        """SettingsError if a field makes no sense."""
        check_period(self.evaluate_every)
        check_callbacks(self.callbacks)
        if isinstance(self.checkpoint_seconds, bool) or not self.checkpoint_seconds >= 0:
            raise SettingsError(f"--checkpoint-seconds is {self.checkpoint_seconds!r}; it must be 0 or more")


def train(
    dataset: Dataset,
    algorithm: str | Configuration = "vem",
    *,
    preset: str = "default",
    seeds: int | Sequence[int] = 1,
    steps: int = 100_000,
    pool_rows: int | None = None,
    hold_out: float = 0.0,
    out: str | Path | None = None,
    evaluate_every: float | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | TextIO = True,
    checkpoint_seconds: float = SECONDS_PER_CHECKPOINT,
    keep_programs: bool = True,
    **settings: Any,
) -> Run:
    """Train policies on ``dataset`` and return the run.

    ``algorithm`` is a method's name, with its ``settings`` as keywords (a sweepable one may be a list), or a
    configuration object such as ``vem.IQL(expectile=0.9)``, which is taken as it is. The run directory is ``out``, or
    a new temporary one. A preset that reads data by rules of its own (``time_limit="end"`` of ``paper``) needs a
    dataset that was loaded by them; ``repeat_terminals`` is applied here.

    ``pool_rows`` is how many rows are held at a time, the others staying on disk; by default all, unless the dataset is
    of shards that do not fit into the memory. ``hold_out`` is the share of the trajectories that training never sees,
    for ``vem.estimate``: the same ones for every method and seed.

    ``evaluate_every`` evaluates after every so many steps, or that share of them (0.2), and at the end.
    ``callbacks`` are called with the run and its progress after each chunk; one that returns True saves and stops the
    run, which ``run.resume()`` continues.
    ``keep_programs`` keeps compiled programs in the user's cache folder, for the next run of the same shapes.
    """
    if not isinstance(dataset, Dataset):
        raise SettingsError(f"the dataset is {dataset!r}; give a Dataset, such as vem.load(path) returns")
    name = algorithm
    if isinstance(algorithm, Configuration):
        if settings or preset != "default":
            given = ", ".join([*settings, *(["preset"] if preset != "default" else [])])
            raise SettingsError(
                f"{given} and a configuration object are given; put settings into the object, or name the algorithm"
            )
        name, settings = method_of(algorithm), dataclasses.asdict(algorithm)
    if not isinstance(name, str):
        raise SettingsError(f"the algorithm is {algorithm!r}; give a name ('vem') or an object (vem.VEM())")
    info = dataset.info
    source = info.name if info.source == "arrays" else info.source

    def make() -> tuple[Config, Dataset]:
        config = make_config(
            source, name, preset, settings, seeds, steps, task=task_of(info), pool_rows=pool_rows, hold_out=hold_out
        )
        check_rules(dataset, config.rules)  # those of the preset: no others were given
        read = repeated(dataset, config.rules.get("repeat_terminals", False))
        rules = {rule: read.info.rules[rule] for rule in RULES if rule in read.info.rules}
        return dataclasses.replace(config, rules=rules), read

    watching = Watching(evaluate_every, callbacks, progress, checkpoint_seconds, keep_programs)
    path = Path(tempfile.gettempdir()) / f"vem-{uuid.uuid4().hex[:12]}" if out is None else Path(out)
    return _train_new(RunDirectory(path), make, watching)


def train_source(
    source: str,
    algorithm: str = "vem",
    *,
    preset: str = "default",
    seeds: int | Sequence[int] = 1,
    steps: int = 100_000,
    settings: dict[str, Any] | None = None,
    rules: dict[str, Any] | None = None,
    data_dir: str | None = None,
    pool_rows: int | None = None,
    hold_out: float = 0.0,
    out: str | Path | None = None,
    watching: Watching | None = None,
) -> Run:
    """Load the data that ``source`` names as the preset reads it, train on it and return the run: ``vem train``.

    The run directory is ``out``, or a free one below ``runs``; it is made before the data is read.
    """
    rules = reading_rules(algorithm, preset, rules)
    # Wrong settings need not wait for the data; which task it is may still change the preset's.
    common = {"pool_rows": pool_rows, "hold_out": hold_out}
    draft = make_config(source, algorithm, preset, settings, seeds, steps, rules, data_dir, **common)

    def make() -> tuple[Config, Dataset]:
        dataset = read_data(source, draft.rules, data_dir)
        task = task_of(dataset.info)
        known = make_config(source, algorithm, preset, settings, seeds, steps, rules, data_dir, task, **common)
        return known, dataset

    stem = Path(source.removeprefix("minari:")).stem
    files = free_directory(f"{stem}-{algorithm}") if out is None else RunDirectory(out)
    return _train_new(files, make, watching or Watching())


def resume(
    path: str | Path,
    dataset: Dataset | str | None = None,
    *,
    data_dir: str | None = None,
    watching: Watching | None = None,
) -> Run:
    """Go on with the run in ``path`` to its end and return it.

    Data that was moved is named by ``dataset`` or found in ``data_dir``; its rows must be the same to the bit. The run
    is evaluated on the way as it was started, unless ``watching`` says how.
    """
    watching = watching or Watching()
    watching.check()
    if watching.keep_programs:
        keep_programs()
    run = open_run(path, dataset if isinstance(dataset, Dataset) else None)
    if isinstance(dataset, str) or data_dir is not None:
        config = run.config
        moved = read_data(
            config.dataset if dataset is None else str(dataset), config.rules, data_dir or config.data_dir
        )
        run = open_run(path, moved)
    if watching.evaluate_every is None:
        watching = dataclasses.replace(watching, evaluate_every=run.files.evaluate_every)
    return _watched(run, watching)


def free_directory(name: str) -> RunDirectory:
    """A new directory below ``runs``, made and locked, numbered from the second on."""
    number = 1
    while True:
        files = RunDirectory(Path("runs") / (name if number == 1 else f"{name}-{number}"))
        if not files.path.exists():
            try:
                files.reserve()
                return files
            except RunError:
                if not files.path.exists():
                    raise  # it cannot be made; otherwise another process was faster
        number += 1


def _train_new(files: RunDirectory, make: Callable[[], tuple[Config, Dataset]], watching: Watching) -> Run:
    if not files.is_locked:
        files.reserve()
    try:
        watching.check()
        if watching.keep_programs:
            keep_programs()
        config, dataset = make()
        if watching.evaluate_every is not None:
            find_environment(dataclasses.asdict(dataset.info))  # fail before anything is written
        run = create_run(files, config, dataset, watching.evaluate_every)
    except BaseException:
        files.abandon()
        raise
    return _watched(run, watching)


def _watched(run: Run, watching: Watching) -> Run:
    run.seconds_per_checkpoint = watching.checkpoint_seconds
    try:
        run.begin()
        with evaluating(run, watching.evaluate_every, _draw_curve) as callbacks:
            return run.train([*callbacks, *watching.callbacks], watching.progress)
    finally:
        run.files.release()


def _draw_curve(run: Run) -> None:
    if not is_installed("matplotlib"):
        return  # training goes on; ``vem report`` draws it where vem[report] is
    from vem.reports.report import write_score_curve

    write_score_curve(run.directory)
