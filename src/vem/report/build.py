"""From run directories to a report: reads them, draws every figure that they allow, and writes one page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data import Dataset
from vem.data.samples import sample_episodes
from vem.errors import RunError
from vem.evaluation.over_tasks import OverTasks
from vem.extras import require
from vem.report import agreement, curves, film, landscape, results, returns, table, weighting
from vem.report.guide import has_guides
from vem.report.held_out import describe_rows, read_held_out
from vem.report.log_sections import data_section, estimate_section, log_sections, warning_section
from vem.report.over_datasets import over_datasets_section, read_over_datasets
from vem.report.page import Group, Section, render_page
from vem.report.records import RunRecord, Series, label_runs, read_run
from vem.report.style import Drawing, Look, drawing_style, looks, slug, write_files
from vem.storage import write_file

if TYPE_CHECKING:
    from vem.runs.run import Run

PAGE = "report.html"
FIGURES = "figures"
NUM_VALUE_ROWS = 5000


@dataclass(frozen=True)
class Report:
    """What was written."""

    page: Path
    figures: list[Path]
    groups: list[Group]
    over_datasets: OverTasks | None = None
    """Statistics over all datasets, if there are several and the same methods have scores on them."""

    def to_dict(self) -> dict[str, Any]:
        """The report's facts as JSON values."""
        return {
            "page": str(self.page),
            "figures": [str(path) for path in self.figures],
            "over_datasets": self.over_datasets and self.over_datasets.to_json(),
            "datasets": [
                {
                    "name": group.name,
                    "runs": [str(run.directory) for run in group.runs],
                    "scores": [_row_dict(row) for row in group.rows],
                    "notes": group.notes,
                }
                for group in self.groups
            ],
        }


def write_report(
    runs: Run | str | Path | Sequence[Run | str | Path],
    out: str | Path | None = None,
    show: Callable[[str], None] = lambda text: None,
    *,
    held_out: Dataset | str | Path | None = None,
) -> Report:
    """Write ``report.html`` and ``figures/*.png, *.svg`` about the runs and return what was written.

    ``runs`` are runs or their directories, one or several. ``out`` is by default the directory ``report`` in the first
    run. ``show`` is told what is being drawn. ``held_out`` is data that training did not see, to compare guided
    policies with: a Dataset, or what ``vem.load`` takes.
    """
    require("matplotlib", "jinja2")
    given = runs if isinstance(runs, Sequence) and not isinstance(runs, str) else [runs]
    places = [run if isinstance(run, str | Path) else run.directory for run in given]
    directories = list(dict.fromkeys(map(Path, places)))
    if not directories:
        raise RunError("a report needs at least one run directory; make one with vem train")
    records = [read_run(directory) for directory in directories]
    _use_known_data(records, given)
    if not any(record.metrics or record.policies for record in records):
        raise RunError(
            f"{directories[0]} has no policies and no metrics yet, so there is nothing to report; train it with "
            f"vem train --resume {directories[0]}"
        )
    others = read_held_out(held_out, records)
    if held_out is not None and not others:
        records[0].notes.append(
            "Held-out data was given, and none of these runs has a guided policy to compare it with."
        )
    out = directories[0] / "report" if out is None else Path(out)
    _make_directory(out / FIGURES)
    by_data: dict[str, list[RunRecord]] = {}
    for record in records:
        by_data.setdefault(record.data_name, []).append(record)
    groups = []
    with drawing_style():
        for name, members in by_data.items():
            prefix = f"{slug(name)}-" if len(by_data) > 1 else ""
            groups.append(build_group(name, members, prefix, show, others))
        over = read_over_datasets(groups)
        overall = over_datasets_section(over)
    sections = [*([overall] if overall else []), *(section for group in groups for section in group.sections)]
    drawings = [drawing for section in sections for drawing in section.drawings]
    show("writing")
    try:
        figures = [out / FIGURES / file for drawing in drawings for file in write_files(drawing, out / FIGURES)]
        write_file(out / PAGE, render_page(groups, FIGURES, overall).encode())
    except OSError as error:
        raise RunError(f"{out} cannot be written ({error.strerror}); choose another --out") from None
    return Report(out / PAGE, figures, groups, over if over and over.is_enough else None)


def write_score_curve(directory: str | Path) -> Path | None:
    """Draw the evaluations so far of a run against its steps, as PNG and SVG in its directory.

    Returns the PNG, or None while there are fewer than two evaluations.
    """
    record = read_run(directory)
    label_runs([record])
    with drawing_style():
        drawing = curves.draw_score_curve(record.series, looks(record.series), "")
    return None if drawing is None else Path(directory) / write_files(drawing, Path(directory))[0]


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
    sections.append(
        Section("values", "Value-estimation error", results.draw_value_errors(series, styles, rows, prefix))
    )
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


def _use_known_data(records: list[RunRecord], given: Sequence[Run | str | Path]) -> None:
    """Take the data that runs in hand hold: arrays cannot be read again, and other data need not be."""
    held = {
        run.directory: run.__dict__["dataset"]
        for run in given
        if not isinstance(run, str | Path) and "dataset" in run.__dict__
    }
    for record in records:
        if record.directory in held:
            record.__dict__["dataset"] = held[record.directory]


def _present(drawing: Drawing | None) -> list[Drawing]:
    return [] if drawing is None else [drawing]


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written ({error.strerror}); choose another --out") from None


def _row_dict(row: table.ScoreRow) -> dict[str, Any]:
    facts = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {**facts, "quantities": {name: spread._asdict() for name, spread in row.quantities.items()}}
