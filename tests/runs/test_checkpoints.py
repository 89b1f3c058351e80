import errno
import json
import os

import numpy as np
import pytest

from vem import storage
from vem.errors import RunError
from vem.training import run as checkpoints

ANY = {None: 10**9}

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": (np.ones(2, np.int32), {"c": np.zeros((), np.float32)})}


def test_a_tree_survives_the_round_trip(tmp_path):
    checkpoints.save_checkpoint(tmp_path, 40, TREE, {"stage": 1, "done": 20})
    tensors, header = checkpoints.load_newest(tmp_path, pytest.fail, ANY)
    assert (header["stage"], header["done"], header["steps"]) == (1, 20, 40)
    restored = storage.unflatten(TREE, tensors, "test")
    np.testing.assert_array_equal(restored["a"], TREE["a"])
    assert restored["b"][0].dtype == np.int32


def test_only_the_newest_two_stay(tmp_path):
    for steps in (10, 20, 30):
        checkpoints.save_checkpoint(tmp_path, steps, TREE, {})
    assert [path.stem for path in checkpoints.list_checkpoints(tmp_path)] == ["0000000020", "0000000030"]


@pytest.mark.parametrize("damage", ["truncate", "zero", "garbage", "flip"])
def test_a_damaged_newest_falls_back_and_says_so(tmp_path, damage):
    checkpoints.save_checkpoint(tmp_path, 10, TREE, {"done": 10})
    path = checkpoints.save_checkpoint(tmp_path, 20, TREE, {"done": 20})
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "zero":
        content = bytearray(len(content))
    elif damage == "garbage":
        content = bytearray(os.urandom(len(content)))
    else:
        content[-3] ^= 0xFF
    path.write_bytes(bytes(content))
    said = []
    _, header = checkpoints.load_newest(tmp_path, said.append, ANY)
    assert header["done"] == 10
    assert len(said) == 1
    assert "0000000020.safetensors" in said[0]


def test_nothing_to_load(tmp_path):
    assert checkpoints.load_newest(tmp_path, pytest.fail, ANY) is None


def test_wrong_shapes_are_refused():
    tensors = storage.flatten(TREE)
    with pytest.raises(RunError, match="tensor a should be"):
        storage.unflatten({**TREE, "a": np.zeros((2, 4), np.float32)}, tensors, "test")
    with pytest.raises(RunError, match="is nothing"):
        storage.unflatten({**TREE, "z": np.zeros(1, np.float32)}, tensors, "test")


def test_a_full_disk_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    storage.write_json(path, {"kept": True})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space left on device"):
        storage.write_json(path, {"kept": False})
    assert json.loads(path.read_text()) == {"kept": True}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]
