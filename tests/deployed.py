"""Policies of every kind from random numbers, without training."""

from __future__ import annotations

import numpy as np

from vem.data.actions import ActionColumn, discrete_column
from vem.data.encoding import Encoder, InputColumn
from vem.policy import Policy

KINDS = [
    ("gaussian", (0, 0)),
    ("gaussian", (3,)),
    ("gaussian", (3, 2)),
    ("gaussian", (0, 4, 2)),
    ("deterministic", (0,)),
    ("deterministic", (2, 0)),
    ("guided", (0, 0)),
    ("guided", (3, 0)),
    ("tanh-gaussian", (0, 0)),
    ("bcq", (0, 0)),
    ("greedy", (4,)),
    ("constrained-greedy", (4,)),
]
"""Kind, and number of choices of each action column, 0 for numbers."""
ENCODER = Encoder(
    (
        InputColumn("temp in", "number"),
        InputColumn("sun", "number", "indicator", fill=3.5, sentinels=(-999.0,)),
        InputColumn("mode", "categorical", labels=("eco", "comfort", "boost")),
        InputColumn("wind", "categorical", "indicator", labels=("n", "s"), sentinels=(9.0,)),
        InputColumn("window", "boolean"),
        InputColumn("door", "boolean", "indicator", fill=0.25),
        InputColumn("valve", "number", "forward-fill"),
    ),
    (
        ActionColumn("valve", "box", -1.0, 3.0),
        discrete_column("fan", ["low", "high"]),
        discrete_column("level", ["10", "20", "35"]),
        discrete_column("alarm", ["false", "true"]),
    ),
    ("number", "text", "integer", "boolean"),
)


def random_policy(kind: str, choices: tuple[int, ...], encoder: Encoder | None = None, size: int = 5) -> Policy:
    """A policy with networks of random numbers."""
    random = np.random.default_rng(len(kind) + sum(choices))
    size = len(encoder.feature_names) if encoder else size
    actions = len(choices)
    tensors = {
        "observation_mean": random.normal(size=size),
        "observation_deviation": random.uniform(0.5, 2, size),
        "action_low": np.array([0.0 if count else -1.5 for count in choices]),
        "action_high": np.array([count - 1.0 if count else 2.0 for count in choices]),
        "value_unit": np.ones(()),
    }
    outputs = sum(max(count, 1) for count in choices)

    def network(name: str, num_inputs: int, num_outputs: int) -> None:
        for index, (rows, columns) in enumerate([(num_inputs, 16), (16, 16), (16, num_outputs)]):
            tensors[f"{name}.{index}.weight"] = random.normal(size=(rows, columns)) / np.sqrt(rows)
            tensors[f"{name}.{index}.bias"] = 0.1 * random.normal(size=columns)

    if kind in ("gaussian", "guided"):
        tensors["log_std"] = np.zeros(sum(count == 0 for count in choices))
    if kind == "tanh-gaussian":
        tensors["log_std_bounds"] = np.array([-5.0, 2.0])
    if kind == "guided":
        network("guide", size, size)
        tensors["move_scale"] = np.arange(size) % 2
    if kind == "bcq":
        network("decoder", size + 3, actions)
        network("perturbation", size + actions, actions)
        network("chooser", size + actions, 1)
        tensors["limit"], tensors["num_actions"] = np.asarray(0.05), np.asarray(7)
    elif kind in ("greedy", "constrained-greedy"):
        network("choice_critic", size, outputs)
    else:
        doubled = {"tanh-gaussian": (size, 2 * outputs), "guided": (2 * size, outputs)}
        network("actor", *doubled.get(kind, (size, outputs)))
    if kind == "constrained-greedy":
        network("behavior", size, outputs)
        tensors["threshold"] = np.asarray(0.6)
    tensors = {name: np.asarray(values, np.float32) for name, values in tensors.items()}
    if any(choices):
        tensors["action_choices"] = np.asarray(choices, np.int32)
    return Policy(kind, tensors, {"algorithm": "own", "seed": 3, "preset": "default"}, encoder)
