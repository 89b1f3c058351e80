import json
import re
import shutil
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest

from vem.cli import main
from vem.errors import RunError
from vem.reports.records import read_run
from vem.reports.report import write_report

from .conftest import write_maze_data, write_run


class Page(HTMLParser):
    """Collects what a page would fetch, its ids, and its visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched, self.ids, self.links, self.words = [], [], [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            elif name in ("src", "srcset", "xlink:href") or (name == "href" and tag != "a"):
                self.fetched.append(value)
            elif name == "href":
                self.links.append(value)

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="session")
def both(trained, tmp_path_factory):
    """The report of both runs, and its page."""
    report = write_report([trained["vem"], trained["bc"]], tmp_path_factory.mktemp("both"))
    return report, Page(report.page.read_text(encoding="utf-8"))


def test_the_page_fetches_nothing(both):
    _, page = both
    assert page.fetched
    assert all(address.startswith(("data:", "#")) for address in page.fetched)


def test_ids_are_unique_and_every_reference_has_its_target(both):
    report, page = both
    assert len(set(page.ids)) == len(page.ids)
    inside = [address[1:] for address in (*page.fetched, *page.links) if address.startswith("#")]
    inside += re.findall(r"url\(#([^)]+)\)", report.page.read_text(encoding="utf-8"))
    assert set(inside) <= set(page.ids)


def test_every_figure_is_a_png_and_an_svg_file(both):
    report, page = both
    names = {path.name for path in report.figures}
    for path in report.figures:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else ElementTree.fromstring(content) is not None
    assert {f"{name.rsplit('.', 1)[0]}.svg" for name in names} <= names
    linked = {link.removeprefix("figures/") for link in page.links if link.startswith("figures/")}
    assert linked == names
    expected = ("scores", "curve-score", "curve-value-loss", "landscape-0", "landscape-1", "value-error", "returns")
    assert {f"{name}.png" for name in (*expected, "0-sweep-expectile-score")} <= names


def test_figures_in_the_page_take_its_color(both):
    report, _ = both
    text = report.page.read_text(encoding="utf-8")
    assert "currentColor" in text
    svg = (report.page.parent / "figures" / "scores.svg").read_text(encoding="utf-8")
    assert "currentColor" not in svg


def test_scores_are_those_of_the_newest_episodes(both):
    report, page = both
    rows = {row["label"]: row for row in report.to_dict()["datasets"][0]["scores"]}
    row = rows["vem, τ = 0.3"]
    # Seed 0 succeeds in 3 of 6 episodes, seed 1 in 4.
    assert row["quantities"]["score"]["mean"] == pytest.approx(100 * (3 / 6 + 4 / 6) / 2)
    assert row["quantities"]["score"]["std"] == pytest.approx(100 * (4 / 6 - 3 / 6) / np.sqrt(2))
    assert row["quantities"]["value_error"]["mean"] == pytest.approx(0.25)
    assert (row["steps"], row["num_episodes"], row["num_seeds"]) == (6, 12, 2)
    assert "value_error" not in rows["bc"]["quantities"]
    assert rows["recorded episodes"]["quantities"]["success"]["mean"] == pytest.approx(3 / 12)
    assert rows["paper: vem"]["quantities"]["score"]["mean"] == 87.5
    assert "58.3 ± 11.8" in page.text
    assert "Not scored" not in page.text
    assert "Score 0 is a return of 0 and score 100 one of 1 (D4RL)" in page.text


def test_the_page_holds_the_full_configuration_and_marks_differences(both, trained):
    report, page = both
    for name in ("steps_per_refresh", "clip_quantile", "policy_lr", "sha256"):
        assert name in page.text
    rows = re.findall(r'<tr class="differs"><th scope="row">(\w+)</th>', report.page.read_text(encoding="utf-8"))
    assert "algorithm" in rows
    assert "batch_size" not in rows


def test_json_names_what_was_written(trained, tmp_path, capsys):
    assert main(["report", str(trained["bc"]), "--out", str(tmp_path / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["page"] == str(tmp_path / "out" / "report.html")
    assert facts["datasets"][0]["notes"] == []


def test_the_default_place_is_inside_the_run(tmp_path, maze_data, capsys):
    run = write_run(tmp_path / "bc", maze_data, "bc")
    assert main(["report", str(run)]) == 0
    assert f"vem evaluate {run}" in capsys.readouterr().out
    page = (run / "report" / "report.html").read_text(encoding="utf-8")
    assert f"<code>vem evaluate {run}</code>" in page
    assert "Not scored" in page


def test_an_unfinished_run_says_how_to_go_on(vem_run):
    shutil.rmtree(vem_run / "policies")
    (vem_run / "evaluations.jsonl").unlink()
    lines = (vem_run / "metrics.jsonl").read_text().splitlines()
    (vem_run / "metrics.jsonl").write_text(lines[0] + "\n")
    report = write_report([vem_run])
    (note,) = report.groups[0].notes
    assert "not finished: 1 of 6 steps" in note
    assert note.endswith(f"vem train --resume {vem_run}")
    assert {path.stem for path in report.figures} == {"curve-value-loss", "curve-value-mean"}


def test_lost_policies_are_named(vem_run):
    (vem_run / "policies" / "seed1-expectile0.7.safetensors").unlink()
    (vem_run / "policies" / "seed0-expectile0.7.safetensors").write_bytes(b"nothing")
    damaged, missing = read_run(vem_run).notes
    assert "seed0-expectile0.7.safetensors is damaged" in damaged
    assert "2 of its 4 policies" in missing
    assert "seed1-expectile0.7" in missing


def test_damaged_lines_are_counted_and_left_out(vem_run):
    with (vem_run / "evaluations.jsonl").open("a") as file:
        file.write('{"trial": "seed0-expectile0.3", "episode": 0\n[1]\n{"trial": 3, "episode": 0, "seed": 0}\n\n')
    with (vem_run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n{"steps": 7, "trials": {"seed0": 3}}\n')
    run = read_run(vem_run)
    assert any(note.startswith("3 of 51") and "evaluations.jsonl" in note for note in run.notes)
    assert any(note.startswith("2 of 6") and "metrics.jsonl" in note for note in run.notes)
    assert (len(run.episodes), len(run.metrics)) == (48, 4)


def test_changed_data_is_not_used(vem_run, tmp_path):
    other = write_maze_data(tmp_path / "antmaze-umaze.hdf5", seed=1)
    facts = json.loads((vem_run / "config.json").read_text())
    facts["config"]["data"] = str(other)
    (vem_run / "config.json").write_text(json.dumps(facts))
    run = read_run(vem_run)
    assert run.dataset is None
    assert "its rows differ" in run.notes[-1]


def test_data_that_is_gone_or_was_arrays_is_said(vem_run):
    facts = json.loads((vem_run / "config.json").read_text())
    facts["config"]["data"] = str(vem_run / "gone.hdf5")
    (vem_run / "config.json").write_text(json.dumps(facts))
    run = read_run(vem_run)
    assert run.dataset is None
    assert "gone.hdf5" in run.notes[-1]
    assert run.notes[-1].startswith("Figures that need the data are left out")
    facts["data"]["source"] = "arrays"
    (vem_run / "config.json").write_text(json.dumps(facts))
    run = read_run(vem_run)
    assert run.dataset is None
    assert "arrays from Python" in run.notes[-1]


def test_runs_on_different_data_have_their_own_parts(trained, tmp_path, capsys):
    write_run(tmp_path / "logs", write_maze_data(tmp_path / "logs.hdf5"), "bc")
    assert main(["report", str(trained["bc"]), str(tmp_path / "logs"), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "2 datasets" in out
    assert "logs: Its data names no simulator" in out
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
    assert "scores are not compared across them" in page.text
    assert (tmp_path / "out" / "figures" / "logs-curve-policy-loss.png").exists()


@pytest.mark.parametrize("content", [None, "", "{", '{"version": 1}', "[]"])
def test_a_directory_that_is_no_run_is_refused(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    assert main(["report", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert str(tmp_path) in error
    assert error.count("\n") == 1


def test_missing_directories_and_files_are_refused(tmp_path, maze_data, capsys):
    assert main(["report", str(tmp_path / "absent")]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert main(["report", str(maze_data)]) == 1
    assert "is a file" in capsys.readouterr().err


def test_a_run_with_nothing_to_show_is_refused(vem_run):
    shutil.rmtree(vem_run / "policies")
    (vem_run / "metrics.jsonl").unlink()
    with pytest.raises(RunError, match=r"nothing to report; train it with vem train --resume"):
        write_report([vem_run])


def test_an_unwritable_place_is_refused(trained, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["report", str(trained["bc"]), "--out", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert "choose another --out" in error
    assert error.count("\n") == 1


def test_names_from_the_run_are_escaped(vem_run):
    facts = json.loads((vem_run / "config.json").read_text())
    facts["data"]["name"] = "<script>alert(1)</script>"
    (vem_run / "config.json").write_text(json.dumps(facts))
    text = write_report([vem_run]).page.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert ">&lt;script&gt;alert(1)&lt;/script&gt;</h1>" in text


def test_the_headline_favors_none_of_several_equal_rows(both):
    report, page = both
    assert "Score 58.3 in 3 of 3 rows." in page.text
    assert "the highest of" not in page.text
    assert report.groups[0].result[0] == "Score 58.3"


def test_a_notebook_shows_a_few_words(both):
    report, _ = both
    assert repr(report).startswith(f"<Report {report.page}: 2 runs on antmaze-umaze, ")
    assert "\n" not in repr(report)
    assert report._repr_html_().startswith(f'<a href="{report.page}">')
    assert "Score 58.3" in report._repr_html_()
    policy = report.groups[0].series[0].policies[0]
    assert repr(policy) == "<Policy seed0-expectile0.3: gaussian, 29 observations to 8 actions>"


def test_the_parts_come_in_the_order_in_which_people_look_for_them(both):
    report, page = both
    keys = ["scores", "sweep", "landscape", "returns", "checks", "data", "curves", "columns", "support"]
    shown = [section.key for section in report.groups[0].sections]
    assert [key for key in keys if key in shown] == [key for key in shown if key in keys]
    assert shown[:4] == keys[:4]
    assert all(section.has_content for section in report.groups[0].sections)
    assert "Nothing was checked when vem and bc ended." in page.text
