"""Every benchmark task as data (environment, sizes, limits, reference scores), and which task a dataset is of.

score = 100·(R − minimum)/(maximum − minimum), with R the undiscounted return of an episode.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from vem.errors import DataError, SettingsError

if TYPE_CHECKING:
    import numpy as np


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
    observation_size: int
    """Numbers in one observation."""
    action_size: int
    """Numbers in one action."""
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

    @property
    def family(self) -> str:
        """The family whose settings apply: ``antmaze`` (with the built-in mazes), ``adroit`` or ``mujoco``."""
        return next(family for start, family in _SETTINGS_FAMILIES.items() if self.environment.startswith(start))


class HasReferences(Protocol):
    """A task, or anything else that knows the returns that score 0 and 100."""

    @property
    def minimum(self) -> float: ...  # noqa: D102
    @property
    def maximum(self) -> float: ...  # noqa: D102


def normalized_score(references: HasReferences, returns: Returns) -> Returns:
    """100·(R − minimum)/(maximum − minimum), elementwise."""
    return 100.0 * (returns - references.minimum) / (references.maximum - references.minimum)


def find_task(name: str) -> Task | None:
    """Return the task that a dataset's name means, or None.

    Accepts the D4RL name with or without ``-v0``, ``-v1``, ``-v2``, and the names of D4RL's own HDF5 files,
    in any case and with ``_`` for ``-``. Minari ids (``D4RL/door/human-v2``) are other tasks, not found.
    """
    text = name.strip().lower()
    stem = re.sub(r"\.(hdf5|h5)$", "", text)
    if stem != text:
        stem = re.split(r"[/\\]", stem)[-1]
    plain = stem.replace("_", "-")
    return TASKS.get(_NAMES.get(plain, re.sub(r"-v[0-2]$", "", plain)))


def d4rl_file(name: str) -> str:
    """What D4RL calls the file of one of its datasets (version 0); without that, a file of the dataset's own name."""
    return f"{_D4RL_FILES.get(name, name.replace('-', '_'))}.hdf5"


def task_of_environment(environment: str) -> Task | None:
    """Return the task of this Gymnasium id with what all its datasets share: sizes, limits, references; or None."""
    return next((task for task in ENVIRONMENT_TASKS.values() if task.environment == environment), None)


class Resolved(NamedTuple):
    """Which task a dataset is of, and what said so."""

    task: Task | None
    source: str | None
    """``given`` by the user, the file's ``attributes``, or its ``name``; None without a task."""
    environment: str | None
    """Gymnasium id for evaluation; the user or the file may name one that belongs to no task."""
    warning: str | None = None
    """One sentence on what was said and is not used."""


def resolve_task(
    *,
    task: str | None = None,
    environment: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    name: str = "",
    source: str = "",
    sizes: tuple[int, int] | None = None,
) -> Resolved:
    """Decide which task a dataset is of: what the user says, else what the file's attributes say, else its name.

    ``task`` and ``environment`` are the user's words, ``metadata`` the file's attributes, ``sizes`` the data's
    observation and action size, None if unknown. A user's word that contradicts the sizes is a DataError; an attribute
    or a name that does is not used, with a warning. An environment (``antmaze-medium``) does not say which of its
    datasets it is: ``name`` does, or else the task has no scores of the paper. Minari data are other tasks and have
    one here only if the user says so.
    """
    named = find_task(name)
    if task is not None:
        given = task_named(task)
        if given is None:
            raise SettingsError(f"task={task!r} is unknown; {_suggestion(task)}")
        _require_fit(f"task={task!r}", given, sizes)
        return Resolved(given, "given", environment or given.environment)
    if environment is not None and (given := task_named(environment)) is not None:
        _require_fit(f"environment={environment!r}", given, sizes)
        return Resolved(_dataset_of(given, named), "given", given.environment)
    if environment is not None or source.startswith("minari:"):
        return Resolved(None, None, environment)

    unused: list[str] = []
    other = None
    for key in (*_DATASET_ATTRIBUTES, *_ENVIRONMENT_ATTRIBUTES):
        value = (metadata or {}).get(key)
        found = task_named(value) if isinstance(value, str) else None
        if found is None:
            other = value if key == "environment" and isinstance(value, str) and value else other
        elif problem := _misfit(found, sizes):
            unused.append(f"the file's attribute {key} = '{value}' {problem}")
        else:
            chosen = _dataset_of(found, named) if key in _ENVIRONMENT_ATTRIBUTES else found
            if named is not None and named.environment != chosen.environment:
                unused.append(f"the name '{name}' contradicts the file's attribute {key} = '{value}'")
            said_by = "attributes" if chosen is found else "name"
            return Resolved(chosen, said_by, chosen.environment, _unused(unused))
    if other is not None or named is None:
        return Resolved(None, None, other, _unused(unused))
    if problem := _misfit(named, sizes):
        return Resolved(None, None, None, _unused([*unused, f"the name '{name}' {problem}"]))
    return Resolved(named, "name", named.environment, _unused(unused))


