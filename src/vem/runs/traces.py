"""The trace of an evaluated episode: all of its observations, in a small file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from vem.errors import RunError
from vem.runs.records import EpisodeRecord
from vem.storage import read_tensors, write_tensors

FORMAT = "vem-trace"
VERSION = 1
FACTS = ("member", "episode", "seed", "steps")
"""What says whose episode it is, and which."""


class Trace(NamedTuple):
    """The observations of one evaluated episode, first and final one among them."""

    member: str
    episode: int | None
    seed: int | None
    steps: int | None
    """Training steps behind the policy."""
    observations: np.ndarray
    """float32, (length + 1, observation size)."""

    def is_of(self, record: EpisodeRecord) -> bool:
        """Whether this is what the recorded episode observed."""
        is_same = all(getattr(self, name) == getattr(record, name) for name in FACTS)
        return is_same and record.length == len(self.observations) - 1


def write_trace(path: Path, record: EpisodeRecord) -> None:
    """Write the observations that a record of this process still holds."""
    facts = {name: getattr(record, name) for name in FACTS}
    observations = np.asarray(record.observations, np.float32)
    write_tensors(path, {"observations": observations}, {"format": FORMAT, "version": VERSION, **facts})


def read_trace(path: Path) -> Trace:
    """The trace in a file; RunError if it is damaged."""
    tensors, header = read_tensors(path)
    if header.get("format") != FORMAT or header.get("version") != VERSION:
        raise RunError(f"{path} has format {header.get('format')} {header.get('version')}, which this vem cannot read")
    observations = tensors.get("observations")
    is_good = observations is not None and observations.ndim == 2 and len(observations) > 1
    if observations is None or not is_good or not np.isfinite(observations).all():
        raise RunError(f"{path} is damaged (it holds no finite observations)")
    member, episode, seed, steps = (header.get(name) for name in FACTS)
    return Trace(str(member), episode, seed, steps, observations)
