import json
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import evaluation_cases as cases
from vem.errors import RunError, SettingsError, SimulatorError
from vem.evaluation.environments import EnvironmentSpec, References, find_environment, find_target
from vem.evaluation.evaluate import evaluate, evaluate_run_at, how_acting, num_periods
from vem.evaluation.results import Evaluation, read_evaluation, summarize
from vem.evaluation.rollout import run_episode, thinned_path, waypoint_actor
from vem.evaluation.workers import Evaluator, episode_seed
from vem.policy import Policy
from vem.training.records import EpisodeRecord
from vem.training.run import RunDirectory, open_run

NUM_EPISODES = 8
SEEDS = [episode_seed(0, episode) for episode in range(NUM_EPISODES)]
ODD = {episode for episode, seed in enumerate(SEEDS) if seed % 2}
assert 0 < len(ODD) < NUM_EPISODES


def draw(seed):
    env = cases.Walk()
    env.reset(seed=seed)
    return env.draw


# One episode


def test_returns_and_values_of_an_episode_that_the_task_ended():
    policy = cases.constant_policy(value=5.0, discount=0.5)
    facts = run_episode(cases.Walk(), policy, seed=4)
    first, second, third = 1 + draw(4), 2 + draw(4), 3 + draw(4)
    assert facts["episode_return"] == pytest.approx(first + second + third)
    assert facts["discounted_return"] == pytest.approx(first + second / 2 + third / 4)
    assert (facts["length"], facts["terminated"], facts["truncated"], facts["success"]) == (3, True, False, None)
    assert facts["value_start"] == facts["value_mean"] == 5.0
    assert facts["target_start"] == pytest.approx(facts["discounted_return"])
    to_go = [first + second / 2 + third / 4, second + third / 2, third]
    assert facts["target_mean"] == pytest.approx(np.mean(to_go))


def test_a_time_limit_is_not_an_end_of_reward():
    facts = run_episode(cases.Walk(), cases.constant_policy(value=5.0, discount=0.5), seed=5)
    assert (facts["terminated"], facts["truncated"]) == (False, True)
    assert facts["target_start"] == pytest.approx(facts["discounted_return"] + 5.0 / 8)


def test_values_are_compared_in_the_units_they_were_trained_in():
    policy = cases.constant_policy(value=5.0, discount=0.5, reward_scale=2.0, reward_shift=-1.0)
    facts = run_episode(cases.Walk(), policy, seed=4)
    assert facts["target_start"] == pytest.approx(2 * facts["discounted_return"] - (1 + 0.5 + 0.25))


def test_dict_observations_are_flattened_by_sorted_keys_and_any_success_counts():
    env = cases.Nested()
    facts = run_episode(env, cases.Still(), seed=4, keeps_path=True)
    assert facts["path"] == [[0.5, round(env.draw, 3)]] * 4
    assert facts["success"] is True


def test_no_path_outside_mazes():
    assert "path" not in run_episode(cases.Walk(), cases.Still(), seed=4, keeps_path=True)


def test_guided_policies_leave_a_trace_in_mazes():
    policy = cases.guided_policy(sizes=(3, 1))
    facts = run_episode(cases.Nested(), policy, seed=4, leaves_trace=True)
    assert facts["observations"].dtype == np.float32
    assert facts["observations"][:, 2].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert "observations" not in run_episode(cases.Nested(), policy, seed=4)
    assert "observations" not in run_episode(cases.Nested(), cases.constant_policy(sizes=(3, 1)), 4, leaves_trace=True)
    assert "observations" not in run_episode(cases.Walk(), cases.guided_policy(sizes=(2, 1)), 4, leaves_trace=True)


def test_sampling_follows_the_seed():
    policy = cases.constant_policy()
    samples = [run_episode(cases.Walk(), policy, seed, is_stochastic=True)["episode_return"] for seed in (4, 4, 6)]
    mean = run_episode(cases.Walk(), policy, 4)["episode_return"]
    assert samples[0] == samples[1] != mean


