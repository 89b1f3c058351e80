"""The policy artifact: one safetensors file with networks, encoder, normalizer, bounds; acting needs NumPy alone.

A policy file is tensors plus one JSON text in the file's metadata. Loading it reads numbers; it cannot run code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.actions import ActionColumn, columns_from_json, discrete_column
from vem.data.encoding import Encoder
from vem.errors import DataError, RunError
from vem.policy.kinds import (
    Tensors,
    bounded,
    choices_in,
    find_kind,
    find_problem,
    find_value,
    joined,
    network,
    normalized,
)
from vem.policy.support import PREFIX, Support, SupportModel, stored_support, support_problem
from vem.storage import flatten, read_tensors, write_tensors

if TYPE_CHECKING:
    from vem.policy.onnx import Exported


FORMAT = "vem-policy"
VERSION = 1
FAR_OUTSIDE: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}
"""Far outside of the data numbers overflow on the way; what comes out is checked instead."""
SLICE_ROWS = 1024
"""Observations valued at a time: BCQ makes ten of each."""


@dataclass(frozen=True, repr=False)
class Policy:
    """A trained policy: ``act`` maps observations to actions within the data's bounds."""

    kind: str
    tensors: Tensors
    info: dict[str, Any] = field(default_factory=dict)
    """Facts about its making: algorithm, seed, settings, dataset, environment, versions."""
    encoder: Encoder | None = None
    """How the log's own columns become observations and actions; for policies trained on a table."""

    def __repr__(self) -> str:
        names = [str(self.info[name]) for name in ("algorithm", "dataset", "trial") if self.info.get(name)]
        sizes = f"{self.observation_size} observations to {self.action_size} actions"
        return f"<Policy {' '.join(names)}: {self.kind}, {sizes}>"

    @property
    def observation_size(self) -> int:
        """Length of one observation."""
        return self.tensors["observation_mean"].size

    @property
    def action_size(self) -> int:
        """Length of one action."""
        return self.tensors["action_low"].size

    @property
    def action_choices(self) -> tuple[int, ...]:
        """Number of choices of each action column, 0 for numbers; empty: numbers only."""
        return choices_in(self.tensors)

    @property
    def action_columns(self) -> tuple[ActionColumn, ...]:
        """What each column of the actions is, with the names and labels of the data where the file has them."""
        if stored := self.info.get("action_columns"):
            return columns_from_json(stored)
        low, high = self.tensors["action_low"].tolist(), self.tensors["action_high"].tolist()
        choices = self.action_choices or (0,) * len(low)
        return tuple(
            discrete_column(f"action {index}", [str(code) for code in range(count)])
            if count
            else ActionColumn(f"action {index}", "box", low[index], high[index])
            for index, count in enumerate(choices)
        )

    @property
    def has_value(self) -> bool:
        """Whether ``value`` is available."""
        return find_value(self.kind, self.tensors) is not None

    @property
    def has_guide(self) -> bool:
        """Whether there is a ``guide``."""
        return self.kind == "guided"

    @property
    def guide(self) -> Guide:
        """The guide and the executor of a guided policy; RunError for the others."""
        if not self.has_guide:
            raise RunError(f"a {self.info.get('algorithm', self.kind)} policy of kind {self.kind} has no guide")
        return Guide(self)

    @property
    def is_drawn(self) -> bool:
        """Whether it is evaluated with drawn actions, ``act(observation, generator)``, and not with its mean."""
        return find_kind(self.kind).is_drawn

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns that ``act`` takes, for a policy trained on a table; empty otherwise."""
        return self.encoder.columns if self.encoder else ()

    @property
    def has_support(self) -> bool:
        """Whether the file holds what ``support`` needs; those of earlier versions do not."""
        return self._support_model is not None

    def act(
        self, observations: Any, key: int | np.random.Generator | None = None, *, with_support: bool = False
    ) -> Any:
        """Actions for one observation or a batch of them: the most likely, or a sample if a key (seed) is given.

        Numbers come as float32, (size,) or (n, size); without a key they are the mean. A single choice comes as its
        code, an int64 or (n,) of them, as Gymnasium's Discrete takes it; several as int64, (size,) or (n, size).
        Numbers and choices together come as float32, (size,) or (n, size), with codes among the numbers;
        ``action_columns`` says which column is what.

        A policy trained on a table also takes the log's own columns: a dict of values or of arrays, a list of dicts, or
        a frame of pandas, Polars or Arrow. Its actions are then a dict of the log's action columns, with plain values
        for a dict of plain values and arrays otherwise.

        ``with_support`` returns a pair: the actions, and the ``Support`` of the states and of the actions in them, as
        numbers for a single observation and arrays (n,) for a batch.
        """
        model = self.support_model if with_support else None
        observed, single = _rows(self, observations)
        generator = None if key is None else np.random.default_rng(key)
        with np.errstate(**FAR_OUTSIDE):
            inputs = normalized(self.tensors, observed)
            actions = _finite(bounded(self.tensors, find_kind(self.kind).act(self.tensors, inputs, generator)))
        if self.encoder is None or not _has_columns(observations):
            taken = _shaped(self, actions, single)
        else:
            taken = self.encoder.decode(actions)
            taken = {name: values[0].item() for name, values in taken.items()} if single else taken
        if model is None:
            return taken
        with np.errstate(**FAR_OUTSIDE):
            found = model.scores(observed, actions)
        return taken, Support(*(float(np.ravel(scores)[0]) for scores in found)) if single else found

    @property
    def support_model(self) -> SupportModel:
        """What scores states and actions by their nearness to the data; RunError if the file holds none."""
        if self._support_model is None:
            raise RunError(
                "this policy has no support data: it was written without them; train it again, or add them with "
                "policy.with_support(vem.policy.support.measure_support(dataset))"
            )
        return self._support_model

    @cached_property
    def _support_model(self) -> SupportModel | None:
        return stored_support(self.tensors)

    def with_support(self, model: SupportModel) -> Policy:
        """The same policy with support data, in place of those it has."""
        kept = {name: tensor for name, tensor in self.tensors.items() if not name.startswith(PREFIX)}
        problem = support_problem(model.tensors(), self.observation_size, self.action_size)
        if problem:
            raise RunError(f"these support data are of other observations or actions than the policy's: {problem}")
        return replace(self, tensors={**kept, **model.tensors()})

    def value(self, observations: Any) -> np.ndarray:
        """V(s) in the units of the training rewards: a scalar or one entry an observation, given as for ``act``.

        The mean over critics. Methods that learn Q have that of their mean action; BCQ the best of ten generated ones.
        """
        value = find_value(self.kind, self.tensors)
        if value is None:
            raise RunError(f"a {self.info.get('algorithm', self.kind)} policy has no state values")
        observed, single = _rows(self, observations)
        with np.errstate(**FAR_OUTSIDE):
            inputs = normalized(self.tensors, observed)
            parts = (inputs[start : start + SLICE_ROWS] for start in range(0, len(inputs), SLICE_ROWS))
            valued = [np.zeros(0, np.float32), *(value(self.tensors, part) for part in parts)]
            values = _finite(np.concatenate(valued) * self.tensors["value_unit"])
        return values[0] if single else values

    def save(self, path: str | Path) -> None:
        """Write the policy file; an existing one is replaced only by a complete one."""
        header = {"format": FORMAT, "version": VERSION, "kind": self.kind, "info": self.info}
        if self.encoder is not None:
            header["encoder"] = self.encoder.to_json()
        write_tensors(Path(path), self.tensors, header)

    def export(self, path: str | Path) -> Exported:
        """Write the policy as an ONNX file, checked on random rows; ``vem.export`` takes those of a run's data."""
        from vem.policy.onnx import export_policy

        return export_policy(self, path)


