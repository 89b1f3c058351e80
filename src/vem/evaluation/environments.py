"""Where and by which reference scores a run is evaluated: the environment of its data."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from vem.errors import SimulatorError
from vem.evaluation.rollout import Environment
from vem.tasks import find_task, task_named, task_of_environment

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    from vem.data.dataset import DataInfo
    from vem.training.run import Run


NAME_ONE = "give vem evaluate an environment (--env ID), or say in training which task it is (--task NAME)"


PACKAGES = ("gymnasium", "gymnasium_robotics", "vem")
"""Whose environments a file may name with arguments of its own; others only as they are registered."""


class References(NamedTuple):
    """The returns that score 0 and 100, and where they come from."""

    minimum: float
    maximum: float
    source: str


@dataclass(frozen=True)
class RunTarget:
    """What evaluating a run needs to know about it."""

    files: Run
    environment: Environment
    environment_name: str
    references: References | None
    trials: dict[str, dict[str, float]]
    """Name of each trial → its values of the swept settings."""
    steps: int
    is_own: bool = True
    """Whether the environment is that of the run's data."""

    @property
    def other_environment(self) -> str | None:
        """The environment's name, or None if it is the data's own."""
        return None if self.is_own else self.environment_name


@dataclass(frozen=True)
class EnvironmentSpec:
    """Makes the environment that a Minari dataset describes: an id with its arguments."""

    text: str

    def __call__(self) -> gymnasium.Env:
        """The environment, with vem's and gymnasium-robotics' ids known."""
        import gymnasium
        from gymnasium.envs.registration import EnvSpec

        # Importing vem.envs registers its ids.
        from vem.envs import import_robotics

        import_robotics()
        try:
            spec = EnvSpec.from_json(self.text)
            _require_known(spec)
            return gymnasium.make(spec, disable_env_checker=True)
        except SimulatorError:
            raise
        except Exception as error:  # whatever the file's arguments lead to
            raise SimulatorError(
                f"the Minari dataset's environment cannot be made: {error}; evaluate in another (--env ID)"
            ) from error


def _require_known(spec: EnvSpec) -> None:
    """ValueError unless a specification from a file names classes of environments and wrappers that are known here.

    An entry point can be any function and its arguments anything, so that making one from a file would run commands.
    """
    import gymnasium

    registered = [known for known in gymnasium.registry.values() if known.entry_point == spec.entry_point]
    is_ours = any(str(spec.entry_point).startswith(f"{package}.") for package in PACKAGES)
    arguments = _arguments(spec)
    if not isinstance(spec.entry_point, str) or not any(
        is_ours or (known.id, _arguments(known)) == (spec.id, arguments) for known in registered
    ):
        raise ValueError(f"its file asks for {spec.entry_point!r}, which is no registered environment")
    for wrapper in spec.additional_wrappers:
        if not _is_wrapper(str(wrapper.entry_point)):
            raise ValueError(f"its file asks for the wrapper {wrapper.entry_point!r}, which is none of Gymnasium's")


def _is_wrapper(entry_point: str) -> bool:
    """Whether this is a wrapper of Gymnasium or vem that writes no files."""
    import gymnasium

    module, _, name = entry_point.partition(":")
    place = importlib.import_module(module) if module.startswith("vem.envs.") else gymnasium.wrappers
    kind = getattr(place, name, None)
    is_wrapper = isinstance(kind, type) and issubclass(kind, gymnasium.Wrapper) and kind.__module__ == module
    return is_wrapper and kind is not gymnasium.wrappers.RecordVideo


def _arguments(spec: EnvSpec) -> dict[str, Any]:
    return {name: value for name, value in spec.kwargs.items() if name != "render_mode"}


@dataclass(frozen=True)
class GoalEnvironment:
    """Makes a maze whose goal is fixed: the one that a trajectory's rewards were labeled with."""

    name: str
    goal: tuple[float, float]

    def __call__(self) -> gymnasium.Env:
        """The environment."""
        from vem import envs

        return envs.make(self.name, goal=self.goal)


