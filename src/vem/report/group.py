"""Everything that a page shows of the runs on one dataset, or what compares them."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from vem.data import Dataset
from vem.data.samples import sample_episodes
from vem.report import agreement, curves, film, landscape, results, returns, table, weighting
from vem.report.guide import has_guides
from vem.report.held_out import describe_rows
from vem.report.log_sections import data_section, estimate_section, log_sections, warning_section
from vem.report.page import Group, Section
from vem.report.records import RunRecord, Series, label_runs
from vem.report.style import Drawing, Look, looks

NUM_VALUE_ROWS = 5000


def build_group(
    name: str,
    runs: list[RunRecord],
    prefix: str,
    show: Callable[[str], None],
    held_out: Mapping[int, Dataset],
) -> Group:
    """Everything about the runs on one dataset; ``held_out``: other data for some of them, by ``id``."""
    label_runs(runs)
    series = [one for run in runs for one in run.series]
    styles = looks(series)
    show(f"{name}: reading the data")
    datasets = {id(run): run.dataset for run in runs}
    first = next((run for run in runs if datasets[id(run)] is not None), None)
    dataset = datasets[id(first)] if first is not None else None
    recordings = table.recordings_of(first, dataset) if first is not None and dataset is not None else None
    samples: dict[str, Dataset] = {}

    def sampled(run: RunRecord) -> Dataset | None:
        own, key = datasets[id(run)], run.data.sha256
        if own is not None and key not in samples:
            samples[key] = sample_episodes(own)
        return samples.get(key)

    show(f"{name}: scores and curves")
    rows = [table.score_row(one) for one in series]
    sections = [
        warning_section(runs),
        estimate_section(runs),
        data_section(dataset, sampled(first) if first is not None else None),
        Section("scores", "Scores", _present(results.draw_scores(series, styles, rows, prefix))),
        Section(
            "curves",
            "Learning curves",
            [
                *_present(curves.draw_score_curve(series, styles, prefix)),
                *curves.draw_curves(series, styles, prefix),
            ],
        ),
    ]
    show(f"{name}: value landscape")
    sections += [_landscape_section(series, runs, datasets, prefix), _film_section(runs, datasets, prefix)]
    errors = results.draw_value_errors(series, styles, rows, prefix)
    errors += _present(results.draw_value_against_return(series, styles, prefix))
    sections.append(Section("values", "Value-estimation error", errors))
    show(f"{name}: advantage weights")
    found = weighting.series_weights(series, sampled)
    rows = [
        dataclasses.replace(row, effective_share=float(np.mean([weighting.effective_share(w) for w in members])))
        if members
        else row
        for row, members in zip(rows, found, strict=True)
    ]
    sections.append(Section("sweep", "Sweep", _sweeps(runs, sampled, prefix)))
    sections.append(Section("returns", "Returns", _present(returns.draw_returns(series, styles, recordings, prefix))))
    sections.append(Section("weights", "Advantage weights", weighting.draw_weights(series, styles, found, prefix)))
    show(f"{name}: policy against log")
    owned, parts = [datasets[id(one.run)] for one in series], [sampled(one.run) for one in series]
    sections += log_sections(series, styles, owned, parts, prefix)
    show(f"{name}: guide and executor")
    sections.append(_agreement_section(series, styles, found, sampled, held_out, prefix))
    if first is not None and recordings is not None:
        rows.append(table.behavior_row(first, recordings))
    rows += table.paper_rows(runs[0])
    return Group(name, prefix, runs, series, styles, rows, sections, _notes(runs))


def build_brief_group(name: str, runs: list[RunRecord], prefix: str, show: Callable[[str], None]) -> Group:
    """What compares the runs on one dataset of many: scores, their curves and value errors. No data is read."""
    label_runs(runs)
    series = [one for run in runs for one in run.series]
    styles = looks(series)
    show(f"{name}: scores and curves")
    rows = [table.score_row(one) for one in series]
    sections = [
        warning_section(runs),
        estimate_section(runs),
        Section("scores", "Scores", _present(results.draw_scores(series, styles, rows, prefix))),
        Section("curves", "Learning curves", _present(curves.draw_score_curve(series, styles, prefix))),
        Section("values", "Value-estimation error", results.draw_value_errors(series, styles, rows, prefix)),
    ]
    notes = [*_notes(runs), f"Data, landscapes, weights and what the policies do: vem report {_shell_names(runs)}"]
    return Group(name, prefix, runs, series, styles, rows + table.paper_rows(runs[0]), sections, notes)


def _shell_names(runs: list[RunRecord]) -> str:
    """The runs' directories for a command."""
    parents = {Path(run.directory).parent for run in runs}
    if len(parents) == 1 and len(runs) > 1:
        return f"{shlex.quote(str(parents.pop()))}/*/"
    return " ".join(shlex.quote(str(run.directory)) for run in runs)