class HasTask(Protocol):
    """Facts of a dataset that know the name of their task, such as ``DataInfo``."""

    @property
    def task(self) -> str | None: ...  # noqa: D102


def task_of(facts: HasTask) -> Task | None:
    """Return the task that was resolved for a dataset."""
    return task_named(facts.task or "")


_DATASET_ATTRIBUTES = ("dataset", "dataset_name", "dataset_id", "name")
_ENVIRONMENT_ATTRIBUTES = ("environment", "env", "env_name", "env_id")


def task_named(text: str) -> Task | None:
    """The task of a dataset's name, of an environment's name (``door``, ``antmaze-medium-v0``) or of a Gymnasium id."""
    family = re.sub(r"-v[0-2]$", "", text.strip().lower().replace("_", "-"))
    return find_task(text) or ENVIRONMENT_TASKS.get(family) or task_of_environment(text)


def _dataset_of(task: Task, named: Task | None) -> Task:
    """The named dataset, if ``task`` means only the environment and it is one of that environment."""
    is_family = task.name in ENVIRONMENT_TASKS
    return named if is_family and named is not None and named.environment == task.environment else task


def _misfit(task: Task, sizes: tuple[int, int] | None) -> str | None:
    """What is wrong if the data's sizes are not the task's; None if they are, or are not known."""
    if sizes is None or sizes == (task.observation_size, task.action_size):
        return None
    return (
        f"means observations of {task.observation_size} and actions of {task.action_size} numbers, "
        f"and the data has {sizes[0]} and {sizes[1]}"
    )


def _require_fit(said: str, task: Task, sizes: tuple[int, int] | None) -> None:
    if problem := _misfit(task, sizes):
        raise DataError(f"{said} {problem}; leave it out, or check the columns.")


def _unused(unused: list[str]) -> str | None:
    if not unused:
        return None
    what = "it is" if len(unused) == 1 else "they are"
    return f"{'; '.join(unused)}: {what} not used. Say what the data is with task= (--task on the command line)."


def _suggestion(text: str) -> str:
    known = [*TASKS, *ENVIRONMENT_TASKS]
    close = difflib.get_close_matches(text.lower(), known, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(dict.fromkeys(known))}."


