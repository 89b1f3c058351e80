"""Tiny data and tiny networks for any method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from vem.algorithms.base import METHODS
from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset
from vem.training.request import make_request
from vem.training.run import Run

NUM_STEPS = 10
TINY = {
    "batch_size": 8,
    "steps_per_refresh": 5,
    "num_target_actions": 3,
    "num_acting_actions": 5,
    "num_sampled_actions": 3,
    "effective_sample": 0.5,
    "conservative_weight": 5.0,
}
OWN_METHODS = [name for name, method in METHODS.items() if method.ablates is None] + ["vem-guided"]
"""Methods with code of their own; guided policies are VEM's second way from values to a policy."""


def tiny_settings(name: str, **changes: Any) -> dict[str, Any]:
    """Small networks and batches for a method, whatever its settings are called."""
    names = [field.name for field in dataclasses.fields(METHODS[name].config)]
    hidden = {field: (8, 8) for field in names if field.endswith("_hidden")}
    return {**hidden, **{field: value for field, value in TINY.items() if field in names}, **changes}


def tiny_actions(kind: str, num_steps: int, random: np.random.Generator) -> np.ndarray:
    """Random actions: two numbers within ±2; one of three choices; three and two choices; a number and a choice."""
    numbers = random.uniform(-2, 2, (num_steps, 2)).astype(np.float32)
    if kind == "box":
        return numbers
    choices = np.stack([np.arange(num_steps) * 7 % 5 % 3, np.arange(num_steps) % 2], axis=1)
    actions = {"discrete": choices[:, 0], "several": choices, "mixed": np.stack([numbers[:, 0], choices[:, 0]], axis=1)}
    return actions[kind]


def tiny_dataset(lengths: tuple[int, ...] = (8, 5, 7), seed: int = 0, kind: str = "box") -> Dataset:
    """Random episodes, the first ended by the MDP and the others cut; actions of a kind."""
    random = np.random.default_rng(seed)
    num_steps, last = sum(lengths), np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(num_steps, bool), np.zeros(num_steps, bool)
    terminals[last[0]] = True
    timeouts[last[1:]] = True
    observations = random.standard_normal((num_steps, 3)).astype(np.float32)
    following = np.vstack([observations[1:], random.standard_normal((1, 3)).astype(np.float32)])
    following[last] = random.standard_normal((len(lengths), 3))
    return from_arrays(
        observations,
        tiny_actions(kind, num_steps, random),
        random.uniform(-1, 1, num_steps).astype(np.float32),
        terminals,
        timeouts,
        following,
        name="tiny",
        teleports="keep",
        action_bounds=(-2.0, 2.0) if kind in ("box", "mixed") else None,
        discrete=[1] if kind == "mixed" else None,
    )


def make_run(name: str, directory: Path, dataset: Dataset | None = None, **settings: Any) -> Run:
    """A new run of two seeds."""
    config = make_request("tiny", name, settings=tiny_settings(name, **settings), seeds=2, steps=NUM_STEPS)
    return Run.create(directory, config, dataset or tiny_dataset())


def bits(tree: Any) -> list[np.ndarray]:
    """The leaves, copied to the host."""
    return [np.array(leaf) for leaf in jax.tree.leaves(tree)]


def shape_of(state: Any) -> Any:
    """What must not change: the tree with (shape, type) for leaves."""
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), state)


@contextmanager
def quick_compilation(directory: Path) -> Iterator[None]:
    """Compile without optimizing, and the same program only once, kept in ``directory``: tiny networks run anyway."""
    options = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(directory),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: jax.config.values[name] for name in options}
    try:
        for name, value in options.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


def share_programs(run, other):
    """Let ``run`` train by the compiled programs of ``other``, a run of the same request."""
    run._plan = other.plan._replace(request=run.config)
