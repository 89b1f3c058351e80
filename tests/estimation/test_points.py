"""Runs without an environment: their points on the way are compared by held-out estimates."""

import pytest

import vem
from tiny import SMALL, tiny_dataset
from vem.errors import SettingsError
from vem.estimation import points
from vem.training import loop
from vem.training.run import Run

SETTINGS = {name: SMALL[name] for name in ("policy_hidden", "batch_size")}


def test_policies_on_the_way_are_kept_and_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr(points, "NUM_STEPS", 20)
    monkeypatch.setattr(loop, "LONGEST_CHUNK", 10)
    dataset = tiny_dataset(num_episodes=30)
    given = {"steps": 40, "evaluate_every": 0.5, "progress": False, **SETTINGS}
    run = vem.train(dataset, "bc", hold_out=0.3, out=tmp_path / "run", **given)
    assert run.points == [20, 40]
    found = {line.steps: line.mean for line in Run.open(run.directory).point_estimates().records}
    assert list(found) == [20, 40]
    assert run.best is not None
    assert (run.best.steps, run.best.kind) == (max(found, key=lambda steps: found[steps]), "estimate")
    assert run.policies_at(20)[0].info["steps"] == 20


def test_without_an_environment_and_held_out_data_there_is_nothing_to_evaluate_by(tmp_path):
    with pytest.raises(SettingsError, match=r"nothing to evaluate by.*--hold-out 0\.2"):
        vem.train(tiny_dataset(), "bc", evaluate_every=10, out=tmp_path / "run", **SETTINGS)
    assert not (tmp_path / "run").exists()
