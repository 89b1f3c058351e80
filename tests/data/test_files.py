import json
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from vem.data.arrays import from_arrays
from vem.data.files import read_hdf5, read_npz
from vem.data.load import convert, load
from vem.errors import DataError, DataWarning

SHARED = Path(__file__).parents[2] / "../shared/data"
SMALL = ["antmaze-umaze", "door-human", "pen-expert", "hopper-medium", "halfcheetah-medium"]
LARGE = ["antmaze-medium-play", "antmaze-large-diverse", "door-expert", "hammer-expert", "pen-human"]
needs_benchmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the benchmark files are not on this machine")


def columns(num_rows=50, sizes=(3, 2), **extra):
    generator = np.random.default_rng(1)
    return {
        "observations": generator.normal(size=(num_rows, sizes[0])).astype(np.float32),
        "actions": generator.uniform(-1, 1, (num_rows, sizes[1])).astype(np.float32),
        "rewards": generator.normal(size=num_rows).astype(np.float32),
        "terminals": np.arange(num_rows) % 10 == 4,
        "timeouts": np.arange(num_rows) % 10 == 9,
        **extra,
    }


def write_hdf5(path, arrays, attributes=None, **storage):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, **(storage if np.ndim(values) else {}))
        file.attrs.update(attributes or {})
    return path


@pytest.mark.parametrize("without", [(), ("timeouts",), ("terminals", "timeouts")])
@pytest.mark.parametrize("with_next", [False, True])
def test_hdf5_equals_its_arrays(tmp_path, without, with_next):
    arrays = {name: values for name, values in columns().items() if name not in without}
    if with_next:
        arrays["next_observations"] = np.roll(arrays["observations"], -1, axis=0)
    for storage in ({}, {"compression": "gzip", "chunks": True}):
        path = write_hdf5(tmp_path / "mine.hdf5", arrays, **storage)
        dataset = read_hdf5(path, split="first-success")
        assert dataset.fingerprint() == from_arrays(**arrays, split="first-success").fingerprint()
    assert dataset.info.name == "mine"
    assert dataset.info.source == str(path)


def test_metadata_is_kept_as_json(tmp_path):
    path = write_hdf5(
        tmp_path / "antmaze-umaze-v2.hdf5",
        columns(
            sizes=(29, 8),
            **{
                "metadata/algorithm": np.bytes_("SAC"),
                "metadata/iteration": np.int64(7),
                "metadata/policy/weight": np.ones((20, 20)),
                "metadata/large": np.ones(100),
                "infos/goal": np.tile(np.float32([0.5, 9.5]), (50, 1)),
            },
        ),
        {"recipe": "by hand", "score": np.float64(np.nan)},
    )
    info = load(path).info
    assert info.metadata == {
        "recipe": "by hand",
        "score": "nan",
        "metadata/algorithm": "SAC",
        "metadata/iteration": 7,
        "infos/goal": [0.5, 9.5],
    }
    json.dumps(info.metadata, allow_nan=False)
    assert info.environment == "vem/AntMaze-UMaze-v0"


def test_a_renamed_file_keeps_its_task(tmp_path):
    arrays = columns(sizes=(29, 8))
    attributes = {"env": "antmaze-umaze", "goal": [1.0, 9.0]}
    infos = [load(write_hdf5(tmp_path / name, arrays, attributes)).info for name in ("antmaze-umaze.hdf5", "mine.hdf5")]
    for info in infos:
        assert (info.task, info.task_source, info.environment) == (
            "antmaze-umaze",
            "attributes",
            "vem/AntMaze-UMaze-v0",
        )
        assert info.warnings == ()
    np.savez(tmp_path / "mine.npz", **arrays)
    info = load(tmp_path / "mine.npz").info
    assert (info.task, info.task_source, info.environment) == (None, None, None)


def test_a_name_does_not_make_other_data_a_task(tmp_path):
    path = write_hdf5(tmp_path / "antmaze-umaze.hdf5", columns())
    with pytest.warns(DataWarning, match="name 'antmaze-umaze' means observations of 29 and actions of 8") as caught:
        info = load(path).info
    assert len(caught) == len(info.warnings) == 1
    assert (info.task, info.task_source, info.environment) == (None, None, None)


def test_the_users_word_wins_if_it_fits(tmp_path):
    path = write_hdf5(tmp_path / "hopper-medium.hdf5", columns(sizes=(29, 8)), {"env": "antmaze-umaze"})
    info = load(path, task="antmaze-large-play").info
    assert (info.task, info.task_source, info.environment) == ("antmaze-large-play", "given", "vem/AntMaze-Large-v0")
    assert info.warnings == ()
    with pytest.raises(DataError, match=r"hopper-medium\.hdf5: task='hopper-medium' means observations of 11"):
        load(path, task="hopper-medium")


