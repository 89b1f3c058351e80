import io
import json

import pytest

import vem
from comparison_cases import SETTINGS, write_data
from small_runs import quick_compilation
from vem.cli import main
from vem.comparison import launch as view
from vem.comparison.compare import asked_for, lay_out, swept_words
from vem.comparison.launch import View, read_progress
from vem.errors import SettingsError
from vem.training.run import Run

GIVEN = {"seeds": 1, "steps": 20, "episodes": 1, "batch_size": 8}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", autouse=True)
def quick(tmp_path_factory):
    with quick_compilation(tmp_path_factory.mktemp("programs")):
        yield


def test_any_setting_is_swept_and_the_same_call_goes_on(data, tmp_path):
    values = {"policy_hidden": ["8", (8, 8)], "policy_lr": [0.001, "3e-4"]}
    shown = io.StringIO()
    swept = vem.sweep(str(data), values, "bc", out=tmp_path, progress=shown, **GIVEN)
    labels = [f"policy-hidden={hidden},policy-lr={rate}" for hidden in ("8", "8x8") for rate in ("0.001", "0.0003")]
    assert [result.label for result in swept.results] == labels
    assert sorted(path.name for path in (tmp_path / "pointmaze-umaze").iterdir()) == sorted(labels)
    config = Run(swept.result("pointmaze-umaze", labels[3]).directory).config
    assert (config.settings["policy_hidden"], config.settings["policy_lr"]) == ((8, 8), 0.0003)
    lines = str(swept).splitlines()
    assert lines[1].split() == ["settings", "pointmaze-umaze"]
    assert [line.split()[0] for line in lines[2:6]] == labels
    assert "4 of 4 runs" in shown.getvalue()
    again = io.StringIO()
    assert vem.sweep(str(data), values, "bc", out=tmp_path, progress=again, **GIVEN) == swept
    assert "0 of 4 runs" in again.getvalue()


def test_the_command_sweeps_what_has_several_values(data, tmp_path, capsys):
    given = ["sweep", str(data), "--algorithm", "bc", "--policy-hidden", "8,8", "--policy-lr", "0.001,0.0003"]
    given += ["--batch-size", "8", "--seeds", "1", "--steps", "20", "--episodes", "1", "--out", str(tmp_path)]
    assert main([*given, "--json", "--no-report"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [run["swept"] for run in found] == [{"policy_lr": 0.001}, {"policy_lr": 0.0003}]


@pytest.mark.parametrize(
    ("values", "words", "message"),
    [
        ({"policy_lr": [0.1]}, {}, "nothing is swept"),
        ({"policy_lr": [0.1, "0.1"]}, {}, r"--policy-lr lists \[0.1, 0.1\]; give different values"),
        ({"policy_lr": [0.1, -1]}, {}, "--policy-lr is -1.0"),
        ({"policy_lr": "0.1,0.2"}, {}, "give a list of values"),
        ({"policy_rate": [1, 2]}, {}, "has no setting 'policy_rate'"),
        ({"policy_lr": [0.1, 0.2]}, {"policy_lr": 0.1}, "both as a setting and as values"),
        ({"batch_size": range(1, 10_002)}, {}, "10,001 runs are asked for"),
    ],
)
def test_sweeps_that_mean_nothing(tmp_path, values, words, message):
    with pytest.raises(SettingsError, match=message):
        vem.sweep("a.npz", values, "bc", out=tmp_path, **words)


def sweep_jobs(data, out, values):
    asked = asked_for(None, data, {"algorithm": "bc", "seeds": 1})
    return lay_out(out, asked, swept_words(values, asked), values)


def test_the_view_reads_the_progress_of_all_jobs(data, tmp_path, monkeypatch):
    vem.compare(str(data), "bc", out=tmp_path, seeds=1, steps=20, episodes=1, settings=SETTINGS, progress=False)
    jobs = sweep_jobs(str(data), tmp_path, {"policy_lr": [0.1, 0.2]})
    begun = jobs[0].at(tmp_path / "pointmaze-umaze" / "bc")
    assert read_progress(jobs[1]) is None
    progress = read_progress(begun)
    assert progress is not None
    assert (progress.steps, progress.num_steps, progress.score) == (20, 20, 0.0)
    monkeypatch.setattr(view, "SECONDS_PER_LOOK", 0.0)
    monkeypatch.setattr(view, "SECONDS_PER_LINE", 0.0)
    stream = io.StringIO()
    shown = View(stream, 2)
    for _ in range(2):  # what did not change is not said again
        shown.update([begun, jobs[1]])
    assert stream.getvalue() == "pointmaze-umaze policy-lr=0.1: 20 / 20 steps  score 0.0\n"


def test_a_terminal_gets_one_live_table(data, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(view, "SECONDS_PER_LOOK", 0.0)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "30")
    vem.compare(str(data), "bc", out=tmp_path, seeds=1, steps=20, episodes=1, settings=SETTINGS, progress=False)
    begun, absent = sweep_jobs(str(data), tmp_path, {"policy_lr": [0.1, 0.2]})
    stream = Terminal()
    with view.showing(View(stream, 5)) as shown:
        shown.update([begun.at(tmp_path / "pointmaze-umaze" / "bc"), absent])
        shown.say("a [line] above it")
    text = stream.getvalue()
    assert "20 / 20 steps" in text
    assert "2 of 5 runs are open, 1 of them not begun" in text
    assert "a [line] above it" in text
