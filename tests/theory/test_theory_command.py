import csv
import json
import re
from pathlib import Path

import pytest

from vem.cli import main

RECORD = Path(__file__).parents[2] / "benchmarks" / "results" / "theory.json"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    assert main(["theory", "--small", "--out", str(out / "made" / "here"), "--json", str(out / "all.json")]) == 0
    return out / "made" / "here", json.loads((out / "all.json").read_text(encoding="utf-8"))


def test_every_study_is_written_in_three_forms(written):
    directory, numbers = written
    for name in ("tradeoff", "horizon", "behavior", "readings"):
        assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (directory / f"{name}.svg").read_text(encoding="utf-8")
        with (directory / f"{name}.csv").open(encoding="utf-8") as file:
            rows = [{key: float(f"{float(value):.6g}") for key, value in row.items()} for row in csv.DictReader(file)]
        assert rows == numbers["tables"][name]


def test_the_page_needs_no_other_file_and_states_its_settings(written):
    directory, numbers = written
    page = (directory / "index.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "3 random deterministic processes" in page
    assert "20 rollouts of 12 steps" in page
    assert "value_low" not in page
    assert page.count('<td class="verdict') == len(numbers["claims"])
    counts = [sum(claim["verdict"] == word for claim in numbers["claims"]) for word in ("holds", "in part", "fails")]
    assert "{} holds, {} in part, {} fails".format(*counts) in " ".join(page.split())


def test_every_statement_of_the_record_is_measured(written):
    """The seed, the sizes and so the numbers differ; the statements and their order do not."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    measured = [(claim["section"], claim["statement"]) for claim in written[1]["claims"]]
    assert measured == [(claim["section"], claim["statement"]) for claim in record["claims"]]
    for name, table in record["tables"].items():
        assert [list(row) for row in table] == [list(row) for row in written[1]["tables"][name]]


def test_the_same_seed_writes_the_same_bytes_and_another_one_others(written, tmp_path):
    assert main(["theory", "--small", "--out", str(tmp_path / "same")]) == 0
    assert main(["theory", "--small", "--out", str(tmp_path / "other"), "--seed", "1"]) == 0
    for path in (tmp_path / "same").iterdir():
        assert path.read_bytes() == (written[0] / path.name).read_bytes(), path.name
        assert path.read_bytes() != (tmp_path / "other" / path.name).read_bytes(), path.name


@pytest.mark.parametrize("option", ["--out", "--json"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(option, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vem.theory.output.measure_claims", lambda *_: pytest.fail("the work began"))
    (tmp_path / "file").write_text("not a directory")
    place = tmp_path / "file" / "below" / "x"
    assert main(["theory", "--small", "--out", str(tmp_path), option, str(place)]) == 1
    assert "choose another place" in capsys.readouterr().err


def test_a_seed_below_zero_is_one_clear_error(tmp_path, capsys):
    assert main(["theory", "--out", str(tmp_path), "--seed", "-1"]) == 1
    assert capsys.readouterr().err == "error: the seed is -1; it must be at least 0\n"
