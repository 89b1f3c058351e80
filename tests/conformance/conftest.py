"""Each method trained once on tiny data, and looked at by every test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from small_runs import OWN_METHODS, make_run, quick_compilation, shape_of, tiny_dataset
from vem.algorithms.base import METHODS
from vem.data.dataset import Dataset
from vem.training import loop
from vem.training.run import Run

OTHER_ACTIONS = [
    pytest.param(
        (name, kind),
        id=f"{name}-{kind}",
        # Several choices go through the same code as mixed actions; one method stands for all in the quick selection.
        marks=[pytest.mark.slow] if kind == "several" and name != "vem" else [],
    )
    for name in OWN_METHODS
    for kind in METHODS[name].actions
    if kind != "box"
]


class Trial(NamedTuple):
    """A method trained to the end, and how it got there."""

    name: str
    run: Run
    shapes: list[Any]
    """Structure, shapes and types of the state: before training, then after each chunk."""
    chunks: list[tuple[str, int]]
    """Stage and number of steps after each chunk."""
    metrics: list[dict[str, np.ndarray]]
    state: Any


@pytest.fixture(scope="module", autouse=True)
def one_program(tmp_path_factory):
    """Every stage is compiled once for all trainings of the module, in chunks of at most 3 steps."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compile_chunk", cache(loop.compile_chunk))
        patch.setattr(loop, "LONGEST_CHUNK", 3)
        yield


@pytest.fixture(scope="module", params=OWN_METHODS)
def trial(request, tmp_path_factory) -> Trial:
    """A finished run of each method."""
    return trained_trial(request.param, tmp_path_factory.mktemp(request.param) / "run")


@pytest.fixture(scope="module", params=OTHER_ACTIONS)
def action_trial(request, tmp_path_factory) -> Trial:
    """A finished run of each method for each kind of actions other than a box that it can learn."""
    name, kind = request.param
    return trained_trial(name, tmp_path_factory.mktemp(f"{name}-{kind}") / "run", tiny_dataset(kind=kind))


def trained_trial(name: str, directory: Path, dataset: Dataset | None = None) -> Trial:
    """A finished run, and how it got there."""
    run = make_run(name, directory, dataset)
    shapes, chunks, metrics, state = [shape_of(run.initial().state)], [], [], None
    for progress in run.progress():
        shapes.append(shape_of(progress.snapshot.state))
        chunks.append((progress.stage.name, progress.steps))
        metrics.append(progress.metrics)
        if progress.steps == progress.num_steps:
            state = jax.tree.map(np.array, progress.snapshot.state)
    return Trial(name, run, shapes, chunks, metrics, state)
