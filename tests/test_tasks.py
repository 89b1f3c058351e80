import subprocess
import sys

import numpy as np
import pytest

from vem.tasks import TASKS, find_task, normalized_score, task_of_environment


def test_every_dataset_of_the_paper_has_a_task():
    families = [name.split("-")[0] for name in TASKS]
    assert families.count("antmaze") == 6
    assert sum(name.endswith("-human") for name in TASKS) == 4
    assert sum(name.endswith("-cloned") for name in TASKS) == 3
    assert sum(name.endswith("-expert") for name in TASKS) == 4
    assert sum(families.count(name) for name in ("hopper", "walker2d", "halfcheetah")) == 6
    assert families.count("pointmaze") == 3
    assert len(TASKS) == 23 + 3


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("antmaze-umaze-v0", "antmaze-umaze"),
        ("antmaze-umaze-diverse-v2", "antmaze-umaze-diverse"),
        ("AntMaze-Large-Diverse", "antmaze-large-diverse"),
        ("hopper-medium-v2", "hopper-medium"),
        ("hopper_medium-v1.hdf5", "hopper-medium"),
        ("halfcheetah_random.hdf5", "halfcheetah-random"),
        ("door-human-v1", "door-human"),
        ("some/where/pen-v0_demos_clipped.hdf5", "pen-human"),
        (r"C:\data\hammer-demos-v0-bc-combined.hdf5", "hammer-cloned"),
        ("relocate-v0_expert_clipped.hdf5", "relocate-expert"),
        ("Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse.hdf5", "antmaze-umaze"),
        ("Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5", "antmaze-medium-play"),
        ("Ant_maze_hardest-maze_noisy_multistart_True_multigoal_True_sparse", "antmaze-large-diverse"),
        ("pointmaze-medium", "pointmaze-medium"),
    ],
)
def test_spellings_find_their_task(spelling, name):
    task = find_task(spelling)
    assert task is not None
    assert task.name == name


@pytest.mark.parametrize(
    "name",
    [
        "D4RL/door/human-v2",
        "mujoco/hopper/medium-v0",
        "hopper-medium-replay-v2",
        "hopper-medium-v5",
        "relocate-cloned",
        "",
    ],
)
def test_other_tasks_are_not_mistaken_for_benchmark_tasks(name):
    assert find_task(name) is None


def test_references_score_zero_and_hundred():
    for task in TASKS.values():
        scores = normalized_score(task, np.array([task.minimum, task.maximum]))
        np.testing.assert_allclose(scores, [0.0, 100.0])


def test_a_score_by_hand():
    door = find_task("door-expert")
    assert door is not None
    assert normalized_score(door, 1000.0) == pytest.approx(100 * (1000 + 56.512833) / (2880.5693087298737 + 56.512833))


def test_paper_scores_and_expectiles():
    medium = TASKS["antmaze-medium-play"]
    assert (medium.paper_scores["vem"].mean, medium.paper_scores["vem"].std) == (78.0, 3.1)
    assert medium.paper_scores["cql"].std is None
    assert medium.paper_expectile == 0.3
    assert "cql" not in TASKS["door-expert"].paper_scores
    without = {name for name, task in TASKS.items() if task.paper_expectile is None}
    assert without == {name for name in TASKS if name.startswith(("relocate", "pointmaze"))}
    expectiles = [task.paper_expectile for task in TASKS.values() if task.paper_expectile is not None]
    assert len(expectiles) == 21
    assert sum(expectile < 0.5 for expectile in expectiles) == 17


def test_tasks_of_one_environment_share_limits_and_references():
    for task in TASKS.values():
        other = task_of_environment(task.environment)
        assert other is not None
        facts = [(t.max_steps, t.minimum, t.maximum, t.references) for t in (task, other)]
        assert facts[0] == facts[1]
    assert task_of_environment("CartPole-v1") is None


def test_importing_scores_loads_nothing_heavy():
    program = "import sys, vem.tasks; print({'numpy', 'jax', 'mujoco', 'gymnasium'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