def test_guided_policies_are_drawn_unless_told_otherwise():
    actors = {"guided": cases.guided_policy(), "mean": cases.constant_policy(sizes=(4, 2))}
    with Evaluator("pointmaze-umaze", 1) as evaluator:
        own, drawn, mean = (
            {record.trial: record.path for record in evaluator.evaluate(actors, 1, num_paths=1, is_stochastic=how)}
            for how in (None, True, False)
        )
    assert own["guided"] == drawn["guided"] != mean["guided"]
    assert own["mean"] == mean["mean"] != drawn["mean"]
    guided, other = actors.values()
    assert (how_acting([guided, guided]), how_acting([other])) == ("sampled", "mean")
    assert how_acting([guided, other]) == "both"
    assert how_acting([guided, other], False) == "mean"


def test_paths_are_thinned_with_both_ends():
    path = thinned_path(np.arange(2000.0).reshape(1000, 2))
    assert len(path) == 200
    assert (path[0], path[-1]) == ([0.0, 1.0], [1998.0, 1999.0])


# Many episodes


@pytest.mark.parametrize("is_stochastic", [False, True])
def test_the_number_of_workers_changes_nothing(is_stochastic):
    actors = {"policy": cases.constant_policy(sizes=(4, 2)), "behavior": waypoint_actor}
    results = []
    for num_workers in (1, 2):
        with Evaluator("pointmaze-umaze", num_workers) as evaluator:
            results.append(evaluator.evaluate(actors, 4, seed=3, is_stochastic=is_stochastic, num_paths=2))
    assert results[0] == results[1]
    assert [record.trial for record in results[0]] == ["policy"] * 4 + ["behavior"] * 4
    assert [record.episode for record in results[0]] == [0, 1, 2, 3] * 2
    assert all(record.error is None for record in results[0])
    assert [record.path is not None for record in results[0]] == [True, True, False, False] * 2


def test_episodes_are_paired_between_actors_and_new_for_another_seed():
    with Evaluator(cases.Walk, 1) as evaluator:
        records = evaluator.evaluate({"still": cases.Still(), "noise": cases.noise}, 5)
        others = evaluator.evaluate({"still": cases.Still()}, 5, seed=1)
    seeds = [record.seed for record in records]
    assert seeds[:5] == seeds[5:]
    assert not set(seeds) & {record.seed for record in others}
    assert [record.episode_return for record in records[:5]] == pytest.approx(
        [6 + 3 * draw(seed) for seed in seeds[:5]]
    )


def test_workers_load_no_jax_and_use_one_thread():
    with Evaluator(cases.Walk, 1) as evaluator:
        records = evaluator.evaluate({"jax": cases.without_jax, "threads": cases.threads}, 1)
    assert [record.error for record in records] == [None, None]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (cases.Crashing, "FloatingPointError: the simulation exploded"),
        (cases.Dying, "the worker process died (exit code 3)"),
        (cases.Hanging, "given up after 2 s"),
    ],
)
def test_a_broken_episode_costs_itself_and_no_other(environment, message):
    num_episodes = 4
    with Evaluator(environment, 2, episode_seconds=2.0) as evaluator:
        records = evaluator.evaluate({"still": cases.Still()}, num_episodes)
    assert [record.episode for record in records] == list(range(num_episodes))
    assert {record.episode for record in records if record.error} == ODD & set(range(num_episodes))
    assert {record.error for record in records} == {None, message}
    for record in records:
        expected = None if record.error else pytest.approx(6 + 3 * draw(record.seed))
        assert record.episode_return == expected


def test_a_reward_that_is_no_number_fails_the_episode():
    with Evaluator(cases.NotAReward, 1) as evaluator:
        [record] = evaluator.evaluate({"still": cases.Still()}, 1)
    assert "not finite at step 0" in str(record.error)


def test_an_abandoned_evaluation_leaves_nothing_behind():
    with Evaluator(cases.Walk, 1) as evaluator:
        assert next(evaluator.episodes({"first": cases.noise}, 50)).trial == "first"
        records = evaluator.evaluate({"second": cases.Still()}, 3)
    assert [record.trial for record in records] == ["second"] * 3


