import errno
import json
import os

import numpy as np
import pytest

from vem import storage
from vem.errors import RunError

TREE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": (np.ones(2, np.int32), {"c": np.zeros((), np.float32)})}


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
