"""From run directories to a report: reads them, draws every figure that they allow, and writes one page."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.data.dataset import Dataset, sample_episodes
from vem.errors import DataError, RunError, require
from vem.evaluation.statistics import Estimate, OverTasks, estimate_text, over_tasks
from vem.reports.log import data_section, estimate_section, log_sections, warning_section
from vem.reports.mazes import draw_landscapes, find_layout, has_guides, sort_rows
from vem.reports.page import Group, Section, render_page
from vem.reports.records import RunRecord, Series, common_labels, label_runs, read_run
from vem.reports.scores import (
    SCORE,
    ScoreRow,
    behavior_row,
    draw_curves,
    draw_returns,
    draw_score_curve,
    draw_scores,
    draw_sweep,
    draw_value_against_return,
    draw_value_errors,
    paper_rows,
    score_row,
    trajectories_of,
    trial_means,
)
from vem.reports.style import (
    GRAY,
    Drawing,
    Look,
    PlainTable,
    distinct_looks,
    drawing_style,
    label_axes,
    legend_below,
    looks,
    new_figure,
    new_panels,
    slug,
    write_files,
)
from vem.reports.weights import draw_agreement, draw_weights, effective_share, measure, series_weights
from vem.storage import write_file

if TYPE_CHECKING:
    from vem.training.run import Run


# Trajectories that training did not see, for the runs whose guides are compared with them.


def read_held_out(source: Dataset | str | Path | None, runs: list[RunRecord]) -> dict[int, Dataset]:
    """The data for each run with a guide (by ``id``), read by the rules of the run; a Dataset is taken as it is.

    DataError if it does not fit such a run, or is what the run was trained on. Empty without a source.
    """
    found: dict[int, Dataset] = {}
    if source is None:
        return found
    read: dict[str, Dataset] = {}
    for run in runs:
        if not has_guides(list(run.policies.values())):
            continue
        if isinstance(source, Dataset):
            dataset = source
        else:
            key = repr((run.config.rules, run.config.data_dir))
            if key not in read:
                read[key] = run.config.load(source)
            dataset = read[key]
        _check_fits(dataset, run)
        found[id(run)] = dataset
    return found


def _check_fits(dataset: Dataset, run: RunRecord) -> None:
    policy = next(iter(run.policies.values()))
    needed, given = (policy.observation_size, policy.action_size), (dataset.observation_size, dataset.action_size)
    if given != needed:
        raise DataError(
            f"the held-out data {dataset.info.name} has observations of {given[0]} numbers and actions of {given[1]}; "
            f"{run.directory} takes {needed[0]} and {needed[1]}: give trajectories of the same task"
        )
    training = run.dataset
    if training is not None and share_of_known_rows(dataset, training) == 1:
        raise DataError(
            f"every step of the held-out data {dataset.info.name} is in the data that {run.directory} was trained on; "
            "give trajectories that training did not see, or leave --held-out away"
        )


def share_of_known_rows(given: Dataset, known: Dataset) -> float:
    """Share of the steps of ``given`` that are in ``known`` too, bit by bit."""
    return float(np.isin(_row_keys(given), _row_keys(known)).mean())


def _row_keys(dataset: Dataset) -> np.ndarray:
    """One number for each step: equal for equal observations and actions, and hardly ever for others."""
    columns = np.concatenate([dataset.observations, dataset.actions], axis=1)[dataset.valid].astype(np.float32)
    factors = np.random.default_rng(0).integers(1, 2**63, columns.shape[1], dtype=np.uint64)
    keys = np.zeros(len(columns), np.uint64)
    # Sums and products of unsigned integers wrap, which is what mixes the bits.
    for column, factor in zip(columns.view(np.uint32).T, factors, strict=True):
        keys += column * factor
    return keys


def describe_rows(run: RunRecord, sample: Dataset, held_out: Dataset | None) -> str:
    """Of which rows the agreement is, in words that do not flatter: training rows, or how many of these are."""
    count = f"{sample.num_transitions:,} steps"
    if held_out is None:
        return f"{count} of the training data (seen in training, so this flatters: --held-out takes other trajectories)"
    training = run.dataset
    if training is None:
        return f"{count} of {held_out.info.name}, given as held out; the training data cannot be read to check that"
    share = share_of_known_rows(held_out, training)
    known = "no step of which is in the training data"
    if share > 0:
        known = f"{share:.1%} of whose steps are in the training data too"
    return f"{count} of the held-out data {held_out.info.name}, {known}"


# Everything that a page shows of the runs on one dataset, or what compares them.


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
    trajectories = trajectories_of(first, dataset) if first is not None and dataset is not None else None
    samples: dict[str, Dataset] = {}

    def sampled(run: RunRecord) -> Dataset | None:
        own, key = datasets[id(run)], run.data.sha256
        if own is not None and key not in samples:
            samples[key] = sample_episodes(own)
        return samples.get(key)

    show(f"{name}: scores and curves")
    rows = [score_row(one) for one in series]
    sections = [
        warning_section(runs),
        estimate_section(runs),
        data_section(dataset, sampled(first) if first is not None else None),
        Section("scores", "Scores", _present(draw_scores(series, styles, rows, prefix))),
        Section(
            "curves",
            "Learning curves",
            [
                *_present(draw_score_curve(series, styles, prefix)),
                *draw_curves(series, styles, prefix),
            ],
        ),
    ]
    show(f"{name}: value landscape")
    sections += [_landscape_section(series, runs, datasets, prefix)]
    errors = draw_value_errors(series, styles, rows, prefix)
    errors += _present(draw_value_against_return(series, styles, prefix))
    sections.append(Section("values", "Value-estimation error", errors))
    show(f"{name}: advantage weights")
    found = series_weights(series, sampled)
    rows = [
        dataclasses.replace(row, effective_share=float(np.mean([effective_share(w) for w in trials])))
        if trials
        else row
        for row, trials in zip(rows, found, strict=True)
    ]
    sections.append(Section("sweep", "Sweep", _sweeps(runs, sampled, prefix)))
    sections.append(Section("returns", "Returns", _present(draw_returns(series, styles, trajectories, prefix))))
    sections.append(Section("weights", "Advantage weights", draw_weights(series, styles, found, prefix)))
    show(f"{name}: policy against log")
    owned, parts = [datasets[id(one.run)] for one in series], [sampled(one.run) for one in series]
    sections += log_sections(series, styles, owned, parts, prefix)
    show(f"{name}: guide and executor")
    sections.append(_agreement_section(series, styles, found, sampled, held_out, prefix))
    if first is not None and trajectories is not None:
        rows.append(behavior_row(first, trajectories))
    rows += paper_rows(runs[0])
    return Group(name, prefix, runs, series, styles, rows, sections, _notes(runs))


def build_brief_group(name: str, runs: list[RunRecord], prefix: str, show: Callable[[str], None]) -> Group:
    """What compares the runs on one dataset of many: scores, their curves and value errors. No data is read."""
    label_runs(runs)
    series = [one for run in runs for one in run.series]
    styles = looks(series)
    show(f"{name}: scores and curves")
    rows = [score_row(one) for one in series]
    sections = [
        warning_section(runs),
        estimate_section(runs),
        Section("scores", "Scores", _present(draw_scores(series, styles, rows, prefix))),
        Section("curves", "Learning curves", _present(draw_score_curve(series, styles, prefix))),
        Section("values", "Value-estimation error", draw_value_errors(series, styles, rows, prefix)),
    ]
    notes = [*_notes(runs), f"Data, landscapes, weights and what the policies do: vem report {_shell_names(runs)}"]
    return Group(name, prefix, runs, series, styles, rows + paper_rows(runs[0]), sections, notes)


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
    layout = find_layout(runs[0])
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
        drawings = draw_landscapes(series, sort_rows(dataset, layout), dataset, prefix)
    return Section("landscape", "Value landscape", drawings, missing)


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
        weights = series_weights(series, lambda run: datasets.get(id(run)))
    run = next(one.run for one in guided if id(one.run) in datasets)
    rows = describe_rows(run, datasets[id(run)], held_out.get(id(run)))
    info = run.data.info
    names = dict(enumerate(info.encoder.feature_names)) if info.encoder else {}
    if find_layout(run) is not None:
        names = {0: "0 (x)", 1: "1 (y)"}
    action_names = {index: column.name for index, column in enumerate(info.action_columns)}
    found = measure(series, styles, weights, datasets)
    drawings = draw_agreement(found, rows, names, prefix, action_names)
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
        drawings += draw_sweep(series, values, name, f", {run.label}" if len(runs) > 1 else "")
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


# Methods over all datasets of a report: aggregate scores, performance profiles, probability of improvement.


KEY = "over-datasets"
TITLE = "Over all datasets"
TICK_WIDTH = 20
SEEDS = "95 % bootstrap interval, which resamples the seeds within each dataset"


def read_over_datasets(groups: Sequence[Group]) -> OverTasks | None:
    """Statistics over the datasets of a report; None unless it has two datasets and two methods.

    A run counts if it was evaluated after its last step and its dataset has reference scores.
    """
    labels = common_labels([group.runs for group in groups])
    scores: dict[str, dict[str, np.ndarray]] = {}
    left_out: dict[str, list[str]] = {}
    for group, own in zip(groups, labels, strict=True):
        named = {id(run): label for run, label in zip(group.runs, own, strict=True)}
        reason = _why_left_out(group)
        if reason:
            left_out.setdefault(reason, []).append(group.name)
        for one in group.series:
            name = f"{named[id(one.run)]}, {one.setting_label}" if one.swept else named[id(one.run)]
            found = scores.setdefault(name, {})
            if not reason:
                found[group.name] = _final_scores(one)
    if len(groups) < 2 or len(scores) < 2:
        return None
    return over_tasks(
        scores, [f"Datasets left out, {reason}: {', '.join(names)}." for reason, names in left_out.items()]
    )


def _why_left_out(group: Group) -> str:
    """Why no score of a dataset counts; empty if they do."""
    references = {run.references for run in group.runs if run.episodes}
    if not references:
        return "without an evaluation"
    if None in references:
        return "without reference scores"
    return "whose runs have different references" if len(references) > 1 else ""


def over_datasets_section(over: OverTasks | None) -> Section | None:
    """The part of the page about all datasets together; None where there is nothing to put together."""
    if over is None:
        return None
    if not over.is_enough:
        missing = "Scores cannot be averaged: that takes two methods with scores on the same two datasets."
        return Section(KEY, TITLE, [], " ".join([missing, *over.left_out]))
    caption = (
        f"Normalized scores of {len(over.tasks)} datasets ({', '.join(over.tasks)}), {over.seeds_text}. IQM: "
        f"inter-quartile mean of all runs; * the highest, ≈ within its interval. Brackets: {SEEDS}. P: the probability "
        f"that a run of {over.methods[0]} scores higher than one of the other method on the same dataset, mean over "
        "datasets; equal scores count half."
    )
    table = PlainTable(over.header, over.rows, " ".join([caption, *over.left_out]))
    return Section(KEY, TITLE, draw_over_datasets(over), tables=[table])


def draw_over_datasets(over: OverTasks, looks: Sequence[Look] | None = None) -> list[Drawing]:
    """The figures of the section."""
    looks = distinct_looks(len(over.methods)) if looks is None else looks
    return [draw_aggregates(over, looks), draw_profiles(over, looks), draw_improvements(over, looks)]


def draw_aggregates(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """Inter-quartile mean and mean of every method, with intervals."""
    figure, panels = new_panels(5.6, _height(len(over.methods)), 2)
    draw_aggregate_panel(panels[0], over, looks, "interquartile_mean", "inter-quartile mean")
    draw_aggregate_panel(panels[1], over, looks, "mean", "mean")
    panels[1].set_yticklabels([])
    limits = [panel.get_xlim() for panel in panels]
    for panel in panels:
        panel.set_xlim(min(0.0, *(low for low, _ in limits)), max(high for _, high in limits))
    figure.supxlabel(SCORE, fontsize=10)
    caption = f"Scores over {_basis(over)}. Bars: {SEEDS}."
    numbers = "; ".join(
        f"{method}: {estimate_text(one.interquartile_mean)}, mean {estimate_text(one.mean)}"
        for method, one in over.aggregates.items()
    )
    return Drawing(f"{KEY}-scores", "Scores over all datasets", caption, figure, f"{caption} {numbers}")


def draw_aggregate_panel(axes: Any, over: OverTasks, looks: Sequence[Look], statistic: str, title: str) -> None:
    """One statistic of every method, the first on top."""
    estimates = [getattr(over.aggregates[method], statistic) for method in over.methods]
    _draw_rows(axes, over.methods, estimates, looks)
    axes.set_title(title, loc="left", x=0.0, pad=8)


def draw_profiles(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """The share of runs above each score, for every method."""
    figure, axes = new_figure()
    draw_profile_panel(axes, over, looks)
    legend_below(axes)
    caption = (
        f"Share of the runs that score more than x, over {_basis(over)}. Higher is better; where lines cross, the "
        f"order depends on the score that is needed. Shaded: {SEEDS}."
    )
    return Drawing(f"{KEY}-profile", "Performance profiles", caption, figure, caption)


def draw_profile_panel(axes: Any, over: OverTasks, looks: Sequence[Look]) -> None:
    """The performance profiles of all methods in one panel."""
    levels = over.thresholds
    for index, (method, look) in enumerate(zip(over.methods, looks, strict=True)):
        shares, low, high = over.profile(method)
        if low is not None and high is not None:
            band = axes.fill_between(levels, low, high, color=look.color, alpha=0.15, linewidth=0)
            band.set_gid(f"series-{index}-band")
        (line,) = axes.plot(levels, shares, color=look.color, linestyle=look.line, label=method)
        line.set_gid(f"series-{index}-line")
    axes.set(xlim=(levels[0], levels[-1]), ylim=(0, 1.02))
    label_axes(axes, f"{SCORE} x", "share of runs with a score above x")


def draw_improvements(over: OverTasks, looks: Sequence[Look]) -> Drawing:
    """The probability that the first method improves on each of the others."""
    first, *others = over.methods
    figure, axes = new_figure(4.6, _height(len(others)))
    draw_improvement_panel(axes, over, looks)
    caption = (
        f"Probability that a run of {first} scores higher than one of each other method on the same dataset, mean over "
        f"{_basis(over)}; equal scores count half. Gray: no difference. Bars: {SEEDS}."
    )
    numbers = "; ".join(f"{method}: {estimate_text(one, 2)}" for method, one in over.improvements.items())
    title = "Probability of improvement"
    return Drawing(f"{KEY}-improvement", title, caption, figure, f"{caption} {numbers}")


def draw_improvement_panel(axes: Any, over: OverTasks, looks: Sequence[Look]) -> None:
    """The probabilities of improvement in one panel; gray is no difference."""
    first, *others = over.methods
    axes.axvline(0.5, color=GRAY, linewidth=1)
    _draw_rows(axes, others, list(over.improvements.values()), looks[1:])
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel(f"P({first} scores higher than …)")


def _draw_rows(axes: Any, names: Sequence[str], estimates: Sequence[Estimate], looks: Sequence[Look]) -> None:
    places = range(len(names) - 1, -1, -1)
    for place, (value, interval), look in zip(places, estimates, looks, strict=True):
        low, high = interval or (value, value)
        axes.plot([low, high], [place, place], color=look.color, linewidth=6, alpha=0.4, solid_capstyle="butt")
        axes.plot([value], [place], look.marker, color=look.color, markersize=6)
    axes.set_yticks(list(places), [fill(name, TICK_WIDTH) for name in names])
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.1)


def _height(count: int) -> float:
    return 1.1 + 0.34 * count


def _basis(over: OverTasks) -> str:
    return f"{len(over.tasks)} datasets, {over.seeds_text}"


def _final_scores(one: Series) -> np.ndarray:
    """The score of each seed after the last step; empty if it was not evaluated then."""
    steps = one.run.config.steps
    return trial_means(one, "score", steps) if steps in one.evaluated_at else np.zeros(0)


PAGE = "report.html"
FIGURES = "figures"
MOST_IN_FULL = 4
"""Datasets of a page that shows everything; a page about more of them compares their runs."""


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
    policies with: a Dataset, or what ``vem.load`` takes. Of more than ``MOST_IN_FULL`` datasets the page compares the
    runs, and reads no data.
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
        for name, trials in by_data.items():
            prefix = f"{slug(name)}-" if len(by_data) > 1 else ""
            if len(by_data) > MOST_IN_FULL:
                groups.append(build_brief_group(name, trials, prefix, show))
            else:
                groups.append(build_group(name, trials, prefix, show, others))
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
        drawing = draw_score_curve(record.series, looks(record.series), "")
    return None if drawing is None else Path(directory) / write_files(drawing, Path(directory))[0]


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


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written ({error.strerror}); choose another --out") from None


def _row_dict(row: ScoreRow) -> dict[str, Any]:
    facts = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {**facts, "quantities": {name: spread._asdict() for name, spread in row.quantities.items()}}
