"""Acting needs NumPy and safetensors alone, and what is missing is said in one sentence that names the extra."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from deployed import ENCODER, random_policy
from vem.errors import EXTRAS, SERVICES, MissingPackageError, VemError, explain, require

ROOT = Path(__file__).parents[2]
HEAVY = sorted({package for packages in EXTRAS.values() for package in packages} | {"pandas", "polars"})
BLOCKED = f"import sys\nfor name in {HEAVY}: sys.modules[name] = None\n"


def python(code, *arguments, executable=sys.executable):
    """What a process of its own prints."""
    source = str(ROOT / "src") if executable == sys.executable else ""
    environment = {**os.environ, "PYTHONPATH": source}
    return subprocess.run(
        [executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, env=environment, check=False
    )


ACT = """
import sys, numpy, vem
array, table = (vem.load_policy(path) for path in sys.argv[1:3])
print(array.act(numpy.arange(5.0)).tolist())
row = {"temp in": 20.5, "sun": None, "mode": "eco", "wind": "n", "window": True, "door": False, "valve": 0.5}
print(table.act(row))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A policy of arrays and one of the log's columns."""
    directory = tmp_path_factory.mktemp("policies")
    random_policy("guided", (0, 0)).save(directory / "array.safetensors")
    random_policy("gaussian", (0, 2, 3, 2), ENCODER).save(directory / "table.safetensors")
    return directory / "array.safetensors", directory / "table.safetensors"


def expected_lines():
    row = {"temp in": 20.5, "sun": None, "mode": "eco", "wind": "n", "window": True, "door": False, "valve": 0.5}
    array = random_policy("guided", (0, 0)).act(np.arange(5.0)).tolist()
    return [str(array), str(random_policy("gaussian", (0, 2, 3, 2), ENCODER).act(row))]


def test_acting_imports_none_of_the_heavy_packages(files):
    done = python(BLOCKED + ACT, *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected_lines()


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("vem.train", "train"),
        ("vem.evaluate", "train"),
        ("vem.compare(['a'], ['bc'])", "train"),
        ("vem.report", "train"),
        ("from vem import VEM", "train"),
        ("vem.export('policy.safetensors')", "onnx"),
        ("vem.callbacks.TensorBoard()", "tensorboard"),
        ("vem.callbacks.WandB()", "wandb"),
        ("import vem.envs; vem.envs.make('hopper-medium')", "envs"),
    ],
)
def test_python_names_the_extra(call, extra):
    done = python(f"{BLOCKED}import vem\ntry:\n    {call}\nexcept vem.VemError as error:\n    print(error)")
    assert f"pip install 'vem[{extra}]'" in done.stdout, done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("verb", "extra"), [("train x.npz", "train"), ("evaluate x", "train"), ("theory", "report"), ("export x", "onnx")]
)
def test_commands_name_the_extra(verb, extra):
    done = python(f"{BLOCKED}from vem.cli import main\nsys.exit(main({verb.split()!r}))")
    assert done.returncode == 1
    assert done.stderr.startswith("error: this needs ")
    assert f"pip install 'vem[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_hdf5_files_name_the_extra(tmp_path, monkeypatch):
    import vem

    (tmp_path / "log.hdf5").write_bytes(b"HDF")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPackageError, match=r"vem\[train\]"):
        vem.load(tmp_path / "log.hdf5")


def test_errors_of_other_packages_are_not_explained():
    assert explain(ModuleNotFoundError("No module named 'other'", name="other")) is None
    assert isinstance(explain(ModuleNotFoundError("", name="jax.numpy")), VemError)
    require("numpy")


def test_the_extras_are_those_of_the_package():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    held = project["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        text = " ".join(held[extra]).replace("-", "_")
        assert all(package in text for package in packages if package != "jaxlib"), extra
    assert held["all"] == [f"vem[{','.join(name for name in held_in_all(held))}]"]
    assert [entry.split(">")[0] for entry in project["dependencies"]] == ["numpy", "safetensors"]


def held_in_all(held):
    return [name for name in held if name in EXTRAS and name not in SERVICES]


@pytest.mark.slow
def test_a_fresh_environment_acts(files, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    program = tmp_path / "venv" / "bin" / "python"
    installed = subprocess.run([program, "-m", "pip", "install", ROOT], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"pip cannot install here: {installed.stderr.strip().splitlines()[-1]}")
    done = python(ACT, *files, executable=str(program))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected_lines()
    found = python(
        "import importlib.metadata as m; print(sorted(d.name for d in m.distributions()))", executable=program
    )
    assert set(eval(found.stdout)) <= {"numpy", "pip", "safetensors", "setuptools", "vem"}
