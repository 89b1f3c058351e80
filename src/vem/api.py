"""Training from Python and from the command line, on one road: a request in, a finished run out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from vem.algorithms.base import Configuration, import_methods
from vem.data.dataset import DataInfo, Dataset
from vem.errors import RunError, SettingsError, SimulatorError, is_installed
from vem.training.machine import keep_programs as keep_compiled
from vem.training.request import Request, check_period, make_request
from vem.training.run import SECONDS_PER_CHECKPOINT, Callback, Run, check_callbacks


def train(
    data: Any = None,
    algorithm: str | Configuration | None = None,
    *,
    preset: str | None = None,
    seeds: int | Sequence[int] | None = None,
    seed: int | Sequence[int] | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    hold_out: float | None = None,
    pool_rows: int | None = None,
    data_dir: str | Path | None = None,
    out: str | Path | None = None,
    evaluate_every: float | None = None,
    imports: Sequence[str] = (),
    config: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | TextIO = True,
    checkpoint_seconds: float = SECONDS_PER_CHECKPOINT,
    keep_programs: bool = True,
    **settings_and_rules: Any,
) -> Run:
    """Train policies on ``data`` and return the run.

    ``data`` is a path, a benchmark's name, ``minari:ID``, a Dataset, or a DataFrame with its ``mapping``. ``algorithm``
    is a method's name (default: ``vem``), with its settings as keywords (a sweepable one may be a list), or a
    configuration object such as ``vem.IQL(expectile=0.9)``. Reading rules (``time_limit="end"``, ``task=`` …) are
    keywords, too; a Dataset must have been read by those that are given and by the preset's.

    ``seeds`` is how many seeds are trained and ``seed`` which (one, or a list). ``steps`` (default: 100,000) are those
    of each policy; ``minutes`` of one core take their place. ``hold_out`` is the share of the trajectories that
    training never sees, for ``vem.estimate``; ``pool_rows`` how many rows are held at a time, the others staying on
    disk. ``config`` is a TOML or JSON file, or the config.json of another run, that says all of this; what is given
    beside it counts more. ``imports`` are files or modules that register methods of one's own.

    The run directory is ``out``, or a free one below ``runs``. ``evaluate_every`` evaluates after every so many steps,
    or that share of them (0.2), and at the end, and keeps the policies of each point (``run.best``).
    ``callbacks`` are called with the run and its progress after each chunk; one that returns True saves and stops the
    run, which ``run.resume()`` continues. ``keep_programs`` keeps compiled programs in the user's cache folder.
    """
    request = make_request(
        data,
        algorithm,
        config=config,
        imports=imports,
        preset=preset,
        seeds=seeds,
        seed=seed,
        steps=steps,
        minutes=minutes,
        hold_out=hold_out,
        pool_rows=pool_rows,
        data_dir=data_dir,
        evaluate_every=evaluate_every,
        **settings_and_rules,
    )
    _check_watching(callbacks, checkpoint_seconds)
    # The directory is made before the data is read, which may take long.
    run = free_directory(f"{request.stem}-{request.algorithm}") if out is None else Run(out)
    return train_request(request, run, callbacks, progress, checkpoint_seconds, keep_programs)


def train_request(
    request: Request,
    run: Run,
    callbacks: Sequence[Callback] = (),
    progress: bool | TextIO = True,
    checkpoint_seconds: float = SECONDS_PER_CHECKPOINT,
    keep_programs: bool = True,
) -> Run:
    """Train what a request says in the directory of a run that does not exist yet, and return the run."""
    if not run.is_locked:
        run.reserve()
    try:
        if keep_programs:
            keep_compiled()
        dataset = request.load()
        if request.evaluate_every is not None:
            has_environment(dataset.info, request)  # fail before anything is written
        run = Run.create(run, request, dataset)
    except BaseException:
        run.abandon()
        raise
    return _watched(run, request.evaluate_every, callbacks, progress, checkpoint_seconds)


def resume(
    path: str | Path,
    dataset: Dataset | str | Path | None = None,
    *,
    steps: int | None = None,
    restart_schedule: bool = False,
    data_dir: str | Path | None = None,
    imports: Sequence[str] = (),
    evaluate_every: float | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | TextIO = True,
    checkpoint_seconds: float = SECONDS_PER_CHECKPOINT,
    keep_programs: bool = True,
) -> Run:
    """Go on with the run in ``path`` to its end, or to ``steps`` in all, and return it.

    Data that was moved is named by ``dataset`` or found in ``data_dir``; its rows must be the same to the bit. The run
    is evaluated on the way as it was started, unless ``evaluate_every`` says how. With ``steps``, every stage is
    trained again, with the networks as they are, and shares the added steps as in a run of so many; schedules of
    learning rates that have ended begin anew only with ``restart_schedule``. ``imports`` register its method.
    """
    _check_watching(callbacks, checkpoint_seconds)
    check_period(evaluate_every)
    import_methods(imports)
    if keep_programs:
        keep_compiled()
    run = Run.open(path, dataset if isinstance(dataset, Dataset) else None)
    if isinstance(dataset, str | Path) or data_dir is not None:
        source = None if dataset is None or isinstance(dataset, Dataset) else dataset
        run.use_data(run.config.load(source, data_dir))
    run.go_on_to(steps, restart_schedule)
    every = run.config.evaluate_every if evaluate_every is None else evaluate_every
    return _watched(run, every, callbacks, progress, checkpoint_seconds)


def free_directory(name: str) -> Run:
    """A new directory below ``runs``, made and locked, numbered from the second on."""
    number = 1
    while True:
        run = Run(Path("runs") / (name if number == 1 else f"{name}-{number}"))
        if not run.directory.exists():
            try:
                run.reserve()
                return run
            except RunError:
                if not run.directory.exists():
                    raise  # it cannot be made; otherwise another process was faster
        number += 1


def has_environment(info: DataInfo, request: Request) -> bool:
    """Whether a run can be evaluated on the way in an environment; if not, it needs held-out trajectories."""
    from vem.evaluation.environments import find_environment

    try:
        find_environment(info)
    except SimulatorError as error:
        if request.hold_out:
            return False
        if info.environment is not None:
            raise
        raise SettingsError(
            f"--evaluate-every has nothing to evaluate by: {error}; or hold trajectories out for estimates "
            "(--hold-out 0.2)"
        ) from None
    return True


def _check_watching(callbacks: Sequence[Callback], checkpoint_seconds: float) -> None:
    """SettingsError if what happens while a run trains makes no sense."""
    check_callbacks(callbacks)
    is_number = isinstance(checkpoint_seconds, int | float) and not isinstance(checkpoint_seconds, bool)
    if not is_number or not checkpoint_seconds >= 0:
        raise SettingsError(f"--checkpoint-seconds is {checkpoint_seconds!r}; it must be 0 or more")


def _watched(
    run: Run, every: float | None, callbacks: Sequence[Callback], progress: bool | TextIO, checkpoint_seconds: float
) -> Run:
    run.seconds_per_checkpoint, run.stops_every = checkpoint_seconds, every
    try:
        run.begin()
        if every is None or run.is_finished:
            return run.train(callbacks, progress)
        if has_environment(run.facts.info, run.config):
            from vem.evaluation.evaluate import evaluating

            with evaluating(run, every, _draw_curve) as own:
                return run.train([*own, *callbacks], progress)
        from vem.estimation.points import estimating

        return run.train([estimating(run, every), *callbacks], progress)
    finally:
        run.release()


def _draw_curve(run: Run) -> None:
    if not is_installed("matplotlib"):
        return  # training goes on; ``vem report`` draws it where vem[report] is
    from vem.reports.report import write_score_curve

    write_score_curve(run.directory)