def test_sizes_that_do_not_fit_are_found_before_any_episode():
    with Evaluator(cases.Walk, 1) as evaluator, pytest.raises(SimulatorError, match=r"of 7 numbers .* has 2 and 1"):
        next(evaluator.episodes({"small": cases.Still(), "large": cases.constant_policy(sizes=(7, 1))}, 1))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("antmaze-hug", "Did you mean antmaze"),
        (cases.Switches, r"MultiBinary\(2\)"),
        (max, "the environment: TypeError"),
    ],
)
def test_an_environment_that_cannot_be_used(environment, message):
    with Evaluator(environment, 1) as evaluator, pytest.raises(SimulatorError, match=message):
        evaluator.evaluate({"still": cases.Still()}, 1)


def test_choices_are_taken_as_the_environment_has_them():
    policies = {"best": cases.choosing_policy([4], [0, 1, 0, 2]), "second": cases.choosing_policy([4], [0, 1, 9, 2])}
    with Evaluator(cases.Buttons, 1) as evaluator:
        best, second = evaluator.evaluate(policies, 1)
        assert best.episode_return - second.episode_return == pytest.approx(30)
        with pytest.raises(SimulatorError, match=r"gives a number in action column 0; Buttons takes one of 4 choices"):
            evaluator.evaluate({"numbers": cases.constant_policy()}, 1)
        with pytest.raises(SimulatorError, match=r"gives one of 5 choices in action column 0; Buttons takes one of 4"):
            evaluator.evaluate({"more": cases.choosing_policy([5], np.zeros(5))}, 1)
        [fewer] = evaluator.evaluate({"fewer": cases.choosing_policy([2], [0, 1])}, 1)
    assert best.episode_return - fewer.episode_return == pytest.approx(60)


def test_numbers_and_choices_together():
    with Evaluator(cases.Panel, 1) as evaluator:
        low, high = evaluator.evaluate(
            {"low": cases.choosing_policy([3, 0], [5, 0, 0, -9]), "high": cases.choosing_policy([3, 0], [0, 0, 5, 9])},
            1,
        )
    assert high.episode_return - low.episode_return == pytest.approx(3 * 22, abs=1e-3)


def test_missing_mujoco_is_said_with_the_remedy(tmp_path, monkeypatch):
    (tmp_path / "mujoco.py").write_text("raise ImportError('no such library')")
    monkeypatch.syspath_prepend(tmp_path)
    with (
        Evaluator("pointmaze-umaze", 1) as evaluator,
        pytest.raises(SimulatorError, match=r"pip install 'vem\[envs\]'"),
    ):
        evaluator.evaluate({"still": cases.Still()}, 1)


def test_what_workers_cannot_receive():
    with Evaluator(cases.Walk, 1) as evaluator, pytest.raises(SettingsError, match="define it in a module"):
        evaluator.evaluate({"local": lambda env, generator: cases.Still()}, 1)
    local = type("Local", (cases.Still,), {"__module__": "__main__"})
    import __main__

    __main__.Local = local
    with Evaluator(cases.Walk, 1) as evaluator, pytest.raises(SettingsError, match="script or notebook"):
        evaluator.evaluate({"local": local()}, 1)
    with pytest.raises(SettingsError, match="workers is 0"):
        Evaluator(cases.Walk, 0)
    with Evaluator(cases.Walk, 1) as evaluator, pytest.raises(SettingsError, match="0 episodes"):
        evaluator.evaluate({"still": cases.Still()}, 0)


# Runs