@dataclass(frozen=True)
class Guide:
    """A guided policy in its two parts: called, where it heads for; ``execute``, what it does for a move."""

    policy: Policy

    @property
    def unit(self) -> np.ndarray:
        """σ of the moves in the observations' units; 0 for dimensions that moves leave out."""
        scale = self.policy.tensors["move_scale"]
        return np.where(scale > 0, self.policy.tensors["observation_deviation"] / np.where(scale > 0, scale, 1), 0)

    def __call__(self, observations: Any) -> np.ndarray:
        """Where the policy heads for: the move in the observations' own units; 0 where it names none."""
        tensors = self.policy.tensors
        observed, single = _rows(self.policy, observations)
        with np.errstate(**FAR_OUTSIDE):
            moves = _finite(self.unit * network(tensors, "guide", normalized(tensors, observed)))
        return moves[0] if single else moves

    def execute(self, observations: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """The policy's mean actions for moves of one's own, in the observations' units: e(s, Δ)."""
        tensors, unit = self.policy.tensors, self.unit
        observed, single = _rows(self.policy, observations)
        if np.shape(moves) != np.shape(observations):
            raise RunError(
                f"moves have shape {np.shape(moves)} and observations {np.shape(observations)}; give one each"
            )
        if not np.isfinite(moves).all():
            raise RunError("moves hold NaN or infinity; a policy cannot act on them")
        with np.errstate(**FAR_OUTSIDE):
            scaled = np.where(unit > 0, np.asarray(moves, np.float32) / np.where(unit > 0, unit, 1), 0)
            inputs = joined(normalized(tensors, observed), scaled.reshape(observed.shape))
            actions = _finite(bounded(tensors, find_kind("gaussian").act(tensors, inputs, None)))
        return _shaped(self.policy, actions, single)


def make_policy(
    kind: str,
    parameters: Any,
    bounds: tuple[np.ndarray, np.ndarray],
    normalizer: tuple[np.ndarray, np.ndarray],
    info: dict[str, Any],
    encoder: Encoder | None = None,
) -> Policy:
    """A Policy from an algorithm's exported pytree, action bounds (low, high) and observation mean and deviation."""
    tensors = flatten(parameters)
    tensors["action_low"], tensors["action_high"] = (np.asarray(b, np.float32) for b in bounds)
    tensors["observation_mean"], tensors["observation_deviation"] = (np.asarray(n, np.float32) for n in normalizer)
    return Policy(kind, tensors, info, encoder)


def load_policy(path: str | Path) -> Policy:
    """The policy in a file; given a run directory, its only policy."""
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob("*.safetensors")) or sorted((path / "policies").glob("*.safetensors"))
        if len(found) != 1:
            names = ", ".join(f.name for f in found) or "none: the run has not finished"
            raise RunError(f"{path} holds {len(found)} policies ({names}); name the file of the one to load")
        path = found[0]
    if not path.is_file():
        raise RunError(f"there is no policy file {path}")
    try:
        tensors, header = read_tensors(path)
    except RunError as error:
        raise RunError(f"{error}: not a readable policy file; copy or train it again") from None
    if header.get("format") != FORMAT:
        raise RunError(f"{path} is a safetensors file but not a vem policy; policies are in RUN/policies")
    if header.get("version") != VERSION:
        raise RunError(f"{path} has policy format version {header.get('version')}; this vem reads version {VERSION}")
    try:
        find_kind(header.get("kind"))
    except RunError as error:
        raise RunError(f"{path}: {error}") from None
    needed = {"action_low", "action_high", "observation_mean", "observation_deviation", "value_unit"}
    if not needed <= tensors.keys():
        raise RunError(f"{path} lacks {', '.join(sorted(needed - tensors.keys()))}; it was not written by vem")
    problem = find_problem(header["kind"], tensors)
    if problem:
        raise RunError(f"{path} cannot act: {problem}; copy or train it again")
    info = header.get("info", {})
    if not isinstance(info, dict) or not isinstance(info.get("settings", {}), dict):
        raise RunError(f"{path} is damaged (its facts are no facts); copy or train it again")
    try:
        columns_from_json(info.get("action_columns", ()))
        encoder = None if header.get("encoder") is None else Encoder.from_json(header["encoder"])
    except DataError as error:
        raise RunError(f"{path}: {error}; copy or train it again") from None
    sizes = (tensors["observation_mean"].size, tensors["action_low"].size)
    if encoder is not None and (len(encoder.feature_names), len(encoder.outputs)) != sizes:
        raise RunError(f"{path} cannot act: its columns do not fit its networks; copy or train it again")
    return Policy(header["kind"], tensors, info, encoder)