def find_target(directory: str | Path, environment: Environment | None = None) -> RunTarget:
    """How to evaluate the run in ``directory``: in its data's environment, or in ``environment``.

    Where the data name no environment, a given one is taken for theirs.
    """
    # Worker processes import this module and must not load JAX with the runs.
    from vem.training.run import Run

    files = Run(directory)
    config, data = files.config, files.facts.info
    if callable(environment):
        found = environment, *environment_references(environment)
    else:
        found = find_environment(data, environment)
    own = None if environment is None else own_environment(data)
    trials = {trial.name: trial.swept for trial in config.trials}
    return RunTarget(files, *found, trials, config.steps, own is None or own == found[1])


def own_environment(data: DataInfo) -> str | None:
    """The name of the environment that data is evaluated in, or None if it names none."""
    try:
        return find_environment(data)[1]
    except SimulatorError:
        return None


def named_environment(name: object) -> str | None:
    """The name of an environment that a file gives; SimulatorError where making it would import a module.

    A module that this process has imported, and whose id is known since, is no news.
    """
    if name is None or name == "":
        return None
    if not isinstance(name, str):
        raise SimulatorError(f"the environment's name is {str(name)[:80]!r}, which is no text; {NAME_ONE}")
    module, separator, identifier = name.partition(":")
    if separator and not (module in sys.modules and _is_registered(identifier)):
        raise SimulatorError(
            f"the environment {name!r} is named by a file, which must not have its module imported; if you trust it, "
            f"name it yourself: --env {name}"
        )
    return name


def _is_registered(identifier: str) -> bool:
    import gymnasium

    return identifier in gymnasium.registry


def environment_references(environment: Environment) -> tuple[str, References | None]:
    """The name of an environment and its reference scores, where known."""
    if callable(environment):
        return getattr(environment, "__qualname__", type(environment).__qualname__), None
    task = find_task(environment) or task_of_environment(environment)
    if task is None:
        return environment, None
    return task.environment, References(task.minimum, task.maximum, task.references)


def find_environment(data: DataInfo, environment: str | None = None) -> tuple[Environment, str, References | None]:
    """The environment to evaluate in, its name and the reference scores, from the facts of a dataset (DataInfo).

    A file that says which one goal its AntMaze rewards were labeled with is evaluated at that goal; otherwise the goal
    is drawn anew in every episode. Minari data has its own environment and references; they are not D4RL's, even where
    the names look alike.
    """
    name = environment or named_environment(data.environment)
    if name is None and data.source.startswith("minari:"):
        return _minari_environment(data)
    task = task_named((data.task or "") if name is None else name)
    if task is not None:
        name = task.environment
    if name is None:
        raise SimulatorError(f"the data {data.name} names no environment; {NAME_ONE}")
    references = References(task.minimum, task.maximum, task.references) if task else None
    goal = data.metadata.get("goal", data.metadata.get("infos/goal"))
    if environment is None and name.startswith("vem/AntMaze") and _is_place(goal):
        x, y = map(float, goal)
        return GoalEnvironment(name, (x, y)), f"{name} with its goal at ({x:.2f}, {y:.2f})", references
    return name, name, references


def _is_place(value: Any) -> TypeGuard[Sequence[float]]:
    """Whether this is an x and a y."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(part, int | float) for part in value)


def _minari_environment(data: DataInfo) -> tuple[Environment, str, References | None]:
    dataset_id, metadata = data.source.removeprefix("minari:"), data.metadata
    name = named_environment(metadata.get("environment"))
    if not name:
        raise SimulatorError(f"the Minari dataset {dataset_id} names no environment; {NAME_ONE}")
    low, high = metadata.get("ref_min_score"), metadata.get("ref_max_score")
    references = None if low is None or high is None else References(low, high, f"Minari {dataset_id}")
    try:
        from vem.data.minari import stored_metadata

        stored = stored_metadata(dataset_id)
    except (ImportError, FileNotFoundError):
        # The id alone still makes the environment, though without the dataset's arguments.
        return name, name, references
    text = stored.get("eval_env_spec") or stored.get("env_spec")
    return (EnvironmentSpec(text) if isinstance(text, str) else name), name, references
