"""Every command and every Python snippet of the README and the documents runs, shortened where it is long.

They run in their order in one folder with small files under the names that the documents use, so that the next can take
what one makes. Training is a few steps of tiny networks.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import heating_log
from ant_walkers import guided_policy
from evaluation_cases import constant_policy
from small_runs import quick_compilation
from vem.algorithms.base import METHODS
from vem.cli import main
from vem.data.mapping import to_toml

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
SIZES = {"antmaze-umaze": (29, 8), "door-human": (39, 28), "pen-human": (45, 24)}
TRAINING = {"--steps": "3", "--seeds": "1"}
SHORT = {
    "train": {**TRAINING, "--batch-size": "8"},
    "compare": {**TRAINING, "--algorithms": "bc", "--episodes": "1", "--jobs": "1", "--set": "policy-hidden=8"},
    "sweep": {**TRAINING, "--policy-hidden": "8", "--episodes": "1", "--jobs": "1", "--effective-sample": "0.1"},
    "evaluate": {"--episodes": "1", "--workers": "1"},
    "estimate": {"--steps": "3"},
    "select": {"--steps": "3"},
    "data make": {"--rows": "300"},
    "theory": {"--small": ""},
}
LONG = (
    "vem compare",
    "vem estimate",
    "vem report",
    "vem select",
    "vem sweep",
    "vem theory",
    "vem train DATASET",
    "vem train antmaze-umaze.hdf5 --expectile",
    "vem train antmaze-umaze.hdf5 --hold-out",
    "vem train log.parquet",
    "docs/choosing.md",
    "docs/evaluation.md",
    "docs/own-logs.md",
)
"""Commands and documents of the slow selection: other tests ask more of what they call."""
ELSEWHERE = ("vem train", "vem compare paper --data-dir ~/data --run")
"""The built-in example, which has tests of its own, and all of the paper's table."""
METHODS_OF_HEATING = "vem compare heating/log.parquet --map heating/map.toml --hold-out 0.3 --out heating/methods"
HEATING = "vem train heating/log.parquet --map heating/map.toml --hold-out 0.3 --out heating/runs"
WORDS = {
    "DATASET": "antmaze-umaze.hdf5",
    "pointmaze-medium": "antmaze-umaze.hdf5",
    "pointmaze-large": "antmaze-umaze.hdf5",
    "RUN": "runs/antmaze-umaze-vem",
    "runs/pointmaze-large-vem": "runs/antmaze-umaze-vem",
    "examples/own_method.py": str(ROOT / "examples" / "own_method.py"),
    "~/data": ".",
}
"""Words of commands → what is there."""
IN_CODE = (
    (r"steps=[\d_]+", "steps=3"),
    (r"episodes=\d+", "episodes=1, workers=1"),
    (r"(seeds|jobs)=\d+", r"\1=1"),
    (r"num_rows=[\d_]+", "num_rows=600"),
    (r'"pointmaze-medium"\)', '"pointmaze-medium", num_rows=600)'),
    (r"\b\d+_000\b", "3"),
    (r'\["vem", "bc"\]', '["bc"]'),
    (r'"vem": 3, ', ""),
    (r'"vem"\)', '"bc")'),
    (r"vem\.train\(dataset, steps", "vem.train(dataset, value_hidden=(8,), policy_hidden=(8,), steps"),
)
"""What makes Python short, a pattern → its replacement."""


def commands() -> list[str]:
    """The ``vem`` commands of all documents in their order, each that differs when shortened; without their remarks."""
    found = []
    for path in DOCUMENTS:
        fence = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fence = line if fence is None else None
            match = re.match(r"(    )?(vem [a-z]\S*(?: [^#\s]\S*)*?)(?:\s{2,}.*|\s+#.*)?$", line)
            if match and (match[1] or fence in ("```", "```sh")) and "--engine" not in line:
                found.append(match[2])
    chosen = [command for command in found if command not in ELSEWHERE]
    different = {tuple(sorted(shortened(command))): command for command in reversed(chosen)}
    return list(reversed(different.values()))


def snippets() -> list[tuple[str, str]]:
    """The Python blocks of each document, joined: a reader goes through them in order. The notebook is one."""
    found = []
    for path in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
        if blocks:
            found.append((str(path.relative_to(ROOT)), "\n".join(blocks)))
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return [*found, (str(NOTEBOOK.relative_to(ROOT)), "\n".join(code))]


