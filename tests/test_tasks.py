import re
import subprocess
import sys

import pytest

from vem.data.dataset import DataInfo
from vem.errors import DataError, SettingsError
from vem.tasks import TASKS, d4rl_file, find_task, normalized_score, resolve_task, task_of, task_of_environment


def test_every_dataset_of_the_paper_has_a_task():
    families = [name.split("-")[0] for name in TASKS]
    assert families.count("antmaze") == 6
    assert sum(name.endswith("-human") for name in TASKS) == 4
    assert sum(name.endswith("-cloned") for name in TASKS) == 3
    assert sum(name.endswith("-expert") for name in TASKS) == 4
    assert sum(families.count(name) for name in ("hopper", "walker2d", "halfcheetah")) == 6
    assert families.count("pointmaze") == 6
    assert len(TASKS) == 23 + 6


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


# Which task a dataset is of


@pytest.mark.parametrize(
    ("facts", "task", "source"),
    [
        ({"name": "antmaze-medium-play-v2"}, "antmaze-medium-play", "name"),
        ({"name": "mine", "metadata": {"env": "antmaze-medium"}}, "antmaze-medium", "attributes"),
        ({"name": "mine", "metadata": {"env": "antmaze-medium-v0"}}, "antmaze-medium", "attributes"),
        ({"name": "mine", "metadata": {"env": "antmaze-medium-diverse-v0"}}, "antmaze-medium-diverse", "attributes"),
        ({"name": "mine", "metadata": {"dataset": "antmaze-medium-play"}}, "antmaze-medium-play", "attributes"),
        ({"name": "mine", "metadata": {"environment": "vem/AntMaze-Medium-v0"}}, "antmaze-medium", "attributes"),
        # The name says which dataset of the environment it is.
        ({"name": "antmaze-medium-diverse", "metadata": {"env": "antmaze-medium"}}, "antmaze-medium-diverse", "name"),
        # An attribute that names a dataset is exact.
        (
            {"name": "antmaze-medium-diverse", "metadata": {"dataset": "antmaze-medium-play"}},
            "antmaze-medium-play",
            "attributes",
        ),
        ({"name": "hopper-medium", "task": "antmaze-medium-play"}, "antmaze-medium-play", "given"),
        ({"name": "mine", "task": "antmaze-medium", "metadata": {"env": "door"}}, "antmaze-medium", "given"),
        ({"name": "mine", "environment": "vem/AntMaze-Medium-v0"}, "antmaze-medium", "given"),
        ({"name": "antmaze-medium-play", "environment": "vem/AntMaze-Medium-v0"}, "antmaze-medium-play", "given"),
        (
            {"name": "D4RL/ant", "source": "minari:D4RL/ant", "task": "antmaze-medium"},
            "antmaze-medium",
            "given",
        ),
    ],
)
def test_the_user_the_attributes_and_the_name_decide_in_this_order(facts, task, source):
    found = resolve_task(**facts, sizes=(29, 8))
    assert found.task is not None
    assert (found.task.name, found.source, found.warning) == (task, source, None)
    assert found.environment == "vem/AntMaze-Medium-v0"
    assert (found.task.minimum, found.task.maximum) == (0.0, 1.0)


def test_only_a_known_dataset_has_the_papers_numbers():
    medium = resolve_task(name="mine", metadata={"env": "antmaze-medium"}).task
    assert medium is not None
    assert (dict(medium.paper_scores), medium.paper_expectile) == ({}, None)
    assert medium.references == TASKS["antmaze-medium-play"].references


@pytest.mark.parametrize(
    ("facts", "task", "warning"),
    [
        ({"name": "antmaze-umaze"}, None, "name 'antmaze-umaze' means .* 29 .* 8 .* has 39 and 28: it is not used"),
        ({"metadata": {"env": "hopper"}}, None, "attribute env = 'hopper' means .* 11 .* 3 .* has 39 and 28"),
        ({"name": "door-human", "metadata": {"env": "hopper"}}, "door-human", "attribute env = 'hopper'"),
        ({"name": "pen-human", "metadata": {"env": "hopper"}}, None, "hopper.*; the name 'pen-human'.* they are not"),
        ({"name": "pen-human", "metadata": {"env": "door"}}, "door", "name 'pen-human' contradicts .* env = 'door'"),
    ],
)
def test_what_contradicts_the_data_is_not_used(facts, task, warning):
    found = resolve_task(**facts, sizes=(39, 28))
    assert (found.task.name if found.task else None) == task
    assert found.environment == ("vem/AdroitDoor-v0" if task else None)
    assert found.warning is not None
    assert re.search(warning, found.warning)
    assert "--task" in found.warning


def test_a_users_word_that_contradicts_the_data_is_refused():
    with pytest.raises(DataError, match=r"task='antmaze-umaze' means .* 29 .* 8 .* has 3 and 2"):
        resolve_task(task="antmaze-umaze", sizes=(3, 2))
    with pytest.raises(DataError, match="environment='vem/Hopper-v0' means"):
        resolve_task(environment="vem/Hopper-v0", sizes=(3, 2))
    with pytest.raises(SettingsError, match="did you mean antmaze-umaze"):
        resolve_task(task="antmaze-umaz")


def test_environments_of_others_are_kept_and_are_no_task():
    assert resolve_task(name="mine", environment="Pendulum-v1")[:3] == (None, None, "Pendulum-v1")
    assert resolve_task(name="mine", metadata={"environment": "Pendulum-v1"})[:3] == (None, None, "Pendulum-v1")
    both = {"environment": "AntMaze of our own", "env": "antmaze-umaze"}
    assert resolve_task(name="mine", metadata=both).task is TASKS["antmaze-umaze"]
    minari = {"name": "door-human", "source": "minari:door-human", "metadata": {"environment": "AdroitHandDoor-v1"}}
    assert resolve_task(**minari) == (None, None, None, None)


def test_stored_facts_know_their_task():
    assert task_of(DataInfo("hopper-medium", task="door-human")) is TASKS["door-human"]
    assert task_of(DataInfo("hopper-medium")) is None


def test_files_of_the_benchmark_have_their_names():
    for task in TASKS.values():
        assert find_task(d4rl_file(task.name)) is task
    assert d4rl_file("antmaze-umaze") == "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse.hdf5"
    assert d4rl_file("door-human") == "door-v0_demos_clipped.hdf5"
    assert d4rl_file("hopper-medium") == "hopper_medium.hdf5"


def test_tasks_have_a_family():
    families = {name: task.family for name, task in TASKS.items()}
    wanted = {"door-human": "adroit", "hopper-medium": "mujoco", "pointmaze-umaze": "antmaze"}
    assert wanted.items() <= families.items()
