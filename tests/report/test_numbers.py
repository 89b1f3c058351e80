import dataclasses

import numpy as np
import pytest

from vem.data.dataset import sample_episodes
from vem.evaluation.statistics import Spread
from vem.reports import mazes as landscape
from vem.reports.log import draw_weights
from vem.reports.records import common_labels, list_series, read_run
from vem.reports.scores import ScoreRow, behavior_row, draw_curves, score_row
from vem.reports.style import cell_text
from vem.training.diagnostics import summarize_weights
from vem.training.records import EpisodeRecord
from vem.training.run import Run


@pytest.fixture(scope="module")
def run(trained):
    return read_run(trained["vem"])


@pytest.fixture(scope="module")
def series(run):
    return list_series([run])


def test_series_are_the_swept_settings_with_their_seeds(series):
    assert [one.label for one in series] == ["vem, τ = 0.3", "vem, τ = 0.7"]
    assert [one.names for one in series][1] == ["seed0-expectile0.7", "seed1-expectile0.7"]
    assert series[0].evaluated_at == [3, 6]
    assert {episode.steps for episode in series[0].episodes()} == {6}
    assert series[0].style.color != series[1].style.color


def test_labels_tell_runs_apart(trained):
    runs = [read_run(trained["vem"]), read_run(trained["vem"])]
    runs[1].config.__dict__["preset"] = "paper"
    assert common_labels([runs]) == [["vem (default)", "vem (paper)"]]


def test_curves_are_as_recorded(run, series):
    steps, values = series[0].curve("value_loss")
    assert values.shape == (2, len(steps))
    assert values[1, 0] == run.metrics[0].trials["seed1-expectile0.3"]["value_loss"]
    (drawing,) = [d for d in draw_curves(series) if d.name == "curve-value-loss"]
    line = drawing.figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), values.mean(0))


def test_a_tile_shows_the_mean_value_of_its_rows(run):
    dataset, one = run.dataset, list_series([run])[0]
    floor = landscape.sort_rows(dataset, landscape.find_layout(run))
    values = landscape.tile_values(floor, dataset, one.policies)
    left, right, bottom, top = floor.layout.extent
    x, y = dataset.observations[floor.rows[0], :2]
    row = int((y - bottom) / (top - bottom) * floor.shape[0])
    column = int((x - left) / (right - left) * floor.shape[1])
    trials = floor.rows[floor.tiles == row * floor.shape[1] + column]
    expected = np.mean([policy.value(dataset.observations[trials]) for policy in one.policies])
    assert values[row, column] == pytest.approx(expected, rel=1e-5)
    assert np.isnan(values[0, 0])
    assert np.isfinite(values).sum() == len(np.unique(floor.tiles))


def test_no_row_is_outside_its_tile(run):
    floor = landscape.sort_rows(run.dataset, landscape.find_layout(run))
    left, _, bottom, _ = floor.layout.extent
    size = floor.layout.cell_size / landscape.TILES_PER_CELL
    rows, columns = np.divmod(floor.tiles, floor.shape[1])
    x, y = run.dataset.observations[floor.rows, 0], run.dataset.observations[floor.rows, 1]
    assert np.all(np.abs(left + (columns + 0.5) * size - x) <= size / 2 + 1e-4)
    assert np.all(np.abs(bottom + (rows + 0.5) * size - y) <= size / 2 + 1e-4)


def test_weights_are_drawn_as_training_wrote_them(trained, vem_run):
    assert draw_weights(list_series([read_run(trained["vem"])])) == []
    files = Run(vem_run)
    files.write_weights([summarize_weights(np.array([0.0, 1.0, 2.0, 9.0]))] * 4)
    series = list_series([read_run(vem_run)])
    spread, carried = draw_weights(series)
    assert "25% of the weights are 0" in spread.caption
    assert "vem, τ = 0.3: ESS 42%" in spread.svg
    line = np.asarray(carried.figure.axes[0].get_lines()[0].get_ydata())
    assert line[[0, 25, 50, 100]] == pytest.approx([0, 75, 100 * 11 / 12, 100])


def test_a_sample_is_made_of_whole_episodes(run):
    sample = sample_episodes(run.dataset, num_rows=100)
    assert 50 < sample.num_rows <= 100
    whole = {tuple(run.dataset.observations[i]) for i in run.dataset.episode_starts}
    assert {tuple(sample.observations[i]) for i in sample.episode_starts} <= whole
    assert sample.episode_lengths.tolist() == [30 if terminal else 29 for terminal in _ends(sample)]


def _ends(dataset):
    return [bool(dataset.terminal[end - 1]) for end in dataset.episode_ends]


def test_odd_metric_names_make_plain_file_names(trained):
    odd = read_run(trained["vem"])
    for line in odd.metrics:
        for metrics in line.trials.values():
            metrics["../up & <away>"] = 1.0
    names = [drawing.name for drawing in draw_curves(list_series([odd]))]
    assert "curve-up----away" in names


def test_episodes_in_another_environment_are_left_out(vem_run):
    files = Run(vem_run)
    elsewhere = EpisodeRecord("seed0-expectile0.3", 0, seed=0, steps=6, episode_return=9.0, environment="Other-v0")
    files.write_episodes([elsewhere])
    assert elsewhere in files.episodes().records
    run = read_run(vem_run)
    assert len(list_series([run])[0].episodes()) == 12
    assert elsewhere not in run.episodes


def test_failed_episodes_are_left_out_and_said(run, trained):
    damaged = read_run(trained["vem"])
    first = next(i for i, e in enumerate(damaged.episodes) if e.steps == 6)
    damaged.episodes[first] = dataclasses.replace(damaged.episodes[first], episode_return=None, error="crashed")
    row = score_row(list_series([damaged])[0])
    assert (row.num_episodes, row.num_failed) == (11, 1)
    assert "1 episode failed" in row.remark
    assert row.quantities["score"].mean == pytest.approx(100 * (2 / 5 + 4 / 6) / 2)


def test_recorded_episodes_of_another_length_are_said(run):
    same = ScoreRow("vem", "policy", quantities={"length": Spread(30.0, None, 30.0, None)})
    short = ScoreRow("vem", "policy", quantities={"length": Spread(10.0, None, 10.0, None)})
    assert behavior_row(run, run.dataset, [same]).remark == "as recorded, from other starts"
    assert "these episodes have 29 steps, those of the policies 10" in behavior_row(run, run.dataset, [short]).remark


def test_an_executors_loss_is_not_drawn_beside_a_policys(trained, vem_run):
    lines = (vem_run / "metrics.jsonl").read_text()
    (vem_run / "metrics.jsonl").write_text(lines.replace('"policy"', '"executor"'))
    series = list_series([read_run(vem_run), read_run(trained["bc"])])
    names = [drawing.name for drawing in draw_curves(series) if "policy-loss" in drawing.name]
    assert names == ["curve-policy-loss", "curve-policy-loss-executor"]
    assert "curve-policy-loss" in {drawing.name for drawing in draw_curves(series[:-1])}


def test_numbers_are_written_alike():
    assert [cell_text(value) for value in (10480.0, 5688.0, -24210.0, 0.12345, -0.0)] == [
        "10,480",
        "5,688",
        "−24,210",
        "0.1235",
        "0",
    ]
