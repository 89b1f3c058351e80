"""The kinds of policies, each described once: its networks, how it acts, what it values, how likely its actions are.

All of it is plain NumPy. ``vem.policy.onnx`` calls the same functions on arrays that note what is done to them, so how
a kind acts without a generator is written with functions of whole arrays, and never asks how many rows there are.

The kinds ``gaussian``, ``guided`` and ``deterministic`` act in any columns of numbers and choices: the tensor
``action_choices`` says which columns are choices; files without it have numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vem.errors import RunError, SettingsError
from vem.policy.support import support_problem

Tensors = dict[str, np.ndarray]
Actor = Callable[[Tensors, np.ndarray, np.random.Generator | None], np.ndarray]
"""(tensors, normalized observations, generator or None) → actions: numbers in ±1 units, codes of choices.

Without a generator, always the same.
"""
Value = Callable[[Tensors, np.ndarray], np.ndarray]
"""(tensors, normalized observations) → V of each, in the unit that the networks were trained in."""
LogDensity = Callable[[Tensors, np.ndarray, np.ndarray], np.ndarray]
"""(tensors, normalized observations, actions as an ``Actor`` gives them) → log π(a|s) of each, in double precision."""

LARGEST = np.finfo(np.float32).max
EDGE = 1 - 1e-4
"""Actions of a squashed Normal are taken to be within ± this: its density has no bound at ±1."""
NUM_VALUED = 10
"""Actions that BCQ generates to value a state."""


class Sizes(NamedTuple):
    """What a policy's networks are made for."""

    observation: int
    action: int
    outputs: int
    """Of the network that acts: one for a number, one for each of the choices."""
    boxes: int
    """Action columns of numbers."""
    latent: int
    """Of the vector that BCQ generates actions from: the decoder's own."""


@dataclass(frozen=True)
class Kind:
    """What ``vem.policy`` knows of a kind of policy."""

    act: Actor
    value: Value | None = None
    """None: the mean over the file's networks ``critics`` or ``action_critics``, if it holds any."""
    log_density: LogDensity | None = None
    """Of drawn actions; None: it always acts the same in a state."""
    networks: Callable[[Sizes], dict[str, tuple[int, int]]] | None = None
    """What the networks in a file must take and give; None: the kind knows its own, and files are not checked."""
    numbers: Callable[[Sizes], dict[str, tuple[int, ...]]] = lambda sizes: {}
    """How many numbers other tensors of a file may hold."""
    is_drawn: bool = False
    """Whether it is evaluated with drawn actions, and not with its mean."""


# What all kinds share: sizes, networks, units.


def sizes_of(tensors: Tensors) -> Sizes:
    """The sizes of a policy with these tensors."""
    observation, action = tensors["observation_mean"].size, tensors["action_low"].size
    choices = choices_in(tensors) or (0,) * action
    decoder = tensors.get("decoder.0.weight", np.zeros(0))
    latent = max(1, len(decoder) - observation)
    return Sizes(observation, action, sum(max(count, 1) for count in choices), choices.count(0), latent)


def choices_in(tensors: Tensors) -> tuple[int, ...]:
    """Number of choices of each action column, 0 for numbers; empty: numbers only."""
    return tuple(tensors["action_choices"].tolist()) if "action_choices" in tensors else ()


def network(tensors: Tensors, name: str, inputs: np.ndarray) -> np.ndarray:
    """The output of the network stored under ``name``: ReLU between layers; of stacked networks one after the other."""
    index, hidden = 0, inputs
    while f"{name}.{index}.weight" in tensors:
        if index:
            hidden = np.maximum(hidden, 0)
        hidden = hidden @ tensors[f"{name}.{index}.weight"] + tensors[f"{name}.{index}.bias"][..., None, :]
        index += 1
    return hidden


def joined(*parts: np.ndarray) -> np.ndarray:
    """Columns side by side."""
    return np.concatenate(parts, axis=-1)


def normalized(tensors: Tensors, observations: np.ndarray) -> np.ndarray:
    """Observations in the units that the networks take."""
    return (observations - tensors["observation_mean"]) / tensors["observation_deviation"]


