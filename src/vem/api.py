"""Training from Python: what ``vem train`` does, with a dataset in hand."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vem.data import Dataset
from vem.runs.run import Run, create_run, make_config, resume_run

RULES = ("split", "time_limit", "teleports", "repeat_terminals")
"""The reading rules that a resumed run gives to ``vem.load`` again."""


def train(
    dataset: Dataset,
    algorithm: str = "vem",
    preset: str = "default",
    seeds: int | Sequence[int] = 1,
    steps: int = 100_000,
    out: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Train policies on ``dataset`` and return the finished run.

    ``settings`` are those of the method (``vem.algorithms``); a sweepable one may be a list. The run directory is
    ``out``, or a new temporary one. The dataset is taken as it is: a preset's reading rules apply to ``vem train``.
    """
    directory = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="vem-")) / "run"
    info = dataset.info
    source = info.name if info.source == "arrays" else info.source
    config = make_config(source, algorithm, preset, settings, seeds, steps)
    rules = {name: info.rules[name] for name in RULES if name in info.rules}
    return create_run(directory, dataclasses.replace(config, rules=rules), dataset).train()


def resume(directory: str | Path, dataset: Dataset | None = None) -> Run:
    """Finish the run in ``directory``; ``dataset`` is needed if it was made from arrays."""
    return resume_run(directory, dataset).train()
