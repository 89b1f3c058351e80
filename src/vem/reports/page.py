"""What the page shows, as values that its templates lay out: one self-contained HTML page that fetches nothing."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from vem.algorithms.base import find_method
from vem.reports.records import RunRecord, Series, config_rows
from vem.reports.scores import ScoreRow
from vem.reports.style import Drawing, Look, PlainTable, inline_svg, interval_text, number_text, spread_text


@dataclass(frozen=True)
class Section:
    """A heading and its figures."""

    key: str
    title: str
    drawings: list[Drawing]
    missing: str = ""
    """Why there is no figure, where that is not obvious."""
    lead: str = ""
    """What to know first."""
    tables: list[PlainTable] = field(default_factory=list)

    @property
    def has_content(self) -> bool:
        """Whether there is anything below the heading."""
        return bool(self.drawings or self.missing or self.lead or self.tables)

    @property
    def shared_caption(self) -> str:
        """The caption that several figures have in common, said once above them; empty if none has."""
        captions = [drawing.caption for drawing in self.drawings]
        common = max(captions, key=captions.count, default="")
        return common if captions.count(common) > 1 else ""

    @property
    def setting_labels(self) -> str:
        """What the slider says at each landscape, as JSON."""
        return json.dumps([drawing.title.removeprefix("Value landscape, ") for drawing in self.drawings])

    @property
    def layers(self) -> list[str]:
        """What can be hidden in the landscapes."""
        names = ("data", "trajectories", "guide")
        return [name for name in names if any(f'"layer-{name}' in drawing.svg for drawing in self.drawings)]

    def own_caption(self, drawing: Drawing) -> str:
        """What a figure's caption says beyond its title and the shared caption."""
        if drawing.caption == self.shared_caption:
            return ""
        return drawing.caption.removeprefix(f"{drawing.title}.").strip()


class Headline(NamedTuple):
    """The best score in words."""

    score: str
    remark: str


class ScoreTable(NamedTuple):
    """The table of scores as text, each row with its cells, and the sentences below it."""

    head: list[str]
    rows: list[tuple[ScoreRow, list[str]]]
    sentences: list[str]


class Setting(NamedTuple):
    """One setting of all runs."""

    name: str
    values: list[str]
    meaning: str

    @property
    def differs(self) -> bool:
        """Whether it has several values."""
        return len(set(self.values)) > 1