def bounded(tensors: Tensors, scaled: np.ndarray) -> np.ndarray:
    """Actions in ±1 units as float32 within the data's bounds; choices as their codes."""
    low, high = tensors["action_low"], tensors["action_high"]
    actions = np.clip((low + high) / 2 + scaled * (high - low) / 2, low, high).astype(np.float32)
    choices = choices_in(tensors)
    return np.where(np.asarray(choices) > 0, scaled, actions).astype(np.float32) if choices else actions


# A network's outputs as a distribution of actions: the heads of ``vem.networks`` in NumPy.


def most_likely(outputs: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """The mean of numbers, in units where the bounds are ±1, and the likeliest code of choices."""
    if not any(choices):
        return np.tanh(outputs)
    parts = zip(choices, _parts(outputs, choices), strict=True)
    return joined(*(largest(part) if count else np.tanh(part) for count, part in parts))


def sampled(
    outputs: np.ndarray, choices: Sequence[int], log_std: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A draw of each row: numbers from a Normal, codes from a categorical distribution."""
    if not any(choices):
        return np.tanh(outputs) + np.exp(log_std) * generator.standard_normal(outputs.shape, dtype=np.float32)
    deviations, columns = iter(np.exp(_each_number(log_std, choices))), []
    for count, part in zip(choices, _parts(outputs, choices), strict=True):
        if count:  # the largest of logits with Gumbel noise is a draw of the categorical distribution
            columns.append(largest(part + generator.gumbel(size=part.shape)))
        else:
            noise = generator.standard_normal(part.shape, dtype=np.float32)
            columns.append(np.tanh(part) + next(deviations) * noise)
    return joined(*columns)


def log_likelihood(outputs: np.ndarray, choices: Sequence[int], log_std: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Log π(a|s) of each row, the sum over its columns."""
    choices = choices or (0,) * actions.shape[-1]
    deviations, total = iter(_each_number(log_std, choices)), np.zeros(len(actions))
    for count, part, taken in zip(choices, _parts(outputs.astype(np.float64), choices), actions.T, strict=True):
        if count:
            logits = part - part.max(axis=-1, keepdims=True)
            total += logits[np.arange(len(logits)), taken.astype(np.int64)] - np.log(np.exp(logits).sum(axis=-1))
        else:
            total += log_normal(taken, np.tanh(part[:, 0]), next(deviations))
    return total


def log_normal(values: np.ndarray, mean: np.ndarray, log_std: np.ndarray) -> np.ndarray:
    """Log N(x; mean, σ²)."""
    return -0.5 * ((values - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)


def largest(values: np.ndarray) -> np.ndarray:
    """The code of the largest of each row, the first of equal ones, as a column; NaN where numbers overflowed."""
    codes = np.argmax(values, axis=-1, keepdims=True).astype(np.float32)
    return np.where(_fit(values), codes, np.float32(np.nan))


def _fit(values: np.ndarray) -> np.ndarray:
    """Whether all of a row's values can be compared: neither NaN nor infinite; −∞ is what may not be chosen."""
    return np.all(values <= LARGEST, axis=-1, keepdims=True)


def _each_number(log_std: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    return np.broadcast_to(log_std, (sum(count == 0 for count in choices),))


def _parts(outputs: np.ndarray, choices: Sequence[int]) -> Iterator[np.ndarray]:
    """The outputs of each action column: logits, or one number."""
    start = 0
    for count in choices:
        stop = start + max(count, 1)
        yield outputs[..., start:stop]
        start = stop


# Gaussian and deterministic policies.


def _gaussian(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    if generator is None:
        return _deterministic(tensors, inputs, None)
    return sampled(network(tensors, "actor", inputs), choices_in(tensors), tensors["log_std"], generator)


def _gaussian_density(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return log_likelihood(network(tensors, "actor", inputs), choices_in(tensors), tensors["log_std"], actions)


def _deterministic(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    return most_likely(network(tensors, "actor", inputs), choices_in(tensors))


# Guided policies: an executor acts for the move that a guide names; dimensions that moves leave out are 0.


def _with_move(tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return joined(inputs, network(tensors, "guide", inputs) * (tensors["move_scale"] > 0))


def _guided(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    return _gaussian(tensors, _with_move(tensors, inputs), generator)


def _guided_density(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    return _gaussian_density(tensors, _with_move(tensors, inputs), actions)


# A squashed Normal: its mean and log σ are the two halves of the network's outputs.


def _free_normal(tensors: Tensors, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and log σ before the squashing."""
    outputs, size = network(tensors, "actor", inputs), tensors["action_low"].size
    return outputs[..., :size], np.clip(outputs[..., size:], *tensors["log_std_bounds"])


def _tanh_gaussian(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    mean, log_std = _free_normal(tensors, inputs)
    if generator is None:
        return np.tanh(mean)
    return np.tanh(mean + np.exp(log_std) * generator.standard_normal(mean.shape, dtype=np.float32))


def _tanh_gaussian_density(tensors: Tensors, inputs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Log N(artanh a; mean, σ²) − Σ log(1 − a²)."""
    mean, log_std = (part.astype(np.float64) for part in _free_normal(tensors, inputs))
    inside = np.clip(actions, -EDGE, EDGE).astype(np.float64)
    return np.sum(log_normal(np.arctanh(inside), mean, log_std) - np.log1p(-(inside**2)), axis=-1)


# BCQ: the best of several generated and perturbed actions; without a generator always from the same latents.


def _bcq(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    actions, values = _candidates(tensors, inputs, int(tensors["num_actions"].item()), generator)
    best = np.argmax(values, axis=1, keepdims=True)
    chosen = np.take_along_axis(actions, best[..., None], axis=1)[:, 0]
    return np.where(_fit(values), chosen, np.float32(np.nan))


def _bcq_value(tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return _candidates(tensors, inputs, NUM_VALUED, None)[1].max(axis=1)


def _candidates(
    tensors: Tensors, inputs: np.ndarray, count: int, generator: np.random.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """Generated and perturbed actions of each row, (rows, candidates, size), and their Q."""
    shape = (1 if generator is None else len(inputs), count, sizes_of(tensors).latent)
    drawn = (generator or np.random.default_rng(0)).standard_normal(shape, dtype=np.float32)
    rows = inputs[:, None]
    latents = np.clip(drawn, -0.5, 0.5) + np.zeros_like(rows[..., :1])
    rows = rows + np.zeros((count, 1), np.float32)
    actions = np.tanh(network(tensors, "decoder", joined(rows, latents)))
    moves = np.tanh(network(tensors, "perturbation", joined(rows, actions)))
    actions = np.clip(actions + tensors["limit"] * moves, -1, 1)
    return actions, network(tensors, "chooser", joined(rows, actions))[..., 0]


# The choice with the largest Q, among the allowed ones where the file holds the cloned behavior.


def _greedy(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    return largest(_choice_values(tensors, inputs))


def _greedy_value(tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return _choice_values(tensors, inputs).max(axis=-1)


def _choice_values(tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    """Q of each choice; −∞ where G(b|s) ≤ τ·max_c G(c|s) for the cloned behavior G."""
    values = network(tensors, "choice_critic", inputs)
    if "threshold" not in tensors:
        return values
    logits = network(tensors, "behavior", inputs)
    ratio = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    allowed = (ratio > tensors["threshold"]) | (ratio >= 1)
    # The product is 0, or NaN where the logits overflowed.
    return np.where(allowed, values, np.float32(-np.inf)) + 0 * ratio


KINDS: dict[str, Kind] = {
    "gaussian": Kind(
        _gaussian,
        log_density=_gaussian_density,
        networks=lambda sizes: {"actor": (sizes.observation, sizes.outputs)},
        numbers=lambda sizes: {"log_std": (1, sizes.boxes)},
    ),
    "guided": Kind(
        _guided,
        log_density=_guided_density,
        networks=lambda sizes: {
            "guide": (sizes.observation, sizes.observation),
            "actor": (2 * sizes.observation, sizes.outputs),
        },
        numbers=lambda sizes: {"log_std": (1, sizes.boxes), "move_scale": (sizes.observation,)},
        # Between an obstacle and a goal behind it, mean actions can hold each other in balance for ever.
        is_drawn=True,
    ),
    "deterministic": Kind(_deterministic, networks=lambda sizes: {"actor": (sizes.observation, sizes.outputs)}),
    "tanh-gaussian": Kind(
        _tanh_gaussian,
        log_density=_tanh_gaussian_density,
        networks=lambda sizes: {"actor": (sizes.observation, 2 * sizes.action)},
        numbers=lambda sizes: {"log_std_bounds": (2,)},
    ),
    "bcq": Kind(
        _bcq,
        _bcq_value,
        networks=lambda sizes: {
            "decoder": (sizes.observation + sizes.latent, sizes.action),
            "perturbation": (sizes.observation + sizes.action, sizes.action),
            "chooser": (sizes.observation + sizes.action, 1),
        },
        numbers=lambda sizes: {"limit": (1,), "num_actions": (1,)},
    ),
    "greedy": Kind(
        _greedy,
        _greedy_value,
        networks=lambda sizes: {"choice_critic": (sizes.observation, sizes.outputs)},
    ),
    "constrained-greedy": Kind(
        _greedy,
        _greedy_value,
        networks=lambda sizes: dict.fromkeys(("choice_critic", "behavior"), (sizes.observation, sizes.outputs)),
        numbers=lambda sizes: {"threshold": (1,)},
    ),
}
"""All that is known of each kind: the one place to change for another."""


def register_kind(kind: str, actor: Actor, value: Value | None = None, overwrite: bool = False) -> None:
    """Add a kind of policy: how it acts and, if it can, how it values states, in NumPy."""
    if kind in KINDS and not overwrite:
        raise SettingsError(f"there is a kind of policy {kind!r} already; choose another name, or give overwrite=True")
    KINDS[kind] = Kind(actor, value)


def find_kind(kind: Any) -> Kind:
    """The kind of that name; RunError lists those that are known."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise RunError(
            f"this is a policy of kind {kind!r} and only {', '.join(KINDS)} are known; "
            "if a method of your own made it, import the module that registers it first"
        )
    return KINDS[kind]


def find_value(kind: str, tensors: Tensors) -> Value | None:
    """How a policy of this kind, with these tensors, values states; None if it cannot."""
    known = find_kind(kind)
    if known.value is not None:
        return known.value
    if "critics.0.weight" in tensors:
        return lambda tensors, inputs: network(tensors, "critics", inputs)[..., 0].mean(axis=0)
    if "action_critics.0.weight" in tensors:
        return lambda tensors, inputs: network(
            tensors, "action_critics", joined(inputs, known.act(tensors, inputs, None))
        )[..., 0].mean(axis=0)
    return None


def find_density(kind: str, tensors: Tensors) -> LogDensity | None:
    """The log-density of a policy's actions; None where it has none: a fixed choice among numbers."""
    known, choices = find_kind(kind), choices_in(tensors)
    if known.log_density is not None or not (choices and all(choices)):
        return known.log_density
    # Choices that are always the same in a state have the probabilities 0 and 1.
    return lambda tensors, inputs, actions: np.where(
        np.all(known.act(tensors, inputs, None) == actions, axis=-1), 0.0, -np.inf
    )


# Whether tensors are a policy.


def find_problem(kind: str, tensors: Tensors) -> str | None:
    """What keeps these tensors from being a policy: numbers that are not finite, or shapes that do not fit."""
    for name, tensor in tensors.items():
        if tensor.dtype.kind not in "fiu":
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
    if "action_choices" in tensors:
        counts = tensors["action_choices"]
        if counts.dtype.kind not in "iu" or counts.shape != (action,) or (counts < 0).any():
            return f"action_choices are {counts.tolist()} for {action} action columns"
    if problem := support_problem(tensors, observation, action):
        return problem
    known, sizes = find_kind(kind), sizes_of(tensors)
    if known.networks is None:
        return None
    critics = {"critics": (observation, 1), "action_critics": (observation + action, 1)}
    networks = known.networks(sizes) | {name: of for name, of in critics.items() if f"{name}.0.weight" in tensors}
    problems = [_size_problem("value_unit", (1,), tensors)]
    problems += [_size_problem(name, allowed, tensors) for name, allowed in known.numbers(sizes).items()]
    problems += [_network_problem(name, *of, tensors) for name, of in networks.items()]
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
