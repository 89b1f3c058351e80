"""Tables of trials and single measurements: guided policies, regularization, trajectories, support, large data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from score_records import Record, column_of, read_all
from score_tables import score_of
from table_text import mean_std, table, unique

RESULTS = Path(__file__).resolve().parent / "results"
REGULARIZATION = RESULTS / "trials" / "regularization.json"
BEHAVIOR = RESULTS / "behavior.json"
TRIALS = RESULTS / "trials" / "guided.json"
SUPPORT = RESULTS / "trials" / "support.json"
TEMPERATURE = RESULTS / "trials" / "temperature"
LARGE_DATA = RESULTS / "large_data.json"
CHOSEN = {"state": "nearest, half whitened", "action": "linear residual, kernel of 16"}
"""The measures of support that the package uses."""


def behavior_table(path: Path = BEHAVIOR) -> str:
    """What the trajectories themselves score, whole and within the steps of an evaluation."""
    rows = [
        [
            name,
            str(facts["episodes"]),
            f"{facts['mean_steps']:.0f}",
            str(facts["limit"]),
            f"{facts['whole']['mean']:.1f}",
            *(f"{facts['within_limit'][which]:.1f}" for which in ("mean", "median", "best")),
        ]
        for name, facts in (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}).items()
    ]
    head = ["dataset", "trajectories", "mean steps", "limit of an evaluation", "mean score, whole"]
    return table([*head, "within the limit: mean", "median", "best"], rows)


def trial_table(path: Path = TRIALS) -> str:
    """The trials that guided policies were designed by."""
    if not path.exists():
        return ""
    header = ["dataset", "what was tried", "discount", "scores of the seeds", "episodes a seed", "on its back, %"]
    rows = []
    for trial in json.loads(path.read_text(encoding="utf-8")):
        backs = "" if trial["on_its_back"] is None else " / ".join(f"{share:.0f}" for share in trial["on_its_back"])
        scores = " / ".join(f"{score:.0f}" for score in trial["scores"])
        rows.append([trial["dataset"], trial["what"], str(trial["discount"]), scores, str(trial["episodes"]), backs])
    return table(header, rows)


def regularization_table(path: Path = REGULARIZATION) -> str:
    """Trials of the policy's regularization, beside the record of the default."""
    defaults = {record["dataset"]: record for record in read_all() if column_of(record) == "vem"}
    rows = []
    for trial in json.loads(path.read_text(encoding="utf-8")) if path.exists() else []:
        default = defaults[trial["dataset"]]
        scores = " / ".join(f"{score:.1f}" for score in trial["scores"])
        mean, usual = sum(trial["scores"]) / len(trial["scores"]), default["evaluation"]["over_seeds"]["score"]["mean"]
        steps = (
            f"{trial['steps']:,}"
            if trial["steps"] == default["steps"]
            else f"{trial['steps']:,} (record: {default['steps']:,})"
        )
        rows.append([trial["dataset"], trial["what"], steps, scores, f"{mean:.1f}", f"{usual:.1f}"])
    return table(["dataset", "what was tried", "steps", "scores of the seeds", "mean", "record of the default"], rows)


def temperature_table(records: Sequence[Record], folder: Path = TEMPERATURE) -> str:
    """VEM as the paper describes it with another temperature, beside the records of the preset."""
    tried = read_all(folder)
    preset = [r for r in records if column_of(r) == "vem-paper" and r["dataset"] in {t["dataset"] for t in tried}]
    by_place = {(r["dataset"], r["settings"]["temperature"]): r for r in [*tried, *preset]}
    levels = sorted(unique(level for _, level in by_place))
    rows = [
        [d, *(mean_std(score_of(r)) if (r := by_place.get((d, level))) else "" for level in levels)]
        for d in unique(r["dataset"] for r in tried)
    ]
    return table(["dataset", *(f"T = {level:g}" for level in levels)], rows)


def support_table(of: str, path: Path = SUPPORT) -> str:
    """Mean AUROC of each measure of support, ``of`` states or actions, by dataset; the chosen one bold."""
    trials = [trial for trial in _read(path) or [] if trial["of"] == of]
    found = {(trial["measure"], trial["dataset"]): f"{trial['mean']:.3f}" for trial in trials}
    datasets = unique(trial["dataset"] for trial in trials)
    rows = [
        [f"**{name}**" if name == CHOSEN[of] else name, *(found.get((name, dataset), "") for dataset in datasets)]
        for name in sorted(unique(trial["measure"] for trial in trials), key=str.casefold)
    ]
    return table([of, *datasets], rows)


def large_data_text(path: Path = LARGE_DATA) -> str:
    """Rate and memory of training through a pool, in a sentence."""
    found = _read(path)
    if found is None:
        return ""
    about, methods = found["about"], found["figures"]["methods"]
    rates = _listed(f"{figures['share_of_rate']:.2f} ({name.upper()})" for name, figures in methods.items())
    peaks = _listed(f"{figures['peak_resident_bytes']['pool'] / 1e9:.2f}" for figures in methods.values())
    held = max(figures["held_rows"]["memory"] for figures in methods.values())
    return (
        f"On {about['rows'] / 1e6:,.0f} million rows of {about['observation_size']} + {about['action_size']} numbers "
        f"({about['bytes'] / 1e9:.0f} GB on disk), training through the buffer ran at {rates} of the rate of "
        f"{held / 1e6:.0f} million rows held in memory, with a peak of {peaks} GB of resident memory."
    )


def _listed(texts: Any) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
