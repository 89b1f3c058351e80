import h5py
import numpy as np
import pytest

from vem.data.files import Chunks, in_threads, unpacking_threads


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    cores = set(range(request.param))
    monkeypatch.setattr("vem.data.files.os.sched_getaffinity", lambda process: cores, raising=False)
    with unpacking_threads() as pool:
        assert (pool is None) == (request.param == 1)
        yield pool


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
@pytest.mark.parametrize("size", [(), (3,)])
def test_rows_are_those_of_hdf5(tmp_path, threads, shuffle, dtype, size):
    """All slices, within a chunk, over several, and past the end."""
    values = np.random.default_rng(0).normal(size=(101, *size)).round(1).astype(dtype)
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        found = file.create_dataset("rows", data=values, chunks=(16, *size), compression="gzip", shuffle=shuffle)
        rows = in_threads(found, threads)
        assert isinstance(rows, Chunks)
        for part in (slice(0, 101), slice(3, 7), slice(15, 33), slice(96, 300), slice(5, 5)):
            assert rows[part].dtype == values.dtype
            assert np.array_equal(rows[part], values[part])


def test_absent_chunks_hold_the_fill_value(tmp_path, threads):
    """HDF5 stores nothing for a chunk that was never written."""
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        found = file.create_dataset("rows", (40,), "float32", chunks=(10,), compression="gzip", fillvalue=2.0)
        found[12:15] = 1.0
        rows = in_threads(found, threads)
        assert isinstance(rows, Chunks)
        assert np.array_equal(rows[0:40], found[:])


@pytest.mark.parametrize(
    "options", [{}, {"chunks": (5, 2)}, {"chunks": (5, 1), "compression": "gzip"}, {"compression": "lzf"}]
)
def test_other_layouts_are_left_to_hdf5(tmp_path, threads, options):
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        found = file.create_dataset("rows", data=np.ones((20, 2), "float32"), **options)
        assert in_threads(found, threads) is found


def test_large_datasets_are_not_held(tmp_path, threads, monkeypatch):
    """Their chunks are unpacked at each reading; those of small ones once."""
    values = np.arange(40.0, dtype="float32")
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        found = file.create_dataset("rows", data=values, chunks=(10,), compression="gzip")
        for largest, times in ((values.nbytes, 1), (values.nbytes - 1, 2)):
            monkeypatch.setattr("vem.data.files.LARGEST_HELD", largest)
            rows, unpacked = in_threads(found, threads), []
            inner = rows._unpacked
            monkeypatch.setattr(rows, "_unpacked", lambda first, i=inner, u=unpacked: u.append(first) or i(first))
            assert np.array_equal(rows[0:40], values)
            assert np.array_equal(rows[5:15], values[5:15])
            assert unpacked.count(0) == times
