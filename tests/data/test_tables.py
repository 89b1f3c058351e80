import dataclasses
import os

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from heating_log import MAPPING, columns, table
from vem.data.description import describe
from vem.data.load import convert, load
from vem.data.tables import from_table, open_table
from vem.errors import DataError, DataWarning, SettingsError

SHUFFLED = [7, 2, 11, 0, 5, 9, 4, 1, 10, 3, 8, 6]


def read(rows=None, changes=None, **entries):
    return from_table(table(rows, **(changes or {})), {**MAPPING, **entries})


def steps_of(dataset):
    """The inside temperature of each row, ``t`` after a terminal step and ``|`` before a final observation."""
    rows = zip(dataset.observations[:, 0], dataset.valid, dataset.terminal, strict=True)
    return " ".join(f"{v:g}{'t' if end else ''}" if valid else f"|{v:g}" for v, valid, end in rows)


def test_rows_become_steps_and_columns_become_observations():
    dataset = read(terminal="done")
    assert steps_of(dataset) == "18 18.5 19 19.5 20 |20.5 28 28.5 29 29.5 30 30.5t |30.5"
    assert dataset.observation_names == ("temp_in", "mode=boost", "mode=comfort", "mode=eco", "window")
    np.testing.assert_array_equal(dataset.observations[1], [18.5, 0, 1, 0, 1])
    np.testing.assert_allclose(dataset.actions[:3, 0], [0, 0.1, 0.2], rtol=1e-6)
    np.testing.assert_array_equal(dataset.rewards[:6], [-1, -2, -3, -4, -5, 0])
    assert dataset.info.bounds_source == "data"
    assert dataset.info.action_low == (0.0,)
    np.testing.assert_allclose(dataset.info.action_high, (0.7,), rtol=1e-6)
    assert dataset.info.action_columns[0].name == "valve"


def test_interleaved_rows_are_sorted_by_episode_and_time():
    sorted_rows = read(SHUFFLED)
    assert sorted_rows.fingerprint() == read().fingerprint()
    assert sorted_rows.info.rules["order"] == "sorted by day and time"
    assert read().info.rules["order"] == "by episode and time, as in the table"


def test_every_format_gives_the_same_dataset(tmp_path):
    log = table(SHUFFLED)
    pyarrow.parquet.write_table(log, tmp_path / "log.parquet", row_group_size=5)
    pyarrow.feather.write_feather(log, str(tmp_path / "log.feather"))
    pyarrow.csv.write_csv(log, tmp_path / "log.csv")
    with pa.ipc.new_stream(tmp_path / "log.arrow", log.schema) as stream:
        stream.write_table(log)
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in range(12):
        pyarrow.parquet.write_table(log.slice(number, 1), folder / f"part-{number}.parquet")
    for source in ("log.parquet", "log.feather", "log.csv", "log.arrow", "shards"):
        dataset = load(tmp_path / source, mapping=MAPPING)
        assert dataset.fingerprint() == read().fingerprint(), source
        assert dataset.info.source == str(tmp_path / source)
        assert dataset.info.name == source.split(".")[0]


def test_frames_of_pandas_and_polars():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    held = {name: values[SHUFFLED] for name, values in columns().items()}
    for frame in (pandas.DataFrame(held), polars.DataFrame(held), polars.LazyFrame(held), held):
        assert from_table(frame, MAPPING).fingerprint() == read().fingerprint()
    indexed = pandas.DataFrame(held).set_index("time")
    assert from_table(indexed, MAPPING).fingerprint() == read().fingerprint()


def test_semicolons(tmp_path):
    lines = ["t;x;a;reward", *(f"{i};{i}.5;0.{i};1" for i in range(5))]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    dataset = load(tmp_path / "log.csv", observation=["x"], action=["a"])
    np.testing.assert_array_equal(dataset.observations[:, 0], np.arange(5) + 0.5)
    (tmp_path / "log.csv").write_text("\n".join(lines).replace(".", ","), encoding="utf-8")
    with pytest.raises(DataError, match="'a' holds '0,0' at row 0"):
        load(tmp_path / "log.csv", observation=["x"], action=["a"], columns={"a": {"kind": "box"}})


