"""Runs from directories: a new one, one to look at, one to go on with."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from vem.algorithms import check_actions
from vem.algorithms.base import spec_of
from vem.data import Dataset
from vem.data.hold_out import Parts, part_dataset
from vem.errors import SettingsError
from vem.runs.budget import steps_within
from vem.runs.config import Config, build_settings
from vem.runs.directory import RunDirectory
from vem.runs.pool_plan import choose_pool_rows
from vem.runs.records import DataFacts, package_versions
from vem.runs.run import Run

ROW_RULES = ("split", "time_limit", "teleports", "repeat_terminals")
"""The reading rules that decide which rows a run trains on."""


def create_run(directory: str | Path | RunDirectory, config: Config, dataset: Dataset) -> Run:
    """A new run in an empty or absent directory, which it holds the lock of until training ends."""
    files = directory if isinstance(directory, RunDirectory) else RunDirectory(directory)
    if not files.is_locked:
        files.reserve()
    try:
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
        files.write_config(config, DataFacts.of(dataset), package_versions())
    except BaseException:
        files.abandon()
        raise
    run._begun = True
    return run


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