def shortened(command: str) -> list[str]:
    """The words of a command after ``vem``, with small numbers."""
    words = shlex.split(command)[1:]
    verb = " ".join(words[:2]) if words[0] == "data" else words[0]
    arguments = words if verb == "data make" else [WORDS.get(word, word) for word in words]
    if "--resume" in arguments:
        return [re.sub(r"^\d+$", "6", word) for word in arguments]
    short = dict(SHORT.get(verb, {}))
    if verb == "train" and not re.search(r"--algorithm [^p]|--preset", command):
        short |= {"--value-hidden": "8", "--policy-hidden": "8"}
    if "percentile-bc" in command:
        short.pop("--value-hidden")
    if "cql" in command:
        short["--num-sampled-actions"] = "1"
    for flag, value in short.items():
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
        else:
            arguments += [flag, value] if value else [flag]
    return arguments


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A directory with small files under the names that the documents use."""
    directory = tmp_path_factory.mktemp("documents")
    random = np.random.default_rng(0)
    for name, (observed, acted) in SIZES.items():
        ends = np.arange(60) % 20 == 19
        columns = {
            "observations": random.normal(size=(60, observed)).astype(np.float32),
            "actions": random.uniform(-1, 1, (60, acted)).astype(np.float32),
            "rewards": (np.arange(60) % 20 == 15).astype(np.float32),
            "terminals": np.zeros(60, bool),
            "timeouts": ends,
        }
        with h5py.File(directory / f"{name}.hdf5", "w") as file:
            for key, values in columns.items():
                file[key] = values
    pyarrow.parquet.write_table(pa.table(heating_log.columns(8, 8)), directory / "log.parquet")
    (directory / "map.toml").write_text(to_toml(heating_log.MAPPING), encoding="utf-8")
    [configuration] = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "start.md").read_text("utf-8"), re.M | re.S)
    (directory / "run.toml").write_text(configuration, encoding="utf-8")
    write_heating(directory / "heating")
    (directory / "data").symlink_to(directory, target_is_directory=True)
    constant_policy(sizes=(11, 3)).save(directory / "policy.safetensors")
    guided_policy().save(directory / "walker.safetensors")
    return directory


def write_heating(directory: Path) -> None:
    """A log with the columns of examples/heating.py, and the mapping that it writes."""
    directory.mkdir()
    source = (ROOT / "examples" / "heating.py").read_text(encoding="utf-8")
    [mapping] = re.findall(r'"map.toml"\)\.write_text\(\s*"""(.*?)"""', source, re.S)
    (directory / "map.toml").write_text(mapping, encoding="utf-8")
    days, hours = np.divmod(np.arange(72), 12)
    random = np.random.default_rng(0)
    numbers = {name: random.uniform(0, 1, 72) for name in ("price", "temp_in", "temp_out", "valve", "reward")}
    mode = np.where(hours < 6, "eco", "comfort")
    table = pa.table({"day": days, "time": np.arange(72), "hour": hours + 0.5, "mode": mode, **numbers})
    pyarrow.parquet.write_table(table, directory / "log.parquet")


@pytest.fixture(scope="module", autouse=True)
def quickly(tmp_path_factory):
    """Compile without optimizing; forget the methods that documents register."""
    methods = dict(METHODS)
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield
    for name in set(METHODS) - set(methods):
        del METHODS[name]


@pytest.fixture
def inside(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("VEM_DATA", str(place))
    monkeypatch.setenv("VEM_CACHE", str(place / "cache"))
    return place


def make_run(place: Path, name: str, command: str) -> None:
    """A run that commands and snippets share, made by the first that needs it."""
    if not (place / name).exists():
        assert main(shortened(command)) == 0


def slow_where_long(cases: list) -> list:
    """The cases, the long ones among them marked slow."""
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        is_long = values[0].startswith(LONG)
        marked.append(pytest.param(*values, marks=pytest.mark.slow) if is_long else case)
    return marked


@pytest.mark.filterwarnings("ignore::vem.errors.DataWarning")
@pytest.mark.parametrize("command", slow_where_long(commands()))
def test_commands_run(command, inside, capsys):
    if re.search(r"runs/antmaze-umaze-vem|\bRUN\b", command):
        make_run(inside, "runs/antmaze-umaze-vem", "vem train antmaze-umaze.hdf5")
    if re.search(r"(estimate|report) heating/runs", command):
        make_run(inside, "heating/runs", HEATING)
    if "select heating/methods" in command:
        make_run(inside, "heating/methods", METHODS_OF_HEATING)
    assert main(shortened(command)) == 0, capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::vem.errors.DataWarning")
@pytest.mark.parametrize(
    ("document", "code"), slow_where_long(snippets()), ids=lambda value: value if "\n" not in value else ""
)
def test_snippets_run(document, code, inside):
    make_run(inside, "runs/antmaze-umaze-vem", "vem train antmaze-umaze.hdf5")
    for pattern, replacement in IN_CODE:
        code = re.sub(pattern, replacement, code)
    exec(compile(code, document, "exec"), {"__name__": "snippet"})


def test_the_documents_have_commands_and_snippets():
    assert len(commands()) > 20
    documents = {document for document, _ in snippets()}
    assert {"README.md", "docs/evaluation.md", "examples/quickstart.ipynb"} <= documents


def test_the_example_in_the_readme_can_run_twice():
    (code,) = [code for document, code in snippets() if document == "README.md"]
    assert "out=" not in code  # a run directory is never written twice


def test_excerpts_of_a_method_are_those_of_the_example():
    example = (ROOT / "examples" / "own_method.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "algorithms" / "own-method.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python excerpt\n(.*?)^```", page, re.M | re.S)
    lines = "".join(blocks).splitlines()
    assert len(lines) > 5
    assert [line for line in lines if line not in example] == []


def test_the_notebook_has_no_outputs():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
