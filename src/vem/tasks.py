"""Reference scores as data: every benchmark task, its environment, its limits and what the paper reports.

score = 100·(R − minimum)/(maximum − minimum), with R the undiscounted return of an episode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np

    from vem.data import DataInfo

Returns = TypeVar("Returns", float, "np.ndarray")

D4RL_REFERENCES = "D4RL"
BUILT_IN_REFERENCES = "vem: success rate in percent"


@dataclass(frozen=True)
class PaperScore:
    """A normalized score of the paper's table 1; ``std`` over three seeds, None where it gives none."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Task:
    """One dataset of the benchmark and how a policy trained on it is scored."""

    name: str
    """The D4RL name without its version, e.g. ``antmaze-medium-play``."""
    environment: str
    """Gymnasium id for ``vem.envs.make``."""
    max_steps: int
    """Steps after which an evaluation episode is cut."""
    minimum: float
    """Return that scores 0: a uniformly random policy."""
    maximum: float
    """Return that scores 100: an expert."""
    references: str
    """Where ``minimum`` and ``maximum`` come from; scores with other references must not be compared."""
    paper_scores: Mapping[str, PaperScore] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Method (``vem``, ``bail``, ``bcq``, ``cql``, ``awr``) → score in the paper."""
    paper_expectile: float | None = None
    """The paper's tuned τ for VEM; None where it gives none."""


class HasReferences(Protocol):
    """A task, or anything else that knows the returns that score 0 and 100."""

    @property
    def minimum(self) -> float:
        """The return that scores 0."""
        ...

    @property
    def maximum(self) -> float:
        """The return that scores 100."""
        ...


def normalized_score(references: HasReferences, returns: Returns) -> Returns:
    """100·(R − minimum)/(maximum − minimum), elementwise."""
    return 100.0 * (returns - references.minimum) / (references.maximum - references.minimum)


def find_task(name: str) -> Task | None:
    """Return the task that a dataset's name means, or None.

    Accepts the D4RL name with or without ``-v0``, ``-v1``, ``-v2``, and the names of D4RL's own HDF5 files,
    in any case and with ``_`` for ``-``. Minari ids (``D4RL/door/human-v2``) are other tasks, not found.
    """
    stem = re.sub(r"\.(hdf5|h5)$", "", name.strip().lower())
    if stem != name.strip().lower():
        stem = re.split(r"[/\\]", stem)[-1]
    stem = stem.replace("_", "-")
    if stem in _D4RL_FILES:
        return TASKS[_D4RL_FILES[stem]]
    return TASKS.get(re.sub(r"-v[0-2]$", "", stem))


def task_of_environment(environment: str) -> Task | None:
    """Return some task of this environment, or None; all of them share limits and references."""
    return next((task for task in TASKS.values() if task.environment == environment), None)


def task_of(info: DataInfo) -> Task | None:
    """The benchmark task that loaded data belong to, or None."""
    if info.source.startswith("minari:"):
        return None
    other = task_of_environment(info.environment or "")
    shared = other and replace(other, paper_scores=MappingProxyType({}), paper_expectile=None)
    return find_task(info.name) or shared


# environment, max_steps, minimum, maximum
_FAMILIES = {
    "antmaze-umaze": ("vem/AntMaze-UMaze-v0", 700, 0.0, 1.0),
    "antmaze-medium": ("vem/AntMaze-Medium-v0", 1000, 0.0, 1.0),
    "antmaze-large": ("vem/AntMaze-Large-v0", 1000, 0.0, 1.0),
    "door": ("vem/AdroitDoor-v0", 200, -56.512833, 2880.5693087298737),
    "hammer": ("vem/AdroitHammer-v0", 200, -274.856578, 12794.134825156867),
    "relocate": ("vem/AdroitRelocate-v0", 200, -6.425911, 4233.877797728884),
    "pen": ("vem/AdroitPen-v0", 100, 96.262799, 3076.8331017826877),
    "walker2d": ("vem/Walker2d-v0", 1000, 1.629008, 4592.3),
    "hopper": ("vem/Hopper-v0", 1000, -20.272305, 3234.3),
    "halfcheetah": ("vem/HalfCheetah-v0", 1000, -280.178953, 12135.0),
    "pointmaze-umaze": ("vem/PointMaze-UMaze-v0", 120, 0.0, 1.0),
    "pointmaze-medium": ("vem/PointMaze-Medium-v0", 250, 0.0, 1.0),
    "pointmaze-large": ("vem/PointMaze-Large-v0", 350, 0.0, 1.0),
}

