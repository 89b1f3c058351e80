"""Whether an exported file acts as the policy does: both on the same thousands of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.encoding import Encoder, InputColumn
from vem.deploy.columns import ACTION, OBSERVATION, input_type, missing_text, output_names, valid_name
from vem.errors import RunError

if TYPE_CHECKING:
    from vem.policy import Policy

NUM_ROWS = 4096
TOLERANCE = 1e-4
"""Largest difference of a number, as a share of its bounds' distance."""
MOST_TIES = 0.002
"""Share of the rows where nearly equal candidates may be ordered differently by another arithmetic."""
MISSING_SHARE = 0.2
Inputs = dict[str, Any]
"""The log's columns, or ``observation`` → one entry a row."""


@dataclass(frozen=True)
class Check:
    """How far an exported file is from ``Policy.act``."""

    rows: int
    data_rows: int
    """How many of them are the data's; the others are drawn around the normalizer's mean."""
    largest_difference: float
    """Of the actions that are numbers, in their own units."""
    other_choices: int
    """Rows whose choice, or for BCQ whose candidate, is another."""

    def __str__(self) -> str:
        drawn = self.rows - self.data_rows
        parts = [f"{self.data_rows:,} rows of the data"] if self.data_rows else []
        parts += [f"{drawn:,} random rows"] if drawn else []
        other = f", {self.other_choices} with another choice" if self.other_choices else ""
        return f"checked on {' and '.join(parts)}: largest difference {self.largest_difference:.2g}{other}"


def check_model(policy: Policy, model: bytes, observations: np.ndarray | None = None) -> Check:
    """Compare the model with ``policy.act``; RunError if they differ.

    ``observations`` are rows of the data, encoded; where they are few or none, rows around the normalizer's mean are
    added.
    """
    if observations is None:
        observations = np.zeros((0, policy.observation_size), np.float32)
    if len(observations) > NUM_ROWS:
        drawn = np.random.default_rng(0).choice(len(observations), NUM_ROWS, replace=False)
        observations = np.asarray(observations[np.sort(drawn)], np.float32)
    data_rows = len(observations)
    observations = np.concatenate([observations, random_observations(policy, NUM_ROWS - data_rows)])
    given = {OBSERVATION: observations} if policy.encoder is None else log_columns(policy.encoder, observations)
    expected = policy.act(given[OBSERVATION] if policy.encoder is None else given)
    expected = {ACTION: expected} if policy.encoder is None else expected
    session = _session(model)
    found = run_model(session, policy.encoder, given)
    if not found.pop(valid_name(policy.encoder)).all():
        raise RunError("the exported file refuses observations that the policy acts on; nothing was written")
    first = run_model(session, policy.encoder, {name: values[:1] for name, values in given.items()})
    alone = {name: np.asarray(values)[:1] for name, values in expected.items()}
    _compare(policy, alone, {name: first[name] for name in alone})
    difference, others = _compare(policy, expected, found)
    return Check(len(observations), data_rows, difference, others)


def _session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run_model(session: Any, encoder: Encoder | None, given: Inputs) -> dict[str, np.ndarray]:
    """The actions and ``valid`` of a model, by the names that ``Policy.act`` gives them."""
    names = {**output_names(encoder), valid_name(encoder): valid_name(encoder)}
    outputs = session.run(list(names.values()), model_inputs(encoder, given))
    return dict(zip(names, outputs, strict=True))


def model_inputs(encoder: Encoder | None, given: Inputs) -> dict[str, np.ndarray]:
    """The log's columns as arrays of the types that the model takes; None and NaN for missing values."""
    if encoder is None:
        return {OBSERVATION: np.asarray(given[OBSERVATION], np.float32)}
    return {column.name: _model_input(column, given[column.name]) for column in encoder.inputs}


def _model_input(column: InputColumn, values: Any) -> np.ndarray:
    if input_type(column) == "string":
        empty = missing_text(column)
        return np.array([empty if value is None else value for value in values], object)
    return np.asarray(values, np.bool_ if input_type(column) == "bool" else np.float32)


