"""Recordings that training did not see, for the runs whose guides are compared with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vem.data import Dataset
from vem.errors import DataError
from vem.report.guide import has_guides
from vem.report.records import RunRecord
from vem.runs.reading import read_data


def read_held_out(source: Dataset | str | Path | None, runs: list[RunRecord]) -> dict[int, Dataset]:
    """The data for each run with a guide (by ``id``), read by the rules of the run; a Dataset is taken as it is.

    DataError if it does not fit such a run, or is what the run was trained on. Empty without a source.
    """
    found: dict[int, Dataset] = {}
    if source is None:
        return found
    read: dict[str, Dataset] = {}
    for run in runs:
        if not has_guides(list(run.policies.values())):
            continue
        if isinstance(source, Dataset):
            dataset = source
        else:
            key = repr((run.config.rules, run.config.data_dir))
            if key not in read:
                read[key] = read_data(str(source), run.config.rules, run.config.data_dir)
            dataset = read[key]
        _check_fits(dataset, run)
        found[id(run)] = dataset
    return found


def _check_fits(dataset: Dataset, run: RunRecord) -> None:
    policy = next(iter(run.policies.values()))
    needed, given = (policy.observation_size, policy.action_size), (dataset.observation_size, dataset.action_size)
    if given != needed:
        raise DataError(
            f"the held-out data {dataset.info.name} has observations of {given[0]} numbers and actions of {given[1]}; "
            f"{run.directory} takes {needed[0]} and {needed[1]}: give recordings of the same task"
        )
    training = run.dataset
    if training is not None and share_of_known_rows(dataset, training) == 1:
        raise DataError(
            f"every step of the held-out data {dataset.info.name} is in the data that {run.directory} was trained on; "
            "give recordings that training did not see, or leave --held-out away"
        )


def share_of_known_rows(given: Dataset, known: Dataset) -> float:
    """Share of the steps of ``given`` that are in ``known`` too, bit by bit."""
    return float(np.isin(_row_keys(given), _row_keys(known)).mean())


def _row_keys(dataset: Dataset) -> np.ndarray:
    """One number for each step: equal for equal observations and actions, and hardly ever for others."""
    columns = np.concatenate([dataset.observations, dataset.actions], axis=1)[dataset.valid].astype(np.float32)
    factors = np.random.default_rng(0).integers(1, 2**63, columns.shape[1], dtype=np.uint64)
    keys = np.zeros(len(columns), np.uint64)
    # Sums and products of unsigned integers wrap, which is what mixes the bits.
    for column, factor in zip(columns.view(np.uint32).T, factors, strict=True):
        keys += column * factor
    return keys


def describe_rows(run: RunRecord, sample: Dataset, held_out: Dataset | None) -> str:
    """Of which rows the agreement is, in words that do not flatter: training rows, or how many of these are."""
    count = f"{sample.num_transitions:,} steps"
    if held_out is None:
        return f"{count} of the training data (seen in training, so this flatters: --held-out takes other recordings)"
    training = run.dataset
    if training is None:
        return f"{count} of {held_out.info.name}, given as held out; the training data cannot be read to check that"
    share = share_of_known_rows(held_out, training)
    known = "no step of which is in the training data"
    if share > 0:
        known = f"{share:.1%} of whose steps are in the training data too"
    return f"{count} of the held-out data {held_out.info.name}, {known}"