# name, VEM, its std, BAIL, its std, BCQ, CQL, AWR, tuned τ
_PAPER_TABLE = (
    ("antmaze-umaze", 87.5, 1.1, 62.5, 2.3, 78.9, 74.0, 56.0, 0.4),
    ("antmaze-umaze-diverse", 78.0, 1.1, 75.0, 1.0, 55.0, 84.0, 70.3, 0.3),
    ("antmaze-medium-play", 78.0, 3.1, 40.0, 15.0, 0.0, 61.2, 0.0, 0.3),
    ("antmaze-medium-diverse", 77.0, 2.2, 50.0, 10.0, 0.0, 53.7, 0.0, 0.4),
    ("antmaze-large-play", 57.0, 5.0, 23.0, 5.0, 6.7, 11.8, 0.0, 0.3),
    ("antmaze-large-diverse", 58.0, 2.1, 30.0, 5.0, 2.2, 14.9, 0.0, 0.1),
    ("door-human", 11.2, 4.2, 0.0, 0.1, -0.0, 9.1, 0.4, 0.4),
    ("hammer-human", 3.6, 1.0, 0.0, 0.1, 0.5, 2.1, 1.2, 0.4),
    ("relocate-human", 1.3, 0.2, 0.0, 0.1, 0.5, 2.1, -0.0, None),
    ("pen-human", 65.0, 2.1, 32.5, 1.5, 68.9, 55.8, 12.3, 0.4),
    ("door-cloned", 3.6, 0.3, 0.0, 0.1, 0.0, 3.5, 0.0, 0.2),
    ("hammer-cloned", 2.7, 1.5, 0.1, 0.1, 0.4, 5.7, 0.4, 0.3),
    ("pen-cloned", 48.7, 3.2, 46.5, 3.5, 44.0, 40.3, 28.0, 0.1),
    ("door-expert", 105.5, 0.2, 104.7, 0.3, 99.0, None, 102.9, 0.3),
    ("hammer-expert", 128.3, 1.1, 123.5, 3.1, 114.9, None, 39.0, 0.3),
    ("relocate-expert", 109.8, 0.2, 94.4, 2.7, 41.6, None, 91.5, None),
    ("pen-expert", 111.7, 2.6, 126.7, 0.3, 114.9, None, 111.0, 0.3),
    ("walker2d-random", 6.2, 4.7, 3.9, 2.5, 4.9, 7.0, 1.5, 0.5),
    ("hopper-random", 11.1, 1.0, 9.8, 0.1, 10.6, 10.8, 10.2, 0.7),
    ("halfcheetah-random", 16.4, 3.6, 0.0, 0.1, 2.2, 35.4, 2.5, 0.6),
    ("walker2d-medium", 74.0, 1.2, 73.0, 1.0, 53.1, 79.2, 17.4, 0.4),
    ("hopper-medium", 56.6, 2.3, 58.2, 1.0, 54.5, 58.0, 35.9, 0.5),
    ("halfcheetah-medium", 47.4, 0.2, 42.6, 1.2, 40.7, 44.4, 37.4, 0.4),
)


def _paper_task(row: tuple) -> Task:
    name, vem, vem_std, bail, bail_std, bcq, cql, awr, expectile = row
    family = next(family for family in _FAMILIES if name == family or name.startswith(f"{family}-"))
    scores = {
        "vem": PaperScore(vem, vem_std),
        "bail": PaperScore(bail, bail_std),
        "bcq": PaperScore(bcq),
        "awr": PaperScore(awr),
    }
    if cql is not None:
        scores["cql"] = PaperScore(cql)
    return Task(name, *_FAMILIES[family], D4RL_REFERENCES, MappingProxyType(scores), expectile)


TASKS: Mapping[str, Task] = MappingProxyType(
    {row[0]: _paper_task(row) for row in _PAPER_TABLE}
    | {
        name: Task(name, *facts, BUILT_IN_REFERENCES)
        for name, facts in _FAMILIES.items()
        if name.startswith("pointmaze-")
    }
)
"""Task name → Task: the 23 datasets of the paper, then the built-in PointMazes."""

_D4RL_FILES = {
    f"ant-maze-{maze}-noisy-multistart-{starts}-multigoal-{goals}-sparse{version}": name
    for name, maze, starts, goals in (
        ("antmaze-umaze", "u-maze", "false", "false"),
        ("antmaze-umaze-diverse", "u-maze", "true", "true"),
        ("antmaze-medium-play", "big-maze", "true", "false"),
        ("antmaze-medium-diverse", "big-maze", "true", "true"),
        ("antmaze-large-play", "hardest-maze", "true", "false"),
        ("antmaze-large-diverse", "hardest-maze", "true", "true"),
    )
    for version in ("", "-fixed")
} | {
    f"{hand}{suffix}": f"{hand}-{kind}"
    for hand in ("door", "hammer", "relocate", "pen")
    for suffix, kind in (
        ("-v0-demos-clipped", "human"),
        ("-demos-v0-bc-combined", "cloned"),
        ("-v0-expert-clipped", "expert"),
    )
    if f"{hand}-{kind}" in TASKS
}
