import dataclasses

import numpy as np
import pytest

from vem.data.dataset import sample_episodes
from vem.losses import typical_share
from vem.reports import mazes as landscape
from vem.reports import weights as weighting
from vem.reports.records import label_runs, read_run
from vem.reports.scores import draw_curves, score_row
from vem.reports.style import looks
from vem.training.records import EpisodeRecord
from vem.training.run import Run


@pytest.fixture(scope="module")
def run(trained):
    return read_run(trained["vem"])


def test_series_are_the_swept_settings_with_their_seeds(run):
    assert [one.label for one in run.series] == ["vem, τ = 0.3", "vem, τ = 0.7"]
    assert [one.names for one in run.series][1] == ["seed0-expectile0.7", "seed1-expectile0.7"]
    assert run.series[0].evaluated_at == [3, 6]
    assert {episode.steps for episode in run.series[0].episodes()} == {6}


def test_labels_tell_runs_apart(trained):
    runs = [read_run(trained["vem"]), read_run(trained["vem"])]
    runs[1].config.__dict__["preset"] = "paper"
    label_runs(runs)
    assert [run.label for run in runs] == ["vem (default)", "vem (paper)"]


def test_curves_are_as_recorded(run):
    steps, values = run.series[0].curve("value_loss")
    assert values.shape == (2, len(steps))
    assert values[1, 0] == run.metrics[0].trials["seed1-expectile0.3"]["value_loss"]
    (drawing,) = [d for d in draw_curves(run.series, looks(run.series), "") if d.name == "curve-value-loss"]
    line = drawing.figure.axes[0].get_lines()[0]
    np.testing.assert_allclose(line.get_ydata(), values.mean(0))


def test_a_tile_shows_the_mean_value_of_its_rows(run):
    dataset, one = run.dataset, run.series[0]
    floor = landscape.sort_rows(dataset, landscape.find_layout(run))
    values = landscape.tile_values(floor, dataset, one.policies())
    left, right, bottom, top = floor.layout.extent
    x, y = dataset.observations[floor.rows[0], :2]
    row = int((y - bottom) / (top - bottom) * floor.shape[0])
    column = int((x - left) / (right - left) * floor.shape[1])
    trials = floor.rows[floor.tiles == row * floor.shape[1] + column]
    expected = np.mean([policy.value(dataset.observations[trials]) for policy in one.policies()])
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


def test_recomputed_weights_have_the_effective_sample_of_their_number(run):
    weigh = weighting.weight_function(run, run.dataset)
    expected = typical_share(run.dataset.num_transitions)
    assert expected < 0.9
    for name in ("seed0-expectile0.3", "seed1-expectile0.7"):
        found = weigh(run.policies[name])
        assert found.shape == (run.dataset.num_transitions,)
        assert found.mean() == pytest.approx(1, rel=1e-4)
        assert weighting.effective_share(found) == pytest.approx(expected, abs=0.02)


def test_weights_of_some_rows_have_the_effective_sample_of_all(run):
    some = sample_episodes(run.dataset, 120)
    assert some.num_transitions < 0.6 * run.dataset.num_transitions
    found = weighting.weight_function(run, some)(run.policies["seed0-expectile0.3"])
    assert weighting.effective_share(found) == pytest.approx(typical_share(run.dataset.num_transitions), abs=0.02)


def test_effective_share_of_known_weights():
    assert weighting.effective_share(np.full(7, 3.0)) == pytest.approx(1)
    assert weighting.effective_share(np.array([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert weighting.effective_share(np.array([1.0, -1.0])) == pytest.approx(1)


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
    names = [drawing.name for drawing in draw_curves(odd.series, looks(odd.series), "")]
    assert "curve-up----away" in names


def test_episodes_in_another_environment_are_left_out(vem_run):
    files = Run(vem_run)
    elsewhere = EpisodeRecord("seed0-expectile0.3", 0, seed=0, steps=6, episode_return=9.0, environment="Other-v0")
    files.write_episodes([elsewhere])
    assert elsewhere in files.episodes().records
    run = read_run(vem_run)
    assert len(run.series[0].episodes()) == 12
    assert elsewhere not in run.episodes


def test_failed_episodes_are_left_out_and_said(run, trained):
    damaged = read_run(trained["vem"])
    first = next(i for i, e in enumerate(damaged.episodes) if e.steps == 6)
    damaged.episodes[first] = dataclasses.replace(damaged.episodes[first], episode_return=None, error="crashed")
    row = score_row(damaged.series[0])
    assert (row.num_episodes, row.num_failed) == (11, 1)
    assert "1 episodes failed" in row.remark
    assert row.quantities["score"].mean == pytest.approx(100 * (2 / 5 + 4 / 6) / 2)
