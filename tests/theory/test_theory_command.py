import csv
import json
import re

import pytest

from vem.cli import main
from vem.theory.claims import Claim
from vem.theory.examples import Toy
from vem.theory.mdp import stochastic_transitions
from vem.theory.output import Caption, Settings, Study, captions, render_page, run

FAST = [
    *("--mdps", "3", "--rollouts", "20", "--rollout-steps", "12", "--pairs", "5"),
    *("--tradeoff-mdps", "3", "--datasets", "3", "--readings-mdps", "2", "--readings-max-steps", "2"),
]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    assert main(["theory", "--out", str(out / "made" / "here"), "--json", str(out / "all.json"), *FAST]) == 0
    return out


def test_every_study_is_written_in_three_forms(written):
    directory = written / "made" / "here"
    for name in ("tradeoff", "horizon", "behavior", "readings"):
        assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (directory / f"{name}.svg").read_text(encoding="utf-8")
        with (directory / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert all(float(value) == float(value) for row in rows for value in row.values())
        assert len(rows) == len(json.loads((written / "all.json").read_text(encoding="utf-8"))["tables"][name])


def test_the_page_needs_no_other_file_and_states_its_settings(written):
    page = (written / "made" / "here" / "index.html").read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(sources) == 4
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "3 random deterministic processes" in page
    assert "20 rollouts of 12 steps" in page
    for claim in json.loads((written / "all.json").read_text(encoding="utf-8"))["claims"]:
        assert claim["verdict"] in ("holds", "in part", "fails")
    assert page.count('<td class="verdict') == len(
        json.loads((written / "all.json").read_text(encoding="utf-8"))["claims"]
    )


def test_the_same_command_writes_the_same_bytes(written, tmp_path):
    assert main(["theory", "--out", str(tmp_path), *FAST]) == 0
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (written / "made" / "here" / path.name).read_bytes(), path.name


def test_stochastic_processes_leave_out_what_needs_enumeration():
    toy = Toy(2, transitions=stochastic_transitions, num_rollouts=10, rollout_steps=12, num_pairs=3)
    settings = Settings(toy=toy, tradeoff=toy, readings=toy)
    assert "readings" not in run(settings).tables
    assert "2 random stochastic processes" in captions(settings)["horizon"].shows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expectiles", "0.6", "1.5"], "the expectile is 1.5; it must lie strictly between 0 and 1"),
        (["--tradeoff-expectiles", "0"], "strictly between 0 and 1"),
        (["--step-size", "0.9"], "the step size is 0.9; at expectile 0.6"),
        (["--states", "0"], "the number of states is 0"),
        (["--discount", "1"], "the discount is 1.0"),
        (["--rollout-steps", "3"], "cannot be planned over 10 steps"),
        (["--removed-actions", "3"], "cannot remove 3 of 3 actions"),
        (["--noise", "-1"], "noise"),
        (["--noise", "nan"], "noise"),
        (["--temperature", "nan"], "temperature"),
        (["--temperatures", "1", "0"], "temperature is 0.0"),
        (["--discount", "nan"], "discount"),
        (["--seed", "-1"], "the seed is -1"),
        (["--actions", "1", "--removed-actions", "0"], "the number of actions is 1"),
        (["--mdps", "0"], "the number of MDPs is 0"),
        (["--readings-max-steps", "15", "--rollout-steps", "15"], "too many rollouts"),
    ],
)
def test_bad_settings_are_one_clear_error(arguments, message, tmp_path, capsys):
    assert main(["theory", "--out", str(tmp_path / "out"), *FAST, *arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("option", ["--out", "--json"])
def test_a_place_that_cannot_be_written_is_found_before_the_work(option, tmp_path, capsys):
    (tmp_path / "file").write_text("not a directory")
    assert main(["theory", "--out", str(tmp_path), option, str(tmp_path / "file" / "below" / "x")]) == 1
    assert "choose another place" in capsys.readouterr().err


@pytest.fixture
def full_disk():
    """A place for files of at most 100 kB: what a full disk does to larger ones."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_found_before_the_work(full_disk, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vem.theory.output.run", lambda settings: pytest.fail("the work began"))
    assert main(["theory", "--out", str(tmp_path / "out"), *FAST]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: cannot write 2 MB")
    assert error.count("\n") == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_a_disk_that_fills_later_is_one_clear_error(full_disk, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("vem.theory.output.prepare", lambda directory: directory.mkdir())
    assert main(["theory", "--out", str(tmp_path / "out"), *FAST]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: cannot write")
    assert error.count("\n") == 1


def test_text_on_the_page_is_escaped():
    caption = Caption("a < b", "shows & tells", '"see"')
    claim = Claim("3.1", "<script>alert(1)</script>", "x > y", "in part")
    page = render_page([Study([{"x": 1.0, "x_low": 0.0}], b"<svg/>", caption)], [claim])
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "a &lt; b" in page
    assert "0 holds, 1 in part, 0 fails" in page
    assert "x_low" not in page


def test_words_for_numbers_are_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["theory", "--states", "many"])
    assert stopped.value.code == 2
    assert "--states" in capsys.readouterr().err
