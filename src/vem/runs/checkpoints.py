"""The states of a run on disk: the newest few, complete or absent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vem.errors import RunError
from vem.storage import flatten, read_tensors, write_tensors

FORMAT = "vem-checkpoint"
VERSION = 2
KEPT = 2
"""How many checkpoints of a run stay: the newest, and one to fall back on."""


def save_checkpoint(directory: Path, steps: int, tree: Any, header: dict[str, Any]) -> Path:
    """Write the checkpoint of ``steps`` and remove all before it but the newest ``KEPT``.

    Later ones are those that ``load_newest`` passed over: they neither count nor go.
    """
    path = directory / f"{steps:010d}.safetensors"
    header = {"format": FORMAT, "version": VERSION, "steps": steps, **header}
    write_tensors(path, flatten(tree), header)
    for old in [other for other in list_checkpoints(directory) if other.name <= path.name][:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def list_checkpoints(directory: Path) -> list[Path]:
    """Checkpoint files, oldest first."""
    return sorted(directory.glob("[0-9]*.safetensors"))


def load_newest(
    directory: Path, report: Callable[[str], None], request: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
    """Tensors and header of the newest readable checkpoint, or None; damaged ones are reported and passed over.

    RunError if it holds another ``request`` than this: then it is of another run, and nothing is taken or removed.
    """
    for path in reversed(list_checkpoints(directory)):
        try:
            tensors, header = read_tensors(path)
        except RunError as error:
            report(f"{error}; falling back to the checkpoint before it")
            continue
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            report(f"{path.name} has format {header.get('format')} {header.get('version')}, which this vem cannot read")
        elif header.get("request") != request:
            raise RunError(
                f"{path} belongs to another run, or config.json was changed since: its settings or its data are not "
                "those of config.json; put the right file back, or move the checkpoint away"
            )
        else:
            return tensors, header
    return None
