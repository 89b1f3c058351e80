"""A comparison over several datasets: which results are averaged, and what is printed."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from vem.cli.compare import print_results
from vem.comparison.results import Comparison, Result
from vem.evaluation.environments import References
from vem.evaluation.results import Evaluation, GroupResult, TrialResult
from vem.evaluation.statistics import over_seeds


def result(dataset, label, *scores, references=True, **changes):
    """An evaluated cell with that score for each seed."""
    names = [f"seed{number}" for number in range(len(scores))]
    quantity = "score" if references else "return"
    trials = {name: TrialResult({quantity: score}) for name, score in zip(names, scores, strict=True)}
    spread = over_seeds([np.array([score - 1, score + 1]) for score in scores])
    group = GroupResult({}, tuple(names), {"return": spread, **({"score": spread} if references else {})})
    known = References(0.0, 1.0, "D4RL") if references else None
    evaluation = Evaluation("env", known, 2, 0, "mean", 10, trials, (group,))
    return Result(dataset, label, label, Path(dataset) / label, evaluation=evaluation, **changes)


def failed(dataset, label):
    return Result(dataset, label, label, Path(dataset) / label, error="out of luck")


GOOD = [
    result("a", "vem", 80.0, 90.0),
    result("a", "bc", 10.0, 20.0),
    result("b", "vem", 40.0, 50.0),
    result("b", "bc", 40.0, 60.0),
]


def test_the_second_table_is_over_all_datasets():
    comparison = Comparison(tuple(GOOD), 2)
    over = comparison.over_datasets
    assert over is not None
    assert over.aggregates["vem"].mean.value == pytest.approx(65.0)
    # a: all four pairs; b: 40 = 40 counts half and 50 > 40 one.
    assert over.improvements["bc"].value == pytest.approx((1 + 1.5 / 4) / 2)
    first, second = str(comparison).split("\n\n")
    assert first == str(comparison.table)
    assert second.startswith("score over 2 datasets, 2 seeds each: a, b\nmethod")
    assert comparison._repr_html_().count("<table>") == 2


def test_what_is_not_averaged_is_said():
    others = [
        result("logs", "vem", 900.0, references=False),
        result("logs", "bc", 800.0, references=False),
        result("c", "vem", 1.0, 2.0),
        failed("c", "bc"),
    ]
    over = Comparison((*GOOD, *others), 2).over_datasets
    assert over is not None
    assert over.tasks == ["a", "b"]
    assert over.left_out == [
        "Datasets left out, on which a method has no score: c (bc).",
        "Datasets left out, without reference scores: logs.",
    ]


@pytest.mark.parametrize("results", [GOOD[:2], GOOD[::2], [*GOOD[:3], failed("b", "bc")], []])
def test_one_dataset_or_one_method_has_no_second_table(results):
    comparison = Comparison(tuple(results), 2)
    assert comparison.over_datasets is None
    assert comparison.tables == [comparison.table]


def test_both_tables_are_printed_or_given_as_json(capsys):
    comparison = Comparison(tuple(GOOD), 2)
    print_results(comparison, argparse.Namespace(json=False), None)
    assert capsys.readouterr().out == f"{comparison}\n"
    print_results(comparison, argparse.Namespace(json=True), None)
    found = json.loads(capsys.readouterr().out)["over_datasets"]
    assert found["datasets"] == ["a", "b"]
    assert found["methods"]["vem"]["mean"]["value"] == pytest.approx(65.0)
    print_results(Comparison(tuple(GOOD[:1]), 2), argparse.Namespace(json=True), None)
    assert json.loads(capsys.readouterr().out)["over_datasets"] is None