def _shaped(policy: Policy, actions: np.ndarray, single: bool) -> np.ndarray:
    """Actions of shape (n, size) as ``act`` returns them."""
    if choices := policy.action_choices:
        actions = actions.astype(np.int64) if all(choices) else actions
        actions = actions[:, 0] if len(choices) == 1 else actions
    return actions[0] if single else actions


def _rows(policy: Policy, observations: Any) -> tuple[np.ndarray, bool]:
    """Checked observations, (n, size), and whether it is a single one."""
    inputs, single = _observed(policy, observations)
    inputs = inputs[None] if single else inputs
    if inputs.ndim != 2 or inputs.shape[1] != policy.observation_size:
        raise RunError(
            f"observations have shape {np.shape(observations)}; this policy takes ({policy.observation_size},) "
            f"or (n, {policy.observation_size})"
        )
    if not np.isfinite(inputs).all():
        raise RunError("observations hold NaN or infinity; a policy cannot act on them")
    return inputs, single


def _observed(policy: Policy, observations: Any) -> tuple[np.ndarray, bool]:
    """The observations as an array, and whether it is a single one."""
    if _has_columns(observations):
        if policy.encoder is None:
            raise RunError(
                f"this policy was not trained on a table and knows no column names; give arrays of shape "
                f"({policy.observation_size},) or (n, {policy.observation_size})"
            )
        inputs, single = policy.encoder.observe(observations)
        return (inputs[0], True) if single else (inputs, False)
    try:
        with np.errstate(**FAR_OUTSIDE):
            inputs = np.asarray(observations, np.float32)
    except OverflowError:
        raise RunError("observations hold a number that float32 cannot hold; give finite numbers") from None
    except (TypeError, ValueError):
        raise RunError(
            f"observations are {type(observations).__name__}, which is no array of numbers; this policy takes "
            f"shape ({policy.observation_size},) or (n, {policy.observation_size})"
        ) from None
    return inputs, inputs.ndim == 1


def _finite(found: np.ndarray) -> np.ndarray:
    """``found``; RunError if observations are so large that it is no number any more."""
    if not np.isfinite(found).all():
        raise RunError("observations are so large that the policy's numbers overflow; give them in the data's units")
    return found


def _has_columns(observations: Any) -> bool:
    """Whether observations are given by column names: a dict, a list of dicts, or a frame."""
    if isinstance(observations, list | tuple):
        return bool(observations) and all(isinstance(row, Mapping) for row in observations)
    is_frame = hasattr(observations, "columns") or hasattr(observations, "column_names")
    return isinstance(observations, Mapping) or (is_frame and not isinstance(observations, np.ndarray))
