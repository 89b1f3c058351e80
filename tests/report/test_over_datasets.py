"""Methods over all datasets of a report: which runs count, and what the page says of them."""

import shutil
from pathlib import Path

import pytest

from vem.comparison.paper import METHODS
from vem.reports import report as build
from vem.reports.page import Group, render_page
from vem.reports.records import RunRecord, list_series, read_run
from vem.reports.report import over_datasets_section, read_over_datasets, write_report
from vem.reports.style import distinct_styles, drawing_style

from .conftest import write_episodes, write_maze_data, write_run
from .test_report import Page

DATASETS = ("antmaze-umaze", "antmaze-umaze-diverse")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two evaluated runs on each of two mazes; of 4 episodes ``many`` has 3 and 4 successes, ``few`` as many of 6."""
    directory, runs = tmp_path_factory.mktemp("two"), []
    for name in DATASETS:
        data = write_maze_data(directory / f"{name}.hdf5")
        for label, num_episodes in (("many", 4), ("few", 6)):
            runs.append(write_run(directory / name / label, data, "bc"))
            write_episodes(runs[-1], (6,), num_episodes)
    return runs


def grouped(*directories: Path) -> list[Group]:
    """The runs by dataset, without figures."""
    by_data = {}
    for record in map(read_run, directories):
        by_data.setdefault(record.data.info.name, []).append(record)
    return [Group(name, "", own, list_series(own)) for name, own in by_data.items()]


def test_several_datasets_are_put_together(runs):
    over = read_over_datasets(grouped(*runs))
    assert over is not None
    assert over.scores["many"]["antmaze-umaze"].tolist() == [75.0, 100.0]
    assert over.aggregates["many"].mean.value == pytest.approx(87.5)
    assert over.aggregates["few"].mean.value == pytest.approx((50 + 200 / 3) / 2)
    assert over.improvements["few"].value == 1.0
    with drawing_style():
        section = over_datasets_section(over)
    assert section is not None
    names = ["over-datasets-scores", "over-datasets-profile", "over-datasets-improvement"]
    assert [drawing.name for drawing in section.drawings] == names
    page = Page(render_page([], "figures", section))
    assert "Over all datasets" in page.text
    assert "P(many is better)" in page.text
    assert {"over-datasets", "over-datasets-profile--series-1-line"} <= set(page.ids)


@pytest.mark.slow
def test_the_page_has_them_before_the_datasets(runs, tmp_path):
    report = write_report(runs, tmp_path)
    text = report.page.read_text(encoding="utf-8")
    page = Page(text)
    assert "not compared across" not in page.text
    assert text.index('id="over-datasets"') < text.index('id="antmaze-umaze-scores"')
    for name in ("scores", "profile", "improvement"):
        assert (tmp_path / "figures" / f"over-datasets-{name}.png").exists()
    assert len(page.ids) == len(set(page.ids))
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert report.to_dict()["over_datasets"]["datasets"] == list(DATASETS)


def test_each_method_of_the_papers_table_has_a_color_and_a_marker_of_its_own():
    found = distinct_styles(len(METHODS))
    assert len({style.color for style in found}) == len({style.marker for style in found}) == len(METHODS)


def test_a_page_about_many_datasets_compares_and_reads_no_data(runs, tmp_path, monkeypatch):
    def unread(_record):
        raise AssertionError("the data is read")

    monkeypatch.setattr(build, "MOST_IN_FULL", 1)
    monkeypatch.setattr(RunRecord, "dataset", property(unread))
    report = write_report(runs, tmp_path)
    page = Page(report.page.read_text(encoding="utf-8"))
    assert {"over-datasets", *(f"{name}-scores" for name in DATASETS)} <= set(page.ids)
    assert not {f"{DATASETS[0]}-{key}" for key in ("landscape", "returns", "differences")} & set(page.ids)
    assert "paper: vem" in page.text
    assert f"vem report {runs[0].parent}/*/" in page.text
    names = {path.stem for path in report.figures}
    assert names >= {f"{name}-scores" for name in DATASETS}
    assert not any("landscape" in name or name.endswith("value-against-return") for name in names)


def test_a_run_that_was_not_evaluated_at_its_end_does_not_count(runs, tmp_path):
    early = Path(shutil.copytree(runs[3], tmp_path / "few"))
    write_episodes(early, (3,))
    over = read_over_datasets(grouped(*runs[:3], early))
    assert over is not None
    assert not over.is_enough
    section = over_datasets_section(over)
    assert section is not None
    assert "two methods with scores on the same two datasets" in section.lead
    assert "on which a method has no score: antmaze-umaze-diverse (few)." in section.lead
    assert not section.drawings


def test_datasets_without_references_or_evaluation_are_left_out_and_named(runs, tmp_path):
    logs = write_run(tmp_path / "logs" / "few", write_maze_data(tmp_path / "logs.hdf5"), "bc")
    write_episodes(logs, (6,))
    never = write_run(tmp_path / "never" / "few", write_maze_data(tmp_path / "antmaze-medium-play.hdf5"), "bc")
    over = read_over_datasets(grouped(*runs, logs, never))
    assert over is not None
    assert over.is_enough
    assert over.left_out == [
        "Datasets left out, without reference scores: logs.",
        "Datasets left out, without an evaluation: antmaze-medium-play.",
    ]


def test_one_dataset_or_one_method_is_not_put_together(runs):
    assert read_over_datasets(grouped(*runs[:2])) is None
    assert read_over_datasets(grouped(runs[0], runs[2])) is None
    assert over_datasets_section(None) is None
