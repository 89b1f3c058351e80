"""The log's own columns → observations, and actions → the log's own columns: NumPy alone, stored in the policy.

An observation holds one number for a number or boolean column, one for each label of a categorical column, and one
more that is 1 where a value is missing if the column's rule is ``indicator``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from vem.data.actions import ActionColumn, as_tuple, columns_from_json
from vem.errors import DataError
from vem.storage import misfit

MISSING_RULES = ("refuse", "forward-fill", "indicator")
KINDS = ("number", "boolean", "categorical")
LARGEST = float(np.finfo(np.float32).max)
ABSENT = -1
"""The code of a missing categorical value."""


@dataclass(frozen=True)
class InputColumn:
    """One column of the log that the policy sees."""

    name: str
    kind: Literal["number", "boolean", "categorical"]
    missing: Literal["refuse", "forward-fill", "indicator"] = "refuse"
    labels: tuple[str, ...] = ()
    """The values of a categorical column, as text."""
    fill: float = 0.0
    """What stands in for a missing number under ``indicator``: the mean of the others."""
    sentinels: tuple[float, ...] = ()
    """Numbers that mean a missing value."""

    @property
    def feature_names(self) -> list[str]:
        """What each of its numbers in an observation is called."""
        names = [f"{self.name}={label}" for label in self.labels] if self.kind == "categorical" else [self.name]
        return [*names, f"{self.name} is missing"] if self.missing == "indicator" else names

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Its numbers for each row, (rows, features); NaN where a value is missing and the rule is no indicator.

        ``values`` are float64 with NaN for missing, or the codes of a categorical column with ``ABSENT``.
        """
        if self.kind == "categorical":
            absent = (values == ABSENT)[:, None]
            columns = (values[:, None] == np.arange(len(self.labels))).astype(np.float32)
            columns = np.where(absent, np.float32(0 if self.missing == "indicator" else np.nan), columns)
        else:
            absent = np.isnan(values)[:, None]
            with np.errstate(over="ignore"):
                columns = values.astype(np.float32)[:, None]
            if self.missing == "indicator":
                columns = np.where(absent, np.float32(self.fill), columns)
        if self.missing == "indicator":
            columns = np.concatenate([columns, absent.astype(np.float32)], axis=1)
        return columns