def test_a_run_is_evaluated_into_its_directory(tmp_path):
    directory = cases.make_run(tmp_path / "run", seeds=2, settings={"expectile": [0.1, 0.5]})
    evaluation = evaluate(directory, episodes=2, workers=1)
    assert read_evaluation(RunDirectory(directory)) == evaluation
    names = ["seed0-expectile0.1", "seed1-expectile0.1", "seed0-expectile0.5", "seed1-expectile0.5"]
    assert list(evaluation.trials) == names
    assert [group.settings for group in evaluation.groups] == [{"expectile": 0.1}, {"expectile": 0.5}]
    assert [list(group.trials) for group in evaluation.groups] == [names[:2], names[2:]]
    assert evaluation.references is not None
    assert evaluation.references.source == "vem: success rate in percent"
    # A ball that is never pushed stays where it is: no reward, and V = 5 meets γ¹²⁰·5.
    means = evaluation.trials[names[0]].means
    assert (means["return"], means["score"], means["success"], means["length"]) == (0.0, 0.0, 0.0, 120.0)
    assert means["value_error_start"] == pytest.approx(5 - 5 * 0.99**120)
    records = RunDirectory(directory).episodes().records
    assert [(record.trial, record.steps) for record in records[::2]] == [(name, 7) for name in names]
    assert len(records) == 8
    assert all(record.path for record in records)


def test_the_first_episode_of_each_guided_trial_leaves_its_trace(tmp_path):
    directory = cases.make_run(tmp_path / "run", seeds=2)
    files = RunDirectory(directory)
    cases.guided_policy(move=(0.5, 0.0)).save(files.policy_paths[1])
    evaluate(directory, episodes=2, workers=1)
    assert files.trace("seed0") is None
    trace = files.trace("seed1")
    records = [record for record in files.episodes().records if record.trial == "seed1"]
    assert trace is not None
    assert [trace.is_of(record) for record in records] == [True, False]
    assert trace.observations[[0, -1], :2] == pytest.approx(np.array(records[0].path)[[0, -1]], abs=1e-3)
    assert "observations" not in (directory / "evaluations.jsonl").read_text()
    # An evaluation elsewhere leaves it alone.
    before = files.trace_path("seed1").read_bytes()
    evaluate(directory, "pointmaze-medium", episodes=1, workers=1)
    assert files.trace_path("seed1").read_bytes() == before


def test_a_run_object_is_evaluated_like_its_directory(tmp_path):
    directory = cases.make_run(tmp_path / "run")
    first = evaluate(open_run(directory), episodes=2, workers=1, progress=False)
    assert evaluate(directory, episodes=2, workers=1) == first
    assert first.score is not None
    assert first.score.mean == 0.0


def test_an_evaluation_prints_as_the_table(tmp_path):
    evaluation = evaluate(cases.make_run(tmp_path / "run", seeds=2), episodes=2, workers=1)
    assert str(evaluation).startswith("vem/PointMaze-UMaze-v0: 2 episodes a policy, mean actions, after 7 steps\n")
    assert "mean ± std, 2 seeds" in str(evaluation)
    assert evaluation._repr_html_().startswith("<table>")
    assert "<td>seed1</td>" in evaluation._repr_html_()


def test_another_environment_stands_beside_the_datas_own(tmp_path):
    directory = cases.make_run(tmp_path / "run")
    own = evaluate(directory, episodes=2, workers=1)
    other = evaluate(directory, "pointmaze-medium", episodes=1, workers=1)
    assert (own.environment, other.environment) == ("vem/PointMaze-UMaze-v0", "vem/PointMaze-Medium-v0")
    files = RunDirectory(directory)
    assert read_evaluation(files) == own
    assert read_evaluation(files, other.environment) == other
    assert (directory / "evaluation-vem-PointMaze-Medium-v0.json").exists()
    records = files.episodes().records
    assert [(record.environment, record.episode) for record in records] == [
        (None, 0), (None, 1), ("vem/PointMaze-Medium-v0", 0),
    ]  # fmt: skip
    # Naming the data's own environment is no other evaluation.
    evaluate(directory, "pointmaze-umaze", episodes=1, workers=1)
    assert [record.environment for record in files.episodes().records] == ["vem/PointMaze-Medium-v0", None]


def test_an_environment_given_to_data_without_one_is_its_own(tmp_path):
    directory = cases.make_run(tmp_path / "run", environment=None)
    evaluation = evaluate(directory, "pointmaze-umaze", episodes=1, workers=1)
    assert read_evaluation(RunDirectory(directory)) == evaluation


