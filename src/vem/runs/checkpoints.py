"""The states of a run on disk: the newest few, complete or absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vem.errors import RunError
from vem.storage import flatten, read_tensors, write_tensors

FORMAT = "vem-checkpoint"
VERSION = 1
KEPT = 2
"""How many checkpoints of a run stay: the newest, and one to fall back on."""


def save_checkpoint(directory: Path, steps: int, tree: Any, header: dict[str, Any]) -> Path:
    """Write the checkpoint of ``steps`` and remove all but the newest ``KEPT``."""
    path = directory / f"{steps:010d}.safetensors"
    header = {"format": FORMAT, "version": VERSION, "steps": steps, **header}
    write_tensors(path, flatten(tree), header)
    for old in list_checkpoints(directory)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoint files, oldest first."""
    return sorted(directory.glob("[0-9]*.safetensors"))


def load_newest(directory: Path, report: Callable[[str], None]) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Tensors and header of the newest readable checkpoint, or None; damaged ones are reported and passed over."""
    for path in reversed(list_checkpoints(directory)):
        try:
            tensors, header = read_tensors(path)
            if header.get("format") == FORMAT and header.get("version") == VERSION:
                return tensors, header
            report(f"{path.name} has format {header.get('format')} {header.get('version')}, which this vem cannot read")
        except RunError as error:
            report(f"{error}; falling back to the checkpoint before it")
    return None
