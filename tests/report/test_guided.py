"""Pictures of guided policies: arrows on the maze."""

import re

import numpy as np
import pytest

from evaluation_cases import guided_policy
from small_runs import quick_compilation
from vem.envs.mazes import maze_layout
from vem.reports.mazes import central_rows, plane_moves
from vem.reports.report import write_report

from .conftest import write_episodes, write_run

GUIDED = {"policy": "guided", "horizon": 5, "value_hidden": [8]}
LAYOUT = maze_layout("antmaze-umaze")
CENTERS = np.array([LAYOUT.center(cell) for cell in LAYOUT.free_cells])


def test_a_guided_run_has_arrows(maze_data, tmp_path):
    with quick_compilation(tmp_path / "programs"):
        run = write_run(tmp_path / "vem", maze_data, "vem", **GUIDED)
    write_episodes(run, (6,))
    report = write_report(run, tmp_path / "out")
    text = report.page.read_text(encoding="utf-8")
    assert text.count('data-layer="guide"') == 1
    assert 'id="landscape-0--layer-guide"' in text
    (section,) = [section for section in report.groups[0].sections if section.key == "landscape"]
    assert "Arrows: where the guide heads for" in section.drawings[0].caption
    assert "mean over seeds" in section.drawings[0].caption
    for path in report.figures:
        assert path.suffix != ".svg" or not re.search(r"\bnan\b", path.read_text(encoding="utf-8"))


def test_arrows_start_at_the_recorded_states_nearest_to_the_centers():
    generator = np.random.default_rng(0)
    left, right, bottom, top = LAYOUT.extent
    places = generator.uniform((left, bottom), (right, top), (4000, 2))
    rows = central_rows(np.concatenate([places, CENTERS]), LAYOUT)
    assert len(rows) == LAYOUT.walls.size
    assert set(range(4000, 4000 + len(CENTERS))) <= set(rows.tolist())
    assert central_rows(places[:0], LAYOUT).size == 0


def test_arrows_are_in_the_unit_of_the_observations():
    policy = guided_policy(move=(2.0, 0.0))
    observations = np.random.default_rng(0).uniform(-2, 2, (30, 4))
    assert plane_moves([policy, policy], observations) == pytest.approx(np.tile([2.0, 0.0], (30, 1)))
