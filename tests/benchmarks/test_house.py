"""How far one has to walk in the package: counts that may fall and must not rise."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import house


def test_training_a_file_imports_and_runs_few_modules():
    trace = house.trace_training()
    assert len(trace["imported"]) <= 46
    assert len(trace["run"]) <= 33
    assert "vem.data.tables" not in trace["imported"]
    assert {"vem.plan", "vem.losses", "vem.algorithms.vem"} <= set(trace["run"])


def test_what_is_added_changes_few_files():
    places = house.places_to_change()
    assert places["a setting"] == ["algorithms/vem.py"]
    assert "policy/onnx.py" not in places["a kind of policy"]