def test_goals_that_change_are_not_metadata(tmp_path):
    goals = np.zeros((50, 2))
    goals[40] = 1
    path = write_hdf5(tmp_path / "a.hdf5", columns(**{"infos/goal": goals}))
    assert "infos/goal" not in load(path).info.metadata


def test_npz_equals_its_arrays(tmp_path):
    path = tmp_path / "mine.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, **columns())
        assert load(path).fingerprint() == from_arrays(**columns()).fingerprint()


def no_file(path):
    return path / "absent.hdf5"


def directory(path):
    (path / "one.hdf5").touch()
    return path


def empty_file(path):
    (path / "a.hdf5").touch()
    return path / "a.hdf5"


def text_file(path):
    (path / "a.hdf5").write_text("observations,actions\n" * 100)
    return path / "a.hdf5"


def truncated_hdf5(path):
    file = write_hdf5(path / "a.hdf5", columns(5000), compression="gzip")
    file.write_bytes(file.read_bytes()[:-1000])
    return file


def corrupt_chunk(path):
    file = write_hdf5(path / "a.hdf5", columns(5000), compression="gzip", shuffle=True, fletcher32=True)
    with h5py.File(file) as opened:
        offset = opened["actions"].id.get_chunk_info(0).byte_offset
    data = bytearray(file.read_bytes())
    data[offset : offset + 64] = bytes(64)
    file.write_bytes(data)
    return file


def group_for_column(path):
    with h5py.File(path / "a.hdf5", "w") as file:
        file.create_group("observations/state")
    return path / "a.hdf5"


def no_rewards(path):
    arrays = columns()
    del arrays["rewards"]
    return write_hdf5(path / "a.hdf5", arrays)


def minari_layout(path):
    return write_hdf5(path / "a.hdf5", {"episode_0/observations": np.ones((3, 2))})


def text_column(path):
    return write_hdf5(path / "a.hdf5", columns(rewards=np.array([b"one"] * 50)))


