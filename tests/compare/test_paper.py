import numpy as np
import pytest

from comparison_cases import jobs_of, write_data
from vem.algorithms.base import official_steps, split_label
from vem.cli.compare import paper_length, parse_settings
from vem.comparison import paper
from vem.comparison.paper import PAPER_TASKS, made_place, make_missing, paper_data
from vem.errors import RunError, SettingsError
from vem.tasks import find_task
from vem.training import budget
from vem.training.budget import StageCost
from vem.training.run import Run


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch, tmp_path):
    """Data of this machine's user is not looked at."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VEM_DATA", raising=False)


def states(out, data_dir=None):
    return {entry.name: entry.state for entry in paper_data(out, data_dir)}


def test_a_label_may_name_a_preset():
    assert split_label("vem") == ("vem", None)
    assert split_label("vem-paper") == ("vem", "paper")
    assert split_label("vem-nstep") == ("vem-nstep", None)
    with pytest.raises(SettingsError, match="there is no algorithm 'bc-paper'"):
        split_label("bc-paper")
    jobs = jobs_of("a.npz", "out", ["vem", "vem-paper", "bc"], {"vem-paper": {}})
    assert [(job.label, job.request.algorithm, job.request.preset) for job in jobs] == [
        ("vem", "vem", "default"), ("vem-paper", "vem", "paper"), ("bc", "bc", "default"),
    ]  # fmt: skip
    assert parse_settings(["vem-paper:expectile=0.2"], ["vem", "vem-paper"]) == {
        "vem": {}, "vem-paper": {"expectile": "0.2"},
    }  # fmt: skip


def test_how_long_the_papers_table_trains():
    assert paper_length(["vem", "bc"], None, None, False) == {"minutes": 20.0}
    assert paper_length(["vem", "bc"], None, 3.0, False) == {}
    steps = paper_length(["vem-paper", "cql"], None, None, True)
    assert steps == {"steps": {"vem-paper": 2_000_000, "cql": 3_000_000}}
    assert all(official_steps(label) > 0 for label in paper.METHODS)
    with pytest.raises(SettingsError, match="leave out --steps and --minutes"):
        paper_length(["vem"], None, 5.0, True)
    with pytest.raises(SettingsError, match="no official number of steps is known of vem-nstep"):
        official_steps("vem-nstep")


def test_what_is_here_what_can_be_made_and_how(tmp_path):
    out, place = tmp_path / "out", tmp_path / "data"
    place.mkdir()
    assert len(PAPER_TASKS) == 24
    assert [name for name, state in states(out).items() if state == "to make"] == [
        "walker2d-random", "hopper-random", "halfcheetah-random", "pointmaze-large",
    ]  # fmt: skip
    human = place / "pen-v0_demos_clipped.hdf5"
    human.touch()
    found = {entry.name: entry for entry in paper_data(out, str(place))}
    assert (found["pen-human"].state, found["pen-human"].source) == ("here", "pen-human")
    assert found["pen-cloned"].command == (f"vem data make pen-cloned --from {human} --out {place / 'pen-cloned.hdf5'}")
    assert found["door-cloned"].state == "absent"
    assert "D4RL's door-demos-v0-bc-combined.hdf5" in found["door-cloned"].text
    assert "--walker FILE" in found["antmaze-large-diverse"].text
    assert made_place(out) == out / "data"
    with pytest.raises(SettingsError, match="give a folder for it with --data-dir"):
        made_place("s3://bucket/study")


def test_data_is_made_where_it_belongs_and_used(tmp_path):
    out, said = tmp_path / "out", []
    entries = [e for e in paper_data(out) if e.name in ("hopper-random", "pointmaze-large")]
    broken = entries[0]._replace(name="pen-cloned", origin=str(tmp_path / "absent.hdf5"))
    failures = make_missing([broken, *entries], made_place(out), said.append, num_rows=60)
    assert list(failures) == ["pen-cloned"]
    assert said[1].startswith("pen-cloned: failed: ")
    assert sorted(path.name for path in (out / "data").iterdir()) == ["hopper-random.hdf5", "pointmaze-large.hdf5"]
    assert paper.paper_sources(out) == [str(out / "data" / f"{e.name}.hdf5") for e in entries]
    assert [path for path in tmp_path.iterdir() if path.name != "out"] == []
    made = {entry.name: entry for entry in paper_data(out)}
    assert made["hopper-random"].state == "here"
    job = jobs_of(paper.paper_sources(out), out)[0]
    assert job.dataset == "hopper-random"
    assert find_task(job.dataset) is not None


def test_other_minutes_are_refused(tmp_path, monkeypatch):
    costs = {"bc": {"policy": StageCost(1.0)}, "awr": {"joint": StageCost(1.0, 10.0, 4.0, 20)}}
    monkeypatch.setattr(budget, "measure_costs", lambda run: costs[run.config.algorithm])
    data = write_data(tmp_path)

    def jobs(**length):
        return jobs_of(data, tmp_path / "out", ["bc", "awr"], seeds=1, **{"steps": None, **length})

    for job in jobs(minutes=1.0):
        Run.create(job.directory, job.request).release()
    assert [job.files.config.steps for job in jobs(minutes=1.0)] == [60, 42]
    assert [job.state() for job in jobs(minutes=1.0)] == ["unfinished", "unfinished"]
    with pytest.raises(RunError, match="was started with minutes 1, not 2; give the old settings"):
        jobs(minutes=2.0)[0].state()
    with pytest.raises(RunError, match="was started with minutes 1, not steps 60; give the old settings"):
        jobs(steps=60)[0].state()


def test_the_table_says_what_training_took(tmp_path):
    spread = paper.Spread(40.0, 1.0, 3, None)
    bc = paper.Measured(spread, [39.0, 41.0], 100, 20.0, 1188.0)
    vem = bc._replace(steps=50, core_seconds=1230.0)
    found = paper.PaperComparison(paper_data(tmp_path), {"pen-human": {"bc": bc, "vem": vem}}, {})
    assert found.over_datasets is None  # one dataset
    assert "training took 19.8 to 20.5 core-minutes a run, all seeds together, 20 asked for" in str(found)
    (row,) = [task for task in found.to_json()["tasks"] if task["ours"]]
    assert row["ours"]["bc"]["core_seconds"] == 1188.0
    assert np.isfinite(row["ours"]["bc"]["mean"])


def test_the_best_of_ours_is_marked_and_all_tasks_are_put_together(tmp_path):
    def measured(mean):
        spread = paper.Spread(mean, 1.0, mean, (mean - 3.0, mean + 3.0))
        return paper.Measured(spread, [mean - 1, mean + 1], 10, None, None)

    rows = {
        "pen-human": {"bc": measured(40.0), "vem": measured(42.0), "awr": measured(1.0)},
        "door-human": {"bc": measured(9.0), "vem": measured(20.0), "awr": measured(2.0)},
    }
    found = paper.PaperComparison(paper_data(tmp_path), rows, {})
    (row,) = [row for row in found.table.rows if row[0] == "pen-human"]
    assert [text.strip() for text in row[-3:]] == ["42.0 ± 1.0 *", "40.0 ± 1.0 ≈", "1.0 ± 1.0"]
    over = found.over_datasets
    assert over.methods == ["vem", "bc", "awr"]
    assert over.aggregates["vem"].mean.value == 31.0
    assert found.to_json()["over_datasets"] == over.to_json()
    (shown,) = [task for task in found.to_json()["tasks"] if task["name"] == "pen-human"]
    assert (shown["ours"]["vem"]["mark"], shown["ours"]["awr"]["mark"]) == ("best", "")
    assert str(over.table) in str(found)
