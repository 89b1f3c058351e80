"""Acting in an environment of its own: installed size, import time and time of one action.

    python benchmarks/deploy.py --out benchmarks/results/deploy.json

Makes a virtual environment, installs this checkout without extras, and measures there with policies of AntMaze's sizes
(29 observations, 8 actions, two hidden layers of 256). Importing and loading are in time of the processor, an action in
time of the clock. Other work on the machine only adds, so each is given as the smallest and the median of its
repetitions. With onnxruntime in the environment that runs this script, the
exported files are timed too, on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from vem.errors import is_installed
from vem.policy import Policy

ROOT = Path(__file__).parents[1]
OBSERVATION, ACTION, HIDDEN = 29, 8, 256
REPETITIONS = 7
NUM_ACTIONS = 2000
TOOLS = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "wheel")
"""What a virtual environment brings itself."""

MEASURE = """
import sys, time
start = time.process_time()
import vem
load = vem.load_policy
imported = time.process_time() - start
policy = load(sys.argv[1])
loaded = time.process_time() - start - imported
import numpy
observation = numpy.linspace(-1, 1, policy.observation_size)
times = []
for _ in range(int(sys.argv[2])):
    start = time.perf_counter()
    policy.act(observation)
    times.append(time.perf_counter() - start)
print(imported, loaded, min(times), sorted(times)[len(times) // 2])
"""


def example_policy(kind: str) -> Policy:
    """A policy of random numbers."""
    random = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        "observation_mean": np.zeros(OBSERVATION),
        "observation_deviation": np.ones(OBSERVATION),
        "action_low": -np.ones(ACTION),
        "action_high": np.ones(ACTION),
        "value_unit": np.ones(()),
        "log_std": np.zeros(ACTION),
        "move_scale": np.ones(OBSERVATION),
    }
    networks = {"actor": (2 * OBSERVATION if kind == "guided" else OBSERVATION, ACTION)}
    if kind == "guided":
        networks["guide"] = (OBSERVATION, OBSERVATION)
    for name, (inputs, outputs) in networks.items():
        for index, (rows, columns) in enumerate([(inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, outputs)]):
            tensors[f"{name}.{index}.weight"] = random.normal(size=(rows, columns)) / np.sqrt(rows)
            tensors[f"{name}.{index}.bias"] = np.zeros(columns)
    return Policy(kind, {name: np.asarray(values, np.float32) for name, values in tensors.items()})


def spread(values: list[float]) -> dict[str, float]:
    """Milliseconds: the smallest and the median."""
    return {"smallest": round(1e3 * min(values), 4), "median": round(1e3 * statistics.median(values), 4)}


def installed_bytes(packages: Path) -> dict[str, int]:
    """Bytes of each package in a folder, without what every virtual environment has."""
    sizes: dict[str, int] = {}
    for entry in sorted(packages.iterdir()):
        name = entry.name.split("-")[0].split(".")[0]
        if name not in TOOLS and entry.name != "distutils-precedence.pth" and entry.name != "__pycache__":
            files = [entry] if entry.is_file() else [file for file in entry.rglob("*") if file.is_file()]
            sizes[name] = sizes.get(name, 0) + sum(file.stat().st_size for file in files)
    return sizes


def act_times(python: Path, policy: Path) -> dict[str, Any]:
    """Milliseconds of importing, loading and acting, each repetition in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    rows = []
    for _ in range(REPETITIONS):
        done = subprocess.run(
            [python, "-c", MEASURE, policy, str(NUM_ACTIONS)],
            capture_output=True,
            text=True,
            check=True,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},
        )
        rows.append([float(number) for number in done.stdout.split()])
    imported, loaded, smallest, median = (list(column) for column in zip(*rows, strict=True))
    action = {"smallest": round(1e3 * min(smallest), 4), "median": round(1e3 * statistics.median(median), 4)}
    return {"import_cpu": spread(imported), "load_cpu": spread(loaded), "action": action}


def onnx_times(policy: Policy, directory: Path) -> dict[str, float] | None:
    """Milliseconds of one action of the exported file, or None without onnxruntime."""
    if not (is_installed("onnx") and is_installed("onnxruntime")):
        return None
    import onnxruntime

    path = policy.export(directory / "policy.onnx").path
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    observation = np.linspace(-1, 1, OBSERVATION, dtype=np.float32)[None]
    times = []
    for _ in range(NUM_ACTIONS):
        start = time.perf_counter()
        session.run(None, {"observation": observation})
        times.append(time.perf_counter() - start)
    return spread(times)


def measure(directory: Path) -> dict[str, Any]:
    """The record."""
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    python = directory / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", ROOT], check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    sizes = installed_bytes(packages)
    code = "import numpy, safetensors; print(numpy.__version__, safetensors.__version__)"
    versions = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    record: dict[str, Any] = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "packages": dict(zip(("numpy", "safetensors"), versions, strict=True)),
        "megabytes": {name: round(size / 1e6, 1) for name, size in sizes.items()},
        "megabytes_in_all": round(sum(sizes.values()) / 1e6, 1),
        "milliseconds": {},
    }
    for kind in ("gaussian", "guided"):
        policy = example_policy(kind)
        policy.save(directory / f"{kind}.safetensors")
        record["milliseconds"][kind] = act_times(python, directory / f"{kind}.safetensors")
        if (times := onnx_times(policy, directory)) is not None:
            record["milliseconds"][kind]["onnxruntime_action"] = times
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        record = measure(Path(directory))
    text = json.dumps(record, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
