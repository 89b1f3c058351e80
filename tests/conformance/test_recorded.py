"""What each method learned when golden.json was recorded, it learns still.

Where a change is meant to alter it, record it anew:
PYTHONPATH=src:tests python tests/conformance/test_recorded.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from small_runs import OWN_METHODS, quick_compilation, tiny_settings
from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset
from vem.training.request import make_request
from vem.training.run import Run

RECORDED = Path(__file__).parent / "golden.json"
CASES = [(name, "default") for name in OWN_METHODS] + [("vem", "paper"), ("vem", "authors")]
PROBES = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)


def walk_dataset() -> Dataset:
    """Twenty noisy walks of 30 steps; every second one ends with a reward, the others are cut."""
    random = np.random.default_rng(0)
    moves = 0.3 * random.normal(size=(20, 30, 1))
    observations = np.concatenate([np.cumsum(moves, 1), moves, random.normal(size=(20, 30, 1))], 2).reshape(-1, 3)
    intended = np.concatenate([np.tanh(observations[:, :1]), 0.5 * observations[:, 2:]], 1)
    is_end = np.tile(np.arange(30) == 29, 20)
    is_rewarded = is_end & np.repeat(np.arange(20) % 2 == 0, 30)
    return from_arrays(
        observations,
        np.clip(intended + 0.2 * random.normal(size=intended.shape), -1, 1),
        is_rewarded + 0.1 * np.sin(observations[:, 0]),
        is_rewarded,
        is_end & ~is_rewarded,
        name="walk",
        teleports="keep",
        action_bounds=([-1.0, -1.0], [1.0, 1.0]),
    )


def outcome(algorithm: str, preset: str, directory: Path) -> dict[str, list]:
    """Actions and values of a briefly trained policy."""
    settings = tiny_settings(algorithm, batch_size=32, policy_lr=3e-3)
    # Steps large enough that a wrong sign or a swapped argument shows within so few of them.
    settings |= {"effective_sample": None} if "effective_sample" in settings else {}
    settings |= {"value_lr": 3e-3} if "value_hidden" in settings else {}
    # The best of several actions could be another one on another machine.
    settings |= {"num_acting_actions": 1} if "num_acting_actions" in settings else {}
    config = make_request("walk", algorithm, preset=preset, settings=settings, steps=40)
    policy = Run.create(directory, config, walk_dataset()).train().policy
    result = {"actions": policy.act(PROBES).round(5).tolist()}
    return result | ({"values": np.round(policy.value(PROBES), 5).tolist()} if policy.has_value else {})


@pytest.mark.parametrize(("algorithm", "preset"), CASES)
def test_learns_what_was_recorded(algorithm, preset, tmp_path):
    expected = json.loads(RECORDED.read_text())[f"{algorithm}/{preset}"]
    found = outcome(algorithm, preset, tmp_path / "run")
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=2e-3, atol=2e-3, err_msg=name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, quick_compilation(Path(scratch) / "programs"):
        results = {f"{name}/{preset}": outcome(name, preset, Path(scratch) / name / preset) for name, preset in CASES}
    RECORDED.write_text(json.dumps(results, indent=1) + "\n")
