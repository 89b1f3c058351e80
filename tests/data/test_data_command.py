import json
import tomllib

import numpy as np
import pytest

from vem import cli
from vem.errors import DataError, SettingsError


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.delenv("VEM_DATA", raising=False)


@pytest.fixture
def directory(tmp_path):
    for name, reward in (("antmaze-umaze", 1), ("my-robot", 0)):
        np.savez(
            tmp_path / f"{name}.npz",
            observations=np.linspace(0, 1, 50)[:, None],
            actions=np.linspace(-1, 1, 50)[:, None],
            rewards=np.full(50, reward),
            terminals=np.arange(50) == 30,
            timeouts=np.arange(50) % 10 == 9,
        )
    return tmp_path


def run(*arguments):
    """Run ``vem data`` with these arguments."""
    return cli._run(["data", *map(str, arguments)])


def test_describe_prints_a_plain_table(directory, capsys):
    run("describe", "antmaze-umaze", "--data-dir", directory)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "antmaze-umaze"
    table = dict(line.split(maxsplit=1) for line in lines[1:] if not line.startswith(("episode ", "reward ")))
    assert table["transitions"] == "45"
    assert table["rows"].startswith("51 ")
    assert "bounds [-1, 0.959184]" in table["actions"]


def test_describe_says_which_task_and_why(directory, capsys):
    run("describe", "antmaze-umaze", "--data-dir", directory)
    printed = capsys.readouterr().out
    assert "task             unknown" in printed
    assert "warning: the name 'antmaze-umaze' means observations of 29" in printed
    np.savez(directory / "mine.npz", observations=np.zeros((9, 11)), actions=np.zeros((9, 3)), rewards=np.arange(9))
    run("describe", directory / "mine.npz", "--task", "hopper-medium")
    assert "task             hopper-medium (as given)" in capsys.readouterr().out
    with pytest.raises(DataError, match="task='door' means"):
        run("describe", directory / "mine.npz", "--task", "door")


def test_describe_on_a_terminal_draws_lines(directory, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    run("describe", "antmaze-umaze", "--data-dir", directory)
    output = capsys.readouterr().out
    assert "│ transitions" in output
    assert "bounds [-1, 0.959184]" in output


def test_describe_json_follows_the_rules(directory, capsys):
    run("describe", directory / "antmaze-umaze.npz", "--json", "--split", "time-limits", "--time-limit", "end")
    facts = json.loads(capsys.readouterr().out)
    assert facts["rules"]["split"] == "time-limits"
    assert facts["ended_by_terminal"] == facts["episodes"] == 5


def test_describe_lists_warnings_once_and_draws(directory, capsys):
    run("describe", directory / "my-robot.npz", "--plot", directory / "picture.png")
    output = capsys.readouterr().out
    assert output.count("warning: column 'rewards' is zero in every step") == 1
    assert (directory / "picture.png").stat().st_size > 10_000


def test_describe_fails_with_one_error(directory):
    with pytest.raises(DataError, match="no dataset 'nothing'"):
        run("describe", "nothing", "--data-dir", directory)


def test_list_tells_what_is_here(directory, capsys):
    run("list", "--data-dir", directory, "--json")
    found = json.loads(capsys.readouterr().out)
    datasets = {entry["name"]: entry for entry in found["datasets"]}
    assert datasets["antmaze-umaze"]["files"] == [str(directory / "antmaze-umaze.npz")]
    assert datasets["pen-human"]["files"] == []
    assert datasets["my-robot"]["kind"] == "file"
    assert datasets["pointmaze-medium"]["kind"] == "built-in"
    assert [place["exists"] for place in found["directories"]] == [True, False]
    run("list", "--data-dir", directory)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "where"]
    assert any(line.startswith("pen-human") and line.endswith("not on this machine") for line in lines)


def test_make_records_a_maze_that_can_be_described(tmp_path, capsys):
    run("make", "pointmaze-umaze", "--rows", 300, "--seed", 3, "--out", tmp_path / "maze.hdf5")
    assert capsys.readouterr().out.strip() == str(tmp_path / "maze.hdf5")
    run("describe", tmp_path / "maze.hdf5", "--json")
    assert json.loads(capsys.readouterr().out)["transitions"] == 300


def test_make_writes_a_minari_dataset(tmp_path, capsys, monkeypatch):
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    run("make", "pointmaze-umaze", "--rows", 300, "--minari", "test/maze-v0")
    assert capsys.readouterr().out.strip() == "minari:test/maze-v0"
    run("describe", "minari:test/maze-v0", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["transitions"] == 300
    assert facts["metadata"]["ref_max_score"] == 1


def test_make_refuses_what_is_no_number_of_rows(capsys):
    with pytest.raises(SystemExit) as caught:
        run("make", "pointmaze-umaze", "--rows", "0")
    assert caught.value.code == 2
    assert "at least 1" in capsys.readouterr().err


@pytest.fixture
def log(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow.parquet

    from heating_log import table

    pyarrow.parquet.write_table(table(), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def test_map_proposes_a_mapping_that_describe_reads(log, tmp_path, capsys):
    run("map", log)
    printed = capsys.readouterr().out
    assert tomllib.loads(printed)["action"] == ["valve"]
    assert "# valve    action: its name sounds like what a controller sets; check" in printed
    run("map", log, "--action", "valve,mode", "--observation", "temp_in", "--out", tmp_path / "map.toml")
    assert "valve    action: as given" in capsys.readouterr().out
    mapping = tomllib.loads((tmp_path / "map.toml").read_text(encoding="utf-8"))
    assert mapping["columns"]["mode"] == {"kind": "discrete", "labels": ["boost", "comfort", "eco"]}
    run("describe", log, "--map", tmp_path / "map.toml", "--action-low", "0,0", "--action-high", "1,2", "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["bounds_source"] == "given"
    assert facts["actions"][0]["high"] == 1
    assert list(facts["actions"][1]["counts"]) == ["boost", "comfort", "eco"]
    assert facts["transitions"] == 11  # 'done' ends the second day, so its last step stays
    with pytest.raises(DataError, match="exists; choose another --out"):
        run("map", log, "--out", tmp_path / "map.toml")


def test_describe_takes_the_mapping_as_flags(log, capsys):
    flags = ["--observation", "temp_in", "--action", "valve", "--reward", "reward", "--episode", "day"]
    run("describe", log, *flags, "--time", "time", "--gap", "900", "--missing", "indicator")
    printed = capsys.readouterr().out
    assert "temp_in, temp_in is missing" in printed
    assert "(the data's own range)" in printed
    with pytest.raises(SettingsError, match="gap is 'soon'"):
        run("describe", log, *flags, "--gap", "soon")
    with pytest.raises(SettingsError, match="--action-low is 'x'"):
        run("describe", log, *flags, "--action-low", "x")


def test_the_picture_of_a_table_names_its_columns(log, tmp_path):
    from heating_log import MAPPING
    from vem.data.description import describe, draw
    from vem.data.load import load

    dataset = load(log, mapping=MAPPING)
    draw(dataset, describe(dataset), tmp_path / "log.svg")
    text = (tmp_path / "log.svg").read_text(encoding="utf-8")
    assert "temp_in" in text
