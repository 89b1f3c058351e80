import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "five_states.py"


@pytest.mark.slow
def test_the_example_goes_from_the_table_to_a_policy_that_walks_right(capsys):
    names = runpy.run_path(str(EXAMPLE))
    assert (names["run"].policy.act(names["np"].eye(5)[:4]) > 0).all()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("optimal V*") and "0.729 0.81  0.9   1." in line for line in lines)


def test_the_example_is_about_fifty_lines():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
