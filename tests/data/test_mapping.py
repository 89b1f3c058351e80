import json
import os
import tomllib

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from heating_log import MAPPING, columns, table
from vem.data.mapping import TableMap, make_map, to_toml
from vem.data.proposal import propose
from vem.data.tables import from_table, open_table
from vem.errors import DataError, SettingsError

FULL = {
    **MAPPING,
    "terminal": "done",
    "missing": "forward-fill",
    "sentinels": [-999.0],
    "gap": 900.0,
    "duplicates": "first",
    "columns": {"mode": {"kind": "categorical", "labels": ["eco", 'the "other"']}, "valve": {"low": 0.0, "high": 1.0}},
}


def test_a_mapping_survives_json_and_toml(tmp_path):
    mapping = make_map(FULL)
    assert mapping.to_json() == FULL
    text = to_toml(mapping.to_json(), {"gap": ["why"], "columns.valve": ["what"]}, ["heading"])
    assert "# heading" in text
    assert "# why\ngap = 900.0" in text
    assert tomllib.loads(text) == FULL
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    assert make_map(tmp_path / "map.toml") == make_map(str(tmp_path / "map.toml")) == mapping
    assert make_map(mapping, gap="keep").gap == "keep"
    (tmp_path / "map.json").write_text(json.dumps(FULL), encoding="utf-8")
    assert make_map(tmp_path / "map.json") == mapping
    (tmp_path / "map.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"map\.json: the mapping is no JSON"):
        make_map(tmp_path / "map.json")


def test_names_of_columns_need_not_be_words(tmp_path):
    entries = {"observation": ["T außen [°C]"], "columns": {"T außen [°C]": {"kind": "number"}, 'a"b': {"kind": "box"}}}
    assert tomllib.loads(to_toml(entries)) == entries


def test_names_of_columns_cannot_write_entries(tmp_path):
    names = ["valve", "temp", 'x\nreward = "secret"\n# ', 'y\r\nz"] = 3 # \x1b[2J', "\x9b\u202e]", "reward"]
    columns = {name: np.arange(12.0) + number for number, name in enumerate(names)}
    opened = open_table({**columns, "x\nconstant = 1": np.ones(12)})
    proposal = propose(opened, make_map(action=["valve"], columns={names[3]: {"missing": "indicator"}}))
    text = to_toml(proposal.mapping.to_json(), {**proposal.remarks, "gap": ["a\nb = 1"]}, proposal.heading(opened))
    assert tomllib.loads(text) == proposal.mapping.to_json()
    assert tomllib.loads(text)["reward"] == "reward"
    assert tomllib.loads(text)["observation"] == names[1:5]
    assert all(line.isprintable() for line in [*text.splitlines(), *proposal.explanation()])


def test_a_mapping_that_nests_without_end_or_is_a_pipe_is_refused(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(DataError, match=r"deep\.toml: the mapping is no TOML"):
        make_map(tmp_path / "deep.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(DataError, match=r"pipe\.toml: is a pipe or a device"):
        make_map(tmp_path / "pipe.toml")
    with pytest.raises(DataError, match="no user is called so"):
        make_map("~no-such-user/map.toml")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"observations": ["x"]}, "no entry 'observations'; entries are observation"),
        ({"observation": 3}, "observation is 3; give a list of names"),
        ({"observation": ["a", "a"]}, "names 'a' twice"),
        ({"reward": ["r"]}, "reward is .*; give one name"),
        ({"gap": -1}, "gap is -1; give a time above 0"),
        ({"gap": "never"}, "gap is 'never'"),
        ({"missing": "drop"}, "missing is 'drop'; choose one of refuse"),
        ({"duplicates": "last"}, "duplicates is 'last'"),
        ({"sentinels": ["x"]}, "sentinels is .*give numbers"),
        ({"columns": {"valve": {"kinds": "box"}}}, r"\[columns.valve\] has no entry 'kinds'"),
        ({"columns": {"valve": 3}}, r"\[columns.valve\] is 3"),
        ({"columns": 3}, "columns is 3"),
        ({"columns": {"valve": {"kind": "number"}}}, "kind is 'number', and action columns have one of box, discrete"),
        ({"columns": {"reward": {"kind": "box"}}}, "reward columns have no kind"),
        ({"columns": {"other": {"kind": "box"}}}, "the column has no role"),
        ({"columns": {"temp_in": {"low": 0}}}, "low and high are for box actions"),
        ({"columns": {"temp_in": {"kind": "number", "labels": ["a"]}}}, "labels are for categorical"),
        ({"columns": {"valve": {"missing": "indicator"}}}, "missing is 'indicator'; for action columns"),
        ({"action": []}, "names no action column"),
        ({"reward": None}, "names no reward column"),
        ({"observation": ["temp_in", "valve"]}, "column 'valve' is mapped as observation and action"),
        ({"terminal": "reward"}, "column 'reward' is mapped as reward and terminal"),
    ],
)
def test_a_mapping_that_means_nothing_is_refused(entries, message):
    with pytest.raises(SettingsError, match=message):
        from_table(table(), {**MAPPING, **entries})


