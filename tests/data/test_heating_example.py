import runpy
import sys
from pathlib import Path

import pytest

from small_runs import quick_compilation

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow  # it trains
EXAMPLE = Path(__file__).parents[2] / "examples" / "heating.py"


def test_the_example_goes_from_a_log_to_a_policy_with_the_logs_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["heating.py", str(tmp_path), "40"])
    with quick_compilation(tmp_path / "programs"):
        names = runpy.run_path(str(EXAMPLE))
    info = names["dataset"].info
    assert names["dataset"].num_episodes == 28
    assert info.rules["order"] == "sorted by day and time"
    assert (info.action_low, info.action_high, info.bounds_source) == ((0.0,), (1.0,), "given")
    assert {name: 0 <= valve <= 1 for row in (names["warm"], names["cold"]) for name, valve in row.items()} == {
        "valve": True
    }
    text = capsys.readouterr().out
    assert "mode=comfort" in text
    assert "valve in [0, 1], bounds [0, 1]" in text
    assert "reward a day: thermostat -34.7, policy -" in text
