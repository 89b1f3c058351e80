"""docs/theory.md says what benchmarks/results/theory.json measured, and names tests that exist."""

import fnmatch
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "theory.json").read_text(encoding="utf-8"))


def test_every_statement_is_listed_with_its_measurement_and_verdict():
    for claim in RESULTS["claims"]:
        cells = [claim[name].replace("|", "\\|") for name in ("section", "statement", "measured", "verdict")]
        assert f"| {' | '.join(cells)} |" in PAGE


def test_the_tables_of_the_page_are_those_of_the_results():
    for row in RESULTS["tables"]["readings"]:
        numbers = [
            f"{row[name]:.2f}" for name in ("expectile_operator", "memory_operator", "memory_sampled", "memory_authors")
        ]
        assert f"| {row['expectile']:g} | {' | '.join(numbers)} |" in PAGE
    for name, key in (("horizon", "max_steps"), ("behavior", "temperature")):
        for row in RESULTS["tables"][name]:
            if row["expectile"] in (0.6, 0.9):
                rates = f"{row['rate_from_zero']:.3f} | {row['rate_supremum']:.4f}"
                assert f"| {row[key]:g} | {row['expectile']:g} | {rates} |" in PAGE


def test_named_tests_exist():
    files = [ROOT / "tests" / "properties" / "test_lemmas.py", *(ROOT / "tests" / "theory").glob("test_*.py")]
    defined = re.findall(r"^def (test_\w+)", "\n".join(path.read_text(encoding="utf-8") for path in files), re.M)
    named = re.findall(r"`(test_[\w*]+)`", PAGE)
    assert len(named) > 20
    for name in named:
        assert fnmatch.filter(defined, name), name