def test_columns_named_by_convention_need_no_mapping():
    log = {"episode": [0] * 5, "step": range(5), "x": np.arange(5.0), "action_0": np.linspace(-2.5, 2, 5)}
    with pytest.warns(DataWarning, match="columns' names decided: observation x; action action_0; reward reward"):
        dataset = from_table({**log, "reward": np.arange(5.0) * 2})
    assert dataset.num_transitions == 4
    with pytest.raises(DataError, match=r"no column is called reward.*vem data map FILE"):
        from_table(log)
    with pytest.raises(DataError, match="'valve' is an action by its name only"):
        from_table(table())
    assert from_table(table(), action="valve").info.rules["mapping"]["episode"] == "day"


@pytest.mark.parametrize(
    ("rows", "entries", "message"),
    [
        (SHUFFLED, {"episode": None}, r"column 'time' runs backwards 6 times, first from .* at row 0 to .* at row 1.*"),
        (SHUFFLED, {"time": None}, r"column 'day' is 1 up to row 0 and again at row 2: .*interleaved.*Map the time"),
        (SHUFFLED, {"time": None, "episode": None}, "not in the order of column 'time': .*from row 0 to row 1"),
        ([6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5], {"episode": None}, r"runs backwards 1 times.*or say gap = 900"),
        ([0, 1, 2, 2, 3, 4], {}, r"row 2 and row 3 are one step twice: 'day' is 0 and 'time' is 2024-01-01 00:20:00"),
        ([0, 1, 1, 2], {"episode": None}, r"column 'time' is 2024-01-01 00:10:00 at row 1 and at row 2"),
        ([0, 1, 2, 4, 5, 6, 7, 8], {}, r"'time' jumps by 20 minutes from row 2 to row 3.*10 minutes.*gap = 900"),
        ([0, 1, 2, 3, 6, 7, 8], {"episode": None}, r"jumps by 12.5 hours from row 3 to row 4, .*1 such gap"),
    ],
)
def test_rows_out_of_order_are_refused_where_transitions_would_be_wrong(rows, entries, message):
    with pytest.raises(DataError, match=message):
        read(rows, **entries)


def test_a_gap_ends_the_trajectory():
    assert steps_of(read([0, 1, 2, 4, 5], gap=900)) == "18 18.5 |19 20 |20.5"
    assert steps_of(read([0, 1, 2, 4, 5], gap="keep")) == "18 18.5 19 20 |20.5"
    assert steps_of(read([6, 7, 8, 0, 1, 2], episode=None, gap=900)) == "28 28.5 |29 18 18.5 |19"
    assert steps_of(read(episode=None, gap=900)) == steps_of(read())


def test_repeated_rows_can_be_dropped():
    dataset = read([0, 1, 1, 2], duplicates="first")
    assert steps_of(dataset) == "18 18.5 |19"
    assert dataset.info.rules["order"].endswith("1 repeated rows dropped")


def test_a_table_without_order_is_one_trajectory_and_says_so():
    bare = {"episode": None, "time": None}
    with pytest.warns(DataWarning, match="read as one trajectory of 12 rows"):
        dataset = read(changes={"time": None, "temp_in": np.arange(12.0)}, **bare)
    assert dataset.num_episodes == 1
    jumping = np.where(np.arange(300) < 150, np.arange(300.0), np.arange(300.0) + 1e4)
    log = {"x": jumping, "a": np.arange(300.0), "r": np.arange(300.0)}
    with pytest.warns(DataWarning, match=r"one trajectory|jumps at 1 steps .*first after row 149"):
        dataset = from_table(log, {"observation": ["x"], "action": ["a"], "reward": "r"})
    assert dataset.num_episodes == 2
    assert dataset.info.rules["teleports"] == "split"


def missing(name, rows):
    values = columns()[name].astype(object)
    values[rows] = None
    return {name: pa.array(values.tolist())}


def test_missing_observations_follow_the_stated_rule():
    changes = missing("temp_in", [2, 3]) | missing("mode", [3])
    with pytest.raises(DataError, match=r"column 'temp_in' misses 2 of 12 values, the first at row 2; say missing ="):
        read(changes=changes)
    held = read(changes=changes, missing="forward-fill")
    np.testing.assert_array_equal(held.observations[1:5, 0], [18.5, 18.5, 18.5, 20])
    np.testing.assert_array_equal(held.observations[3, 1:4], held.observations[2, 1:4])
    flagged = read(changes=changes, missing="indicator")
    assert flagged.observation_names[:2] == ("temp_in", "temp_in is missing")
    present = np.delete(columns()["temp_in"], [2, 3])
    np.testing.assert_allclose(flagged.observations[2, :2], [present.mean(), 1], rtol=1e-6)
    assert flagged.observations[3, -1] == 0
    np.testing.assert_array_equal(flagged.observations[3, 2:6], [0, 0, 0, 1])
    mixed = read(changes=changes, columns={"temp_in": {"missing": "forward-fill"}, "mode": {"missing": "indicator"}})
    assert mixed.observation_size == 6


