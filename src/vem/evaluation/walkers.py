"""Policies that walk an ant in a direction, from files: the lower half of the controller behind AntMaze data.

A walker maps the ant's observation (29 numbers) and the way to the next waypoint (2 numbers, in meters) to an action.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vem.errors import RunError
from vem.extras import require
from vem.policy import Policy, load_policy

OBSERVATION_SIZE, ACTION_SIZE = 29, 8
KINDS = (
    "give the file of a guided policy that was trained on AntMaze data (RUN/policies/seed0.safetensors), or an ONNX "
    f"file with one input of {OBSERVATION_SIZE} + 2 numbers and {ACTION_SIZE} numbers as output"
)

Walk = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observation, waypoint − position in meters) → action."""


class Walker(NamedTuple):
    """What walks, and where it comes from."""

    walk: Walk
    name: str
    """For the recipe of what it records."""
    fingerprint: str
    """Of its file."""


def load_walker(path: str | Path) -> Walker:
    """The walker in a file; RunError if the file holds none."""
    path = Path(path)
    if not path.is_file():
        found = "is a directory" if path.is_dir() else "does not exist"
        raise RunError(f"--walker {path} {found}; {KINDS}")
    loaders = {".safetensors": _guided, ".onnx": _onnx}
    if path.suffix.lower() not in loaders:
        raise RunError(f"--walker {path} is no file of a policy that walks; {KINDS}")
    walk = loaders[path.suffix.lower()](path)
    return Walker(walk, path.name, hashlib.sha256(path.read_bytes()).hexdigest())


def _guided(path: Path) -> Walk:
    policy = load_policy(path)
    if not policy.has_guide:
        raise RunError(f"--walker {path} is a policy of kind {policy.kind}, which takes no direction; {KINDS}")
    sizes = (policy.observation_size, policy.action_size)
    if sizes != (OBSERVATION_SIZE, ACTION_SIZE):
        raise RunError(f"--walker {path} takes {sizes[0]} numbers and gives {sizes[1]}, so it moves no ant; {KINDS}")
    return executor_walk(policy)


def executor_walk(policy: Policy) -> Walk:
    """A guided policy's executor, asked for a usual move in the waypoint's direction; the guide is not used."""
    length = float(np.hypot(*policy.move_unit[:2]))
    if length <= 0:
        raise RunError(f"the moves of this policy leave out x and y, so that it takes no direction; {KINDS}")

    def walk(observation: np.ndarray, way: np.ndarray) -> np.ndarray:
        move = np.zeros(policy.observation_size, np.float32)
        move[:2] = way * (length / max(float(np.hypot(*way)), 1e-6))
        return policy.execute(np.asarray(observation, np.float32), move)

    return walk


def _onnx(path: Path) -> Walk:
    require("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime has errors of its own for each fault.
        raise RunError(f"--walker {path} cannot be read as ONNX ({_first_line(error)}); {KINDS}") from None
    inputs, size = session.get_inputs(), OBSERVATION_SIZE + 2
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise RunError(f"--walker {path} has {len(inputs)} inputs ({names}) instead of one; {KINDS}")
    if not session.get_outputs():
        raise RunError(f"--walker {path} has no output; {KINDS}")
    kind = np.float64 if inputs[0].type == "tensor(double)" else np.float32
    output = session.get_outputs()[0].name

    def walk(observation: np.ndarray, way: np.ndarray) -> np.ndarray:
        given = np.concatenate([observation, way]).astype(kind)[None]
        action = np.asarray(session.run([output], {inputs[0].name: given})[0], np.float32).reshape(-1)
        if not np.isfinite(action).all():
            raise RunError(f"--walker {path} gives NaN or infinity as an action; use another one")
        return action

    try:
        action: Any = walk(np.zeros(OBSERVATION_SIZE), np.ones(2))
    except RunError:
        raise
    except Exception as error:
        raise RunError(f"--walker {path} takes other inputs than {size} numbers ({_first_line(error)})") from None
    if action.shape != (ACTION_SIZE,):
        raise RunError(f"--walker {path} gives {action.size} numbers instead of {ACTION_SIZE}; {KINDS}")
    return walk


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