def test_a_policy_is_evaluated_without_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evaluation = evaluate(cases.constant_policy(), cases.Walk, episodes=2, workers=1)
    assert evaluation.environment == "Walk"
    assert (evaluation.score, evaluation.steps) == (None, None)
    assert evaluation.returns is not None
    assert evaluation.returns.mean == pytest.approx(np.mean([6 + 3 * draw(seed) for seed in SEEDS[:2]]))
    maze = evaluate(cases.constant_policy(sizes=(4, 2)), "pointmaze-umaze", episodes=1, workers=1)
    assert maze.environment == "vem/PointMaze-UMaze-v0"
    assert maze.success is not None
    assert maze.success.mean == 0.0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SettingsError, match="names no environment"):
        evaluate(cases.constant_policy())
    with pytest.raises(SettingsError, match="give a run, its directory or a policy"):
        evaluate(3)


def test_environments_of_runs_load_no_jax():
    script = "import sys, vem.evaluation.environments; print('jax' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


@pytest.mark.parametrize(("every", "due"), [(300, [300, 600, 900]), (0.25, [250, 500, 750, 1000]), (0.35, [350, 700])])
def test_a_period_is_steps_or_a_share_of_them(every, due):
    found = [s for s in range(1, 1001) if num_periods(s, 1000, every) > num_periods(s - 1, 1000, every)]
    assert found == due


def test_a_curve_keeps_every_point_and_a_repeated_point_replaces_its_own(tmp_path):
    directory = cases.make_run(tmp_path / "run")
    target = find_target(directory)
    policies = [cases.constant_policy(sizes=(4, 2))]
    with Evaluator(target.environment, 1) as evaluator:
        for steps, num_episodes in ((3, 2), (7, 1), (3, 1)):
            assert evaluate_run_at(target, policies, steps, evaluator, num_episodes).steps == steps
    records = RunDirectory(directory).episodes().records
    assert [(record.steps, record.episode) for record in records] == [(7, 0), (3, 0)]


def test_an_unfinished_run_says_how_to_go_on(tmp_path):
    directory = cases.make_run(tmp_path / "run", seeds=2, policies=False)
    with pytest.raises(RunError, match=r"no policy of seed0, seed1: .* vem train --resume"):
        evaluate(directory)
    cases.constant_policy(sizes=(4, 2)).save(directory / "policies" / "seed0.safetensors")
    with pytest.raises(RunError, match="no policy of seed1:"):
        evaluate(directory)


def record(trial, episode, value, **facts):
    return EpisodeRecord(trial, episode, 0, episode_return=value, length=1, **facts)


def test_summaries_leave_failed_episodes_out_and_count_them():
    failed = EpisodeRecord("a", 1, 0, error="gone")
    records = [record("a", 0, 3.0), failed, record("b", 0, 5.0), EpisodeRecord("c", 0, 0, error="gone")]
    references = References(1.0, 3.0, "test")
    trials, groups = summarize(records, {"a": {}, "b": {}, "c": {}}, references)
    assert trials["a"].means["return"] == 3.0
    assert trials["a"].means["score"] == 100.0
    assert (trials["a"].num_failed, trials["a"].first_error) == (1, "gone")
    assert trials["c"].means["return"] is None
    [group] = groups
    assert group.quantities["return"].mean == 4.0
    assert "success" not in group.quantities
    evaluation = Evaluation("Walk", references, 2, 0, "mean", None, trials, groups)
    assert Evaluation.from_json(json.loads(json.dumps(evaluation.to_json(), allow_nan=False))) == evaluation
    assert "a: 1 episodes failed and are left out, first: gone" in str(evaluation)


def test_value_errors_are_signed_value_minus_return():
    records = [record("a", 0, 0.0, value_start=2.0, target_start=5.0, value_mean=4.0, target_mean=1.0)]
    means = summarize(records, {"a": {}}, None)[0]["a"].means
    assert (means["value_error_start"], means["value_error"], means["score"]) == (-3.0, 3.0, None)