def _landscape_section(
    series: list[Series], runs: list[RunRecord], datasets: dict[int, Dataset | None], prefix: str
) -> Section:
    drawings: list[Drawing] = []
    layout = landscape.find_layout(runs[0])
    valued = [one for one in series if one.policies() and all(policy.has_value for policy in one.policies())]
    missing = ""
    if layout is None and runs[0].environment is None:
        pass  # nobody expects a maze
    elif layout is None:
        missing = "The landscape is drawn for AntMaze and PointMaze, whose floor is known; this is neither."
    elif not valued:
        missing = "None of these runs has a policy with state values."
    elif all(datasets[id(one.run)] is None for one in valued):
        missing = "The landscape needs the recorded data, which cannot be read again."
    else:
        dataset = next(found for one in valued if (found := datasets[id(one.run)]) is not None)
        drawings = landscape.draw_landscapes(series, landscape.sort_rows(dataset, layout), dataset, prefix)
    return Section("landscape", "Value landscape", drawings, missing)


def _film_section(runs: list[RunRecord], datasets: dict[int, Dataset | None], prefix: str) -> Section:
    layout = landscape.find_layout(runs[0])
    drawings, missing = ([], "") if layout is None else film.draw_films(runs, layout, datasets, prefix)
    return Section("film", "An evaluated episode", drawings, missing)


def _agreement_section(
    series: list[Series],
    styles: list[Look],
    weights: list[list[np.ndarray]],
    sampled: Callable[[RunRecord], Dataset | None],
    held_out: Mapping[int, Dataset],
    prefix: str,
) -> Section:
    """Guides and executors against held-out rows where some are given, else against rows of the training data."""
    guided = [one for one in series if has_guides(one.policies())]
    datasets: dict[int, Dataset] = {}
    for run in {id(one.run): one.run for one in guided}.values():
        given = held_out.get(id(run))
        sample = sampled(run) if given is None else sample_episodes(given)
        if sample is not None:
            datasets[id(run)] = sample
    if not datasets:
        return Section("agreement", "Guide and executor", [])
    if held_out:
        weights = weighting.series_weights(series, lambda run: datasets.get(id(run)))
    run = next(one.run for one in guided if id(one.run) in datasets)
    rows = describe_rows(run, datasets[id(run)], held_out.get(id(run)))
    info = run.data.info
    names = dict(enumerate(info.encoder.feature_names)) if info.encoder else {}
    if landscape.find_layout(run) is not None:
        names = {0: "0 (x)", 1: "1 (y)"}
    action_names = {index: column.name for index, column in enumerate(info.action_columns)}
    found = agreement.measure(series, styles, weights, datasets)
    drawings = agreement.draw_agreement(found, rows, names, prefix, action_names)
    return Section("agreement", "Guide and executor", drawings)


def _sweeps(runs: list[RunRecord], sampled: Callable[[RunRecord], Dataset | None], prefix: str) -> list[Drawing]:
    drawings = []
    for number, run in enumerate(runs):
        if not run.config.sweep:
            continue
        dataset, series = sampled(run), run.series
        values: list[np.ndarray] = []
        for one in series:
            policies = [policy for policy in one.policies() if policy.has_value]
            if dataset is None or not policies:
                values.append(np.zeros(0))
                continue
            rows = np.linspace(0, dataset.num_rows - 1, min(NUM_VALUE_ROWS, dataset.num_rows)).astype(int)
            values.append(np.array([policy.value(dataset.observations[rows]).mean() for policy in policies]))
        name = prefix if len(runs) == 1 else f"{prefix}{number}-"
        drawings += results.draw_sweep(series, values, name, f", {run.label}" if len(runs) > 1 else "")
    return drawings


def _notes(runs: list[RunRecord]) -> list[str]:
    notes = [f"{run.label}: {note}" if len(runs) > 1 else note for run in runs for note in run.notes]
    if len({run.data.sha256 for run in runs}) > 1:
        notes.append("These runs read the dataset by different rules, or different versions of it: rows differ.")
    sources = {run.references.source for run in runs if run.references is not None}
    if len(sources) > 1:
        notes.append(f"Scores have different references ({', '.join(sorted(sources))}) and must not be compared.")
    return notes


def _present(drawing: Drawing | None) -> list[Drawing]:
    return [] if drawing is None else [drawing]
