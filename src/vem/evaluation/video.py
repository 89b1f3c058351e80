"""Videos of policies: the first evaluated episode of each, through Gymnasium's own recorder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vem.errors import SimulatorError, require
from vem.evaluation.rollout import Environment, make_environment, run_episode
from vem.evaluation.workers import episode_seed
from vem.policy import Policy

if TYPE_CHECKING:
    import gymnasium


def record_videos(
    environment: Environment,
    policies: Mapping[str, Policy],
    directory: str | Path,
    seed: int = 0,
    is_stochastic: bool | None = None,
) -> list[Path]:
    """Record episode 0 of each policy as ``DIRECTORY/NAME-episode-0.mp4``; returns the files.

    It is the episode that an evaluation with this seed begins with. ``is_stochastic`` is that of ``Evaluator``.
    """
    require("gymnasium", "moviepy")
    from gymnasium.wrappers import RecordVideo

    if Path(directory).exists() and not Path(directory).is_dir():
        raise SimulatorError(f"--video {directory} is a file; give a directory")
    drawn = _drawn_environment(environment)
    files = []
    try:
        for name, policy in policies.items():
            recorder = RecordVideo(drawn, str(directory), episode_trigger=lambda episode: True, name_prefix=name)
            is_sampled = policy.is_drawn if is_stochastic is None else is_stochastic
            run_episode(recorder, policy, episode_seed(seed, 0), is_stochastic=is_sampled)
            recorder.stop_recording()
            files.append(Path(directory) / f"{name}-episode-0.mp4")
    finally:
        drawn.close()
    return files


def _drawn_environment(environment: Environment) -> gymnasium.Env:
    """The environment with pictures as arrays; SimulatorError where it cannot be drawn."""
    import gymnasium

    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")  # without a screen the other way to OpenGL fails
    env = make_environment(environment)
    try:
        if env.render_mode != "rgb_array" and env.spec is not None:
            env.close()
            env = gymnasium.make(env.spec, render_mode="rgb_array")
        env.reset(seed=0)
        is_drawn = env.render_mode == "rgb_array" and hasattr(env.render(), "shape")
    except Exception as error:
        raise SimulatorError(
            f"the environment cannot be drawn here ({type(error).__name__}: {' '.join(str(error).split())}); MuJoCo "
            "needs OpenGL without a screen: install EGL or OSMesa, and set MUJOCO_GL=egl or MUJOCO_GL=osmesa"
        ) from error
    if not is_drawn:
        raise SimulatorError(
            "the environment draws no pictures: give one that is registered in Gymnasium and has the render mode "
            "rgb_array, or a function that makes it with that mode"
        )
    return env
