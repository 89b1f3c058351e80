"""Runs from directories: a new one, one to look at, one to go on with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from vem.algorithms import check_actions
from vem.algorithms.base import spec_of
from vem.data import DataInfo, Dataset
from vem.data.hold_out import Parts, part_dataset
from vem.errors import DataError, SettingsError
from vem.runs.budget import steps_within
from vem.runs.config import Config, build_settings
from vem.runs.directory import RunDirectory
from vem.runs.pool_plan import choose_pool_rows
from vem.runs.records import DataFacts, package_versions
from vem.runs.run import Run

ROW_RULES = ("split", "time_limit", "teleports", "repeat_terminals")
"""The reading rules that decide which rows a run trains on."""


def create_run(
    directory: str | Path | RunDirectory, config: Config, dataset: Dataset, evaluate_every: float | None = None
) -> Run:
    """A new run in an empty or absent directory, which it holds the lock of until training ends.

    ``evaluate_every`` is kept with it, for resuming.
    """
    files = directory if isinstance(directory, RunDirectory) else RunDirectory(directory)
    if not files.is_locked:
        files.reserve()
    try:
        check_bounds(dataset.info)
        _check_rules(config, dataset)
        parts = part_dataset(dataset, config.hold_out)
        spec = spec_of(parts.training)
        check_actions(config.algorithm, spec)
        full, notes = build_settings(config.algorithm, config.settings).complete(spec)
        pool_rows = choose_pool_rows(config.pool_rows, parts.training)
        config = dataclasses.replace(config, settings=dataclasses.asdict(full), pool_rows=pool_rows)
        if config.minutes is not None:
            trial = _run_on(files, config, dataset, parts)
            steps, note = steps_within(trial, config.minutes)
            run = _run_on(files, dataclasses.replace(config, steps=steps), dataset, parts)
            run.__dict__ |= {name: trial.__dict__[name] for name in ("rows",) if name in trial.__dict__}
            config, notes = run.config, [*notes, note]
        else:
            run = _run_on(files, config, dataset, parts)
        run.messages += notes
        if pool_rows is not None:
            held = run._planned[1]
            assert held is not None
            run.messages.append(f"pool of {held.num_rows:,} rows: the others stay where they are and take turns in it")
        run.check_memory()
        files.write_config(config, DataFacts.of(dataset), package_versions(), evaluate_every)
    except BaseException:
        files.abandon()
        raise
    run._begun = True
    return run


def check_bounds(info: DataInfo) -> None:
    """DataError if an action column is so wide that float32, which policies act in, cannot hold its width."""
    for index, (low, high) in enumerate(zip(info.action_low, info.action_high, strict=True)):
        if not float(high) - float(low) <= float(np.finfo(np.float32).max):
            raise DataError(
                f"action column {index} goes from {low:g} to {high:g}, which is more than float32 holds; divide the "
                "actions by a constant, or give narrower action bounds"
            )


def _check_rules(config: Config, dataset: Dataset) -> None:
    """SettingsError if the rows were not read as the config says: the run could not find them again."""
    for rule in ROW_RULES:
        found = dataset.info.rules.get(rule, False)
        said = config.rules.get(rule, False if rule == "repeat_terminals" else found)
        if said != found:
            raise SettingsError(
                f"the rows of {dataset.info.name} were read with {rule}={found!r} and the run's config says {said!r}; "
                "read them by the config's rules"
            )


def _run_on(files: RunDirectory, config: Config, dataset: Dataset, parts: Parts) -> Run:
    run = Run(files, config, dataset)
    run.parts = parts
    return run


def open_run(path: str | Path, dataset: Dataset | None = None) -> Run:
    """The run in a directory, to look at or to ``resume``; ``dataset`` is needed if it was made from arrays.

    Nothing is changed and no data is read before it is needed. Data that is given must be the same to the bit.
    """
    files = RunDirectory(path)
    run = Run(files, files.config)
    if dataset is not None:
        run.dataset = run._checked(dataset)
    return run


def resume_run(directory: str | Path, dataset: Dataset | None = None) -> Run:
    """The run in a directory, locked and ready to go on from its newest readable checkpoint."""
    run = open_run(directory, dataset)
    run.begin()
    return run