def text_of_any_length(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["actions"]
        file.create_dataset("actions", data=["a"] * 50, dtype=h5py.string_dtype())
    return path / "a.hdf5"


def null_column(path):
    return write_hdf5(path / "a.hdf5", columns(observations=h5py.Empty("f4")))


def impossible_size(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (2**40,), "f4", chunks=(1024,))
    return path / "a.hdf5"


def external_link(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file["rewards"] = h5py.ExternalLink("elsewhere.hdf5", "/all/rewards")
    return path / "a.hdf5"


def soft_link(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file["rewards"] = h5py.SoftLink("/all/rewards")
    return path / "a.hdf5"


def optional_link(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["timeouts"]
        file["timeouts"] = h5py.SoftLink("/nowhere")
    return path / "a.hdf5"


def external_group(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file["all"] = h5py.ExternalLink("elsewhere.hdf5", "/all")
        file["rewards"] = h5py.SoftLink("/all/rewards")
    write_hdf5(path / "elsewhere.hdf5", {"all/rewards": np.ones(50)})
    return path / "a.hdf5"


def external_storage(path):
    (path / "private").write_bytes(bytes(400))
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (50,), "f8", external=[(str(path / "private"), 0, 400)])
    return path / "a.hdf5"


def virtual_column(path):
    write_hdf5(path / "elsewhere.hdf5", {"rewards": np.ones(50)})
    layout = h5py.VirtualLayout((50,), "f8")
    layout[:] = h5py.VirtualSource(str(path / "elsewhere.hdf5"), "rewards", (50,), "f8")
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file.create_virtual_dataset("rewards", layout)
    return path / "a.hdf5"


def ring_of_links(path):
    with h5py.File(write_hdf5(path / "a.hdf5", columns()), "a") as file:
        del file["rewards"]
        file["rewards"] = h5py.SoftLink("/rewards")
    return path / "a.hdf5"


def bomb_of_bits(path):
    np.savez_compressed(path / "a.npz", **columns(), more=np.zeros(2 << 20))
    with zipfile.ZipFile(path / "a.npz") as plain, zipfile.ZipFile(path / "b.npz", "w", zipfile.ZIP_BZIP2) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    return path / "b.npz"


def zeros_npz(path):
    zeros = {"observations": np.zeros((1 << 20, 4)), "actions": np.zeros((1 << 20, 4)), "rewards": np.zeros(1 << 20)}
    np.savez_compressed(path / "a.npz", **zeros)
    return path / "a.npz"


def large_together(path):
    with h5py.File(path / "a.hdf5", "w") as file:
        for name in ("observations", "actions", "rewards"):
            file.create_dataset(name, (200_000, 1), "f4", chunks=(1000, 1))
    return path / "a.hdf5"


def pipe(path):
    os.mkfifo(path / "a.hdf5")
    return path / "a.hdf5"


def pipe_npz(path):
    os.mkfifo(path / "a.npz")
    return path / "a.npz"


def truncated_npz(path):
    np.savez(path / "a.npz", **columns())
    data = (path / "a.npz").read_bytes()
    (path / "a.npz").write_bytes(data[: len(data) // 2])
    return path / "a.npz"


def npz_with_objects(path):
    np.savez(path / "a.npz", **columns(actions=np.array([[None]] * 50)))
    return path / "a.npz"


def npz_without_actions(path):
    np.savez(path / "a.npz", observations=np.ones((5, 2)))
    return path / "a.npz"


def single_array(path):
    np.save(path / "a.npy", np.ones(3))
    return (path / "a.npy").rename(path / "a.npz")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_file, "absent.hdf5: no such file"),
        (directory, "is a directory; give one of its files: one.hdf5"),
        (empty_file, r"the file is empty \(0 bytes\)"),
        (text_file, "is no HDF5 file"),
        (truncated_hdf5, "is damaged or cut short"),
        (corrupt_chunk, "'actions': rows 0 to .* cannot be read .* damaged"),
        (group_for_column, r"'observations' is a group \(state\)"),
        (no_rewards, "'rewards' is missing; the file holds actions, observations"),
        (minari_layout, "load it as minari:ID"),
        (text_column, "'rewards' holds bytes"),
        (text_of_any_length, "'actions' holds Python objects"),
        (null_column, r"'observations' has shape \(\)"),
        (impossible_size, "'rewards' claims shape .* damaged"),
        (external_link, "'rewards' is a link that leads nowhere, or lies in another file"),
        (external_group, "'rewards' is a link that leads nowhere, or lies in another file"),
        (external_storage, "'rewards' is a link that leads nowhere, or lies in another file"),
        (virtual_column, "'rewards' is a link that leads nowhere, or lies in another file"),
        (ring_of_links, "'rewards' is a link that leads nowhere, or lies in another file"),
        (bomb_of_bits, "claims .* bytes, more than it can hold"),
        (zeros_npz, "claims .* bytes, more than it can hold"),
        (large_together, "'rewards' claims shape .* damaged"),
        (pipe, "is a pipe or a device, not a file"),
        (pipe_npz, "is a pipe or a device, not a file"),
        (soft_link, "'rewards' is a link that leads nowhere, or lies in another file"),
        (optional_link, "'timeouts' is a link that leads nowhere, or lies in another file"),
        (truncated_npz, "damaged or cut short"),
        (npz_with_objects, "'actions' holds Python objects, which are never unpickled"),
        (npz_without_actions, "'actions' is missing; the file holds observations"),
        (single_array, "single array, not an .npz"),
    ],
)
def test_unusable_files_are_named_in_one_error(tmp_path, make, message):
    path = make(tmp_path)
    with pytest.raises(DataError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_links_inside_the_file_are_followed(tmp_path):
    arrays = columns()
    rewards = arrays.pop("rewards")
    with h5py.File(write_hdf5(tmp_path / "a.hdf5", {**arrays, "all/kept/r": rewards}), "a") as file:
        file["all/rewards"] = h5py.SoftLink("kept/r")
        file["rewards"] = h5py.SoftLink("/all/rewards")
    assert load(tmp_path / "a.hdf5").fingerprint() == from_arrays(**arrays, rewards=rewards).fingerprint()
    (tmp_path / "link.hdf5").symlink_to(tmp_path / "a.hdf5")
    assert load(tmp_path / "link.hdf5").num_rows == load(tmp_path / "a.hdf5").num_rows


def test_files_as_matlab_writes_them_are_read(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w", userblock_size=512) as file:
        for name, values in columns().items():
            file[name] = values
            file[name].attrs["MATLAB_class"] = np.bytes_("single")
        file["#refs#/a"] = np.ones(2)
        file["cells"] = np.array([file["#refs#/a"].ref], h5py.ref_dtype)
    assert load(tmp_path / "a.hdf5").fingerprint() == from_arrays(**columns()).fingerprint()


def test_metadata_lead_to_no_other_file_and_are_bounded(tmp_path):
    write_hdf5(tmp_path / "elsewhere.hdf5", {"secret": np.int64(7), "metadata/secret": np.int64(7)})
    with h5py.File(write_hdf5(tmp_path / "a.hdf5", columns()), "a") as file:
        file["metadata/linked"] = h5py.ExternalLink("elsewhere.hdf5", "/secret")
        file["metadata/long"] = "x" * 200_000
        file["metadata/short"] = "kept"
        for number in range(200):
            file.attrs[f"fact {number:03}"] = "x" * 1000
    metadata = load(tmp_path / "a.hdf5").info.metadata
    assert {"metadata/linked", "metadata/long"}.isdisjoint(metadata)
    assert metadata["fact 000"] == "x" * 1000
    assert len(json.dumps(metadata)) < 100_000
    with h5py.File(write_hdf5(tmp_path / "b.hdf5", columns()), "a") as file:
        file["metadata"] = h5py.ExternalLink("elsewhere.hdf5", "/metadata")
        file.attrs["said"] = "kept"
    assert load(tmp_path / "b.hdf5").info.metadata == {"said": "kept"}


@pytest.mark.parametrize(("wrong", "meant"), [("timeoutr", "timeouts"), ("Terminal", "terminals")])
def test_a_misspelled_column_is_named(tmp_path, wrong, meant):
    arrays = columns()
    arrays[wrong] = arrays.pop(meant)
    np.savez(tmp_path / "a.npz", **arrays)
    for path in (write_hdf5(tmp_path / "a.hdf5", arrays), tmp_path / "a.npz"):
        with pytest.warns(DataWarning, match=f"column '{wrong}' is not read; if it is meant to be '{meant}'"):
            info = load(path).info
        assert any(wrong in warning for warning in info.warnings)


def test_a_module_that_a_file_names_is_never_imported(tmp_path, monkeypatch):
    (tmp_path / "named_by_a_file.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    name = "named_by_a_file:Env-v0"
    info = load(write_hdf5(tmp_path / "a.hdf5", columns(), {"environment": name})).info
    assert (info.environment, info.bounds_source) == (name, "data")
    shards = load(convert(tmp_path / "a.hdf5", tmp_path / "a.shards"))
    assert (shards.info.environment, shards.info.bounds_source) == (name, "data")
    with pytest.raises(SystemExit, match="imported"):  # the user's own word is followed
        load(tmp_path / "a.hdf5", environment=name)


def test_an_environment_that_a_file_names_is_not_made_at_loading(tmp_path, monkeypatch):
    monkeypatch.setattr("gymnasium.make", lambda *_, **__: pytest.fail("made"))
    arrays = columns(sizes=(3, 1))
    info = load(write_hdf5(tmp_path / "a.hdf5", arrays, {"environment": "Pendulum-v1"})).info
    assert (info.environment, info.bounds_source) == ("Pendulum-v1", "data")


def test_errors_in_the_columns_name_the_file(tmp_path):
    path = write_hdf5(tmp_path / "a.hdf5", columns(rewards=np.full(50, np.nan)))
    with pytest.raises(DataError, match=r"a\.hdf5: column 'rewards' holds NaN"):
        read_hdf5(path)
    np.savez(tmp_path / "a.npz", **columns(rewards=np.full(50, np.nan)))
    with pytest.raises(DataError, match=r"a\.npz: column 'rewards' holds NaN"):
        read_npz(tmp_path / "a.npz")


@needs_benchmark
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)])
def test_benchmark_files_are_read_without_a_warning(name):
    path = SHARED / f"{name}.hdf5"
    with h5py.File(path) as file:
        num_rows, num_timeouts = len(file["rewards"]), int(file["timeouts"][:].sum())
        num_episodes = file.attrs.get("episodes")
    dataset = load(path, split="time-limits")
    assert dataset.num_episodes in (num_episodes, num_timeouts)
    assert dataset.info.warnings == ()
    every = load(path)
    assert every.num_transitions == num_rows - num_timeouts
    assert every.info.environment is not None


@needs_benchmark
def test_resets_that_timeouts_miss_are_found_in_antmaze():
    with h5py.File(SHARED / "antmaze-umaze.hdf5") as file:
        names = ("observations", "actions", "rewards", "terminals", "timeouts")
        arrays = {name: file[name][:] for name in names}
    resets = np.flatnonzero(arrays["timeouts"])[:-1]
    arrays["timeouts"] = np.roll(arrays["timeouts"], 100)
    with pytest.warns(DataWarning, match="column 'observations' jumps at 285 steps"):
        dataset = from_arrays(**arrays, split="time-limits")
    starts = dataset.observations[dataset.episode_starts]
    assert np.isin(arrays["observations"][resets + 1, 0], starts[:, 0]).all()
