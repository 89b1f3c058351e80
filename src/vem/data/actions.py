"""What each column of the actions is: a number within bounds, or one of several labeled choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from vem.errors import DataError, SettingsError
from vem.storage import misfit

ACTION_KINDS = ("box", "discrete", "several", "mixed")
"""Numbers only; one choice; several choices; numbers and choices."""
MOST_CHOICES = 256
"""Choices of one column at most; codes that are used as they are lie below this."""
LARGEST_WHOLE = 2**24
"""float32 holds every whole number up to here."""
FEW = 20
"""Different whole numbers up to which a column of floats looks discrete."""
FEW_ROWS = 10
"""Rows for each of these numbers from which on this is no accident."""
PROBE_ROWS = 1000


@dataclass(frozen=True)
class ActionColumn:
    """One column of the actions.

    The values of a discrete column are codes 0 … n − 1, kept as float32; code i stands for ``labels[i]``, and the
    bounds are 0 and n − 1. A box column has no labels.
    """

    name: str
    kind: Literal["box", "discrete"]
    low: float
    high: float
    labels: tuple[str, ...] = ()

    @property
    def num_choices(self) -> int:
        """Number of choices; 0 for a box."""
        return len(self.labels) if self.kind == "discrete" else 0


def choices_of(columns: Sequence[ActionColumn]) -> tuple[int, ...]:
    """Number of choices of each column, 0 for boxes; empty if there are boxes only."""
    choices = tuple(column.num_choices for column in columns)
    return choices if any(choices) else ()


def action_kind(choices: Sequence[int]) -> str:
    """Which of ``ACTION_KINDS`` columns with these numbers of choices are; 0 stands for a box."""
    if not any(choices):
        return "box"
    if not all(choices):
        return "mixed"
    return "discrete" if len(choices) == 1 else "several"


def discrete_column(name: str, labels: Sequence[str]) -> ActionColumn:
    """A column of choices with these labels."""
    return ActionColumn(name, "discrete", 0.0, float(len(labels) - 1), tuple(labels))


def as_tuple(stored: Any) -> Any:
    """A stored list as a tuple; a text, which is no list of its letters, as it is."""
    return stored if isinstance(stored, str) else tuple(stored)


def columns_from_json(stored: Any) -> tuple[ActionColumn, ...]:
    """The columns that a file holds as JSON; DataError if they are damaged."""
    try:
        columns = tuple(ActionColumn(**{**column, "labels": as_tuple(column["labels"])}) for column in stored)
    except (KeyError, TypeError) as error:
        raise DataError(f"the stored columns cannot be read ({error})") from None
    if (part := misfit(columns, tuple[ActionColumn, ...])) is not None:
        raise DataError(f"the stored columns cannot be read ({part} is of another kind than it must be)")
    return columns


class Recognized(NamedTuple):
    """Recorded actions with codes in place of the choices."""

    actions: np.ndarray
    choices: dict[int, tuple[str, ...]]
    """Index of each discrete column → its labels."""
    warning: str | None = None


Discrete = bool | Sequence[int] | None
"""Which columns hold choices: all, none, those with these indices; None: those of whole-number type."""


def recognize(actions: np.ndarray, valid: np.ndarray, is_whole_type: bool, discrete: Discrete) -> Recognized:
    """The recorded actions, float32 of shape (rows, columns), with codes in the columns that hold choices.

    Values 0 … n − 1 are their own codes, also where one of them is never taken. Other whole numbers are coded in their
    order. If all columns are said to be discrete and are one-hot, they become one column. Floats that look discrete
    stay numbers, with a warning that asks.
    """
    is_given = discrete is not None
    if discrete is None:
        discrete = is_whole_type
    if discrete is True and actions.shape[1] > 1 and _is_one_hot(actions, valid):
        labels = tuple(map(str, range(actions.shape[1])))
        return Recognized(np.argmax(actions, axis=1)[:, None].astype(np.float32), {0: labels})
    indices = _indices(discrete, actions.shape[1])
    choices = {}
    for index in indices:
        actions[:, index], choices[index] = _coded(actions[:, index], valid, index, is_given)
    warning = None if is_given or indices else _question(actions, valid)
    return Recognized(actions, choices, warning)


def _indices(discrete: bool | Sequence[int], size: int) -> list[int]:
    if isinstance(discrete, bool | np.bool_):
        return list(range(size)) if discrete else []
    try:
        indices = sorted({int(index) for index in discrete})
    except (TypeError, ValueError):
        indices = [-1]
    if not indices or indices[0] < 0 or indices[-1] >= size:
        raise SettingsError(
            f"discrete={discrete!r} does not fit actions of {size} columns; give True, False or column numbers from 0 "
            f"to {size - 1}."
        )
    return indices


def _coded(values: np.ndarray, valid: np.ndarray, index: int, is_given: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """Codes of one column, 0 on final rows, and the labels."""
    found = np.unique(values[valid])
    wrong = (found != np.round(found)) | (np.abs(found) >= LARGEST_WHOLE)
    if wrong.any():
        raise DataError(
            f"column {index} of 'actions' holds {found[np.argmax(wrong)]:g}; choices are whole numbers below 2²⁴. "
            "Leave this column out of discrete, or code it as 0, 1, 2, …"
        )
    numbers = found.astype(np.int64)
    if len(numbers) > MOST_CHOICES:
        remedy = "leave it out of discrete" if is_given else "if they are numbers, say discrete=False (--no-discrete)"
        raise DataError(
            f"column {index} of 'actions' holds {len(numbers):,} different whole numbers, and at most {MOST_CHOICES} "
            f"choices can be told apart; {remedy}."
        )
    if numbers[0] < 0 or numbers[-1] >= MOST_CHOICES:
        codes = np.searchsorted(found, values).astype(np.float32)
    else:
        numbers, codes = np.arange(numbers[-1] + 1), values
    return np.where(valid, codes, np.float32(0)), tuple(map(str, numbers.tolist()))


def _question(actions: np.ndarray, valid: np.ndarray) -> str | None:
    """A question about columns of floats that look like choices, or None."""
    if actions.shape[1] > 1 and _is_one_hot(actions, valid):
        return (
            f"actions look like one of {actions.shape[1]} choices in one-hot form: discrete? Then say discrete=True "
            "(--discrete), else discrete=False (--no-discrete)."
        )
    looks = {}
    for index in range(actions.shape[1]):
        numbers = _few_whole_numbers(actions[:, index], valid)
        if numbers is not None:
            looks[index] = numbers
    if not looks:
        return None
    numbers = next(iter(looks.values()))
    shown = ", ".join(f"{number:g}" for number in numbers[:6]) + (", …" if len(numbers) > 6 else "")
    what = f"{len(numbers)} whole numbers {shown}" if len(looks) == 1 else f"few whole numbers, such as {shown}"
    listed = ", ".join(map(str, looks))
    if len(looks) == actions.shape[1]:
        subject, answer = "actions look", "discrete=True (--discrete)"
    else:
        subject = (
            f"column {listed} of the actions looks" if len(looks) == 1 else f"columns {listed} of the actions look"
        )
        answer = f"discrete=[{listed}] (--discrete-columns {listed.replace(' ', '')})"
    return f"{subject} like {what}: discrete? Then say {answer}, else discrete=False (--no-discrete)."


def _few_whole_numbers(values: np.ndarray, valid: np.ndarray) -> np.ndarray | None:
    """The different values of a column if they are 2 to 20 whole numbers, each about ten times there, else None."""
    probe = values[:PROBE_ROWS]
    if (probe != np.round(probe)).any():
        return None
    taken = values[valid]
    if (taken != np.round(taken)).any():
        return None
    found = np.unique(taken)
    return found if 2 <= len(found) <= FEW and len(taken) >= FEW_ROWS * len(found) else None


def _is_one_hot(actions: np.ndarray, valid: np.ndarray) -> bool:
    """Whether every row has a single 1 among zeros, and not always at the same place."""
    probe = actions[:PROBE_ROWS][valid[:PROBE_ROWS]]
    for rows in (probe, actions[valid]):
        if not (((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all()):
            return False
    return len(np.unique(np.argmax(actions[valid], axis=1))) > 1 and int(valid.sum()) >= FEW_ROWS * actions.shape[1]


def require_codes(actions: np.ndarray, columns: Sequence[ActionColumn]) -> None:
    """Refuse actions that are not codes where the columns say so."""
    if len(columns) not in (0, actions.shape[1]):
        raise DataError(f"{len(columns)} action columns are described and the actions have {actions.shape[1]}.")
    for index, column in enumerate(columns):
        if column.kind == "box":
            continue
        values = actions[:, index]
        if not column.labels or values.min() < 0 or values.max() >= len(column.labels) or (values % 1).any():
            raise DataError(
                f"action column '{column.name}' is discrete with {len(column.labels)} labels and holds values from "
                f"{values.min():g} to {values.max():g}; its values must be codes 0 to {len(column.labels) - 1}."
            )
