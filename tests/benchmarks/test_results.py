"""The documents' tables are what the records give; records hold no names of this machine."""

import importlib
import json
from pathlib import Path

import pytest

import evaluation_cases
from vem.evaluation.evaluate import evaluate

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables():
    if not (ROOT / "benchmarks" / "tables.py").exists():
        pytest.skip("the benchmarks are not part of this distribution")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        yield importlib.import_module("tables")


def record(dataset, algorithm, mean, interval, preset="default", **changes):
    spread = {"mean": mean, "std": 1.0, "interquartile_mean": mean, "interval": interval}
    evaluation = {
        "num_episodes": 100,
        "members": {"seed0": {"num_failed": 2}, "seed1": {"num_failed": 1}},
        "over_seeds": {"score": spread},
    }
    data = {"num_rows": 6729, "recipe": "25 demonstrations", "sha256": "0123456789abcdef"}
    facts = {"steps": 1000, "seeds": [0, 1], "training_seconds": 90.0, "data": data, "evaluation": evaluation}
    return {"dataset": dataset, "algorithm": algorithm, "preset": preset, **facts, **changes}


@pytest.mark.parametrize("name", ["docs/results.md", "docs/scale.md", "README.md"])
def test_the_documents_are_what_the_records_give(tables, name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert tables.filled(text, tables.read_all()) == text, "run: python benchmarks/tables.py write"


def test_every_part_of_the_results_page_is_there(tables):
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    parts = set(tables.PARTS) - {"results", "scale", "cells"}
    assert {name for name in parts if f"<!-- {name} -->" in text and f"<!-- /{name} -->" in text} == parts


def test_tables_by_hand(tables):
    records = [
        record("door-human", "vem", 12.0, [10.0, 14.0]),
        record("door-human", "bc", 11.0, [9.0, 13.0]),
        record("door-human", "bail", 3.0, [2.0, 4.0]),
        record("door-human", "vem-1step", 5.0, None),
        record("door-human", "vem", 6.0, [5.0, 7.0], preset="paper"),
        record("own", "bc", 1.0, None),
    ]
    assert tables.readme_table(records).splitlines() == [
        "| dataset | vem | bc | bail | vem, paper |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| door-human | **12.0** ± 1.0 | 11.0 ± 1.0 ≈ | 3.0 ± 1.0 | 11.2 ± 4.2 |",
        "| own |  | 1.0 ± 1.0 |  |  |",
    ]
    assert "| door-human | **12.0** ± 1.0 (10.0 to 14.0) | 6.0 ± 1.0 (5.0 to 7.0) |" in tables.score_table(records)
    assert tables.paper_table(records).splitlines()[2:] == [
        "| door-human | 12.0 ± 1.0 | 11.2 ± 4.2 | 3.0 ± 1.0 | 0.0 ± 0.1 |"
    ]
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
    assert tables.scale.makespan([3, 3, 2, 2, 2], 2) == 7


def test_the_table_of_speeds_by_hand(tables, tmp_path):
    stage = {"share_of_sgemm": {"one_seed": 0.314}, "done_over_needed": 1.0}
    rates = {"one_seed": 400.0, "3_seeds": 1200.4}
    bail = {"updates_per_second": rates, "stages": {"envelope": stage, "clone": {**stage, "done_over_needed": 1.4}}}
    iql = {"updates_per_second": rates, "stages": {"joint": stage}, "before": {"updates_per_second": 200.2}}
    iql["peers"] = {"corl": {"updates_per_second": 60.0, "times_as_fast": {"one_seed": 6.667, "3_seeds": 20.0}}}
    path = tmp_path / "peers.json"
    assert tables.speed_table(path) == tables.peers_table(path) == tables.seeds_table(path) == ""
    path.write_text(json.dumps({"methods": {"bail": bail, "iql": iql}}))
    assert tables.speed_table(path).splitlines()[2:] == [
        "| bail | 400 | 1,200 |  | 31 / 31 | 1.00 / 1.40 |",
        "| iql | 400 | 1,200 | 200 | 31 | 1.00 |",
    ]
    assert tables.peers_table(path).splitlines()[2:] == ["| iql | corl | 60 | 6.67 | 20.00 |"]
    assert tables.seeds_table(path).splitlines()[2:] == ["| 1 | 400 | 1.00 |", "| 3 | 1,200 | 3.00 |"]


def test_only_marked_parts_change(tables, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n<!-- other -->kept<!-- /other -->\n")
    assert tables.write([path, tmp_path / "absent.md"], []) == [path]
    filled = (
        f"before\n<!-- results -->\n\n{tables.NOTHING}\n\n<!-- /results -->\nafter\n<!-- other -->kept<!-- /other -->\n"
    )
    assert path.read_text() == filled
    assert tables.write([path], []) == []


def test_a_record_is_the_run_without_its_place(tables, tmp_path, capsys):
    run = evaluation_cases.make_run(tmp_path / "cells" / "own-data" / "vem", seeds=2)
    unfinished = evaluation_cases.make_run(tmp_path / "cells" / "own-data" / "bc", algorithm="bc", policies=False)
    lines = [{"steps": n, "seconds": seconds, "members": {}} for n, seconds in enumerate((4.0, 9.0, 2.5))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    evaluation = evaluate(run, episodes=3, workers=1)
    (path,) = tables.collect([tmp_path / "cells"], tmp_path / "records")
    assert f"{unfinished}: left out" in capsys.readouterr().out
    text = path.read_text()
    stored = json.loads(text)
    assert path.name == "pointmaze-umaze-vem.json"  # the task that the environment belongs to
    assert str(tmp_path) not in text
    assert stored["training_seconds"] == 11.5
    assert stored["evaluation"]["over_seeds"]["score"]["mean"] == evaluation.score.mean
    assert stored["evaluation"]["returns"] == {"seed0": [0.0] * 3, "seed1": [0.0] * 3}
    assert (
        stored["settings"]["expectile"]
        == json.loads((run / "config.json").read_text())["config"]["settings"]["expectile"]
    )
    assert tables.read_all(tmp_path / "records") == [stored]
