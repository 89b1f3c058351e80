"""The benchmark's ``*-random`` data: roll-outs of a Gaussian policy that was never trained, as D4RL describes them."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vem.collect.recorder import COLUMNS, Recipe, RecordEpisode, Report, rolling_out, write_trajectory
from vem.data.dataset import Dataset
from vem.data.load import load
from vem.errors import DataError, RunError, require
from vem.policy import Policy, load_policy
from vem.tasks import TASKS, Task, find_task, task_of
from vem.training.request import make_request
from vem.training.run import Run

HIDDEN = (256, 256)
LAST_WEIGHT = 1e-3
"""Bound of the last layer's fresh weights: means and log σ start near 0."""
RECIPE = "roll-outs of a randomly initialized Gaussian policy, squashed by tanh; D4RL's description of random data"
RANDOM_TASKS = tuple(name for name in TASKS if name.endswith("-random"))
DEFAULT_NUM_ROWS = 1_000_000


class RandomGaussianPolicy:
    """tanh of a Normal whose mean and log σ are networks with fresh weights; the seed decides the weights."""

    def __init__(self, observation_size: int, action_size: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 2**31])
        sizes = (observation_size, *HIDDEN)
        self.layers = [
            (rng.uniform(-1, 1, (fan_in, fan_out)) / np.sqrt(fan_in), np.full(fan_out, 0.1))
            for fan_in, fan_out in pairwise(sizes)
        ]
        self.head = rng.uniform(-LAST_WEIGHT, LAST_WEIGHT, (HIDDEN[-1] + 1, 2 * action_size))

    def act(self, observation: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """An action drawn from the policy."""
        hidden = np.asarray(observation, np.float64)
        for weight, bias in self.layers:
            hidden = np.maximum(hidden @ weight + bias, 0)
        mean, log_std = np.split(hidden @ self.head[:-1] + self.head[-1], 2)
        return np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * rng.standard_normal(mean.shape))