# Environments and references


DATA = {"name": "logs", "source": "arrays", "environment": None, "metadata": {}}


def test_the_environment_is_the_datas_own_or_the_given_one():
    hopper = find_environment({**DATA, "environment": "vem/Hopper-v0"})
    assert hopper[0] == "vem/Hopper-v0"
    assert hopper[2] is not None
    assert hopper[2].source == "D4RL"
    assert find_environment({**DATA, "task": "hopper-medium"}) == hopper
    assert find_environment(DATA, "hopper-medium") == hopper
    assert find_environment(DATA, "Pendulum-v1") == ("Pendulum-v1", "Pendulum-v1", None)
    with pytest.raises(SimulatorError, match=r"logs names no environment; say which task it is \(--task NAME\)"):
        find_environment(DATA)


def test_antmaze_is_evaluated_at_the_goal_the_rewards_were_labeled_with():
    data = {**DATA, "name": "antmaze-umaze", "environment": "vem/AntMaze-UMaze-v0", "metadata": {"goal": [1.25, 9.5]}}
    environment, name, _ = find_environment(data)
    assert "goal at (1.25, 9.50)" in name
    assert not isinstance(environment, str)
    env = environment()
    for seed in (0, 1):
        assert env.reset(seed=seed)[1]["goal"] == pytest.approx([1.25, 9.5])
    env.close()
    assert find_environment({**data, "metadata": {}})[0] == "vem/AntMaze-UMaze-v0"


def test_minari_data_keeps_its_own_references():
    facts = {"environment": "AdroitHandDoor-v1", "ref_min_score": -10.0, "ref_max_score": 20.0}
    data = {**DATA, "name": "D4RL/door/none-v0", "source": "minari:D4RL/door/none-v0", "metadata": facts}
    environment, _, references = find_environment(data)
    assert environment == "AdroitHandDoor-v1"
    assert references == References(-10.0, 20.0, "Minari D4RL/door/none-v0")
    _, _, without = find_environment({**data, "metadata": {"environment": "AdroitHandDoor-v1"}})
    assert without is None
    with pytest.raises(SimulatorError, match="names no environment"):
        find_environment({**data, "metadata": {}})