def test_forward_fill_stays_within_the_episode_and_follows_time():
    with pytest.raises(DataError, match=r"'temp_in' is missing its value at row 6, and no earlier row of the episode"):
        read(changes=missing("temp_in", [6]), missing="forward-fill")
    changes = missing("temp_in", [4])
    shuffled = table(**changes).take(pa.array(SHUFFLED))
    assert from_table(shuffled, {**MAPPING, "missing": "forward-fill"}).observations[4, 0] == 19.5


def test_missing_actions_and_rewards_are_refused_but_at_the_final_observation():
    assert steps_of(read(changes=missing("valve", [5, 11]) | missing("reward", [5]))) == steps_of(read())
    with pytest.raises(DataError, match=r"action column 'valve' is missing its value at row 3 \(1 such steps\)"):
        read(changes=missing("valve", [3]))
    with pytest.raises(DataError, match=r"reward column 'reward' is missing its value at row 3"):
        read(changes=missing("reward", [3]))
    held = read(changes=missing("valve", [3]), columns={"valve": {"missing": "forward-fill"}})
    assert held.actions[3, 0] == held.actions[2, 0]


def test_sentinels_are_found_and_read_as_missing_if_declared():
    values = columns()["temp_in"]
    values[[3, 4]] = -999
    changes = {"temp_in": values}
    with pytest.raises(DataError, match=r"'temp_in' is -999 in 2 rows, first at row 3, .*sentinels = \[-999\]"):
        read(changes=changes)
    with pytest.raises(DataError, match=r"'temp_in' misses 2 of 12 values"):
        read(changes=changes, sentinels=[-999])
    held = read(changes=changes, columns={"temp_in": {"sentinels": [-999], "missing": "forward-fill"}})
    np.testing.assert_array_equal(held.observations[2:5, 0], [19, 19, 19])
    assert read(changes=changes, sentinels=[]).observations[3, 0] == -999


def test_columns_that_say_nothing_or_too_much_are_warned_of():
    with pytest.warns(DataWarning, match="column 'temp_in' never changes"):
        read(changes={"temp_in": np.ones(12)})
    with pytest.warns(DataWarning, match="columns 'temp_in' and 'other' are equal in every row"):
        read(changes={"other": columns()["temp_in"]}, observation=["temp_in", "other"])
    with pytest.warns(DataWarning, match=r"column 'echo', an observation, equals the action 'valve' in every row"):
        read(changes={"echo": columns()["valve"]}, observation=["temp_in", "echo"])


def test_discrete_actions_have_labels_and_codes():
    dataset = read(action=["mode", "valve"], observation=["temp_in"])
    mode, valve = dataset.info.action_columns
    assert (mode.kind, mode.labels, mode.low, mode.high) == ("discrete", ("boost", "comfort", "eco"), 0.0, 2.0)
    assert (valve.kind, valve.labels, valve.low) == ("box", (), 0.0)
    np.testing.assert_array_equal(dataset.actions[:3, 0], [2, 1, 0])
    assert dataset.info.bounds_source == "data"
    ordered = {"mode": {"labels": ["eco", "comfort", "boost", "off"]}}
    dataset = read(action=["mode"], observation=["temp_in"], columns=ordered)
    np.testing.assert_array_equal(dataset.actions[:3, 0], [0, 1, 2])
    assert dataset.info.action_high == (3.0,)
    boolean = read(action=["window"], observation=["temp_in"]).info
    assert boolean.action_columns[0].labels == ("false", "true")
    assert boolean.encoder.output_types == ("boolean",)


def test_few_whole_numbers_ask_whether_they_are_choices():
    changes = {"valve": np.arange(12) % 3}
    with pytest.warns(DataWarning, match=r"'valve' holds only 3 whole numbers \(0, 1, 2\): an amount or a choice"):
        assert read(changes=changes).info.action_columns[0].kind == "box"
    dataset = read(changes=changes, columns={"valve": {"kind": "discrete"}})
    assert dataset.info.action_columns[0].labels == ("0", "1", "2")
    assert dataset.info.encoder.output_types == ("integer",)
    assert read(changes=changes, columns={"valve": {"kind": "box"}}).info.action_high == (2.0,)


