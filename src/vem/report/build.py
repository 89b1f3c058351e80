"""From run directories to a report: reads them, draws every figure that they allow, and writes one page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vem.data import Dataset
from vem.errors import RunError
from vem.evaluation.over_tasks import OverTasks
from vem.extras import require
from vem.report import curves, table
from vem.report.group import build_brief_group, build_group
from vem.report.held_out import read_held_out
from vem.report.over_datasets import over_datasets_section, read_over_datasets
from vem.report.page import Group, render_page
from vem.report.records import RunRecord, label_runs, read_run
from vem.report.style import drawing_style, looks, slug, write_files
from vem.storage import write_file

if TYPE_CHECKING:
    from vem.runs.run import Run

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
        for name, members in by_data.items():
            prefix = f"{slug(name)}-" if len(by_data) > 1 else ""
            if len(by_data) > MOST_IN_FULL:
                groups.append(build_brief_group(name, members, prefix, show))
            else:
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


def _row_dict(row: table.ScoreRow) -> dict[str, Any]:
    facts = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {**facts, "quantities": {name: spread._asdict() for name, spread in row.quantities.items()}}