@dataclass(frozen=True)
class Encoder:
    """How the columns of a log become observations, and actions become columns again."""

    inputs: tuple[InputColumn, ...]
    outputs: tuple[ActionColumn, ...]
    output_types: tuple[Literal["number", "integer", "text", "boolean"], ...]
    """What a decoded action is, also where it is a label: the type that the column has in the log."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What each number of an observation is."""
        return tuple(name for column in self.inputs for name in column.feature_names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns that an observation is made of."""
        return tuple(column.name for column in self.inputs)

    def encode(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """Observations from prepared columns (``InputColumn.encode``), float32."""
        return np.concatenate([column.encode(values[column.name]) for column in self.inputs], axis=1)

    def observe(self, rows: Any) -> tuple[np.ndarray, bool]:
        """Observations of rows in the log's own columns, and whether it was a single row of plain values.

        ``rows`` is a dict of values or of equally long sequences, a list of dicts, or a frame. A missing value is
        None, NaN or a sentinel; what it becomes is the column's rule. Forward fill needs what came before, which a
        policy does not keep: there the caller gives the last known value.
        """
        columns, single = self._columns(rows)
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(
                f"the columns have different lengths: {lengths}; give one value for each row in all of them."
            )
        return self.encode({c.name: _prepared(c, columns[c.name], single) for c in self.inputs}), single

    def _columns(self, rows: Any) -> tuple[dict[str, Sequence[Any]], bool]:
        if isinstance(rows, list | tuple):
            self._require(sorted(set.intersection(*(set(row) for row in rows)) if rows else ()))
            return {name: [row[name] for row in rows] for name in self.columns}, False
        if not isinstance(rows, Mapping):  # a frame of pandas, Polars or Arrow
            names = getattr(rows, "column_names", None)
            self._require([str(name) for name in (rows.columns if names is None else names)])
            return {name: _listed(rows[name]) for name in self.columns}, False
        self._require(list(rows))
        single = all(np.ndim(rows[name]) == 0 for name in self.columns)
        return {name: [rows[name]] if single else _listed(rows[name]) for name in self.columns}, single

    def _require(self, names: Sequence[str]) -> None:
        lacking = [name for name in self.columns if name not in names]
        if lacking:
            raise DataError(
                f"column '{lacking[0]}' is missing; this policy takes the columns {', '.join(self.columns)}, and "
                f"{', '.join(map(str, list(names)[:12])) or 'none'} are given."
            )

    def decode(self, actions: np.ndarray) -> dict[str, Any]:
        """The actions as the log's columns: an array for each, with numbers or what the labels stand for."""
        decoded: dict[str, Any] = {}
        for index, (column, kind) in enumerate(zip(self.outputs, self.output_types, strict=True)):
            values = actions[..., index]
            if column.kind == "discrete":
                codes = np.clip(np.rint(values), 0, len(column.labels) - 1).astype(np.int64)
                values = np.array([typed_label(label, kind) for label in column.labels])[codes]
            decoded[column.name] = values
        return decoded

    def to_json(self) -> dict[str, Any]:
        """The encoder as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Encoder:
        """The encoder that ``to_json`` stored; DataError if it is damaged."""
        try:
            inputs = tuple(
                InputColumn(**{**entry, "labels": as_tuple(entry["labels"]), "sentinels": as_tuple(entry["sentinels"])})
                for entry in stored["inputs"]
            )
            outputs = columns_from_json(stored["outputs"])
            encoder = cls(inputs, outputs, tuple(stored["output_types"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"the stored columns cannot be read ({error})") from None
        if (part := misfit(encoder, Encoder)) is not None:
            raise DataError(f"the stored columns cannot be read ({part} is of another kind than it must be)")
        for column, kind in zip(outputs, encoder.output_types, strict=False):
            _require_labels(column, kind)
        if len(encoder.output_types) != len(outputs):
            raise DataError("the stored columns contradict each other")
        return encoder


def _require_labels(column: ActionColumn, kind: str) -> None:
    """DataError if a choice cannot be given back in the type that its column has in the log."""
    try:
        for label in column.labels:
            typed_label(label, kind)
    except ValueError:
        raise DataError(f"the stored column '{column.name}' has a label that is no {kind}") from None


def label_text(value: Any) -> str:
    """A categorical value as its label: ``true``, ``3`` for 3 and 3.0, or the text itself without blanks around it."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return str(value).strip()


def is_missing(value: Any) -> bool:
    """Whether a Python value stands for nothing: None, NaN, or pandas' NA."""
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _listed(values: Any) -> Sequence[Any]:
    """One entry for each row of a column, whatever library holds it."""
    if isinstance(values, list | tuple):
        return values
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values  # pyright: ignore[reportReturnType]  # a sequence in all that is used here
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            listed = getattr(values, method)()
            return listed if isinstance(listed, list) else [listed]
    return [values] if np.ndim(values) == 0 else list(values)


def _prepared(column: InputColumn, values: Sequence[Any], single: bool) -> np.ndarray:
    """The values as ``InputColumn.encode`` takes them; DataError names the column and the row."""
    if column.kind != "categorical" and (numbers := _quickly(column, values)) is not None:
        return numbers
    codes = {label.strip(): code for code, label in enumerate(column.labels)}
    prepared = np.empty(len(values), np.int64 if column.kind == "categorical" else np.float64)
    for row, value in enumerate(values):
        where = "" if single else f" at row {row}"
        if is_missing(value) or (column.sentinels and _is_number(value) and float(value) in column.sentinels):
            if column.missing != "indicator":
                held = "; give the last known value" if column.missing == "forward-fill" else ""
                raise DataError(
                    f"column '{column.name}' is missing its value{where}; its rule is missing = "
                    f'"{column.missing}"{held}.'
                )
            prepared[row] = ABSENT if column.kind == "categorical" else np.nan
        elif column.kind == "categorical":
            code = codes.get(label_text(value))
            if code is None:
                known = ", ".join(column.labels[:20])
                raise DataError(
                    f"column '{column.name}' holds {value!r}{where}, which the training log did not; known are {known}."
                )
            prepared[row] = code
        else:
            prepared[row] = _number(column, value, where)
    return prepared


def _quickly(column: InputColumn, values: Sequence[Any]) -> np.ndarray | None:
    """The numbers of a column that holds nothing else, or None if each value needs a look."""
    try:
        found = np.asarray(values)
    except ValueError:  # values of different lengths
        return None
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        return None
    numbers = found.astype(np.float64)
    if column.sentinels:
        numbers[np.isin(numbers, column.sentinels)] = np.nan
    absent = np.isnan(numbers)
    is_sound = np.abs(numbers, where=~absent, out=np.zeros_like(numbers)).max(initial=0) <= LARGEST
    if column.kind == "boolean":
        is_sound &= bool(np.isin(numbers[~absent], (0, 1)).all())
    return numbers if is_sound and (column.missing == "indicator" or not absent.any()) else None


def _number(column: InputColumn, value: Any, where: str) -> float:
    if not _is_number(value):
        raise DataError(f"column '{column.name}' holds {value!r}{where} where a {column.kind} is expected.")
    if abs(value) > LARGEST:
        raise DataError(
            f"column '{column.name}' holds {str(value)[:20]}{where}, which float32 cannot hold; give a finite number."
        )
    number = float(value)
    if column.kind == "boolean" and number not in (0, 1):
        raise DataError(
            f"column '{column.name}' holds {value!r}{where} where a boolean is expected; give true or false."
        )
    return number


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        return True
    try:
        return type(value).__name__ == "Decimal" and math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def typed_label(label: str, kind: str) -> Any:
    """What a label of an action column stands for, in the type that the column has in the log."""
    if kind in ("integer", "number"):
        return int(label) if kind == "integer" else float(label)
    return label == "true" if kind == "boolean" else label