# environment, observation size, action size, max_steps, minimum, maximum
_FAMILIES = {
    "antmaze-umaze": ("vem/AntMaze-UMaze-v0", 29, 8, 700, 0.0, 1.0),
    "antmaze-medium": ("vem/AntMaze-Medium-v0", 29, 8, 1000, 0.0, 1.0),
    "antmaze-large": ("vem/AntMaze-Large-v0", 29, 8, 1000, 0.0, 1.0),
    "door": ("vem/AdroitDoor-v0", 39, 28, 200, -56.512833, 2880.5693087298737),
    "hammer": ("vem/AdroitHammer-v0", 46, 26, 200, -274.856578, 12794.134825156867),
    "relocate": ("vem/AdroitRelocate-v0", 39, 30, 200, -6.425911, 4233.877797728884),
    "pen": ("vem/AdroitPen-v0", 45, 24, 100, 96.262799, 3076.8331017826877),
    "walker2d": ("vem/Walker2d-v0", 17, 6, 1000, 1.629008, 4592.3),
    "hopper": ("vem/Hopper-v0", 11, 3, 1000, -20.272305, 3234.3),
    "halfcheetah": ("vem/HalfCheetah-v0", 17, 6, 1000, -280.178953, 12135.0),
    "pointmaze-umaze": ("vem/PointMaze-UMaze-v0", 4, 2, 120, 0.0, 1.0),
    "pointmaze-medium": ("vem/PointMaze-Medium-v0", 4, 2, 250, 0.0, 1.0),
    "pointmaze-large": ("vem/PointMaze-Large-v0", 4, 2, 350, 0.0, 1.0),
    "pointmaze-umaze-discrete": ("vem/PointMaze-UMaze-Discrete-v0", 4, 1, 120, 0.0, 1.0),
    "pointmaze-medium-discrete": ("vem/PointMaze-Medium-Discrete-v0", 4, 1, 250, 0.0, 1.0),
    "pointmaze-large-discrete": ("vem/PointMaze-Large-Discrete-v0", 4, 1, 350, 0.0, 1.0),
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


def _paper_task(name: str, vem: float, vem_std: float, bail: float, bail_std: float, *others: Any) -> Task:
    *means, expectile = others
    scores = {"vem": PaperScore(vem, vem_std), "bail": PaperScore(bail, bail_std)}
    scores |= {n: PaperScore(mean) for n, mean in zip(("bcq", "cql", "awr"), means, strict=True) if mean is not None}
    family = next(family for family in _FAMILIES if name == family or name.startswith(f"{family}-"))
    return Task(name, *_FAMILIES[family], D4RL_REFERENCES, MappingProxyType(scores), expectile)


TASKS: Mapping[str, Task] = MappingProxyType(
    {row[0]: _paper_task(*row) for row in _PAPER_TABLE}
    | {
        name: Task(name, *facts, BUILT_IN_REFERENCES)
        for name, facts in _FAMILIES.items()
        if name.startswith("pointmaze-")
    }
)
"""Task name → Task: the 23 datasets of the paper, then the built-in PointMazes."""

ENVIRONMENT_TASKS = {name: TASKS.get(name) or Task(name, *facts, D4RL_REFERENCES) for name, facts in _FAMILIES.items()}
"""Name of an environment → what all its datasets share; the paper's numbers only where it is a dataset's name too.

``vem.envs`` registers these: those of mazes are made by ``vem.envs.mazes``, all others by ``vem.envs.robots``.
"""

_D4RL_FILES = {
    name: f"Ant_maze_{maze}_noisy_multistart_{starts}_multigoal_{goals}_sparse"
    for name, maze, starts, goals in (
        ("antmaze-umaze", "u-maze", False, False),
        ("antmaze-umaze-diverse", "u-maze", True, True),
        ("antmaze-medium-play", "big-maze", True, False),
        ("antmaze-medium-diverse", "big-maze", True, True),
        ("antmaze-large-play", "hardest-maze", True, False),
        ("antmaze-large-diverse", "hardest-maze", True, True),
    )
} | {
    f"{hand}-{kind}": f"{hand}{suffix}"
    for hand in ("door", "hammer", "relocate", "pen")
    for suffix, kind in (
        ("-v0_demos_clipped", "human"),
        ("-demos-v0-bc-combined", "cloned"),
        ("-v0_expert_clipped", "expert"),
    )
    if f"{hand}-{kind}" in TASKS
}
"""Task → what D4RL calls its file, without suffix."""

_NAMES = {
    f"{file.lower().replace('_', '-')}{version}": name
    for name, file in _D4RL_FILES.items()
    for version in ("", "-fixed")
}

_SETTINGS_FAMILIES = {"vem/AntMaze": "antmaze", "vem/PointMaze": "antmaze", "vem/Adroit": "adroit", "vem/": "mujoco"}
"""Start of an environment's id → its family. The built-in mazes go with AntMaze: sparse goals."""