def write_random(
    path: str | Path,
    name: str,
    num_rows: int = DEFAULT_NUM_ROWS,
    seed: int = 0,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Record ``name`` (``hopper-random``, …) and return the file's path; equal arguments give equal rows."""
    task = random_task(name)
    recipe = Recipe(task, RECIPE, num_rows, seed)
    recipe.check()
    policy = RandomGaussianPolicy(task.observation_size, task.action_size, seed)
    return write_trajectory(path, recipe, rolling_out(policy.act), report=report)


def random_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in RANDOM_TASKS:
        raise DataError(f"{name!r} is not data of a random policy: expected one of {', '.join(RANDOM_TASKS)}.")
    return task


# The benchmark's ``*-cloned`` data from its ``*-human`` data, by D4RL's recipe.


CLONED_TASKS = tuple(name for name in TASKS if name.endswith("-cloned"))
CLONED_DEFAULT_NUM_ROWS = 500_000
CLONING_STEPS = 12_000


def write_cloned(
    path: str | Path,
    name: str,
    source: str | Path | None = None,
    num_rows: int = CLONED_DEFAULT_NUM_ROWS,
    seed: int = 0,
    data_dir: str | None = None,
    steps: int = CLONING_STEPS,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Make ``name`` (``door-cloned``, …) and return the file's path; equal arguments give equal rows on one machine.

    ``source`` is the demonstrations' file, by default the benchmark's ``*-human`` data of the same task.
    """
    task = cloned_task(name)
    human = task.name.removesuffix("-cloned") + "-human"
    dataset = load(human if source is None else source, data_dir=data_dir)
    known = task_of(dataset.info)
    if known is None or known.environment != task.environment:
        found = known.name if known else dataset.info.name
        raise DataError(f"{task.name} is made from demonstrations of {human}, not from {found}; give --from FILE.")
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "clone", make_request(human, "bc", seed=seed, steps=steps), dataset).train()
        policy = run.policy
    parts = f"half of the rows {dataset.num_episodes} demonstrations, repeated; half roll-outs of their clone"
    text = f"{parts} ({steps:,} steps of behavior cloning); D4RL's recipe"
    recipe = Recipe(task, text, num_rows - num_rows // 2, seed, dataset.fingerprint())
    return write_trajectory(path, recipe, rolling_out(policy.act), repeat(dataset, num_rows // 2), report=report)


def repeat(dataset: Dataset, num_rows: int) -> dict[str, np.ndarray]:
    """The first ``num_rows`` rows of the trajectories put one after another, again and again, as D4RL's columns."""
    drawn = np.flatnonzero(dataset.valid)
    is_last = ~dataset.valid[drawn + 1]
    count = max(1, -(-num_rows // len(drawn)))
    columns = {
        "observations": dataset.observations[drawn],
        "actions": dataset.actions[drawn],
        "rewards": dataset.rewards[drawn],
        "terminals": dataset.terminal[drawn],
        "timeouts": is_last & ~dataset.terminal[drawn],
    }
    rows = {name: np.concatenate([values] * count)[:num_rows] for name, values in columns.items()}
    if num_rows:
        rows["timeouts"][-1] = not rows["terminals"][-1]
    return rows


def cloned_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in CLONED_TASKS:
        raise DataError(f"{name!r} is not cloned data: expected one of {', '.join(CLONED_TASKS)}.")
    return task


# Policies that walk an ant in a direction, from files: the lower half of the controller behind AntMaze data.


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
    length = float(np.hypot(*policy.guide.unit[:2]))
    if length <= 0:
        raise RunError(f"the moves of this policy leave out x and y, so that it takes no direction; {KINDS}")

    def walk(observation: np.ndarray, way: np.ndarray) -> np.ndarray:
        move = np.zeros(policy.observation_size, np.float32)
        move[:2] = way * (length / max(float(np.hypot(*way)), 1e-6))
        return policy.guide.execute(np.asarray(observation, np.float32), move)

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


# AntMaze data by D4RL's recipe: a controller leads a walking ant from waypoint to waypoint through the maze.


WALKED_TASKS = tuple(name for name in TASKS if name.startswith("antmaze-"))
WALKED_DEFAULT_NUM_ROWS = 1_000_000
ACTION_NOISE = 0.2
WAYPOINT_NOISE = 1.0
"""A waypoint is the cell's center + U(0, 1) in each axis, and so is a start."""
TARGETS = {
    "medium": ((2, 6), (5, 1), (6, 5)),
    "large": ((1, 6), (3, 5), (3, 10), (5, 2), (7, 4), (7, 6), (7, 9)),
}
"""D4RL's hand-picked target cells (row, column) of the ``play`` datasets."""


def write_walked(
    path: str | Path,
    name: str,
    walker: str | Path,
    num_rows: int = WALKED_DEFAULT_NUM_ROWS,
    seed: int = 0,
    report: Report = lambda what, done, total: None,
) -> Path:
    """Record ``name`` (``antmaze-medium-play``, …) and return the file's path; equal arguments give equal rows.

    ``walker`` is the file of a policy that walks in a direction (``vem.collect.benchmark``).
    """
    task = walked_task(name)
    loaded = load_walker(walker)
    targets = "hand-picked" if task.name.endswith("-play") else "random"
    ends = "start and target fixed" if task.name == "antmaze-umaze" else f"random starts and {targets} targets"
    text = (
        f"waypoint controller over the walker {loaded.name}, action noise {ACTION_NOISE}, {ends}, rewards of the "
        "evaluation goal; D4RL's recipe"
    )
    recipe = Recipe(task, text, num_rows, seed, loaded.fingerprint)
    return write_trajectory(path, recipe, walking(task, loaded.walk), report=report)


def walking(task: Task, walk: Walk) -> RecordEpisode:
    """What records the episodes of a task: D4RL's columns, ``infos/goal``, and ``infos/target``, where it was sent."""

    def record(env: Any, seed: int, episode: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, episode])
        base = env.unwrapped
        env.reset(seed=int(rng.integers(2**31)))
        start, target = draw_ends(task, base.layout, rng)
        if start is not None:
            qpos = base.data.qpos.copy()
            qpos[:2] = start
            base.set_state(qpos, base.data.qvel.copy())
        controller = WaypointController(base.layout, target, rng)
        count = task.max_steps + 1
        observations, actions = np.zeros((count + 1, task.observation_size)), np.zeros((count, task.action_size))
        observations[0] = base.observe()
        for step in range(count):
            action = walk(observations[step], controller.way(observations[step, :2]))
            actions[step] = np.clip(action + ACTION_NOISE * rng.standard_normal(task.action_size), -1, 1)
            observations[step + 1] = base.step(actions[step].astype(np.float32))[0]
        goal = np.array(base.layout.goal)
        reached = np.hypot(*(observations[1:, :2] - goal).T) <= base.layout.goal_radius
        rows = {
            "observations": observations[:-1],
            "actions": actions,
            "rewards": reached,
            "terminals": reached,
            "timeouts": np.arange(count) == count - 1,
        }
        ends = {"infos/goal": goal, "infos/target": target}
        return {column: np.asarray(rows[column], dtype) for column, dtype in COLUMNS.items()} | {
            column: np.tile(np.asarray(point, np.float32), (count, 1)) for column, point in ends.items()
        }

    return record


def draw_ends(task: Task, layout: Any, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray]:
    """Start (None: the environment's own) and target of a trajectory, as the task's name says."""
    from vem.envs.mazes import ANT_GOAL_SPREAD

    free = layout.free_cells
    if task.name == "antmaze-umaze":
        start, cells = None, [layout.goal_cell]
    else:
        cells = list(TARGETS[task.name.split("-")[1]]) if task.name.endswith("-play") else free
        starts = [cell for cell in free if cell not in cells] if task.name.endswith("-play") else free
        start = np.array(layout.center(starts[rng.integers(len(starts))])) + rng.uniform(0, WAYPOINT_NOISE, 2)
    center = np.array(layout.center(cells[rng.integers(len(cells))]))
    return start, center + sum(rng.uniform(0, spread, 2) for spread in ANT_GOAL_SPREAD)


class WaypointController:
    """The upper half: where to walk next on a shortest route of cells to a target."""

    def __init__(self, layout: Any, target: np.ndarray, rng: np.random.Generator) -> None:
        from vem.data.mazes import routes_from

        self._layout, self._target, self._rng = layout, target, rng
        self._routes = routes_from(layout, layout.cell(*target))
        self._cell = layout.cell(*target)

    def way(self, position: np.ndarray) -> np.ndarray:
        """Waypoint − position."""
        cell = self._layout.cell(*position)
        if cell in self._routes:  # an ant that leans over a wall is still where it was
            self._cell = cell
        route = self._routes[self._cell]
        if len(route) <= 2:
            return self._target - position
        noise = self._rng.uniform(0, WAYPOINT_NOISE, 2)
        return np.array(self._layout.center(route[-2])) + noise - position


def count_arrivals(path: str | Path) -> tuple[int, int]:
    """How many trajectories of such a file came within 0.5 m of where they were sent, and how many there are."""
    import h5py

    with h5py.File(path) as file:
        columns = [np.asarray(file[name]) for name in ("observations", "infos/target", "timeouts")]
    observations, targets, timeouts = columns
    ends = np.flatnonzero(timeouts)
    ends = ends if len(ends) and ends[-1] == len(timeouts) - 1 else np.append(ends, len(timeouts) - 1)
    near = np.hypot(*(observations[:, :2] - targets).T) <= 0.5
    arrived = np.add.reduceat(near, np.concatenate([[0], ends[:-1] + 1])) > 0
    return int(arrived.sum()), len(arrived)


def walked_task(name: str) -> Task:
    """The task of that name; DataError lists those that can be made."""
    task = find_task(name)
    if task is None or task.name not in WALKED_TASKS:
        raise DataError(f"{name!r} is no AntMaze data: expected one of {', '.join(WALKED_TASKS)}.")
    return task
