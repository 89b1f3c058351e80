"""Small datasets in files for the tests of comparisons: one with an environment, one without."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from small_runs import TINY
from vem.comparison.compare import asked_for, lay_out, method_words
from vem.comparison.job import Job

SETTINGS = {
    "bc": {"policy_hidden": "8", "batch_size": "8"},
    "awr": {"policy_hidden": "8", "value_hidden": "8", "batch_size": "8"},
}
FLAGS = ["--set", "policy_hidden=8", "--set", f"batch_size={TINY['batch_size']}"]


def write_data(directory: Path, name: str = "pointmaze-umaze", sizes: tuple[int, int] = (4, 2)) -> Path:
    """A file of 40 random steps, by default with the PointMaze's sizes; its name says which environment is meant."""
    random = np.random.default_rng(0)
    path = directory / f"{name}.npz"
    np.savez(
        path,
        observations=random.normal(size=(40, sizes[0])).astype(np.float32),
        actions=random.uniform(-1, 1, (40, sizes[1])).astype(np.float32),
        rewards=random.uniform(size=40).astype(np.float32),
        terminals=np.zeros(40, bool),
        timeouts=np.arange(40) % 10 == 9,
    )
    return path


def jobs_of(data, out, algorithms=("bc",), settings=None, config=None, **words) -> list[Job]:
    """The jobs of a comparison of small networks, two seeds each."""
    asked = asked_for(config, str(data) if isinstance(data, Path) else data, {"steps": 500, **words})
    if config is None and "seed" not in words:
        asked["seeds"] = words.get("seeds", 2)
    known = {name: given for name, given in SETTINGS.items() if name in algorithms}
    return lay_out(out, asked, method_words(algorithms, asked, known if settings is None else settings))
