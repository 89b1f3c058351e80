"""What the page shows, as values that its template lays out: one self-contained HTML page that fetches nothing."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from vem.algorithms.base import METHODS
from vem.estimation.estimate import read_estimate
from vem.evaluation.statistics import Table
from vem.reports.records import RunRecord, Series, named_runs
from vem.reports.scores import ScoreRow
from vem.reports.style import Drawing, number_text, spread_text
from vem.training.records import RunWarning
from vem.training.request import Request


@dataclass(frozen=True)
class Section:
    """A heading with tables and figures below it; without any it is not shown."""

    key: str
    title: str
    drawings: list[Drawing] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    lead: str = ""
    """What to know first."""
    summary: str = ""
    """What is inside, in one line: such a section is folded away."""

    @property
    def has_content(self) -> bool:
        """Whether there is anything below the heading."""
        return bool(self.drawings or self.lead or self.tables)

    @property
    def shared_caption(self) -> str:
        """The caption that several figures have in common, said once above them; empty if none has."""
        captions = [drawing.caption for drawing in self.drawings]
        common = max(captions, key=captions.count, default="")
        return common if captions.count(common) > 1 else ""

    @property
    def labels(self) -> str:
        """What a slider says at each figure, as JSON."""
        return json.dumps([drawing.title.removeprefix("Maze, ") for drawing in self.drawings])

    @property
    def layers(self) -> list[str]:
        """What can be hidden in the figures."""
        names = ("data", "trajectories", "guide")
        return [name for name in names if any(f'"layer-{name}' in drawing.svg for drawing in self.drawings)]


@dataclass(frozen=True)
class Setting:
    """One setting of all runs."""

    name: str
    values: list[str]
    meaning: str

    @property
    def differs(self) -> bool:
        """Whether the runs that have it have several values."""
        return len({value for value in self.values if value}) > 1


@dataclass(frozen=True)
class Group:
    """The runs on one dataset and all that is shown of them."""

    name: str
    prefix: str
    runs: list[RunRecord]
    series: list[Series]
    rows: list[ScoreRow] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def run_labels(self) -> list[str]:
        """What the runs are called, in their order."""
        return [name for _, name in named_runs(self.series)]

    @property
    def split_notes(self) -> list[tuple[str, str]]:
        """Each note as a sentence and the command after its last ``: vem``, if it has one."""
        parts = [(note, *note.rpartition(": vem ")) for note in self.notes]
        return [(before, f"vem {command}") if mark else (note, "") for note, before, mark, command in parts]

    @property
    def warnings(self) -> list[tuple[str, RunWarning]]:
        """What was found when training ended: the run, where there are several, and the warning."""
        several, runs = len(self.runs) > 1, named_runs(self.series)
        return [(f"{name}: " if several else "", w) for run, name in runs for w in run.run.warnings]

    @property
    def made(self) -> str:
        """What was trained on what."""
        made = []
        for run, label in named_runs(self.series):
            count = len(run.config.seeds)
            preset = "" if run.config.preset == "default" else f"preset {run.config.preset}, "
            seeds = f"{count} seed{'s' if count != 1 else ''}"
            made.append(f"{label} ({preset}{seeds}, {run.config.steps:,} steps)")
        names = f"{len(made)} runs ({', '.join(self.run_labels)})" if len(made) > 4 else _join(made)
        return f"{names} on {self.runs[0].data.num_rows:,} recorded rows of {self.name}."

    @property
    def result(self) -> tuple[str, str]:
        """The best score in words, or what is known without one; and what to know about it."""
        scored = [row for row in self.rows if row.kind == "policy" and "score" in row.quantities]
        returns = [row for row in self.rows if row.kind == "policy" and "return" in row.quantities]
        if scored:
            shown = {id(row): number_text(row.quantities["score"].mean, 1) for row in scored}
            best = max(scored, key=lambda row: row.quantities["score"].mean)
            equal = [row for row in scored if shown[id(row)] == shown[id(best)]]
            if len(equal) > 1:
                return f"Score {shown[id(best)]}", f" in {len(equal)} of {len(scored)} rows."
            which = f"{best.label}, the highest of {len(scored)}; " if len(scored) > 1 else ""
            remark = f" ({which}{best.num_episodes:,} episodes, ± between seeds)."
            return f"Score {spread_text(best.quantities['score'], 1.0, 1)}", remark
        if returns:
            best = max(returns, key=lambda row: row.quantities["return"].mean)
            return (
                f"Return {spread_text(best.quantities['return'])}",
                f" ({best.label}; no reference scores are known).",
            )
        estimates = [(read_estimate(run.run), name) for run, name in named_runs(self.series)]
        known = [(found, name) for found, name in estimates if found is not None]
        if known:
            best, name = max(known, key=lambda entry: entry[0].value.value or float("-inf"))
            value, log = (found.text.replace("-", "−") for found in (best.value, best.log))
            of = f" ({name})" if len(self.runs) > 1 else ""
            return f"Estimated return {value}{of}", f" by the data alone; the log has {log}: {best.verdict}."
        differs = any(section.key == "differences" and section.has_content for section in self.sections)
        if all(run.data.info.environment is None for run in self.runs):
            return "Not scored", f": the data names no simulator.{' What it does otherwise is below.' * differs}"
        return "Not scored", ": it was not evaluated."

    @property
    def settings(self) -> list[Setting]:
        """Every setting of every run, with its meaning."""
        tables = [
            {**config_rows(run.config), "data_rows": run.data.num_rows, "data_sha256": run.data.sha256}
            | {f"version of {name}": version for name, version in run.run.packages.items()}
            for run in self.runs
        ]
        meanings = {
            field.name: field.metadata.get("meaning", "")
            for method in {run.config.algorithm: METHODS.get(run.config.algorithm) for run in self.runs}.values()
            if method is not None
            for field in dataclasses.fields(method.config)
        }
        return [
            Setting(name, [_plain(table.get(name, "")) for table in tables], meanings.get(name, ""))
            for name in dict.fromkeys(name for table in tables for name in table)
        ]


def checks_section(series: list[Series]) -> Section:
    """What was checked when training ended, and what could not be told."""
    words = {"found": "warning", "passed": "passed", "untold": "could not be told"}
    rows, counts, unchecked = [], dict.fromkeys(words, 0), []
    runs = named_runs(series)
    for run, label in runs:
        checks = run.run.checks()
        if not checks and run.policies:
            unchecked.append(label)
        for check in checks or ():
            counts[check.verdict] += 1
            rows.append([check.text, words[check.verdict], *([label] if len(runs) > 1 else [])])
    lead = f"Nothing was checked when {_join(unchecked)} ended." if unchecked else ""
    told = [
        f"{count} {'warnings' if name == 'found' and count > 1 else words[name]}"
        for name, count in counts.items()
        if count
    ]
    head = ["what was checked", "result", *(["run"] if len(runs) > 1 else [])]
    tables = [Table("", head, rows)] if rows else []
    return Section("checks", "Checks", tables=tables, lead=lead, summary=", ".join(told) or "none were made")


def config_rows(config: Request) -> dict[str, Any]:
    """Every setting of a run under one flat name, swept ones as lists."""
    facts = dataclasses.asdict(config)
    settings = {**facts.pop("settings"), **facts.pop("sweep")}
    rules = facts.pop("rules")
    mapping = {f"mapping.{name}": value for name, value in rules.pop("mapping", {}).items()}
    return {**facts, **{f"rules.{name}": value for name, value in rules.items()}, **mapping, **settings}


def render_page(groups: list[Group], figures: str, overall: Section | None = None) -> str:
    """The page; ``figures`` is the directory of the figure files, relative to it, ``overall`` is about all groups."""
    from jinja2 import Environment, PackageLoader

    templates = Environment(
        loader=PackageLoader("vem.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return templates.get_template("page.html").render(groups=groups, figures=figures, overall=overall)


def _join(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
