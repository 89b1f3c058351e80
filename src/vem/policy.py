"""The policy artifact: one safetensors file with networks, encoder, normalizer, bounds; acting needs NumPy alone.

A policy file is tensors plus one JSON text in the file's metadata. Loading it reads numbers; it cannot run code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vem.data.encoding import Encoder
from vem.errors import DataError, RunError, SettingsError
from vem.storage import flatten, read_tensors, write_tensors

FORMAT = "vem-policy"
VERSION = 1
SLICE_ROWS = 1024
"""Observations valued at a time: BCQ makes ten of each."""

Tensors = dict[str, np.ndarray]
Actor = Callable[[Tensors, np.ndarray, np.random.Generator | None], np.ndarray]
"""(tensors, normalized observations, generator or None) → actions in ±1 units; without a generator, always the same."""
Value = Callable[[Tensors, np.ndarray], np.ndarray]
"""(tensors, normalized observations) → V of each, in the unit that the networks were trained in."""


@dataclass(frozen=True)
class Policy:
    """A trained policy: ``act`` maps observations to actions within the data's bounds."""

    kind: str
    tensors: Tensors
    info: dict[str, Any] = field(default_factory=dict)
    """Facts about its making: algorithm, seed, settings, dataset, environment, versions."""
    encoder: Encoder | None = None
    """How the log's own columns become observations and actions; for policies trained on a table."""

    @property
    def observation_size(self) -> int:
        """Length of one observation."""
        return self.tensors["observation_mean"].size

    @property
    def action_size(self) -> int:
        """Length of one action."""
        return self.tensors["action_low"].size

    @property
    def has_value(self) -> bool:
        """Whether ``value`` is available."""
        return self.kind in KIND_VALUES or any(f"{name}.0.weight" in self.tensors for name in VALUES)

    @property
    def has_guide(self) -> bool:
        """Whether ``guide`` and ``execute`` are available."""
        return self.kind == "guided"

    @property
    def columns(self) -> tuple[str, ...]:
        """The log's columns that ``act`` takes, for a policy trained on a table; empty otherwise."""
        return self.encoder.columns if self.encoder else ()

    def act(self, observations: Any, key: int | np.random.Generator | None = None) -> Any:
        """Actions for one observation or a batch of them: the mean action, or a sample if a key (seed) is given.

        A policy trained on a table also takes the log's own columns: a dict of values or of arrays, a list of dicts, or
        a frame of pandas, Polars or Arrow. Its actions are then a dict of the log's action columns, with plain values
        for a dict of plain values and arrays otherwise.
        """
        actions = self._act(observations, key)
        if self.encoder is None or not _has_columns(observations):
            return actions
        decoded = self.encoder.decode(actions)
        return {name: value.item() for name, value in decoded.items()} if actions.ndim == 1 else decoded

    def _act(self, observations: Any, key: int | np.random.Generator | None) -> np.ndarray:
        inputs, single = self._inputs(observations)
        generator = None if key is None else np.random.default_rng(key)
        actions = self._bounded(find_actor(self.kind)(self.tensors, inputs, generator))
        return actions[0] if single else actions

    def value(self, observations: Any) -> np.ndarray:
        """V(s) in the units of the training rewards: a scalar or one entry an observation, given as for ``act``.

        The mean over critics. Methods that learn Q have that of their mean action; BCQ the best of ten generated ones.
        """
        if not self.has_value:
            raise RunError(f"a {self.info.get('algorithm', self.kind)} policy has no state values")
        inputs, single = self._inputs(observations)
        slices = [inputs[start : start + SLICE_ROWS] for start in range(0, len(inputs), SLICE_ROWS)]
        values = np.concatenate([self._value(part) for part in slices]) * self.tensors["value_unit"]
        return values[0] if single else values

    def guide(self, observations: Any) -> np.ndarray:
        """Where a guided policy heads for: the move in the observations' own units; 0 where it names none."""
        unit = self.move_unit
        inputs, single = self._inputs(observations)
        moves = unit * network(self.tensors, "guide", inputs)
        return moves[0] if single else moves

    def execute(self, observations: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """A guided policy's mean actions for moves of one's own, in the observations' units: e(s, Δ)."""
        unit = self.move_unit
        inputs, single = self._inputs(observations)
        if np.shape(moves) != np.shape(observations):
            raise RunError(
                f"moves have shape {np.shape(moves)} and observations {np.shape(observations)}; give one each"
            )
        if not np.isfinite(moves).all():
            raise RunError("moves hold NaN or infinity; a policy cannot act on them")
        scaled = np.where(unit > 0, np.asarray(moves, np.float32) / np.where(unit > 0, unit, 1), 0)
        full = np.concatenate([inputs, scaled.reshape(inputs.shape)], axis=-1)
        actions = self._bounded(_gaussian(self.tensors, full, None))
        return actions[0] if single else actions

    @property
    def move_unit(self) -> np.ndarray:
        """σ of a guided policy's moves in the observations' units; 0 for dimensions that moves leave out."""
        if not self.has_guide:
            raise RunError(f"a {self.info.get('algorithm', self.kind)} policy of kind {self.kind} has no guide")
        scale = self.tensors["move_scale"]
        return np.where(scale > 0, self.tensors["observation_deviation"] / np.where(scale > 0, scale, 1), 0)

    def _bounded(self, scaled: np.ndarray) -> np.ndarray:
        """Actions in ±1 units as actions within the data's bounds."""
        low, high = self.tensors["action_low"], self.tensors["action_high"]
        return np.clip((low + high) / 2 + scaled * (high - low) / 2, low, high).astype(np.float32)

    def _value(self, inputs: np.ndarray) -> np.ndarray:
        if self.kind in KIND_VALUES:
            return KIND_VALUES[self.kind](self.tensors, inputs)
        value = next(value for name, value in VALUES.items() if f"{name}.0.weight" in self.tensors)
        return value(self, inputs)

    def _inputs(self, observations: Any) -> tuple[np.ndarray, bool]:
        inputs, single = self._observed(observations)
        inputs = inputs[None] if single else inputs
        if inputs.ndim != 2 or inputs.shape[1] != self.observation_size:
            raise RunError(
                f"observations have shape {np.shape(observations)}; this policy takes ({self.observation_size},) "
                f"or (n, {self.observation_size})"
            )
        if not np.isfinite(inputs).all():
            raise RunError("observations hold NaN or infinity; a policy cannot act on them")
        return (inputs - self.tensors["observation_mean"]) / self.tensors["observation_deviation"], single

    def _observed(self, observations: Any) -> tuple[np.ndarray, bool]:
        """The observations as an array, and whether it is a single one."""
        if _has_columns(observations):
            if self.encoder is None:
                raise RunError(
                    f"this policy was not trained on a table and knows no column names; give arrays of shape "
                    f"({self.observation_size},) or (n, {self.observation_size})"
                )
            inputs, single = self.encoder.observe(observations)
            return (inputs[0], True) if single else (inputs, False)
        try:
            inputs = np.asarray(observations, np.float32)
        except (TypeError, ValueError):
            raise RunError(
                f"observations are {type(observations).__name__}, which is no array of numbers; this policy takes "
                f"shape ({self.observation_size},) or (n, {self.observation_size})"
            ) from None
        return inputs, inputs.ndim == 1

    def save(self, path: str | Path) -> None:
        """Write the policy file; an existing one is replaced only by a complete one."""
        header = {"format": FORMAT, "version": VERSION, "kind": self.kind, "info": self.info}
        if self.encoder is not None:
            header["encoder"] = self.encoder.to_json()
        write_tensors(Path(path), self.tensors, header)


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
        find_actor(header.get("kind"))
    except RunError as error:
        raise RunError(f"{path}: {error}") from None
    needed = {"action_low", "action_high", "observation_mean", "observation_deviation", "value_unit"}
    if not needed <= tensors.keys():
        raise RunError(f"{path} lacks {', '.join(sorted(needed - tensors.keys()))}; it was not written by vem")
    problem = _problem(header["kind"], tensors)
    if problem:
        raise RunError(f"{path} cannot act: {problem}; copy or train it again")
    info = header.get("info", {})
    try:
        encoder = None if header.get("encoder") is None else Encoder.from_json(header["encoder"])
    except DataError as error:
        raise RunError(f"{path}: {error}; copy or train it again") from None
    sizes = (tensors["observation_mean"].size, tensors["action_low"].size)
    if encoder is not None and (len(encoder.feature_names), len(encoder.outputs)) != sizes:
        raise RunError(f"{path} cannot act: its columns do not fit its networks; copy or train it again")
    return Policy(header["kind"], tensors, info if isinstance(info, dict) else {}, encoder)


def _has_columns(observations: Any) -> bool:
    """Whether observations are given by column names: a dict, a list of dicts, or a frame."""
    if isinstance(observations, list | tuple):
        return bool(observations) and all(isinstance(row, Mapping) for row in observations)
    is_frame = hasattr(observations, "columns") or hasattr(observations, "column_names")
    return isinstance(observations, Mapping) or (is_frame and not isinstance(observations, np.ndarray))


def _problem(kind: str, tensors: Tensors) -> str | None:
    """What keeps these tensors from being a policy: numbers that are not finite, or shapes that do not fit."""
    for name, tensor in tensors.items():
        if not np.issubdtype(tensor.dtype, np.number):
            return f"{name} holds {tensor.dtype}, not numbers"
        if not np.isfinite(tensor).all():
            return f"{name} holds NaN or infinity"
    for first, second in (("observation_mean", "observation_deviation"), ("action_low", "action_high")):
        if tensors[first].ndim != 1 or not tensors[first].size or tensors[first].shape != tensors[second].shape:
            return f"{first} has shape {tensors[first].shape} and {second} {tensors[second].shape}"
    if (tensors["observation_deviation"] <= 0).any():
        return "observation_deviation holds numbers that are not above 0"
    if (tensors["action_low"] > tensors["action_high"]).any():
        return "action_low is above action_high"
    observation, action = tensors["observation_mean"].size, tensors["action_low"].size
    sizes = {"value_unit": (1,), **SIZES.get(kind, {})}
    if "log_std" in sizes:
        sizes["log_std"] = (1, action)
    problems = (_size_problem(name, allowed, tensors) for name, allowed in sizes.items())
    if kind not in LAYOUTS:  # a registered kind knows its own networks
        return None
    values = [("critics", observation, 1), ("action_critics", observation + action, 1)]
    found = LAYOUTS[kind](observation, action, tensors)
    found += [value for value in values if f"{value[0]}.0.weight" in tensors]
    problems = (*problems, *(_network_problem(*network, tensors) for network in found))
    return next(filter(None, problems), None)


def _size_problem(name: str, allowed: tuple[int, ...], tensors: Tensors) -> str | None:
    if name not in tensors:
        return f"it lacks {name}"
    size = tensors[name].size
    return None if size in allowed else f"{name} has {size} numbers instead of {allowed[-1]}"


def _network_problem(name: str, num_inputs: int, num_outputs: int, tensors: Tensors) -> str | None:
    """What is wrong with the layers of a network; stacked networks have one more axis in front."""
    index, width = 0, num_inputs
    while (weight := tensors.get(f"{name}.{index}.weight")) is not None:
        bias = tensors.get(f"{name}.{index}.bias")
        is_stack = name in ("critics", "action_critics")
        if bias is None or weight.ndim != 2 + is_stack or bias.shape != (*weight.shape[:-2], weight.shape[-1]):
            return f"layer {index} of {name} has a weight and a bias that do not fit"
        if weight.shape[-2] != width:
            return f"layer {index} of {name} takes {weight.shape[-2]} numbers and is given {width}"
        index, width = index + 1, weight.shape[-1]
    if index == 0:
        return f"it lacks the network {name}"
    return None if width == num_outputs else f"{name} gives {width} numbers instead of {num_outputs}"


def network(tensors: Tensors, name: str, inputs: np.ndarray) -> np.ndarray:
    """The output of the network stored under ``name``: ReLU between layers."""
    index, hidden = 0, inputs
    while f"{name}.{index}.weight" in tensors:
        if index:
            hidden = np.maximum(hidden, 0)
        hidden = hidden @ tensors[f"{name}.{index}.weight"] + tensors[f"{name}.{index}.bias"]
        index += 1
    return hidden


def stacked_networks(tensors: Tensors, name: str, inputs: np.ndarray) -> np.ndarray:
    """Scalar outputs of stacked networks: shape (networks, batch)."""
    count = tensors[f"{name}.0.weight"].shape[0]
    prefix = f"{name}."
    return np.stack(
        [
            network({k: t[i] for k, t in tensors.items() if k.startswith(prefix)}, name, inputs)[:, 0]
            for i in range(count)
        ]
    )


def _gaussian(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    mean = np.tanh(network(tensors, "actor", inputs))
    if generator is None:
        return mean
    return mean + np.exp(tensors["log_std"]) * generator.standard_normal(mean.shape, dtype=np.float32)


def _guided(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    """The executor's action for the move that the guide names; dimensions that moves leave out are 0."""
    moves = network(tensors, "guide", inputs) * (tensors["move_scale"] > 0)
    return _gaussian(tensors, np.concatenate([inputs, moves], axis=-1), generator)


def _deterministic(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    return np.tanh(network(tensors, "actor", inputs))


def _tanh_gaussian(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    mean, log_std = np.split(network(tensors, "actor", inputs), 2, axis=-1)
    if generator is None:
        return np.tanh(mean)
    deviation = np.exp(np.clip(log_std, *tensors["log_std_bounds"]))
    return np.tanh(mean + deviation * generator.standard_normal(mean.shape, dtype=np.float32))


def _bcq(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    """The best of several generated and perturbed actions; without a key always from the same latents."""
    actions, values = _bcq_candidates(tensors, inputs, int(tensors["num_actions"].item()), generator)
    return actions[np.arange(len(inputs)), values.argmax(axis=1)]


def _bcq_candidates(
    tensors: Tensors, inputs: np.ndarray, num_actions: int, generator: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """Generated and perturbed actions of each row, (rows, candidates, size), and their Q."""
    count, size = len(inputs), tensors["decoder.0.weight"].shape[0] - inputs.shape[-1]
    if generator is None:
        latents = np.random.default_rng(0).standard_normal((1, num_actions, size), dtype=np.float32)
    else:
        latents = generator.standard_normal((count, num_actions, size), dtype=np.float32)
    latents = np.broadcast_to(np.clip(latents, -0.5, 0.5), (count, num_actions, size))
    repeated = np.broadcast_to(inputs[:, None], (count, num_actions, inputs.shape[-1]))
    actions = np.tanh(network(tensors, "decoder", np.concatenate([repeated, latents], axis=-1)))
    moves = np.tanh(network(tensors, "perturbation", np.concatenate([repeated, actions], axis=-1)))
    actions = np.clip(actions + tensors["limit"] * moves, -1, 1)
    return actions, network(tensors, "chooser", np.concatenate([repeated, actions], axis=-1))[..., 0]


ACTORS: dict[str, Actor] = {
    "gaussian": _gaussian,
    "guided": _guided,
    "deterministic": _deterministic,
    "tanh-gaussian": _tanh_gaussian,
    "bcq": _bcq,
}
"""How each kind of policy acts."""
KIND_VALUES: dict[str, Value] = {}
"""How registered kinds value states; the others go by the tensors they hold (``VALUES``)."""


def register_kind(kind: str, actor: Actor, value: Value | None = None, overwrite: bool = False) -> None:
    """Add a kind of policy: how it acts and, if it can, how it values states, in NumPy."""
    if kind in ACTORS and not overwrite:
        raise SettingsError(f"there is a kind of policy {kind!r} already; choose another name, or give overwrite=True")
    ACTORS[kind] = actor
    KIND_VALUES.pop(kind, None)
    if value is not None:
        KIND_VALUES[kind] = value


def find_actor(kind: Any) -> Actor:
    """How policies of this kind act; RunError lists the known kinds."""
    if kind not in ACTORS:
        raise RunError(
            f"this is a policy of kind {kind!r} and only {', '.join(ACTORS)} are known; "
            "if a method of your own made it, import the module that registers it first"
        )
    return ACTORS[kind]


def _bcq_layout(observation: int, action: int, tensors: Tensors) -> list[tuple[str, int, int]]:
    first = tensors.get("decoder.0.weight")
    # The length of the latent vector is the decoder's own.
    decoder = max(observation + 1, first.shape[0] if first is not None and first.ndim else 0)
    both = observation + action
    return [("decoder", decoder, action), ("perturbation", both, action), ("chooser", both, 1)]


LAYOUTS: dict[str, Callable[[int, int, Tensors], list[tuple[str, int, int]]]] = {
    "gaussian": lambda observation, action, _: [("actor", observation, action)],
    "deterministic": lambda observation, action, _: [("actor", observation, action)],
    "tanh-gaussian": lambda observation, action, _: [("actor", observation, 2 * action)],
    "bcq": _bcq_layout,
}
"""The networks of each kind: (observation size, action size, tensors) → name, inputs, outputs."""
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "gaussian": {"log_std": ()},
    "tanh-gaussian": {"log_std_bounds": (2,)},
    "bcq": {"limit": (1,), "num_actions": (1,)},
}
"""How many numbers the other tensors of each kind may hold; log σ has one, or one for each action."""


def _value_of_states(policy: Policy, inputs: np.ndarray) -> np.ndarray:
    return stacked_networks(policy.tensors, "critics", inputs).mean(0)


def _value_of_mean_action(policy: Policy, inputs: np.ndarray) -> np.ndarray:
    actions = ACTORS[policy.kind](policy.tensors, inputs, None)
    return stacked_networks(policy.tensors, "action_critics", np.concatenate([inputs, actions], axis=-1)).mean(0)


def _value_of_candidates(policy: Policy, inputs: np.ndarray) -> np.ndarray:
    return _bcq_candidates(policy.tensors, inputs, 10, None)[1].max(axis=1)


VALUES: dict[str, Callable[[Policy, np.ndarray], np.ndarray]] = {
    "critics": _value_of_states,
    "action_critics": _value_of_mean_action,
    "chooser": _value_of_candidates,
}
"""What a policy file holds → V of normalized observations."""
