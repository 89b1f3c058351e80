"""``vem.estimate`` and ``vem.select`` on runs: what is written, what is said, and what is refused."""

import json

import numpy as np
import pytest

import vem
import walks
from small_runs import tiny_dataset, tiny_settings
from vem.cli import main
from vem.errors import DataError, RunError, SettingsError
from vem.estimation import fitted_q
from vem.estimation.estimate import Estimate, Value, judge, read_estimate
from vem.training.run import Run

LENGTHS = (6,) * 30


@pytest.fixture(autouse=True)
def shortly(monkeypatch):
    """A few steps in place of hundreds: what is tested here is not the values."""
    monkeypatch.setattr(fitted_q, "RETURNS_STEPS", 5)
    monkeypatch.setattr("vem.estimation.importance.BEHAVIOR_STEPS", 5)


def train(directory, algorithm="bc", dataset=None, hold_out=0.2, seeds=1, kind="box", **settings):
    dataset = dataset or tiny_dataset(LENGTHS, kind=kind)
    settings = tiny_settings(algorithm, **settings)
    return vem.train(
        dataset, algorithm, steps=4, seeds=seeds, hold_out=hold_out, out=directory, progress=False, **settings
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of walks, and a run on it that held out a fifth."""
    directory = tmp_path_factory.mktemp("estimates")
    dataset = walks.record_walks(40)
    rows = np.flatnonzero(dataset.valid)
    ends = np.isin(rows + 1, dataset.episode_ends)
    columns = {
        "observations": dataset.observations[rows],
        "next_observations": dataset.observations[rows + 1],
        "actions": dataset.actions[rows, 0].astype(np.int64),
        "rewards": dataset.rewards[rows],
        "terminals": dataset.terminal[rows],
        "timeouts": ends & ~dataset.terminal[rows],
    }
    np.savez(directory / "walks.npz", **columns)
    cut = {name: values[: rows.size // 2] for name, values in columns.items()}
    np.savez(directory / "others.npz", **cut)
    return directory


def trained(files, name, *flags):
    out = files / name
    if not out.exists():
        small = ["--steps", "4", "--batch-size", "8", "--policy-hidden", "8,8"]
        data = [str(files / "walks.npz"), "--out", str(out), "--teleports", "keep", "--algorithm", "bc"]
        assert main(["train", *data, *small, *flags]) == 0
    return str(out)


def test_training_never_sees_what_is_held_out_and_resuming_keeps_it(tmp_path):
    dataset = tiny_dataset(LENGTHS)
    run = train(tmp_path / "run", dataset=dataset)
    assert run.config.hold_out == 0.2
    assert run.parts.held_out.num_episodes == 6
    assert run.rows.observations.shape[0] == run.training_data.num_rows == dataset.num_rows - 6 * 7
    assert Run.open(tmp_path / "run").config.hold_out == 0.2
    assert run.policy.info["hold_out"] == 0.2
    again = vem.open_run(tmp_path / "run", dataset)
    assert again.training_data.fingerprint() == run.training_data.fingerprint()
    other = train(tmp_path / "other", "awr", dataset, seeds=[7])
    assert other.training_data.fingerprint() == run.training_data.fingerprint()


def test_a_run_of_several_seeds_has_an_estimate_each_and_one_in_all(tmp_path):
    run = train(tmp_path / "run", seeds=2)
    found = vem.estimate(run, steps=5)
    assert list(found.policies) == ["seed0", "seed1"]
    assert (found.trajectories, found.hold_out, found.num_trajectories, found.num_fitted) == ("held out", 0.2, 6, 24)
    values = [policy.value.value for policy in found.policies.values()]
    assert found.value.value == pytest.approx(np.mean(values))
    assert not found.warnings
    stored = read_estimate(run)
    assert stored == Estimate.from_json(json.loads(json.dumps(found.to_json()))) == found
    assert "mean of 2 seeds" in str(found)


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("algorithm", "kind", "settings"),
    [
        ("bc", "discrete", {}),
        slow("bc", "several", {}),
        ("bc", "mixed", {}),
        ("td3bc", "box", {}),
        slow("cql", "box", {}),
        slow("bcq", "box", {}),
        ("vem", "box", {"policy": "guided"}),
    ],
)
def test_policies_and_actions_of_all_kinds(tmp_path, algorithm, kind, settings):
    found = vem.estimate(train(tmp_path / "run", algorithm, kind=kind, **settings), steps=3)
    assert np.isfinite(found.value.value)
    by_weights = found.policies["seed0"].importance
    if algorithm in ("td3bc", "bcq"):
        assert "no density" in by_weights.problem
    else:
        assert by_weights.effective_sample is not None


def test_nothing_held_out_is_said(tmp_path):
    found = vem.estimate(train(tmp_path / "run", hold_out=0.0), steps=3)
    assert found.trajectories == "all"
    assert found.num_trajectories == found.num_fitted == 30
    assert any("flatters" in text for text in found.warnings)
    assert found.verdict == found.policies["seed0"].verdict == "cannot tell"
    assert "training saw these trajectories" in found.groups[0].reason


def test_a_policy_alone_needs_data_and_knows_what_was_held_out(tmp_path):
    dataset = tiny_dataset(LENGTHS)
    policy = train(tmp_path / "run", dataset=dataset).policy
    with pytest.raises(SettingsError, match="has no trajectories"):
        vem.estimate(policy)
    assert vem.estimate(policy, dataset, steps=3).trajectories == "held out"
    assert vem.estimate(policy, tiny_dataset(LENGTHS, seed=1), steps=3).trajectories == "other"
    with pytest.raises(DataError, match="observations of 6 numbers"):
        vem.estimate(policy, walks.record_walks(10))


def test_the_discount_is_checked(tmp_path):
    run = train(tmp_path / "run")
    for discount in (1.0, -0.1, "0.9"):
        with pytest.raises(SettingsError, match="--discount"):
            vem.estimate(run, discount=discount)
    with pytest.raises(SettingsError, match="--steps"):
        vem.estimate(run, steps=0)


@pytest.mark.parametrize(
    ("interval", "num_trajectories", "verdict", "reason"),
    [
        ((1.0, 3.0), 20, "better", "by 1 to 3"),
        ((-3.0, -1.0), 20, "worse", "by 1 to 3"),
        ((-1.0, 1.0), 20, "cannot tell", "between -1 and 1 more than the log"),
        ((1.0, 3.0), 3, "cannot tell", "3 trajectories are too few"),
    ],
)
def test_verdicts(interval, num_trajectories, verdict, reason):
    said = judge(Value(sum(interval) / 2, interval), num_trajectories)
    assert said[0] == verdict
    assert reason in said[1]


def test_the_commands(files, capsys):
    run = trained(files, "run", "--hold-out", "0.2", "--seeds", "2")
    assert main(["estimate", run, "--steps", "3"]) == 0
    assert "held-out trajectories" in capsys.readouterr().out
    assert main(["estimate", run, "--steps", "3", "--data", str(files / "others.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trajectories"] == "other"
    assert {"estimate.json", "estimate-others.json"} <= {path.name for path in (files / "run").iterdir()}
    assert main(["select", run, "--json"]) == 0
    selected = json.loads(capsys.readouterr().out)
    assert selected["choice"]["run"] == run
    assert len(selected["candidates"]) == 1


def test_what_the_commands_refuse(files, capsys, tmp_path):
    run = trained(files, "run", "--hold-out", "0.2", "--seeds", "2")
    unfinished = files / "unfinished"
    unfinished.mkdir(exist_ok=True)
    (unfinished / "config.json").write_text((files / "run" / "config.json").read_text())
    nothing = trained(files, "nothing", "--seeds", "1")
    capsys.readouterr()
    cases = {
        "is not a run directory": ["estimate", str(tmp_path)],
        "has not finished": ["estimate", str(unfinished)],
        "--resume": ["select", run, str(unfinished)],
        "with the same --hold-out": ["select", run, nothing],
        "is given twice": ["select", run, run],
        "holds no finished run": ["select", str(tmp_path)],
        "does not exist": ["select", str(tmp_path / "absent")],
        "--hold-out is 2.0": ["train", str(files / "walks.npz"), "--hold-out", "2"],
        "keeps its settings": ["train", "--resume", run, "--hold-out", "0.3"],
        "leave out --hold-out, or give a dataset": ["train", "--hold-out", "0.2"],
    }
    for text, arguments in cases.items():
        assert main(arguments) == 1, arguments
        assert text in capsys.readouterr().err, arguments


def test_select_ranks_runs_and_swept_settings_and_keeps_estimates(tmp_path, monkeypatch):
    dataset = tiny_dataset(LENGTHS)
    monkeypatch.setattr(
        "vem.estimation.select.estimate",
        lambda path, **o: vem.estimate(vem.open_run(path, dataset), **{**o, "steps": 3}),
    )
    train(tmp_path / "runs" / "bc", "bc", dataset)
    train(tmp_path / "runs" / "iql", "iql", dataset, expectile=[0.5, 0.9], seeds=2)
    found = vem.select(tmp_path / "runs")
    assert len(found.candidates) == 3
    values = [candidate.value.value for candidate in found.candidates]
    assert values == sorted(values, reverse=True)
    close = [candidate.supported for candidate in found.candidates if candidate.is_close]
    assert found.choice.supported == max(close)
    assert "choice: " in str(found)
    assert sorted(candidate.label for candidate in found.candidates) == ["bc", "iql expectile 0.5", "iql expectile 0.9"]
    monkeypatch.setattr("vem.estimation.select.estimate", None)
    assert vem.select(tmp_path / "runs") == found  # from the files
    train(tmp_path / "runs" / "other", "bc", tiny_dataset(LENGTHS, seed=1))
    with pytest.raises(RunError, match="rows differ"):
        vem.select(tmp_path / "runs")


def test_weights_that_leave_too_few_trajectories_give_no_number():
    found = vem.estimate(walks.choosing(9.0), walks.record_walks(8), steps=3).policies["seed0"]
    assert found.importance.effective_sample < 5
    assert found.importance.value is None
    assert "fewer than 5 say nothing" in found.importance.problem