def test_mapping_files_and_columns_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match=r"no\.toml: the mapping cannot be read"):
        from_table(table(), tmp_path / "no.toml")
    (tmp_path / "map.toml").write_text("observation = [", encoding="utf-8")
    with pytest.raises(DataError, match=r"map\.toml: the mapping is no TOML"):
        from_table(table(), tmp_path / "map.toml")
    with pytest.raises(DataError, match=r"column 'temp_inn', mapped as observation, .* did you mean 'temp_in'\?"):
        from_table(table(), {**MAPPING, "observation": ["temp_inn"]})
    with pytest.raises(SettingsError, match="the mapping is 3"):
        from_table(table(), 3)


def test_the_proposal_gives_a_role_and_a_reason_to_every_column():
    held = {
        "Unnamed: 0": np.arange(12),
        "site": ["north"] * 12,
        "copy": columns()["temp_in"],
        "note": [f"text {i} of {i * i}" for i in range(12)],
        "next_temp_in": np.arange(12.0),
        "stamp": columns()["time"],
    }
    proposal = propose(open_table(table(**held)))
    mapping, reasons = proposal.mapping, proposal.reasons
    assert mapping.observation == ("temp_in", "mode", "window", "note")
    assert mapping.action == ("valve",)
    assert (mapping.reward, mapping.episode, mapping.time, mapping.terminal) == ("reward", "day", "time", "done")
    assert reasons["Unnamed: 0"] == "left out: it numbers the rows"
    assert reasons["site"] == "left out: it never changes"
    assert reasons["copy"] == "left out: it equals 'temp_in' in every row"
    assert reasons["next_temp_in"] == "left out: the next row holds the next observation"
    assert reasons["stamp"].startswith("left out: timestamp")
    assert reasons["mode"] == "observation: 3 categories"
    assert "check" in reasons["valve"]
    assert list(reasons) == table(**held).column_names
    assert "'valve' is an action by its name only" in str(proposal.unclear)
    assert any(line.startswith("to decide") for line in proposal.explanation())


def test_the_proposal_says_what_the_values_ask_for():
    temp = columns()["temp_in"]
    temp[4] = -999
    wanted = {"temp_in": temp, "mode": [*columns()["mode"][:-1], None], "valve": np.arange(12) % 3}
    proposal = propose(open_table(table([0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11], **wanted)), TableMap(action=("valve",)))
    assert proposal.unclear is None
    assert proposal.mapping.gap == 900
    rules = proposal.mapping.columns
    assert rules["temp_in"].sentinels == (-999.0,)
    assert rules["temp_in"].missing == rules["mode"].missing == "indicator"
    assert rules["valve"].kind == "box"
    assert "an amount" in proposal.remarks["columns.valve"][0]
    text = to_toml(proposal.mapping.to_json(), proposal.remarks)
    dataset = from_table(table([0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11], **wanted), tomllib.loads(text))
    assert dataset.num_episodes == 3


def test_proposed_roles_do_not_decide_about_values():
    temp = columns()["temp_in"]
    temp[4] = -999
    with pytest.raises(DataError, match="a sentinel for a missing value"):
        from_table(table(temp_in=temp), action="valve")
