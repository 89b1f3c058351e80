"""The request: one grammar for keywords, flags and files, and methods from files that somebody named."""

import importlib.metadata
import json
import sys

import pytest

import vem
from small_runs import tiny_dataset, tiny_settings
from vem.algorithms.base import METHODS, import_installed_methods
from vem.cli import main
from vem.errors import RunError, SettingsError
from vem.policy import load_policy
from vem.reports.records import read_run
from vem.training.request import Request, make_request
from vem.training.run import Run

OWN = """
import dataclasses
import vem
from vem.algorithms import bc

@dataclasses.dataclass(frozen=True)
class Own(bc.BC):
    pass

def add():
    vem.register("own", Own, bc.make, "a test")

if __name__ != "installed_methods":
    add()
"""


def test_a_request_is_stored_and_read_back():
    request = make_request("walk", "iql", expectile=[0.7, 0.9], split="terminals", seed=[7, 9], steps=50, hold_out=0.2)
    assert (request.sweep, request.seeds, request.rules) == ({"expectile": [0.7, 0.9]}, (7, 9), {"split": "terminals"})
    assert Request.from_json(json.loads(json.dumps(request.to_json()))) == request
    assert [trial.name for trial in request.trials] == [
        f"seed{seed}-expectile{value}" for value in (0.7, 0.9) for seed in (7, 9)
    ]


def test_files_say_what_keywords_do_and_give_way_to_them(tmp_path):
    toml = tmp_path / "run.toml"
    toml.write_text(
        'data = "walk"\nalgorithm = "iql"\nsteps = 50\nseeds = 3\nexpectile = 0.7\nimports = ["evil"]\n'
        '[settings]\nbatch_size = 64\n[rules]\ntime_limit = "end"\n'
    )
    asked = {"expectile": 0.7, "batch_size": 64, "time_limit": "end"}
    assert Request.read(toml) == make_request("walk", "iql", steps=50, seeds=3, **asked)
    changed = Request.read(toml, expectile=0.9, seed=7, minutes=2.0)
    assert (changed.settings["expectile"], changed.seeds, changed.minutes) == (0.9, (7,), 2.0)
    as_json = tmp_path / "run.json"
    as_json.write_text(json.dumps({"data": "walk", "seed": 5, "expectile": [0.1, 0.2]}))
    assert Request.read(as_json) == make_request("walk", seed=5, expectile=[0.1, 0.2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = [", "cannot read"),
        ('data = "x"\nstep = 3', "did you mean steps"),
        ('data = "x"\nsettings = 3', "settings is 3; it must be a table"),
        ('data = "x"\nsteps = 3\nminutes = 1', "leave one out"),
        ("steps = 3", "the data is None"),
    ],
)
def test_a_file_that_asks_for_nothing_clear_is_one_sentence(tmp_path, text, message):
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        Request.read(tmp_path / "run.toml")
    with pytest.raises(SettingsError, match="cannot read"):
        Request.read(tmp_path / "absent.toml")


def test_the_config_of_a_run_trains_the_same_again(tmp_path):
    dataset = tiny_dataset()
    settings = tiny_settings("vem")
    first = vem.train(dataset, seeds=2, steps=10, out=tmp_path / "first", progress=False, **settings)
    again = vem.train(dataset, config=first.directory / "config.json", out=tmp_path / "again", progress=False)
    assert again.config == first.config
    for ours, theirs in zip(first.policy_paths, again.policy_paths, strict=True):
        assert ours.read_bytes() == theirs.read_bytes()
    other = vem.train(dataset, config=first.directory, seed=5, steps=20, out=tmp_path / "other", progress=False)
    assert (other.config.seeds, other.config.steps) == ((5,), 20)
    assert other.config.settings == first.config.settings


def test_a_frame_is_read_by_its_mapping(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": range(40), "u": [0.1, -0.1] * 20, "r": [1.0] * 40, "who": [1] * 20 + [2] * 20})
    mapping = {"observation": ["x"], "action": ["u"], "reward": "r", "episode": "who"}
    settings = tiny_settings("bc")
    run = vem.train(frame, "bc", mapping=mapping, steps=2, out=tmp_path / "run", progress=False, **settings)
    assert run.dataset.num_episodes == 2
    ended = make_request(frame, "vem", preset="paper", mapping=mapping)
    assert ended.rules["time_limit"] == ended.dataset.info.rules["time_limit"] == "end"


@pytest.fixture
def own(tmp_path):
    """A file that registers a method, which is forgotten after the test."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    before, modules = dict(METHODS), set(sys.modules)
    yield path
    METHODS.clear()
    METHODS.update(before)
    for name in set(sys.modules) - modules:
        if name.startswith("vem_import_"):
            del sys.modules[name]


def forget():
    """As if another process began."""
    METHODS.pop("own")
    for name in [name for name in sys.modules if name.startswith("vem_import_")]:
        del sys.modules[name]


def test_a_method_from_a_file_trains_everywhere_and_only_who_names_it_imports_it(tmp_path, own, capsys):
    from comparison_cases import write_data

    data, run = write_data(tmp_path), tmp_path / "run"
    small = ["--policy-hidden", "8", "--steps", "4"]
    assert main(["train", str(data), "--algorithm", "own", "--import", str(own), "--out", str(run), *small]) == 0
    assert json.loads((run / "config.json").read_text())["config"]["imports"] == [str(own)]
    forget()
    assert load_policy(run).info["algorithm"] == "own"
    assert list(read_run(run).policies) == ["seed0"]
    assert Run.open(run).is_finished
    sentence = f"'own', a method that is not known here; name what registers it: --import {own}"
    with pytest.raises(RunError, match=sentence):
        vem.resume(run, steps=8)
    with pytest.raises(SettingsError, match=r"there is no algorithm 'own'.*--import"):
        make_request(config=run / "config.json")
    assert "own" not in METHODS
    capsys.readouterr()
    assert main(["train", "--resume", str(run), "--steps", "8", "--import", str(own)]) == 0
    assert "4 steps are added to the 4: 4 of policy" in capsys.readouterr().out
    assert Run.open(run).config.steps == 8


def test_installed_methods_are_found_by_their_entry_point(own, monkeypatch):
    monkeypatch.syspath_prepend(str(own.parent))
    own.rename(own.with_name("installed_methods.py"))
    entry = importlib.metadata.EntryPoint("own", "installed_methods:add", "vem.methods")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry] if group == "vem.methods" else [])
    import_installed_methods.cache_clear()
    try:
        assert make_request("walk", "own").algorithm == "own"
    finally:
        import_installed_methods.cache_clear()
        sys.modules.pop("installed_methods", None)


@pytest.mark.parametrize("name", ["absent.py", "no.such.module"])
def test_what_cannot_be_imported_is_one_sentence(tmp_path, name):
    (tmp_path / "broken.py").write_text("1 / 0")
    for each in (name, str(tmp_path / "broken.py")):
        with pytest.raises(SettingsError, match=r"--import .*: it cannot be imported"):
            make_request("walk", imports=[each])