def test_bounds_may_be_given():
    info = read(columns={"valve": {"low": 0, "high": 1}}).info
    assert (info.action_low, info.action_high, info.bounds_source) == ((0.0,), (1.0,), "given")
    assert info.encoder.outputs == info.action_columns
    info = from_table(table(), MAPPING, action_bounds=(-1, None)).info
    assert (info.action_low, info.bounds_source) == ((-1.0,), "given and data")
    with pytest.warns(DataWarning, match="column 'valve' holds 0.6 at row"):
        read(columns={"valve": {"low": 0, "high": 0.5}})
    with pytest.raises(SettingsError, match="in column 'valve' the lower bound 2 is not below"):
        read(columns={"valve": {"low": 2, "high": 1}})


def test_descriptions_name_the_columns_and_the_bounds():
    text = str(describe(read(columns={"valve": {"low": 0, "high": 1}})))
    assert "temp_in, mode=boost, mode=comfort, mode=eco, window" in text
    assert "valve in [0, 0.6], bounds [0, 1]" in text
    assert "bounds [0, 1] (as given)" in text
    assert "order = by episode and time, as in the table" in text
    assert "(the data's own range)" in str(describe(read()))


def test_flags_and_ends():
    done = np.arange(12) == 2
    with pytest.warns(
        DataWarning, match="'done' is set at 1 steps that are not the last of their episode, first at row 2"
    ):
        dataset = read(changes={"done": done}, terminal="done")
    assert steps_of(dataset).startswith("18 18.5 19t |19 19.5 20 |20.5")
    truncated = read(changes={"done": done.astype(int)}, truncated="done")
    assert steps_of(truncated).startswith("18 18.5 |19 19.5 20 |20.5")
    assert steps_of(from_table(table(), MAPPING, time_limit="end")).startswith("18 18.5 19 19.5 20 20.5t |20.5")
    with pytest.raises(DataError, match=r"column 'done' holds 2 at row 4, and flags are 0 or 1"):
        read(changes={"done": np.arange(12) // 4 + (np.arange(12) == 4)}, terminal="done")


def test_ends_may_be_written_as_words():
    words = ["no"] * 11 + ["Yes"]
    assert read(changes={"done": words}, terminal="done").fingerprint() == read(terminal="done").fingerprint()
    with pytest.raises(DataError, match="column 'done' holds 'maybe' at row 3"):
        read(changes={"done": [*words[:3], "maybe", *words[4:]]}, terminal="done")


def test_the_first_text_that_is_no_number_is_named():
    values = [f"{row}.5" for row in range(240)]
    log = {"x": [*values[:7], "n/b", *values[8:]], "a": np.arange(240.0), "r": np.arange(240.0), "t": np.arange(240)}
    with pytest.raises(DataError, match=r"more than 100 different values \(the first that is no number: 'n/b' at"):
        from_table(log, {"observation": ["x"], "action": ["a"], "reward": "r", "time": "t"})


def test_folders_named_by_a_column_hold_it(tmp_path):
    for day in (0, 1):
        folder = tmp_path / f"day={day}"
        folder.mkdir()
        pyarrow.parquet.write_table(table(range(6 * day, 6 * day + 6)).drop_columns("day"), folder / "part.parquet")
    assert load(tmp_path, mapping=MAPPING).fingerprint() == read().fingerprint()
    with pytest.raises(DataError, match=r"column 'wind', mapped as observation, is not in the table"):
        load(tmp_path, mapping=MAPPING, observation=["wind"])


def test_errors_name_file_column_and_row(tmp_path):
    lines = ["t,x,a,r", *(f"{i},{i},{i},1" for i in range(200))]
    roles = {"observation": ["x"], "action": ["a"], "reward": "r", "time": "t"}
    for line, cell, message in (
        (150, "150,oops,1,1", r"log\.csv: column 'x' holds 'oops' at row 149 where a number is expected"),
        (150, "150,1,1", r"log\.csv: row 149 has 3 values where the first line names 4 columns"),
        (150, "150,inf,1,1", r"log\.csv: column 'x' has 1 row with infinity .* at row 149"),
        (150, "late,1,1,1", r"log\.csv: column 't' holds 'late' at row 149, which is no time"),
    ):
        changed = [*lines[:line], cell, *lines[line + 1 :]]
        (tmp_path / "log.csv").write_text("\n".join(changed), encoding="utf-8")
        with pytest.raises(DataError, match=message):
            load(tmp_path / "log.csv", mapping=roles)
    (tmp_path / "log.csv").write_text("\n".join(["1,2,3,4"] * 9), encoding="utf-8")
    with pytest.raises(DataError, match="the first line holds numbers"):
        load(tmp_path / "log.csv", mapping=roles)


def test_shards_must_agree_and_rows_are_named_with_their_file(tmp_path):
    first, second = table().slice(0, 6), table().slice(6, 6)
    pyarrow.parquet.write_table(first, tmp_path / "a.parquet")
    pyarrow.parquet.write_table(second.drop_columns("reward"), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'reward' is missing in b\.parquet, but a\.parquet has it"):
        load(tmp_path, mapping=MAPPING)
    broken = second.set_column(6, "reward", pa.array([1.0, None, 1.0, 1.0, 1.0, 1.0]))
    pyarrow.parquet.write_table(broken, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"'reward' is missing its value at row 1 of b\.parquet"):
        load(tmp_path, mapping=MAPPING)
    (tmp_path / "c.csv").write_text("x\n1\n", encoding="utf-8")
    with pytest.raises(DataError, match="files of several kinds"):
        load(tmp_path, mapping=MAPPING)


def test_a_folder_leads_to_no_file_outside_of_it(tmp_path):
    (tmp_path / "logs").mkdir()
    pyarrow.parquet.write_table(table(), tmp_path / "elsewhere.parquet")
    pyarrow.parquet.write_table(table(), tmp_path / "logs" / "a.parquet")
    (tmp_path / "logs" / "b.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: is a link that leads out of its folder"):
        load(tmp_path / "logs", mapping=MAPPING)
    (tmp_path / "logs" / "b.parquet").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "logs")
    (tmp_path / "one.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    for given in ("link", "one.parquet"):
        assert load(tmp_path / given, mapping=MAPPING).num_rows > 0
    os.mkfifo(tmp_path / "logs" / "c.parquet")
    for given in (tmp_path / "logs", tmp_path / "logs" / "c.parquet"):
        with pytest.raises(DataError, match=r"c\.parquet: is a pipe or a device"):
            load(given, mapping=MAPPING)


@pytest.mark.parametrize("num_columns", [10_001, 200_000])
def test_a_table_has_at_most_ten_thousand_columns(tmp_path, num_columns):
    line = ",".join(f"column{number}" for number in range(num_columns))
    (tmp_path / "a.csv").write_text(f"{line}\n" + "1," * (num_columns - 1) + "1\n")
    with pytest.raises(DataError, match=r"a\.csv: the table has more than 10,000 columns"):
        open_table(tmp_path / "a.csv")
    with pytest.raises(DataError, match="more than 10,000 columns"):
        open_table({f"column{number}": [1.0] for number in range(10_001)})


def test_a_mapping_is_for_tables(tmp_path):
    with pytest.raises(SettingsError, match=r"mapping is for tables"):
        load("pointmaze-umaze", mapping=MAPPING)


def test_without_pyarrow_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'vem\[tables\]'"):
        load("log.parquet", mapping=MAPPING)


def test_a_table_as_shards_keeps_its_columns_and_takes_other_bounds(tmp_path):
    pyarrow.parquet.write_table(table(SHUFFLED), tmp_path / "log.parquet")
    path = convert(tmp_path / "log.parquet", tmp_path / "log.shards", mapping=MAPPING)
    loaded, opened = load(tmp_path / "log.parquet", mapping=MAPPING), load(path, mapping=MAPPING)
    assert opened.fingerprint() == loaded.fingerprint()
    assert dataclasses.replace(opened.info, source=loaded.info.source) == loaded.info
    info = load(path, action_bounds=(0, 1)).info
    assert (info.action_low, info.action_high, info.bounds_source) == ((0.0,), (1.0,), "given")
    assert info.encoder.outputs[0].high == 1
    with pytest.raises(SettingsError, match="was converted with mapping"):
        load(path, mapping={**MAPPING, "missing": "indicator"})
