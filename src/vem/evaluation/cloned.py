"""The benchmark's ``*-cloned`` data from its ``*-human`` data, by D4RL's recipe.

Behavior cloning on the demonstrations, then half of the rows are the demonstrations, again and again, and half are
roll-outs of the clone, which draws its actions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from vem.data import Dataset, load
from vem.data.recorder import Recipe, Report, rolling_out, write_recording
from vem.errors import DataError
from vem.runs.config import make_config
from vem.runs.opening import create_run
from vem.tasks import TASKS, Task, find_task, task_of

CLONED_TASKS = tuple(name for name in TASKS if name.endswith("-cloned"))
DEFAULT_NUM_ROWS = 500_000
CLONING_STEPS = 12_000


def write_cloned(
    path: str | Path,
    name: str,
    source: str | Path | None = None,
    num_rows: int = DEFAULT_NUM_ROWS,
    seed: int = 0,
    data_dir: str | None = None,
    steps: int = CLONING_STEPS,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Make ``name`` (``door-cloned``, …) and return the file's path; equal arguments give equal rows on one machine.

    ``source`` is the demonstrations' file, by default the benchmark's ``*-human`` data of the same task.
    """
    task = cloned_task(name)
    human = task.name.removesuffix("-cloned") + "-human"
    dataset = load(human if source is None else source, data_dir=data_dir)
    known = task_of(dataset.info)
    if known is None or known.environment != task.environment:
        found = known.name if known else dataset.info.name
        raise DataError(f"{task.name} is made from demonstrations of {human}, not from {found}; give --from FILE.")
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(human, "bc", seeds=(seed,), steps=steps, task=known)
        run = create_run(Path(folder) / "clone", config, dataset).train()
        policy = run.policy
    parts = f"half of the rows {dataset.num_episodes} demonstrations, repeated; half roll-outs of their clone"
    text = f"{parts} ({steps:,} steps of behavior cloning); D4RL's recipe"
    recipe = Recipe(task, text, num_rows - num_rows // 2, seed, dataset.fingerprint())
    return write_recording(path, recipe, rolling_out(policy.act), repeat(dataset, num_rows // 2), report=report)


def repeat(dataset: Dataset, num_rows: int) -> dict[str, np.ndarray]:
    """The first ``num_rows`` rows of the recordings put one after another, again and again, as D4RL's columns."""
    drawn = np.flatnonzero(dataset.valid)
    is_last = ~dataset.valid[drawn + 1]
    count = max(1, -(-num_rows // len(drawn)))
    columns = {
        "observations": dataset.observations[drawn],
        "actions": dataset.actions[drawn],
        "rewards": dataset.rewards[drawn],
        "terminals": dataset.terminal[drawn],
        "timeouts": is_last & ~dataset.terminal[drawn],
    }
    rows = {name: np.concatenate([values] * count)[:num_rows] for name, values in columns.items()}
    if num_rows:
        rows["timeouts"][-1] = not rows["terminals"][-1]
    return rows


def cloned_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in CLONED_TASKS:
        raise DataError(f"{name!r} is not cloned data: expected one of {', '.join(CLONED_TASKS)}.")
    return task
