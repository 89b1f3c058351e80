"""Shards: the same rows as the file they come from, resumed after whatever happens, never read damaged."""

import errno
import json
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from vem.cli import main
from vem.data import shards as writing
from vem.data.dataset import DataInfo, RowBlock, facts_of
from vem.data.description import describe
from vem.data.load import convert, load
from vem.data.shards import SHARD_ROWS, index_checksum, open_shards, write_shards
from vem.errors import DataError, SettingsError

NUM_RECORDED = 3 * SHARD_ROWS


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A D4RL file of three shards, with episodes of different lengths."""
    path = tmp_path_factory.mktemp("source") / "walks.hdf5"
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as stored:
        stored["observations"] = np.cumsum(random.normal(size=(NUM_RECORDED, 3)), axis=0).astype(np.float32)
        stored["actions"] = random.uniform(-1, 1, (NUM_RECORDED, 2)).astype(np.float32)
        stored["rewards"] = (random.uniform(size=NUM_RECORDED) < 0.01).astype(np.float64)
        stored["terminals"] = random.uniform(size=NUM_RECORDED) < 0.01
        stored["timeouts"] = random.uniform(size=NUM_RECORDED) < 0.01
    return path


@pytest.fixture
def folder(file, tmp_path):
    return convert(file, tmp_path / "walks.shards")


@pytest.mark.parametrize(
    "rules",
    [{}, {"split": "first-success"}, {"split": "time-limits"}, {"time_limit": "end"}, {"action_bounds": (-2, 2)}],
)
def test_shards_hold_what_load_reads_whatever_the_rules(file, tmp_path, rules, monkeypatch):
    monkeypatch.setattr("vem.data.load.SEGMENT_ROWS", 1000)
    sharded = load(convert(file, tmp_path / "walks.shards", **rules))
    loaded = load(file, **rules)
    assert sharded.fingerprint() == loaded.fingerprint()
    for name in RowBlock._fields:
        assert isinstance(getattr(sharded, name), np.memmap)
        np.testing.assert_array_equal(getattr(sharded, name), getattr(loaded, name))
        np.testing.assert_array_equal(sharded.column(name, 4000, 4200), getattr(loaded, name)[4000:4200])
    assert (sharded.info.name, sharded.info.action_low) == (loaded.info.name, loaded.info.action_low)
    assert sharded.info.rules == loaded.info.rules
    np.testing.assert_array_equal(sharded.episode_ends, loaded.episode_ends)
    assert (sharded.num_transitions, sharded.num_episodes) == (loaded.num_transitions, loaded.num_episodes)
    assert sharded.shards.facts == facts_of(loaded)
    assert {**describe(sharded).to_dict(), "source": ""} == {**describe(loaded).to_dict(), "source": ""}


def test_facts_of_slices_are_those_of_all_rows(folder, monkeypatch):
    dataset = load(folder)
    monkeypatch.setattr("vem.data.dataset.SLICE_ROWS", 500)
    facts = facts_of(dataset)
    np.testing.assert_allclose(facts.observation_mean, dataset.observations.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(facts.observation_deviation, dataset.observations.std(0, dtype=np.float64), rtol=1e-12)
    assert (facts.least_reward, facts.largest_reward) == (0, 1)
    assert facts.longest_episode == dataset.episode_lengths.max() + 1


def test_other_sources_are_converted_too(tmp_path):
    arrays = {"observations": np.arange(60.0)[:, None], "actions": np.ones((60, 1)), "rewards": np.arange(60.0)}
    np.savez(tmp_path / "logs.npz", **arrays)
    sharded = load(convert(tmp_path / "logs.npz", tmp_path / "logs.shards"))
    assert sharded.fingerprint() == load(tmp_path / "logs.npz").fingerprint()


@pytest.mark.parametrize("actions", [np.arange(60) % 3, (np.arange(60) % 3)[:, None] * 1000])
def test_choices_keep_their_labels(tmp_path, actions):
    with h5py.File(tmp_path / "log.hdf5", "w") as stored:
        stored["observations"], stored["actions"] = np.arange(60.0)[:, None], actions
        stored["rewards"] = np.arange(60.0)
    sharded, loaded = load(convert(tmp_path / "log.hdf5", tmp_path / "log.shards")), load(tmp_path / "log.hdf5")
    assert sharded.fingerprint() == loaded.fingerprint()
    assert sharded.info.action_columns == loaded.info.action_columns
    assert len(sharded.info.action_columns[0].labels) == 3


def test_rules_belong_to_the_conversion(folder):
    assert load(folder, split="terminals").num_rows
    with pytest.raises(SettingsError, match="was converted with split terminals and 'first-success' is asked for"):
        load(folder, split="first-success")
    with pytest.raises(DataError, match="means observations of 11"):
        load(folder, task="hopper-medium")


@pytest.mark.parametrize("written", [0, 1, 2])
def test_an_interrupted_conversion_goes_on_where_it_was(file, tmp_path, monkeypatch, written):
    monkeypatch.setattr(writing, "FLUSH_ROWS", SHARD_ROWS)
    monkeypatch.setattr("vem.data.load.SEGMENT_ROWS", 100)
    out = tmp_path / "walks.shards"

    def interrupt(what, done, total):
        if done >= (written + 1) * SHARD_ROWS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(file, out, report=interrupt)
    with pytest.raises(DataError, match="the conversion is not finished; go on with: vem data convert SOURCE"):
        load(out)
    with (out / "rewards.bin").open("ab") as column:
        column.write(b"cut")  # as if the process had been killed while it wrote
    started = []
    convert(file, out, report=lambda what, done, total: started.append(done))
    assert started[0] > (written + 1) * SHARD_ROWS
    assert load(out).fingerprint() == load(file).fingerprint()
    load(out).shards.verify()


def test_a_killed_process_leaves_what_can_be_gone_on_with(file, tmp_path):
    out = tmp_path / "walks.shards"
    program = (
        "import sys, time; from vem.data import load, shards\n"
        f"shards.FLUSH_ROWS = {SHARD_ROWS}\n"
        "load.convert(sys.argv[1], sys.argv[2], report=lambda *_: (print(flush=True), time.sleep(60)))"
    )
    process = subprocess.Popen([sys.executable, "-c", program, file, out], stdout=subprocess.PIPE)
    process.stdout.readline()  # the first shard is written
    process.kill()
    process.communicate()
    with pytest.raises(DataError, match="the conversion is not finished"):
        load(out)
    assert load(convert(file, out)).fingerprint() == load(file).fingerprint()


def test_finished_shards_are_checked_before_the_rest_is_written(file, folder):
    before = load(folder).fingerprint()
    flip(folder / "rewards.bin", SHARD_ROWS * 4 + 7)
    first = []
    convert(file, folder, report=lambda what, done, total: first.append(done))
    assert load(folder).fingerprint() == before
    load(folder).shards.verify()


def test_another_source_or_other_rules_do_not_go_on_with_a_folder(file, folder, tmp_path):
    with pytest.raises(DataError, match="was begun from another source, or with other rules"):
        convert(file, folder, split="first-success")
    other = tmp_path / "other.shards"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty and holds no readable shards"):
        convert(file, other)
    with pytest.raises(DataError, match=r"shards are a folder NAME\.shards; write to .*walks\.shards"):
        convert(file, tmp_path / "walks")


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("column", RowBlock._fields)
def test_a_flipped_byte_is_one_clear_error_where_it_is_read(folder, column, capsys):
    dataset = load(folder)
    size = (folder / f"{column}.bin").stat().st_size
    flip(folder / f"{column}.bin", size // 2)
    dataset.column(column, 0, SHARD_ROWS)
    with pytest.raises(
        DataError, match=rf"{column}.bin: shard 1 of column '{column}' \(rows 4,096 to 8,191\) does not"
    ):
        dataset.block(5000, 5010)
    assert main(["data", "verify", str(folder)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_missing_or_truncated_file_is_one_clear_error(folder, capsys):
    content = (folder / "actions.bin").read_bytes()
    (folder / "actions.bin").write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"actions.bin: the shards of column 'actions' end in shard [23]: the file has"):
        load(folder)
    (folder / "actions.bin").unlink()
    with pytest.raises(DataError, match=r"actions.bin: the shards of column 'actions' are missing"):
        load(folder)
    with pytest.raises(DataError, match=r"absent.shards: does not exist"):
        load(folder.parent / "absent.shards")
    assert main(["data", "verify", str(folder / "rewards.bin")]) == 1
    assert "rewards.bin is no folder of shards" in capsys.readouterr().err


def test_a_damaged_index_is_one_clear_error(folder):
    index = json.loads((folder / "index.json").read_text())
    for damaged in ("", "{", "[]", json.dumps({**index, "num_rows": 7}), json.dumps({**index, "checksum": 1})):
        (folder / "index.json").write_text(damaged)
        with pytest.raises(DataError, match=r"index.json: is damaged"):
            load(folder)


def rewritten(folder, change):
    """Change the index and give it the checksum that it then has."""
    index = json.loads((folder / "index.json").read_text())
    del index["checksum"]
    change(index)
    (folder / "index.json").write_text(json.dumps({**index, "checksum": index_checksum(index)}))
    return folder


@pytest.mark.parametrize("key", ["num_rows", "observation_size", "action_size"])
@pytest.mark.parametrize("value", [0, -1, "three", 10**30, 1e300, [3], None, True])
def test_an_index_with_impossible_sizes_is_one_clear_error(folder, key, value):
    with pytest.raises(DataError, match=r"index\.json: is damaged"):
        open_shards(rewritten(folder, lambda index: index.update({key: value})))


@pytest.mark.parametrize("value", [[], None, "text", [float("inf")], [10**30], [-1], [1.5], [[1]], [0] * 7])
def test_an_index_with_impossible_checksums_is_one_clear_error(folder, value):
    with pytest.raises(DataError, match=r"index\.json: is damaged"):
        open_shards(rewritten(folder, lambda index: index["crc32"].update(rewards=value)))


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("info", "environment", ["a"]),
        ("info", "metadata", []),
        ("info", "name", {}),
        ("info", "action_low", [0.0] * 9),
        ("info", "action_low", ["low", "low"]),
        ("info", "warnings", 3),
        ("facts", "num_episodes", "many"),
        ("facts", "observation_mean", [0.0]),
    ],
)
def test_an_index_with_impossible_facts_is_one_clear_error(folder, part, key, value):
    with pytest.raises(DataError, match=r"index\.json: is damaged"):
        open_shards(rewritten(folder, lambda index: index[part].update({key: value})))


def test_a_deep_index_is_one_clear_error(folder, file):
    (folder / "index.json").write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"index\.json: is damaged"):
        open_shards(folder)
    with pytest.raises(DataError, match="holds no readable shards"):
        convert(file, folder)


@pytest.mark.parametrize("name", ["index.json", "rewards.bin"])
def test_no_file_outside_of_the_folder_is_opened(folder, file, tmp_path, name):
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    before = (tmp_path / name).read_bytes()
    for use in (lambda: open_shards(folder), lambda: convert(file, folder)):
        with pytest.raises(DataError, match=f"{name}: is a link that leads out of its folder"):
            use()
    assert (tmp_path / name).read_bytes() == before
    (tmp_path / "link.shards").symlink_to(folder)
    (folder / name).unlink()
    (folder / name).write_bytes(before)
    assert open_shards(tmp_path / "link.shards").num_rows == open_shards(folder).num_rows


@pytest.mark.parametrize("name", ["index.json", "rewards.bin"])
def test_a_pipe_among_the_shards_is_not_waited_for(folder, name):
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(DataError, match=f"{name}: is a pipe or a device"):
        open_shards(folder)


def test_a_disk_without_room_is_refused_before_anything_is_written(file, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"GB are needed and 0\.0 GB are free on the disk"):
        convert(file, tmp_path / "walks.shards")


def test_a_disk_that_fills_up_keeps_the_finished_shards(file, tmp_path, monkeypatch):
    monkeypatch.setattr(writing, "FLUSH_ROWS", SHARD_ROWS)
    written, write = [], writing._write_all

    def fill_up(target, content):
        if len(written) == 7:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(target)
        write(target, content)

    monkeypatch.setattr(writing, "_write_all", fill_up)
    with pytest.raises(DataError, match=r"No space left on device\). The finished shards are kept: make room"):
        convert(file, tmp_path / "walks.shards")
    monkeypatch.setattr(writing, "_write_all", write)
    started = []
    convert(file, tmp_path / "walks.shards", report=lambda what, done, total: started.append(done))
    assert started[0] > SHARD_ROWS
    assert load(tmp_path / "walks.shards").fingerprint() == load(file).fingerprint()


def test_blocks_of_rows_are_checked(tmp_path):
    rows = RowBlock(np.zeros((3, 2)), np.zeros((3, 1)), np.zeros(3), np.array([1, 1, 0], bool), np.zeros(3, bool))
    sizes = {"observation_size": 2, "action_size": 1}
    path = write_shards(tmp_path / "a.shards", lambda first: [rows, rows], DataInfo("mine"), **sizes)
    assert open_shards(path).num_episodes == 2
    assert open_shards(path).info.warnings[0].startswith("column 'rewards' is zero in every step")
    broken = rows._replace(rewards=np.array([0, np.nan, 0]))
    open_ended = rows._replace(valid=np.ones(3, bool))
    with pytest.raises(DataError, match="'rewards' holds NaN or infinity at row 4"):
        write_shards(tmp_path / "b.shards", lambda first: [rows, broken], DataInfo("mine"), **sizes)
    with pytest.raises(DataError, match="the last row is valid"):
        write_shards(tmp_path / "c.shards", lambda first: [open_ended], DataInfo("mine"), **sizes)
    with pytest.raises(DataError, match="there is no row to write"):
        write_shards(tmp_path / "d.shards", lambda first: [], DataInfo("mine"), **sizes)


def test_commands_convert_and_verify(file, tmp_path, capsys):
    out = str(tmp_path / "walks.shards")
    assert main(["data", "convert", str(file), out, "--split", "first-success"]) == 0
    assert capsys.readouterr().out.strip() == out
    assert main(["data", "verify", out]) == 0
    assert "rows are as they were written" in capsys.readouterr().out
    assert main(["data", "describe", out, "--split", "first-success"]) == 0