@dataclass(frozen=True)
class Group:
    """The runs on one dataset and all that is shown of them."""

    name: str
    prefix: str
    runs: list[RunRecord]
    series: list[Series]
    looks: list[Look]
    rows: list[ScoreRow]
    sections: list[Section]
    notes: list[str]

    @property
    def shown(self) -> list[Section]:
        """The sections with something in them; the scores always, for the table."""
        return [section for section in self.sections if section.has_content or section.key == "scores"]

    @property
    def split_notes(self) -> list[tuple[str, str]]:
        """Each note as a sentence and the command after its last ``: vem``, if it has one."""
        parts = [(note, *note.rpartition(": vem ")) for note in self.notes]
        return [(before, f"vem {command}") if mark else (note, "") for note, before, mark, command in parts]

    @property
    def made(self) -> str:
        """What was trained on what."""
        made = "; ".join(
            f"{run.config.algorithm} (preset {run.config.preset}, {run.config.steps:,} steps, "
            f"{len(run.config.seeds)} seed{'s' if len(run.config.seeds) != 1 else ''})"
            for run in self.runs
        )
        return f"{made} on {self.runs[0].data.num_rows:,} recorded rows."

    @property
    def headline(self) -> Headline:
        """The best row in words, or that there is none."""
        scored = [row for row in self.rows if row.kind == "policy" and "score" in row.quantities]
        if not scored:
            if all(run.environment is None for run in self.runs):
                return Headline("Not scored", ": its data name no simulator. What it does differently is below.")
            return Headline("Not scored", ": see below for how to get scores.")
        shown = {id(row): number_text(row.quantities["score"].mean, 1) for row in scored}
        best = max(scored, key=lambda row: row.quantities["score"].mean)
        equal = [row for row in scored if shown[id(row)] == shown[id(best)]]
        references = f"references: {self.runs[0].references.source if self.runs[0].references else 'none'}"
        if len(equal) > 1:
            return Headline(f"Score {shown[id(best)]}", f" in {len(equal)} of {len(scored)} rows ({references}).")
        which = f"the highest of {len(scored)} rows below, " if len(scored) > 1 else ""
        remark = f" ({which}{best.label}; {best.num_episodes} episodes; {references})."
        return Headline(f"Score {spread_text(best.quantities['score'], 1.0, 1)}", remark)

    @cached_property
    def score_table(self) -> ScoreTable:
        """Scores with both uncertainties, and which references they have."""
        known = {name for row in self.rows for name in row.quantities}
        columns = [column for column in COLUMNS if column[0] in known]
        has_share = any(row.effective_share is not None for row in self.rows)
        head = ["", "score ± std", "IQM [95 % interval]"] if "score" in known else [""]
        head += [heading for _, heading, *_ in columns] + (["effective sample (%)"] if has_share else [])
        rows = []
        for row in self.rows:
            score = row.quantities.get("score")
            cells = [spread_text(score, 1.0, 1), interval_text(score, 1)] if "score" in known else []
            cells += [spread_text(row.quantities.get(name), factor, digits) for name, _, factor, digits in columns]
            if has_share:
                cells.append("" if row.effective_share is None else f"{100 * row.effective_share:.0f}")
            cells += [str(row.num_seeds or ""), f"{row.num_episodes:,}" if row.num_episodes else ""]
            rows.append((row, cells))
        return ScoreTable([*head, "seeds", "episodes"], rows, self._sentences())

    def _sentences(self) -> list[str]:
        references = {run.references for run in self.runs if run.references is not None}
        sentences = [
            f"Score 0 is a return of {r.minimum:g} and score 100 a return of {r.maximum:g} ({r.source}).".replace(
                " -", " −"
            )
            for r in references
        ]
        if not references:
            sentences = ["No reference scores are known for this data, so returns are not normalized."]
        if any(row.kind == "policy" and row.quantities for row in self.rows):
            sentences.append(
                "± is the standard deviation between seeds: what another training would give. The interval is a "
                "bootstrap over episodes: how exactly these policies were measured. IQM: inter-quartile mean over "
                "seeds."
            )
        if any(row.kind == "paper" for row in self.rows):
            sentences.append("The paper's scores were measured on D4RL's own data and simulator.")
        return sentences

    @property
    def settings(self) -> list[Setting]:
        """Every setting of every run, with its meaning."""
        tables = [config_rows(run.config) for run in self.runs]
        meanings = {
            field.name: field.metadata.get("meaning", "")
            for run in self.runs
            for field in dataclasses.fields(find_method(run.config.algorithm).config)
        }
        return [
            Setting(name, [_plain(table[name]) if name in table else "" for table in tables], meanings.get(name, ""))
            for name in dict.fromkeys(name for table in tables for name in table)
        ]


COLUMNS: list[tuple[str, str, float, int | None]] = [
    ("return", "return", 1.0, None),
    ("success", "success (%)", 100.0, 1),
    ("length", "length (steps)", 1.0, 0),
    ("value_error", "V − G", 1.0, None),
]
"""Quantity, heading, factor, digits after the point (None: as many as the number needs); the score comes first."""


def render_page(groups: list[Group], figures: str, overall: Section | None = None) -> str:
    """The page; ``figures`` is the directory of the figure files, relative to it, ``overall`` is about all groups."""
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    templates = Environment(
        loader=PackageLoader("vem.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Matplotlib's SVG is markup already, and escapes its own text.
    templates.filters["inline_svg"] = lambda drawing: Markup(inline_svg(drawing))
    templates.filters["pretty"] = lambda facts: json.dumps(facts, indent=2, ensure_ascii=False)
    return templates.get_template("page.html").render(groups=groups, figures=figures, overall=overall)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
