"""The documents' tables are what the records give; records hold no names of this machine."""

import dataclasses
import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import evaluation_cases
from vem.envs.mazes import maze_layout
from vem.errors import RunError
from vem.evaluation.evaluate import evaluate
from vem.tasks import TASKS
from vem.training.records import EpisodeRecord

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables():
    if not (ROOT / "benchmarks" / "tables.py").exists():
        pytest.skip("the benchmarks are not part of this distribution")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("tables")


def record(dataset, algorithm, mean, interval, preset="default", **changes):
    """A record with two seeds, one point below and above the mean."""
    spread = {"mean": mean, "std": 1.0, "interquartile_mean": mean, "interval": interval}
    evaluation = {
        "num_episodes": 100,
        "trials": {"seed0": {"num_failed": 2, "score": mean - 1}, "seed1": {"num_failed": 1, "score": mean + 1}},
        "over_seeds": {"score": spread},
    }
    data = {"num_rows": 6729, "recipe": "25 demonstrations", "sha256": "0123456789abcdef"}
    facts = {"steps": 1000, "seeds": [0, 1], "training_seconds": 90.0, "data": data, "evaluation": evaluation}
    return {"dataset": dataset, "algorithm": algorithm, "preset": preset, **facts, **changes}


@pytest.fixture
def figures(tables):
    return importlib.import_module("figures")


