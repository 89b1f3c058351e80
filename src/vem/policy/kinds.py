"""How each kind of policy acts and values states, in NumPy, and how a kind is added.

The kinds ``gaussian``, ``guided`` and ``deterministic`` act in any columns of numbers and choices: the tensor
``action_choices`` says which columns are choices; files without it have numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vem.errors import RunError, SettingsError
from vem.policy.support import support_problem

# The heads of ``core.heads`` in NumPy: how a stored policy gets actions from its network's outputs.


def num_outputs(num_columns: int, choices: Sequence[int]) -> int:
    """Outputs of a policy's network for columns with these numbers of choices; 0, or none at all, for numbers."""
    return sum(max(count, 1) for count in choices) if any(choices) else num_columns


def most_likely(outputs: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    """The mean of numbers, in units where the bounds are ±1, and the likeliest code of choices."""
    if not any(choices):
        return np.tanh(outputs)
    return _columns(outputs, choices, np.tanh, lambda logits: logits)


def sampled(
    outputs: np.ndarray, choices: Sequence[int], log_std: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """A draw of each row: numbers from a Normal, codes from a categorical distribution."""
    if not any(choices):
        mean = np.tanh(outputs)
        return mean + np.exp(log_std) * generator.standard_normal(mean.shape, dtype=np.float32)
    deviations = iter(np.exp(np.broadcast_to(log_std, (sum(count == 0 for count in choices),))))

    def number(output: np.ndarray) -> np.ndarray:
        return np.tanh(output) + next(deviations) * generator.standard_normal(output.shape, dtype=np.float32)

    # The largest of logits with Gumbel noise is a draw of the categorical distribution.
    return _columns(outputs, choices, number, lambda logits: logits + generator.gumbel(size=logits.shape))


def _columns(
    outputs: np.ndarray,
    choices: Sequence[int],
    number: Callable[[np.ndarray], np.ndarray],
    noisy: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    columns, start = [], 0
    for count in choices:
        stop = start + max(count, 1)
        part = outputs[..., start:stop]
        columns.append(noisy(part).argmax(axis=-1).astype(np.float32) if count else number(part[..., 0]))
        start = stop
    return np.stack(columns, axis=-1)


Tensors = dict[str, np.ndarray]
Actor = Callable[[Tensors, np.ndarray, np.random.Generator | None], np.ndarray]
"""(tensors, normalized observations, generator or None) → actions: numbers in ±1 units, codes of choices.

Without a generator, always the same.
"""
Value = Callable[[Tensors, np.ndarray], np.ndarray]
"""(tensors, normalized observations) → V of each, in the unit that the networks were trained in."""


def choices_in(tensors: Tensors) -> tuple[int, ...]:
    """Number of choices of each action column, 0 for numbers; empty: numbers only."""
    return tuple(tensors["action_choices"].tolist()) if "action_choices" in tensors else ()


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
    outputs, choices = network(tensors, "actor", inputs), choices_in(tensors)
    if generator is None:
        return most_likely(outputs, choices)
    return sampled(outputs, choices, tensors["log_std"], generator)


def _guided(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    """The executor's action for the move that the guide names; dimensions that moves leave out are 0."""
    moves = network(tensors, "guide", inputs) * (tensors["move_scale"] > 0)
    return _gaussian(tensors, np.concatenate([inputs, moves], axis=-1), generator)


def _deterministic(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    return most_likely(network(tensors, "actor", inputs), choices_in(tensors))


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
    latents = bcq_latents(tensors, num_actions, generator, len(inputs))
    count, size = len(inputs), latents.shape[-1]
    latents = np.broadcast_to(latents, (count, num_actions, size))
    repeated = np.broadcast_to(inputs[:, None], (count, num_actions, inputs.shape[-1]))
    actions = np.tanh(network(tensors, "decoder", np.concatenate([repeated, latents], axis=-1)))
    moves = np.tanh(network(tensors, "perturbation", np.concatenate([repeated, actions], axis=-1)))
    actions = np.clip(actions + tensors["limit"] * moves, -1, 1)
    return actions, network(tensors, "chooser", np.concatenate([repeated, actions], axis=-1))[..., 0]


def bcq_latents(
    tensors: Tensors, num_actions: int, generator: np.random.Generator | None = None, count: int = 1
) -> np.ndarray:
    """What BCQ generates actions from, (rows, candidates, size): one row for all without a generator."""
    size = tensors["decoder.0.weight"].shape[0] - tensors["observation_mean"].size
    if generator is None:
        generator, count = np.random.default_rng(0), 1
    latents = generator.standard_normal((count, num_actions, size), dtype=np.float32)
    return np.clip(latents, -0.5, 0.5)


def _greedy(tensors: Tensors, inputs: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
    """The choice with the largest Q, among the allowed ones where the file holds the cloned behavior."""
    return _choice_values(tensors, inputs).argmax(axis=-1)[:, None].astype(np.float32)


def _choice_values(tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    """Q of each choice; −∞ where G(b|s) ≤ τ·max_c G(c|s) for the cloned behavior G."""
    values = network(tensors, "choice_critic", inputs)
    if "threshold" not in tensors:
        return values
    logits = network(tensors, "behavior", inputs)
    ratio = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.where((ratio > tensors["threshold"]) | (ratio >= 1), values, -np.inf)


ACTORS: dict[str, Actor] = {
    "gaussian": _gaussian,
    "guided": _guided,
    "deterministic": _deterministic,
    "tanh-gaussian": _tanh_gaussian,
    "bcq": _bcq,
    "greedy": _greedy,
    "constrained-greedy": _greedy,
}
"""How each kind of policy acts."""
DRAWN_KINDS = {"guided"}
"""Kinds that are evaluated with drawn actions; the others take their mean.

Between an obstacle and a goal behind it, the mean actions of a guided policy can hold each other in balance for ever.
"""
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
    if not isinstance(kind, str) or kind not in ACTORS:
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


def _outputs(observation: int, action: int, tensors: Tensors) -> int:
    return num_outputs(action, choices_in(tensors))


LAYOUTS: dict[str, Callable[[int, int, Tensors], list[tuple[str, int, int]]]] = {
    "gaussian": lambda *facts: [("actor", facts[0], _outputs(*facts))],
    "deterministic": lambda *facts: [("actor", facts[0], _outputs(*facts))],
    "tanh-gaussian": lambda observation, action, _: [("actor", observation, 2 * action)],
    "bcq": _bcq_layout,
    "greedy": lambda *facts: [("choice_critic", facts[0], _outputs(*facts))],
    "constrained-greedy": lambda *facts: [(name, facts[0], _outputs(*facts)) for name in ("choice_critic", "behavior")],
}
"""The networks of each kind: (observation size, action size, tensors) → name, inputs, outputs."""
SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "gaussian": {"log_std": ()},
    "tanh-gaussian": {"log_std_bounds": (2,)},
    "bcq": {"limit": (1,), "num_actions": (1,)},
    "constrained-greedy": {"threshold": (1,)},
}
"""How many numbers the other tensors of each kind may hold; log σ has one, or one for each column of numbers."""


def _value_of_states(kind: str, tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return stacked_networks(tensors, "critics", inputs).mean(0)


def _value_of_mean_action(kind: str, tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    actions = ACTORS[kind](tensors, inputs, None)
    return stacked_networks(tensors, "action_critics", np.concatenate([inputs, actions], axis=-1)).mean(0)


def _value_of_candidates(kind: str, tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return _bcq_candidates(tensors, inputs, 10, None)[1].max(axis=1)


def _value_of_best_choice(kind: str, tensors: Tensors, inputs: np.ndarray) -> np.ndarray:
    return _choice_values(tensors, inputs).max(axis=-1)


VALUES: dict[str, Callable[[str, Tensors, np.ndarray], np.ndarray]] = {
    "critics": _value_of_states,
    "action_critics": _value_of_mean_action,
    "chooser": _value_of_candidates,
    "choice_critic": _value_of_best_choice,
}
"""What a policy file holds → V of normalized observations, for a kind and its tensors."""


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
    sizes = {"value_unit": (1,), **SIZES.get(kind, {})}
    if "log_std" in sizes:
        sizes["log_std"] = (1, sum(count == 0 for count in choices_in(tensors)) if choices_in(tensors) else action)
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
