"""docs/theory.md says what benchmarks/results/theory.json measured."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "theory.json").read_text(encoding="utf-8"))


def test_the_table_lists_every_statement_that_does_not_hold_with_numbers_that_were_measured():
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if re.match(r"\| \d\.\d ", line)]
    doubted = [claim for claim in RESULTS["claims"] if claim["verdict"] != "holds"]
    assert [row[:3] for row in rows] == [[claim["section"], claim["statement"], claim["verdict"]] for claim in doubted]
    for row, claim in zip(rows, doubted, strict=True):
        for number in re.findall(r"\d\.\d+", row[3]):
            assert number in claim["measured"]


def test_the_counts_and_the_readings_are_those_of_the_record():
    verdicts = [claim["verdict"] for claim in RESULTS["claims"]]
    counts = [len(verdicts), *(verdicts.count(word) for word in ("holds", "in part", "fails"))]
    assert "of {} statements {} hold, {} hold in part, {} fail".format(*counts) in " ".join(PAGE.split())
    readings = {row["expectile"]: row for row in RESULTS["tables"]["readings"]}
    assert f"{readings[0.5]['memory_sampled']:.0%} of the way" in PAGE
    assert min(readings, key=lambda tau: abs(readings[tau]["memory_authors"])) == 0.3
