"""What a policy does otherwise than a log, by hand."""

import numpy as np
import pytest

import heating_log
import vem
from small_runs import make_run, tiny_dataset
from vem.data.arrays import from_arrays
from vem.errors import DataError, RunError
from vem.evaluation.differences import compare_with_log
from vem.policy import Policy


def log(actions, discrete=None):
    """Episodes of five steps; the observations are a number that tells the row and one that tells nothing."""
    count = len(actions)
    observations = np.stack([np.linspace(-1, 1, count), np.random.default_rng(0).standard_normal(count)], axis=1)
    ends = np.arange(count) % 5 == 4
    return from_arrays(
        observations,
        np.asarray(actions),
        np.arange(count, dtype=float),
        np.zeros(count, bool),
        ends,
        teleports="keep",
        discrete=discrete,
        action_bounds=None if discrete else (-1.0, 1.0),
    )


def policy(weight, bias, choices=None, **tensors):
    """A policy of one layer on two observations."""
    size = 1
    facts = {
        "actor.0.weight": np.asarray(weight, np.float32),
        "actor.0.bias": np.asarray(bias, np.float32),
        "observation_mean": np.zeros(2, np.float32),
        "observation_deviation": np.ones(2, np.float32),
        "action_low": np.full(size, 0.0 if choices else -1.0, np.float32),
        "action_high": np.full(size, choices - 1 if choices else 1.0, np.float32),
        "value_unit": np.ones((), np.float32),
    }
    if choices:
        facts["action_choices"] = np.array([choices], np.int32)
    return Policy("deterministic", {**facts, **tensors}, {})


def test_numbers_by_hand():
    dataset = log(np.tile([-0.5, 0.5], 50)[:, None])
    found = compare_with_log([policy([[0.0], [0.0]], [np.arctanh(0.25)])], dataset)
    (column,) = found.columns
    assert found.num_steps == dataset.num_transitions
    assert column.mean == pytest.approx(0.25 - dataset.actions[dataset.valid].mean(), abs=1e-5)
    assert (column.spread, column.recorded_spread) == pytest.approx((0.5, 0.5), abs=1e-2)
    assert column.share_higher + column.share_lower == column.share_other == 1
    assert column.direction == "higher"


def test_differences_name_the_columns_they_go_with():
    dataset = log(np.zeros((100, 1)))
    found = compare_with_log([policy([[0.5], [0.0]], [0.0])], dataset)
    (name, correlation), *others = found.columns[0].varies_with
    assert name == "observation 0"
    assert correlation > 0.99
    assert not others
    # The log always does 0, so the policy differs most at the ends of the range.
    assert abs(found.states[0].observation["observation 0"]) > 0.9
    assert len({state.episode for state in found.states}) == len(found.states)
    assert found.states[0].usual["action 0"] == pytest.approx(0, abs=1e-6)


def test_choices_by_hand():
    dataset = log(np.array([0, 1, 1, 2] * 25), discrete=True)
    found = compare_with_log([policy(np.zeros((2, 3)), [0.0, 1.0, 0.0], choices=3)], dataset)
    (column,) = found.columns
    share = float(np.mean(dataset.actions[dataset.valid] != 1))
    assert column.share_other == pytest.approx(share)
    assert {(before, after) for before, after, _ in column.changes} == {("0", "1"), ("2", "1")}
    assert sum(each for *_, each in column.changes) == pytest.approx(share)
    assert "0 → 1" in column.direction
    assert "0 → 1" in str(found)


def test_a_policy_that_does_as_recorded():
    dataset = log(np.ones(50, int) * 0, discrete=True)
    found = compare_with_log([policy(np.zeros((2, 1)), [0.0], choices=1)], dataset)
    assert found.columns[0].share_other == 0
    assert found.states == ()
    assert found.columns[0].direction == "as recorded"


def test_a_run_on_a_table_names_its_columns(tmp_path):
    columns = heating_log.columns(num_days=6, num_steps=10)
    dataset = vem.from_table(heating_log.pa.table(columns), mapping=heating_log.MAPPING)
    run = make_run("bc", tmp_path / "run", dataset).train()
    found = vem.differences(run)
    assert found.num_policies == 2
    assert found.columns[0].name == "valve"
    state = found.states[0]
    assert set(state.observation) == {"temp_in", "mode", "window"}
    assert state.observation["mode"] in ("eco", "comfort", "boost")
    assert isinstance(state.observation["window"], bool)
    assert found.to_dict()["columns"][0]["name"] == "valve"


def test_bad_input(tmp_path):
    run = make_run("bc", tmp_path / "run")
    with pytest.raises(RunError, match="not finished"):
        vem.differences(run)
    run.train()
    with pytest.raises(DataError, match=r"takes observations of 3 numbers .*the data has 2"):
        vem.differences(run, log(np.zeros((20, 1))))
    with pytest.raises(RunError, match="arrays from Python"):
        vem.differences(tmp_path / "run")
    assert vem.differences(tmp_path / "run", tiny_dataset()).num_steps == 20
