"""Offline reinforcement learning with Value-based Episodic Memory.

dataset = vem.load("antmaze-umaze.hdf5")
run = vem.train(dataset, out="runs/umaze", seeds=3)
action = run.policy.act(observation)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from vem.api import resume, train
    from vem.data import Dataset, describe, from_arrays, load
    from vem.errors import VemError
    from vem.policy import Policy, load_policy
    from vem.runs.run import Run

_PLACES = {
    "Dataset": "vem.data",
    "Policy": "vem.policy",
    "Run": "vem.runs.run",
    "VemError": "vem.errors",
    "describe": "vem.data",
    "from_arrays": "vem.data",
    "load": "vem.data",
    "load_policy": "vem.policy",
    "resume": "vem.api",
    "train": "vem.api",
}

__all__ = [
    "Dataset",
    "Policy",
    "Run",
    "VemError",
    "describe",
    "from_arrays",
    "load",
    "load_policy",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that ``import vem`` and ``vem --help`` load no numerics."""
    if name not in _PLACES:
        raise AttributeError(f"module 'vem' has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
