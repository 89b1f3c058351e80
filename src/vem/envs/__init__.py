"""The benchmark's environments on today's Gymnasium and MuJoCo.

Importing this package registers their ids with Gymnasium, if it is installed; MuJoCo is loaded when the first one is
made.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vem.errors import SimulatorError, is_installed, require
from vem.tasks import ENVIRONMENT_TASKS, TASKS, find_task

if TYPE_CHECKING:
    import gymnasium


# The simulator packages, imported on first use and without their notices.


def import_robotics() -> ModuleType:
    """Return the package ``gymnasium_robotics``; SimulatorError where it or MuJoCo cannot be loaded."""
    require_mujoco()
    try:
        # Some releases print a notice about their dense Adroit rewards, which vem.envs.robots puts right.
        with contextlib.redirect_stderr(io.StringIO()):
            return importlib.import_module("gymnasium_robotics")
    except (ImportError, OSError) as error:
        raise SimulatorError(
            f"gymnasium-robotics cannot be loaded ({error}): it holds the mazes and the Adroit hand; "
            "install it with `pip install 'vem[envs]'`."
        ) from error


def require_mujoco() -> None:
    """Raise SimulatorError where MuJoCo cannot be loaded."""
    try:
        importlib.import_module("mujoco")
    except (ImportError, OSError) as error:
        raise SimulatorError(
            f"MuJoCo cannot be loaded ({error}): environments need it; install it with `pip install 'vem[envs]'`. "
            "Training, and reports of runs without evaluation, work without it."
        ) from error


# The registered ids, and ``make``: an environment by id or by task name.


def environment_ids() -> list[str]:
    """Return the ids of vem's environments."""
    return [task.environment for task in ENVIRONMENT_TASKS.values()]


def register() -> None:
    """Tell Gymnasium vem's ids, as importing ``vem.envs`` does; the entry points are strings, so nothing is loaded."""
    import gymnasium

    for name, task in ENVIRONMENT_TASKS.items():
        if task.environment not in gymnasium.registry:
            gymnasium.register(
                task.environment,
                f"vem.envs.{'mazes' if 'maze' in name else 'robots'}:create",
                max_episode_steps=task.max_steps,
                kwargs={"name": name},
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
    if environment in environment_ids():
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

    known = {name.lower(): name for name in (*gymnasium.registry, *TASKS)}
    wanted = environment.lower()
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.6)
    close += [key for key in difflib.get_close_matches(f"vem/{wanted}", known, n=2, cutoff=0.6) if key not in close]
    hint = f"Did you mean {', '.join(known[key] for key in close)}?" if close else "See `vem.envs.environment_ids()`."
    return f"No environment or benchmark task is called {environment!r}. {hint}"


if is_installed("gymnasium"):
    register()