def test_a_minari_datasets_environment_has_its_arguments(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    from vem.envs import make

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = make("vem/PointMaze-UMaze-v0", max_episode_steps=17)
    steps = EpisodeBuffer(
        observations=[np.zeros(4)] * 2,
        actions=[np.zeros(2, np.float32)],
        rewards=[0.0],
        terminations=[False],
        truncations=[True],
    )
    with pytest.warns(UserWarning, match="is set to None"):
        minari.create_dataset_from_buffers("test/maze-v0", [steps], env=env)
    data = {**DATA, "source": "minari:test/maze-v0", "metadata": {"environment": "vem/PointMaze-UMaze-v0"}}
    environment, name, _ = find_environment(data)
    assert name == "vem/PointMaze-UMaze-v0"
    with Evaluator(environment, 1) as evaluator:
        [found] = evaluator.evaluate({"still": cases.constant_policy(sizes=(4, 2))}, 1)
    assert found.length == 17


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """The name of an environment in a module that is on the path and says when it is imported."""
    (tmp_path / "named_by_a_run.py").write_text(
        "import pathlib\n"
        "pathlib.Path(__file__).with_suffix('.imported').touch()\n"
        "import gymnasium\n"
        "pendulum = 'gymnasium.envs.classic_control:PendulumEnv'\n"
        "gymnasium.register('ByARun-v0', entry_point=pendulum, max_episode_steps=2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "named_by_a_run:ByARun-v0"
    gymnasium.registry.pop("ByARun-v0", None)
    sys.modules.pop("named_by_a_run", None)


def test_a_module_that_a_run_names_is_imported_only_for_the_user(tmp_path, foreign):
    directory = cases.make_run(tmp_path / "run", environment=None, sizes=(3, 1))
    config = directory / "config.json"
    stored = json.loads(config.read_text())
    config.write_text(json.dumps({**stored, "data": {**stored["data"], "environment": foreign}}))
    with pytest.raises(SimulatorError, match=f"named by a file.*--env {foreign}"):
        evaluate(directory, episodes=1, workers=1)
    assert not (tmp_path / "named_by_a_run.imported").exists()
    assert evaluate(directory, foreign, episodes=1, workers=1).environment == foreign
    policy = cases.constant_policy(sizes=(3, 1))
    policy = Policy(policy.kind, policy.tensors, {**policy.info, "environment": foreign})
    sys.modules.pop("named_by_a_run", None)
    with pytest.raises(SimulatorError, match="named by a file"):
        evaluate(policy, episodes=1, workers=1)


def test_a_module_that_the_user_named_at_loading_is_known_while_the_process_lasts(tmp_path, foreign):
    directory = cases.make_run(tmp_path / "run", environment=foreign, sizes=(3, 1))
    assert evaluate(directory, episodes=1, workers=1).environment == foreign


def spec_of(name, **changes):
    """The specification of an environment as a Minari dataset holds it, with some entries replaced."""
    import vem.envs  # noqa: F401

    stored = json.loads(gymnasium.spec(name).to_json())
    return json.dumps({**stored, **changes})


def wrapper(entry_point, **kwargs):
    return {"name": "W", "entry_point": entry_point, "kwargs": kwargs}


@pytest.mark.parametrize(
    "changes",
    [
        {"entry_point": "subprocess:Popen", "kwargs": {"args": ["touch", "ran"]}},
        {"entry_point": "os:mkdir", "kwargs": {"path": "ran"}},
        {"entry_point": "vem.envs:make", "kwargs": {"name": "named_by_a_run:ByARun-v0"}},
        {"entry_point": "gymnasium:make", "kwargs": {"id": "named_by_a_run:ByARun-v0"}},
        {"additional_wrappers": [wrapper("subprocess:Popen", args=["touch", "ran"])]},
        {"additional_wrappers": [wrapper("vem.envs:make", name="named_by_a_run:ByARun-v0")]},
        {"additional_wrappers": [wrapper("gymnasium.wrappers.rendering:RecordVideo", video_folder="ran")]},
        {"entry_point": None},
        {"kwargs": "text"},
        {"additional_wrappers": 3},
    ],
)
def test_a_minari_dataset_runs_nothing_but_environments(tmp_path, monkeypatch, foreign, changes):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SimulatorError, match=r"Minari dataset's environment cannot be made.*--env ID"):
        EnvironmentSpec(spec_of("Pendulum-v1", **changes))()
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "named_by_a_run.imported").exists()


def test_honest_minari_environments_are_made():
    flat = [wrapper("gymnasium.wrappers.transform_observation:FlattenObservation")]
    env = EnvironmentSpec(spec_of("Pendulum-v1", kwargs={"g": 5.0, "render_mode": None}, additional_wrappers=flat))()
    assert env.unwrapped.g == 5.0
    assert isinstance(env, gymnasium.wrappers.FlattenObservation)
    from vem.envs import make

    for name in ("vem/AdroitPen-v0", "AdroitHandDoor-v1", "PointMaze_UMaze-v3"):
        spec = make(name, max_episode_steps=9).spec
        assert spec is not None
        assert EnvironmentSpec(spec.to_json())().spec.max_episode_steps == 9


def test_environments_that_the_user_registered_are_made_as_they_are_registered(foreign):
    gymnasium.register("Own-v0", entry_point="control_logs:Own", kwargs={"size": 2})
    try:
        with pytest.raises(SimulatorError, match="control_logs:Own"):
            EnvironmentSpec(spec_of("Own-v0", kwargs={"size": 3}))()
        with pytest.raises(SimulatorError, match="has no attribute 'Own'"):  # looked up, as registered
            EnvironmentSpec(spec_of("Own-v0"))()
    finally:
        gymnasium.registry.pop("Own-v0")