DOCUMENTS = [
    "README.md",
    *(f"docs/{name}.md" for name in ("results", "choices", "scaling", "data")),
    "benchmarks/results/tables.md",
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_are_what_the_records_give(tables, name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert tables.filled(text, tables.read_all(), tables.read_paper()) == text, "run: python benchmarks/tables.py write"
    assert ROOT / name in tables.DOCUMENTS


def test_every_part_is_in_one_document_and_every_document_is_filled(tables):
    assert [str(path.relative_to(ROOT)) for path in tables.DOCUMENTS] == DOCUMENTS
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
    for part in tables.PARTS:
        marks = [text.count(f"<!-- {part} -->") + text.count(f"<!-- /{part} -->") for text in texts.values()]
        assert sorted(marks)[-2:] == [0, 2], part
    assert "<!-- results -->" in texts["README.md"]
    assert not any(tables.NOTHING in text for text in texts.values())


def test_the_figures_are_those_of_the_records(tables, figures):
    wanted = figures.fingerprints()
    assert len(wanted) == 2
    for name, mark in wanted.items():
        assert f"records {mark}".encode() in (ROOT / "docs" / name).read_bytes(), "run: python benchmarks/figures.py"


def test_methods_at_equal_time_had_the_same_data(tables):
    rows: dict = {}
    for one in tables.read_paper():
        rules = json.dumps(one["data"]["rules"], sort_keys=True)  # the paper's preset reads episode ends differently
        rows.setdefault((one["dataset"], rules), set()).add(one["data"]["sha256"])
    assert {place: len(found) for place, found in rows.items() if len(found) > 1} == {}


def test_tables_by_hand(tables):
    records = [
        record("door-human", "vem", 12.0, [10.0, 14.0]),
        record("door-human", "bc", 11.0, [9.0, 13.0], steps=500),
        record("door-human", "bail", 3.0, [2.0, 4.0]),
        record("door-human", "vem-1step", 5.0, None),
        record("door-human", "vem", 6.0, [5.0, 7.0], preset="paper"),
        record("own", "vem", 1.0, None),
    ]
    assert tables.readme_table(records).splitlines() == [
        "| dataset | VEM | highest other score | IQL | cloning (BC) | VEM in the paper |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
        "| door-human | 12.0 ± 1.0<br>1,000 | bc 11.0 ± 1.0<br>500 |  | 11.0 ± 1.0<br>500 | 11.2 ± 4.2 |",
        "| own | 1.0 ± 1.0<br>1,000 |  |  |  |  |",
    ]
    assert tables.longer_table(records).splitlines() == [
        "| dataset | vem | bc | bail | paper |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| door-human | 12.0 ± 1.0<br>1,000 | 11.0 ± 1.0<br>500 | 3.0 ± 1.0<br>1,000 | 11.2 ± 4.2 |",
        "| own | 1.0 ± 1.0<br>1,000 |  |  |  |",
    ]
    assert "| door-human | 12.0 ± 1.0<br>(10.0 to 14.0) | 6.0 ± 1.0<br>(5.0 to 7.0) |" in tables.score_table(records)
    assert tables.paper_table(records).splitlines()[2:] == [
        "| door-human | 12.0 ± 1.0 | 11.2 ± 4.2 | 6.0 ± 1.0 | 3.0 ± 1.0 | 0.0 ± 0.1 |"
    ]
    assert tables.paper_table(records).startswith("| dataset | vem, ours | vem, paper | vem-paper, ours | bail, ours |")
    ablated = [
        record("pen-human", "vem", 12.0, None, variant="default", value_mean={"seed0": 0.1, "seed1": 0.3}),
        record("pen-human", "vem", 7.0, None, variant="expectile-0.9", value_mean={"seed0": 0.5, "seed1": 0.5}),
    ]
    assert tables.ablation_table(ablated).splitlines() == [
        "| variant | pen-human | mean V |",
        "| --- | ---: | ---: |",
        "| VEM as it is | 12.0 ± 1.0 | 0.200 |",
        "| τ = 0.9 | 7.0 ± 1.0 | 0.500 |",
    ]
    assert "| door-human | 6,729 | 25 demonstrations | `0123456789ab` |" in tables.data_table(records)
    assert "| door-human | vem | 1,000 | 2 | 100 | 1.5 | 3 |" in tables.run_table(records)


def test_gaps_are_scores_below_the_papers(tables):
    longer = [record("antmaze-umaze", "bcq", 40.0, None, steps=8000), record("antmaze-umaze", "vem", 1.0, None)]
    equal_time = [
        record("antmaze-umaze", "bcq", 20.0, None),
        record("antmaze-umaze", "bail", 99.0, None),
        record("antmaze-umaze", "vem", 80.0, None, preset="paper"),
        record("own", "bail", 1.0, None),
    ]
    assert tables.gap_table(longer, equal_time).splitlines()[2:] == [
        "| antmaze-umaze | vem-paper | 87.5 ± 1.1 | 80.0 ± 1.0 after 1,000 |  | 2,000,000 |",
        "| antmaze-umaze | bcq | 78.9 | 20.0 ± 1.0 after 1,000 | 40.0 ± 1.0 after 8,000 | 1,000,000 |",
    ]


@pytest.fixture
def processors(tables, tmp_path, monkeypatch):
    """One processor is half as fast as the reference, in the median."""
    module = importlib.import_module("processors")
    ratios = {"door-human": 1.9, "pen-human": 2.0, "antmaze-umaze": 2.6}
    rows = [{"dataset": d, "method": "vem", "steps": 10, "seconds": 1.0, "ratio": r} for d, r in ratios.items()]
    path = tmp_path / "processors.json"
    path.write_text(json.dumps({"reference": "Some CPU", "processors": {"Slow CPU": rows}}))
    monkeypatch.setattr(module, "RECORD", path)
    return module


@pytest.fixture
def equal_time(processors):
    """Records of three methods on two tasks at equal time, of others on one."""
    facts = {"minutes": 20.0, "core_seconds": 1190.0, "processor": "Some CPU"}
    return [
        record("door-human", "vem", 12.0, [10.0, 14.0], **facts),
        record("door-human", "bcq", 11.0, [9.0, 13.0], steps=600, **facts),
        record("door-human", "bcq-em", 3.0, [2.0, 4.0], steps=3000, **facts),
        record("pen-human", "vem", 60.0, [55.0, 65.0], **facts),
        record("pen-human", "bcq", 70.0, [66.0, 74.0], steps=400, **facts),
        record("pen-human", "bcq-em", 20.0, [15.0, 25.0], steps=3000, **facts),
        record("door-human", "cql", 99.0, [98.0, 99.5], **facts),
        record("door-human", "vem", 99.0, [98.0, 99.5], preset="paper", **facts),
        record("door-human", "vem-1step", 99.0, [98.0, 99.5], **facts),
    ]


def test_the_table_of_equal_time_has_the_methods_that_ran_everywhere_and_their_steps(tables, equal_time):
    assert tables.equal_time_table([]) == tables.basis_text([]) == ""
    assert tables.equal_time_table(equal_time).splitlines() == [
        "| dataset | vem | bcq | bcq-em |",
        "| --- | ---: | ---: | ---: |",
        "| door-human | 12.0<br>± 1.0 | 11.0<br>± 1.0 | 3.0<br>± 1.0 |",
        "| pen-human | 60.0<br>± 1.0 | 70.0<br>± 1.0 | 20.0<br>± 1.0 |",
        "| median steps | 1,000 | 500 | 3,000 |",
    ]
    basis = tables.basis_text(tables.on_all_datasets(equal_time))
    assert basis.startswith("3 methods (vem, bcq, bcq-em) on 2 datasets, 2 seeds and 100 episodes a seed; 20 minutes")
    assert "of one core (Some CPU) for each method and dataset, all its seeds together: in the median" in basis
    assert "500 steps (bcq) to 3,000 (bcq-em)" in basis


def test_minutes_of_a_slower_processor_are_worth_less(tables, processors, equal_time):
    slow = record("door-human", "bc", 1.0, None, minutes=40.0, core_seconds=2400.0, processor="Slow CPU", steps=700)
    basis = tables.basis_text([*equal_time[:2], slow])
    assert "20 minutes of one core (Some CPU; 40 of Slow CPU, which are worth as much) for each method" in basis
    assert "not at equal time" in tables.basis_text([*equal_time[:2], {**slow, "minutes": 20.0}])
    assert processors.processor_table().splitlines()[2:] == ["| Slow CPU | vem | 2.00 | 1.90 to 2.60 | 3 |"]
    with pytest.raises(RunError, match="door-human bc ran on Other CPU, which was not compared with Some CPU; run"):
        tables.basis_text([{**slow, "processor": "Other CPU"}])


def test_steps_at_equal_time_by_hand(tables, equal_time):
    assert tables.steps_table([]) == ""
    text = tables.steps_table(
        [*equal_time[:2], record("pen-human", "vem", 1.0, None, core_seconds=1260.0, minutes=20.0, steps=7)]
    )
    assert text.splitlines() == [
        "| dataset | vem | bcq |",
        "| --- | ---: | ---: |",
        "| door-human | 1,000 | 600 |",
        "| pen-human | 7 |  |",
        "",
        "Training took 0.99 to 1.05 of the minutes that were asked for (median 0.99); "
        "9 of 600 evaluated episodes failed.",
    ]


def test_figures_hold_the_fingerprint_of_their_records(figures, tmp_path, monkeypatch):
    wanted = figures.fingerprints()
    monkeypatch.setattr(figures.landscapes, "RECORDS", tmp_path / "none")
    assert list(figures.fingerprints()) == [figures.EXPECTILES]
    (drawn,) = figures.draw_all(tmp_path)
    assert f"records {wanted[drawn.name]}".encode() in drawn.read_bytes()
    monkeypatch.setattr(figures.ablations, "RECORDS", tmp_path / "none")
    assert figures.fingerprints() == {}


def test_expectiles_are_drawn_for_every_dataset_and_both_quantities(tables):
    ablations = importlib.import_module("ablations")
    values = {"seed0": 0.1, "seed1": 0.3}
    records = [
        record(dataset, "vem", 10.0, None, variant=variant, value_mean=values)
        for dataset in ("pen-human", "antmaze-umaze")
        for variant in ("default", "expectile-0.9")
    ]
    figure = ablations.draw(records)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["pen-human", "antmaze-umaze", "", ""]
    (line, *_) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [0.3, 0.9]
    assert line.get_ydata().tolist() == [10.0, 10.0]


def test_drawn_and_mean_actions_of_the_same_policies_share_a_row(tables, tmp_path):
    drawn = importlib.import_module("drawn")
    run = {"dataset": "antmaze-umaze", "algorithm": "vem", "preset": "default", "policy": "guided", "steps": 9000}
    of = lambda actions, scores, **changes: {
        **run, "weight_decay": 0.0, "actions": actions, "episodes": 100, "scores": scores, **changes
    }  # fmt: skip
    trials = [of("mean", [80.0, 82.0]), of("sampled", [90.0, 91.0]), of("sampled", [1.0], steps=5)]
    path = tmp_path / "drawn.json"
    path.write_text(json.dumps(trials))
    rows = drawn.drawn_table(path).splitlines()[2:]
    assert rows == ["| antmaze-umaze | vem, guided | 9,000 | 81.0 (80.0 / 82.0) | 90.5 (90.0 / 91.0) |"]


def test_temperatures_stand_side_by_side(tables, tmp_path):
    of = lambda dataset, mean, level: record(
        dataset, "vem", mean, None, preset="paper", settings={"temperature": level}
    )
    (tmp_path / "one.json").write_text(json.dumps(of("pen-human", 2.0, 1.0)))
    preset = [of("pen-human", 50.0, 100.0), of("door-human", 3.0, 100.0), record("pen-human", "vem", 9.0, None)]
    assert tables.temperature_table(preset, tmp_path).splitlines() == [
        "| dataset | T = 1 | T = 100 |",
        "| --- | ---: | ---: |",
        "| pen-human | 2.0 ± 1.0 | 50.0 ± 1.0 |",
    ]


def test_a_landscape_leaves_floor_without_data_blank(figures):
    layout = maze_layout(TASKS["pointmaze-umaze"].environment)
    values = np.full([8 * size for size in layout.walls.shape], np.nan)
    values[12:20, 12:20] = 0.5
    rows = [[None if np.isnan(v) else v for v in row] for row in values]
    figure = figures.landscapes.draw([{"dataset": "pointmaze-umaze", "values": rows}])
    panel, _color_bar = figure.axes
    assert panel.get_title(loc="left") == "pointmaze-umaze"
    shown = panel.images[0].get_array()
    assert np.ma.getmaskarray(np.ma.masked_invalid(shown)).sum() == np.isnan(values).sum()


def test_support_and_large_data_by_hand(tables, tmp_path):
    path = tmp_path / "file.json"
    assert tables.support_table("state", path) == tables.large_data_text(path) == ""
    trials = [
        {"dataset": "a", "of": "state", "measure": "nearest, half whitened", "mean": 0.75},
        {"dataset": "a", "of": "state", "measure": "Mahalanobis", "mean": 0.5},
        {"dataset": "b", "of": "state", "measure": "Mahalanobis", "mean": 0.6},
        {"dataset": "a", "of": "action", "measure": "Mahalanobis", "mean": 0.1},
    ]
    path.write_text(json.dumps(trials))
    assert tables.support_table("state", path).splitlines() == [
        "| state | a | b |",
        "| --- | ---: | ---: |",
        "| Mahalanobis | 0.500 | 0.600 |",
        "| **nearest, half whitened** | 0.750 |  |",
    ]
    methods = {
        name: {
            "share_of_rate": rate,
            "peak_resident_bytes": {"pool": 1.5e9},
            "held_rows": {"memory": 1_000_000},
        }
        for name, rate in (("vem", 1.0), ("iql", 0.9))
    }
    about = {"rows": 3_000_000, "observation_size": 2, "action_size": 1, "bytes": 5e9}
    path.write_text(json.dumps({"about": about, "figures": {"methods": methods}}))
    assert tables.large_data_text(path) == (
        "On 3 million rows of 2 + 1 numbers (5 GB on disk), training through the buffer ran at 1.00 (VEM) and 0.90 "
        "(IQL) of the rate of 1 million rows held in memory, with a peak of 1.50 and 1.50 GB of resident memory."
    )


def test_the_time_of_the_papers_table_by_hand(tables, tmp_path):
    rates = {"one_seed": 400.0, "3_seeds": 200.0}
    path = tmp_path / "peers.json"
    methods = {"bc": {"updates_per_second": rates}, "bcq-em": {"updates_per_second": rates}}
    path.write_text(json.dumps({"about": {"cores": 2}, "methods": methods}))
    # 23 cells of 20 minutes; a core does 100 updates a second, so a cell of three million takes 8 h 20 min.
    assert tables.scale_table(path).splitlines()[2:] == [
        "| 2 | 4 h | 4 days | 4 days |",
        "| 8 | 60 min | 25 h | 25 h |",
        "| 64 | 20 min | 8 h | 6 h |",
    ]
    assert tables.cell_table(path).splitlines()[2:] == ["| bc | 100 | 40,000 | 8 h |"]
    assert importlib.import_module("scale").makespan([3, 3, 2, 2, 2], 2) == 7


def test_the_table_of_speeds_by_hand(tables, tmp_path):
    stage = {"share_of_sgemm": {"one_seed": 0.314}}
    rates = {"one_seed": 400.0, "3_seeds": 1200.4}
    bail = {"updates_per_second": rates, "stages": {"envelope": stage, "clone": stage}}
    iql = {"updates_per_second": rates, "stages": {"joint": stage}, "before": {"updates_per_second": 200.2}}
    iql["peers"] = {"corl": {"updates_per_second": 60.0, "times_as_fast": {"one_seed": 6.667, "3_seeds": 20.0}}}
    path = tmp_path / "peers.json"
    assert tables.speed_table(path) == tables.peers_table(path) == tables.seeds_table(path) == ""
    path.write_text(json.dumps({"methods": {"bail": bail, "iql": iql}}))
    assert tables.speed_table(path).splitlines()[2:] == [
        "| bail | 400 | 1,200 |  | 31 / 31 |",
        "| iql | 400 | 1,200 | 200 | 31 |",
    ]
    assert tables.peers_table(path).splitlines()[2:] == ["| iql | corl | 60 | 6.67 | 20.00 |"]
    assert tables.seeds_table(path).splitlines()[2:] == ["| 1 | 400 | 1.00 |", "| 3 | 1,200 | 3.00 |"]


def test_a_record_names_the_processor(tables, tmp_path):
    processor = importlib.import_module("score_records").processor
    facts = tmp_path / "cpuinfo"
    facts.write_text("model name\t: Some CPU 3000\nflags\t: sse avx512f\nmodel name\t: Some CPU 3000\n")
    assert processor(facts) == "Some CPU 3000 AVX-512"
    assert processor(tmp_path / "absent")


def test_only_marked_parts_change(tables, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n<!-- other -->kept<!-- /other -->\n")
    assert tables.write([path, tmp_path / "absent.md"], [], []) == [path]
    filled = (
        f"before\n<!-- results -->\n\n{tables.NOTHING}\n\n<!-- /results -->\nafter\n<!-- other -->kept<!-- /other -->\n"
    )
    assert path.read_text() == filled
    assert tables.write([path], [], []) == []


def test_a_record_is_the_run_without_its_place(tables, tmp_path, capsys):
    run = evaluation_cases.make_run(tmp_path / "cells" / "own-data" / "vem", seeds=2)
    unfinished = evaluation_cases.make_run(tmp_path / "cells" / "own-data" / "bc", algorithm="bc", policies=False)
    lines = [{"steps": 3 * n, "seconds": seconds, "trials": {}} for n, seconds in enumerate((4.0, 9.0, 2.5))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    early = [EpisodeRecord(f"seed{n}", 0, seed=0, steps=4, episode_return=float(n), value_mean=3.0) for n in (0, 1)]
    early = [dataclasses.replace(one, target_mean=1.0) for one in early]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(one.to_json()) + "\n" for one in early))
    evaluation = evaluate(run, episodes=3, workers=1)
    (path,) = tables.collect([tmp_path / "cells"], tmp_path / "records")
    assert f"{unfinished}: left out" in capsys.readouterr().out
    text = path.read_text()
    stored = json.loads(text)
    assert path.name == "pointmaze-umaze-vem.json"  # the task that the environment belongs to
    assert str(tmp_path) not in text
    assert stored["training_seconds"] == 11.5
    assert stored["minutes"] is None
    assert stored["core_seconds"] is None
    assert stored["processor"]
    found = stored["curve"]
    assert (found["steps"], found["core_seconds"]) == ([4, 7], [None, None])
    assert found["score"]["mean"] == [50.0, 0.0]
    assert found["score"]["std"] == [pytest.approx(70.7107), 0.0]
    assert found["value_error"]["mean"][0] == 2.0
    assert stored["evaluation"]["over_seeds"]["score"]["mean"] == evaluation.score.mean
    assert stored["evaluation"]["returns"] == {"seed0": [0.0] * 3, "seed1": [0.0] * 3}
    assert (
        stored["settings"]["expectile"]
        == json.loads((run / "config.json").read_text())["config"]["settings"]["expectile"]
    )
    assert tables.read_all(tmp_path / "records") == [stored]


@pytest.mark.parametrize("script", ["drawn.py", "landscapes.py"])
def test_bad_input_of_a_script_is_one_error(tables, script, tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: {tmp_path} is not a run directory: it has no config.json; make one with vem train --out\n"
    )
