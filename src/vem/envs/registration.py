"""The registered ids, and ``make``: an environment by id or by task name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from vem.envs.robotics import import_robotics, require_mujoco
from vem.errors import SimulatorError
from vem.extras import require
from vem.tasks import TASKS, find_task, task_of_environment

if TYPE_CHECKING:
    import gymnasium

# id → entry point, its arguments
_ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "vem/AntMaze-UMaze-v0": ("vem.envs.antmaze:AntMazeEnv", {"maze": "umaze"}),
    "vem/AntMaze-Medium-v0": ("vem.envs.antmaze:AntMazeEnv", {"maze": "medium"}),
    "vem/AntMaze-Large-v0": ("vem.envs.antmaze:AntMazeEnv", {"maze": "large"}),
    "vem/AdroitDoor-v0": ("vem.envs.adroit:make_adroit", {"task": "door"}),
    "vem/AdroitHammer-v0": ("vem.envs.adroit:make_adroit", {"task": "hammer"}),
    "vem/AdroitRelocate-v0": ("vem.envs.adroit:make_adroit", {"task": "relocate"}),
    "vem/AdroitPen-v0": ("vem.envs.adroit:make_adroit", {"task": "pen"}),
    "vem/Hopper-v0": ("vem.envs.locomotion:HopperEnv", {}),
    "vem/Walker2d-v0": ("vem.envs.locomotion:Walker2dEnv", {}),
    "vem/HalfCheetah-v0": ("vem.envs.locomotion:HalfCheetahEnv", {}),
    "vem/PointMaze-UMaze-v0": ("vem.envs.pointmaze:PointMazeEnv", {"maze": "umaze"}),
    "vem/PointMaze-Medium-v0": ("vem.envs.pointmaze:PointMazeEnv", {"maze": "medium"}),
    "vem/PointMaze-Large-v0": ("vem.envs.pointmaze:PointMazeEnv", {"maze": "large"}),
    "vem/PointMaze-UMaze-Discrete-v0": ("vem.envs.pointmaze:DiscretePointMazeEnv", {"maze": "umaze"}),
    "vem/PointMaze-Medium-Discrete-v0": ("vem.envs.pointmaze:DiscretePointMazeEnv", {"maze": "medium"}),
    "vem/PointMaze-Large-Discrete-v0": ("vem.envs.pointmaze:DiscretePointMazeEnv", {"maze": "large"}),
}


def environment_ids() -> list[str]:
    """Return the ids of vem's environments."""
    return list(_ENVIRONMENTS)


def register() -> None:
    """Tell Gymnasium vem's ids, as importing ``vem.envs`` does; the entry points are strings, so nothing is loaded."""
    import gymnasium

    for environment, (entry_point, kwargs) in _ENVIRONMENTS.items():
        task = task_of_environment(environment)
        assert task is not None, f"{environment} has no task in vem.tasks"
        if environment not in gymnasium.registry:
            gymnasium.register(
                environment,
                entry_point,
                max_episode_steps=task.max_steps,
                kwargs=kwargs,
                disable_env_checker=True,
            )


def make(name: str, **kwargs: Any) -> gymnasium.Env:
    """Return the environment of a task (``antmaze-medium-play-v2``) or of any Gymnasium id.

    ``kwargs`` go to ``gymnasium.make``, e.g. ``render_mode="rgb_array"`` or ``max_episode_steps=100``.
    """
    require("gymnasium")
    import gymnasium

    task = find_task(name)
    environment = task.environment if task is not None else name
    if environment in _ENVIRONMENTS:
        require_mujoco()
    elif environment not in gymnasium.registry and ":" not in environment:
        import_robotics()
        if environment not in gymnasium.registry:
            raise SimulatorError(_unknown(environment))
    try:
        return gymnasium.make(environment, **kwargs)
    except (gymnasium.error.Error, ImportError, OSError, TypeError) as error:
        raise SimulatorError(
            f"Environment {environment!r} cannot be made: {error}. "
            "Check its arguments, and that the packages it needs are installed."
        ) from error


def _unknown(environment: str) -> str:
    import gymnasium

    known = {name.lower(): name for name in (*gymnasium.registry, *TASKS, *_ENVIRONMENTS)}
    wanted = environment.lower()
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    close += [key for key in difflib.get_close_matches(f"vem/{wanted}", known, n=2, cutoff=0.6) if key not in close]
    hint = f"Did you mean {', '.join(known[key] for key in close)}?" if close else "See `vem.envs.environment_ids()`."
    return f"No environment or benchmark task is called {environment!r}. {hint}"
