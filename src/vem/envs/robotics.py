"""The simulator packages, imported on first use and without their notices."""

from __future__ import annotations

import contextlib
import importlib
import io
from types import ModuleType

from vem.errors import SimulatorError


def import_robotics() -> ModuleType:
    """Return the package ``gymnasium_robotics``; SimulatorError where it or MuJoCo cannot be loaded."""
    require_mujoco()
    try:
        # Some releases print a notice about their dense Adroit rewards, which vem.envs.adroit puts right.
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
