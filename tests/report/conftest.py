import itertools
import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from vem.envs.mazes import maze_layout
from vem.policy import make_policy
from vem.training.records import EpisodeRecord
from vem.training.request import make_request
from vem.training.run import Run

NUM_EPISODES, STEPS = 12, 30


def write_maze_data(path: Path, seed: int = 0) -> Path:
    """Walks in the free cells of D4RL's U-maze, in D4RL's layout; the last of each four reaches the goal."""
    generator = np.random.default_rng(seed)
    layout = maze_layout("antmaze-umaze")
    cells = layout.free_cells
    observations = generator.normal(size=(NUM_EPISODES * STEPS, 29)).astype(np.float32)
    for episode in range(NUM_EPISODES):
        rows = slice(episode * STEPS, (episode + 1) * STEPS)
        first, second = (np.array(layout.center(cells[i])) for i in generator.integers(len(cells), size=2))
        line = first + np.linspace(0, 1, STEPS)[:, None] * (second - first)
        observations[rows, :2] = line
    ends = np.arange(1, NUM_EPISODES + 1) * STEPS - 1
    timeouts, terminals = (np.zeros(NUM_EPISODES * STEPS, bool) for _ in range(2))
    timeouts[ends] = True
    terminals[ends[3::4]] = True
    with h5py.File(path, "w") as file:
        file["observations"] = observations
        file["actions"] = generator.uniform(-1, 1, (NUM_EPISODES * STEPS, 8)).astype(np.float32)
        file["rewards"] = terminals.astype(np.float32)
        file["terminals"] = terminals
        file["timeouts"] = timeouts & ~terminals
    return path


def write_episodes(run: Path, steps: tuple[int, ...], num_episodes: int = 6) -> None:
    """Evaluated episodes of every trial: the first ``seed + 3`` of them succeed."""
    config = Run(run).config
    has_value = config.algorithm.startswith("vem")
    lines = []
    for done in steps:
        for trial in config.trials:
            for episode in range(num_episodes):
                success = episode < trial.seed + 3
                record = EpisodeRecord(
                    trial.name,
                    episode,
                    seed=episode,
                    steps=done,
                    episode_return=float(success),
                    discounted_return=0.5 * success,
                    length=10 + episode,
                    success=success,
                    terminated=success,
                    truncated=not success,
                    value_start=0.25 if has_value else None,
                    target_start=0.5 * success if has_value else None,
                    value_mean=0.75 if has_value else None,
                    target_mean=0.5 if has_value else None,
                    path=[[0.0, 0.0], [8.0, 0.0], [8.0, 8.0], [0.8, 8.8]],
                )
                lines.append(json.dumps(record.to_json()) + "\n")
    (run / "evaluations.jsonl").write_text("".join(lines))


@pytest.fixture(scope="session")
def maze_data(tmp_path_factory) -> Path:
    return write_maze_data(tmp_path_factory.mktemp("data") / "antmaze-umaze.hdf5")


def write_policies(run: Run) -> None:
    """Policies with random networks of one hidden layer, as training would have left them."""
    generator = np.random.default_rng(0)

    observed, acted = run.dataset.observation_size, run.dataset.action_size
    is_guided = run.config.settings.get("policy") == "guided"

    def network(*shape: int, outputs: int, inputs: int = observed) -> dict[str, dict[str, np.ndarray]]:
        sizes = (inputs, 8, outputs)
        layers = {}
        for index, (inputs, size) in enumerate(itertools.pairwise(sizes)):
            weight = generator.normal(0, 0.3, (*shape, inputs, size))
            layers[str(index)] = {"weight": weight.astype(np.float32), "bias": np.zeros((*shape, size), np.float32)}
        return layers

    for trial, path in zip(run.config.trials, run.policy_paths, strict=True):
        inputs = 2 * observed if is_guided else observed
        parameters = {
            "actor": network(outputs=acted, inputs=inputs),
            "log_std": np.zeros(acted, np.float32),
            "value_unit": np.float32(2),
        }
        if is_guided:
            parameters["guide"] = network(outputs=observed)
            parameters["move_scale"] = (np.arange(observed) < 3).astype(np.float32)
        if run.config.algorithm == "vem":
            parameters["critics"] = network(2, outputs=1)
        info = {"settings": {**run.config.settings, **trial.swept}, "trial": trial.name}
        bounds, normalizer = (-np.ones(acted), np.ones(acted)), (np.zeros(observed), np.ones(observed))
        make_policy("guided" if is_guided else "gaussian", parameters, bounds, normalizer, info).save(path)


def write_metrics(run: Run) -> None:
    """Falling losses of each stage."""
    stages = {"bc": {"policy": ("policy_loss", "log_likelihood")}}.get(
        run.config.algorithm,
        {"value": ("value_loss", "value_mean"), "policy": ("policy_loss", "effective_share")},
    )
    names = [(stage, metrics) for stage, metrics in stages.items() for _ in range(2)]
    lines = []
    for number, (stage, metrics) in enumerate(names):
        trials = {m.name: dict.fromkeys(metrics, 1 / (1 + number + m.seed)) for m in run.config.trials}
        steps = 6 * (number + 1) // len(names)
        lines.append(json.dumps({"steps": steps, "stage": stage, "seconds": number, "trials": trials}) + "\n")
    (run.directory / "metrics.jsonl").write_text("".join(lines))


def write_run(directory: Path, data: Path, algorithm: str, **settings: object) -> Path:
    """A finished run of 6 steps and two seeds, made without training."""
    small = {"policy_hidden": [8], **({"policy": "regression"} if algorithm == "vem" else {}), **settings}
    config = make_request(str(data), algorithm=algorithm, settings=small, seeds=2, steps=6)
    run = Run.create(directory, config, config.load())
    write_policies(run)
    write_metrics(run)
    return directory


@pytest.fixture(scope="session")
def trained(tmp_path_factory, maze_data) -> dict[str, Path]:
    """Finished and evaluated runs by algorithm, not to be changed; ``vem`` sweeps two expectiles."""
    directory = tmp_path_factory.mktemp("runs")
    vem = write_run(directory / "vem", maze_data, "vem", value_hidden=[8], expectile=[0.3, 0.7])
    bc = write_run(directory / "bc", maze_data, "bc")
    write_episodes(vem, (3, 6))
    write_episodes(bc, (6,))
    return {"vem": vem, "bc": bc}


@pytest.fixture
def vem_run(tmp_path, trained) -> Path:
    """A copy of the run that a test may damage."""
    return Path(shutil.copytree(trained["vem"], tmp_path / "vem"))
