"""Every command and every Python snippet of the README and the documents runs, shortened where it is long."""

from __future__ import annotations

import re
import shlex
import shutil
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
from vem.cli import main
from vem.data.mapping import to_toml

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SIZES = {"antmaze-umaze": (29, 8), "held-out": (29, 8), "door-human": (39, 28), "pen-human": (45, 24)}
SHORT = {
    "train": {"--steps": "3", "--seeds": "1", "--batch-size": "8"},
    "compare": {"--algorithms": "bc", "--steps": "3", "--seeds": "1", "--episodes": "1", "--jobs": "1"},
    "sweep": {"--steps": "3", "--seeds": "1", "--episodes": "1", "--jobs": "1", "--effective-sample": "0.1"},
    "evaluate": {"--episodes": "1", "--workers": "1"},
    "estimate": {"--steps": "3"},
    "select": {"--steps": "3"},
    "data make": {"--rows": "300"},
    "theory": {"--small": ""},
}
SLOW = ("vem compare paper --data-dir ~/data --run", "vem theory --out theory --json")
"""Commands that do what another one in the list does, only longer."""
LONG = (
    "vem compare antmaze-umaze.hdf5 --algorithms",
    "vem compare door-human --data-dir",
    "vem compare door-human pen-human --data-dir",
    "vem compare paper --data-dir",
    "vem estimate runs/",
    "vem report RUN --out",
    "vem select runs/antmaze-umaze-vem",
    "vem sweep antmaze-umaze.hdf5 --discount",
    "vem sweep door-human --data-dir",
    "vem theory --out theory",
    "vem train DATASET",
    "vem train antmaze-umaze.hdf5 --expectile",
    "vem train antmaze-umaze.hdf5 --hold-out",
    "vem train door-human.hdf5 --expectile",
    "vem train log.parquet --map map.toml --hold-out",
    "docs/comparison.md",
    "docs/choosing.md",
    "docs/evaluation.md",
    "docs/tables.md",
)
"""Commands and documents of the slow selection: what they call has tests of its own."""
WORDS = {
    "DATASET": "antmaze-umaze.hdf5",
    "FILE": "held-out.hdf5",
    "DATA": ".",
    "RUN": "runs/antmaze-umaze-vem",
    "DIR": "out",
    "~/data": ".",
}


def commands() -> list[str]:
    """The ``vem`` commands of all documents, each once, in their order; remarks beside them left out."""
    found = {}
    for path in DOCUMENTS:
        fence = None
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("```"):
                fence = line if fence is None else None
            match = re.match(r"(    )?(vem [a-z]\S*(?: \S+)*?)(?:\s{2,}.*)?$", line)
            if match and (match[1] or fence == "```") and not match[2].startswith(SLOW):
                found[re.sub(r" \[[^]]*\]", "", match[2])] = path
    return list(found)


def snippets() -> list[tuple[str, str]]:
    """The Python blocks of each document, joined: a reader goes through them in order."""
    found = []
    for path in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)
        if blocks:
            found.append((str(path.relative_to(ROOT)), "\n".join(blocks)))
    return found


def shortened(command: str) -> list[str]:
    arguments = [WORDS.get(word, word) for word in shlex.split(command)[1:]]
    verb = " ".join(arguments[:2]) if arguments[0] == "data" else arguments[0]
    for flag, value in SHORT.get(verb, {}).items():
        if "--resume" in arguments:
            break
        if flag == "--steps" and "--minutes" in arguments:
            flag, value = "--minutes", "0.005"
        if flag == "--batch-size" and "cql" in command:
            arguments += ["--num-sampled-actions", "1"]
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
        if name == "antmaze-umaze":
            np.savez(directory / "log.npz", **columns)
    pyarrow.parquet.write_table(pa.table(heating_log.columns(8, 8)), directory / "log.parquet")
    (directory / "heating").mkdir()
    shutil.copy(directory / "log.parquet", directory / "heating")
    (directory / "heating" / "map.toml").write_text(to_toml(heating_log.MAPPING), encoding="utf-8")
    (directory / "data").symlink_to(directory, target_is_directory=True)
    constant_policy(sizes=(11, 3)).save(directory / "policy.safetensors")
    constant_policy(sizes=(4, 2)).save(directory / "maze.safetensors")
    guided_policy().save(directory / "walker.safetensors")
    return directory


@pytest.fixture(scope="module", autouse=True)
def quickly(tmp_path_factory):
    """Compile without optimizing."""
    with quick_compilation(tmp_path_factory.getbasetemp() / "programs"):
        yield


@pytest.fixture
def inside(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setenv("VEM_DATA", str(place))
    return place


@pytest.mark.filterwarnings("ignore::vem.errors.DataWarning")
def slow_where_long(cases: list) -> list:
    """The cases, the long ones among them marked slow."""
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        is_long = values[0].startswith(LONG)
        marked.append(pytest.param(*values, marks=pytest.mark.slow) if is_long else case)
    return marked


@pytest.mark.parametrize("command", slow_where_long(commands()))
def test_commands_run(command, inside, capsys):
    needs_run = re.search(r"runs/antmaze-umaze-vem|\bRUN\b", command)
    if needs_run and not (inside / "runs/antmaze-umaze-vem").exists():
        assert main(shortened("vem train antmaze-umaze.hdf5")) == 0
    assert main(shortened(command)) == 0, capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::vem.errors.DataWarning")
@pytest.mark.parametrize(
    ("document", "code"), slow_where_long(snippets()), ids=lambda value: value if "\n" not in value else ""
)
def test_snippets_run(document, code, inside):
    if not (inside / "runs/antmaze-umaze-vem").exists():
        assert main(shortened("vem train antmaze-umaze.hdf5")) == 0
    code = re.sub(r"steps=[\d_]+", "steps=3", code)
    code = re.sub(r"episodes=\d+", "episodes=1", code)
    code = re.sub(r"(seeds|jobs)=\d+", r"\1=1", code)
    code = re.sub(r"\b\d+_000\b", "3", code)
    if "compare(" in code:
        code = code.replace('["vem", "bc"]', '["bc"]').replace('"vem": 3, ', "").replace('"vem")', '"bc")')
    exec(compile(code, document, "exec"), {"__name__": "snippet"})


def test_the_documents_have_commands_and_snippets():
    assert len(commands()) > 20
    assert {"README.md", "docs/evaluation.md"} <= {document for document, _ in snippets()}