def _compare(policy: Policy, expected: dict[str, Any], found: dict[str, Any]) -> tuple[float, int]:
    """Largest difference of numbers, and rows with another choice; RunError if they are too many or too large."""
    num_rows = len(next(iter(expected.values())))
    is_other, largest, excess = np.zeros(num_rows, bool), 0.0, 0.0
    for name, (low, high, is_choice) in _parts(policy).items():
        columns = (np.asarray(side[name]).reshape(num_rows, -1) for side in (expected, found))
        for index, (ours, theirs) in enumerate(zip(*(values.T for values in columns), strict=True)):
            if is_choice[index]:
                is_other |= ours.astype(str) != theirs.astype(str) if ours.dtype.kind in "US" else ours != theirs
                continue
            differences = np.abs(ours.astype(np.float64) - theirs)
            share = differences / max(high[index] - low[index], np.finfo(np.float32).tiny)
            if policy.kind == "bcq":
                is_other |= ~(share <= TOLERANCE)
                differences = np.where(share <= TOLERANCE, differences, 0)
            largest = max(largest, float(differences.max()))
            excess = max(excess, float(np.where(np.isnan(differences), np.inf, share).max()))
    others = int(is_other.sum())
    if policy.kind != "bcq" and excess > TOLERANCE:
        raise RunError(
            f"the exported file acts differently: an action differs by {largest:.3g}, more than {TOLERANCE:g} of its "
            "bounds' distance; nothing was written"
        )
    if others > max(1, MOST_TIES * num_rows):
        raise RunError(f"the exported file chooses differently in {others} of {num_rows} rows; nothing was written")
    return largest, others


def _parts(policy: Policy) -> dict[str, tuple[np.ndarray, np.ndarray, list[bool]]]:
    """Output → bounds of its columns, and which of them hold choices."""
    low, high = policy.tensors["action_low"], policy.tensors["action_high"]
    is_choice = [count > 0 for count in policy.action_choices] or [False] * low.size
    if policy.encoder is None:
        return {ACTION: (low, high, is_choice)}
    columns = enumerate(policy.encoder.outputs)
    return {column.name: (low[i : i + 1], high[i : i + 1], is_choice[i : i + 1]) for i, column in columns}


def random_observations(policy: Policy, count: int) -> np.ndarray:
    """Rows around the normalizer's mean, with categories and missing values as the encoder has them."""
    random = np.random.default_rng(0)
    mean, deviation = policy.tensors["observation_mean"], policy.tensors["observation_deviation"]
    drawn = (mean + 2 * deviation * random.standard_normal((count, mean.size))).astype(np.float32)
    if policy.encoder is None:
        return drawn
    start = 0
    for column in policy.encoder.inputs:
        values: np.ndarray
        if column.kind == "categorical":
            values = random.integers(-1 if column.missing == "indicator" else 0, len(column.labels), count)
        else:
            values = drawn[:, start].astype(np.float64)
            if column.kind == "boolean":
                values = random.integers(0, 2, count).astype(np.float64)
            if column.missing == "indicator":
                values[random.random(count) < MISSING_SHARE] = np.nan
        features = column.encode(values)
        drawn[:, start : start + features.shape[1]] = features
        start += features.shape[1]
    return drawn


def log_columns(encoder: Encoder, observations: np.ndarray) -> Inputs:
    """The log's columns that these observations are made of: the inverse of ``Encoder.encode``."""
    columns, start = {}, 0
    for column in encoder.inputs:
        size = len(column.feature_names)
        features = observations[:, start : start + size]
        start += size
        absent = features[:, -1] == 1 if column.missing == "indicator" else np.zeros(len(features), bool)
        if column.kind == "categorical":
            codes = features[:, : len(column.labels)].argmax(axis=1)
            pairs = zip(codes, absent, strict=True)
            columns[column.name] = [None if missing else column.labels[code] for code, missing in pairs]
        else:
            columns[column.name] = np.where(absent, np.nan, features[:, 0])
    return columns
