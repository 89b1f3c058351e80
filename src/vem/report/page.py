"""One self-contained HTML page: figures inline, a little script for its controls, nothing fetched."""

from __future__ import annotations

import dataclasses
import html
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from vem.algorithms import find_method
from vem.evaluation.statistics import Spread
from vem.report.records import RunRecord, Series, config_rows
from vem.report.style import Drawing, Look, inline_svg
from vem.report.table import ScoreRow


@dataclass(frozen=True)
class Section:
    """A heading and its figures."""

    key: str
    title: str
    drawings: list[Drawing]
    missing: str = ""
    """Why there is no figure, where that is not obvious."""


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


def render_page(groups: list[Group], figures: str) -> str:
    """The page; ``figures`` is the directory of the figure files, relative to it."""
    title = f"vem report: {', '.join(group.name for group in groups)}"
    style, script = (files("vem.report").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    body = "\n".join(_render_group(group, figures) for group in groups)
    several = (
        f"<p>Runs on {len(groups)} datasets: each has its own part below, and scores are not compared across them.</p>"
        if len(groups) > 1
        else ""
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{_text(title)}</title>
<style>{style}</style>
</head>
<body>
<header><p class="kicker">vem report</p>{several}</header>
<main>
{body}
</main>
<script>{script}</script>
</body>
</html>
"""


def _render_group(group: Group, figures: str) -> str:
    shown = [section for section in group.sections if section.drawings or section.missing]
    links = "".join(f'<a href="#{group.prefix}{s.key}">{_text(s.title)}</a>' for s in shown)
    links += f'<a href="#{group.prefix}configuration">Configuration</a>'
    notes = "".join(f"<li>{_note(note)}</li>" for note in group.notes)
    parts = [
        f'<article data-prefix="{group.prefix}">',
        f"<h1>{_text(group.name)}</h1>",
        f'<p class="headline">{_headline(group)}</p>',
        f"<nav>{links}</nav>",
        f'<section class="notes" aria-label="What is missing"><ul>{notes}</ul></section>' if notes else "",
        _series_control(group),
    ]
    for section in shown:
        extra = _score_table(group) if section.key == "scores" else ""
        parts.append(_render_section(group, section, figures, extra))
    if not any(section.key == "scores" for section in shown):
        parts.insert(6, f'<section id="{group.prefix}scores"><h2>Scores</h2>{_score_table(group)}</section>')
    parts.append(_configuration(group))
    parts.append("</article>")
    return "\n".join(parts)


def _headline(group: Group) -> str:
    """The best row in words, and how it was made."""
    data = group.runs[0].facts["data"]
    made = "; ".join(
        f"{run.config.algorithm} (preset {run.config.preset}, {run.config.steps:,} steps, "
        f"{len(run.config.seeds)} seed{'s' if len(run.config.seeds) != 1 else ''})"
        for run in group.runs
    )
    scored = [row for row in group.rows if row.kind == "policy" and "score" in row.quantities]
    text = f"{_text(made)} on {int(data.get('num_rows', 0)):,} recorded rows."
    if scored:
        best = max(scored, key=lambda row: row.quantities["score"].mean)
        spread = best.quantities["score"]
        references = group.runs[0].references
        which = f"the highest of {len(scored)} rows below, " if len(scored) > 1 else ""
        text += (
            f" <strong>Score {_number(spread.mean, 1)}{_deviation(spread, 1)}</strong> ({which}{_text(best.label)}; "
            f"{best.num_episodes} episodes; references: {_text(references.source) if references else 'none'})."
        )
    else:
        text += " <strong>Not scored</strong>: see below for how to get scores."
    return text


def _series_control(group: Group) -> str:
    if len(group.series) < 2:
        return ""
    boxes = "".join(
        f'<label><input type="checkbox" data-series="{index}" checked>'
        f'<span class="swatch" style="background:{look.color}"></span>{_text(one.label)}</label>'
        for index, (one, look) in enumerate(zip(group.series, group.looks, strict=True))
    )
    return f'<fieldset class="control series"><legend>Show in the figures</legend>{boxes}</fieldset>'


def _render_section(group: Group, section: Section, figures: str, extra: str) -> str:
    name = f"{group.prefix}{section.key}"
    inner = [f'<section id="{name}"><h2>{_text(section.title)}</h2>', extra]
    if section.missing:
        inner.append(f'<p class="missing">{_text(section.missing)}</p>')
    if section.key == "curves" and len(section.drawings) > 1:
        options = "".join(f'<option value="{d.name}">{_text(d.title)}</option>' for d in section.drawings)
        inner.append(
            f'<p class="control"><label>Curve <select data-filter="{name}">'
            f'<option value="">all</option>{options}</select></label></p>'
        )
    if section.key == "landscape" and section.drawings:
        inner.append(_landscape_control(name, section.drawings))
    shared = _shared_caption(section.drawings)
    if shared:
        inner.append(f'<p class="small">{_text(shared)}</p>')
    figures_html = "".join(_render_figure(drawing, figures, shared) for drawing in section.drawings)
    if figures_html:
        inner.append(f'<div class="figures {section.key}">{figures_html}</div>')
    inner.append("</section>")
    return "\n".join(inner)


def _landscape_control(name: str, drawings: list[Drawing]) -> str:
    parts = []
    if len(drawings) > 1:
        labels = _text(json.dumps([drawing.title.removeprefix("Value landscape, ") for drawing in drawings]))
        parts.append(
            f'<label class="slider">Setting <input type="range" min="0" max="{len(drawings) - 1}" value="0" step="1" '
            f'data-slider="{name}" data-labels="{labels}" aria-label="Which value landscape"><output></output></label>'
            f'<label><input type="checkbox" data-all="{name}">side by side</label>'
        )
    for layer, text in (("data", "data"), ("trajectories", "trajectories")):
        parts.append(f'<label><input type="checkbox" data-layer="{layer}" checked>{text}</label>')
    return f'<p class="control">{"".join(parts)}</p>'


def _shared_caption(drawings: list[Drawing]) -> str:
    """The caption that several figures have in common, said once above them; empty if none has."""
    captions = [drawing.caption for drawing in drawings]
    common = max(captions, key=captions.count, default="")
    return common if captions.count(common) > 1 else ""


def _render_figure(drawing: Drawing, figures: str, shared: str) -> str:
    caption = "" if drawing.caption == shared else _text(drawing.caption.removeprefix(f"{drawing.title}.").strip())
    links = " ".join(f'<a href="{figures}/{drawing.name}.{ending}">{ending.upper()}</a>' for ending in ("png", "svg"))
    return (
        f'<figure data-figure="{drawing.name}"><div role="img" aria-label="{_text(drawing.alternative)}">'
        f"{inline_svg(drawing)}</div>"
        f"<figcaption><strong>{_text(drawing.title)}.</strong> {caption} {links}</figcaption>"
        "</figure>"
    )


COLUMNS: list[tuple[str, str, float, int | None]] = [
    ("return", "return", 1.0, None),
    ("success", "success (%)", 100.0, 1),
    ("length", "length (steps)", 1.0, 0),
    ("value_error", "V − G", 1.0, None),
]
"""Quantity, heading, factor, digits after the point (None: as many as the number needs); the score comes first."""


def _score_table(group: Group) -> str:
    """Scores with both uncertainties, and which references they have."""
    known = {name for row in group.rows for name in row.quantities}
    columns = [column for column in COLUMNS if column[0] in known]
    has_share = any(row.effective_share is not None for row in group.rows)
    head = ["", "score ± std", "IQM [95 % interval]"] if "score" in known else [""]
    head += [heading for _, heading, *_ in columns] + (["effective sample (%)"] if has_share else [])
    head += ["seeds", "episodes"]
    lines = []
    for row in group.rows:
        remark = f"<small>{_text(row.remark)}</small>" if row.remark else ""
        cells = [_text(row.label) + remark]
        if "score" in known:
            cells += [_spread(row.quantities.get("score"), 1.0, 1), _interval(row.quantities.get("score"), 1.0, 1)]
        cells += [_spread(row.quantities.get(name), factor, digits) for name, _, factor, digits in columns]
        if has_share:
            cells.append("" if row.effective_share is None else f"{100 * row.effective_share:.0f}")
        cells += [str(row.num_seeds or ""), f"{row.num_episodes:,}" if row.num_episodes else ""]
        first, *others = cells
        numbers = "".join(f"<td>{cell}</td>" for cell in others)
        lines.append(f'<tr class="{row.kind}"><th scope="row">{first}</th>{numbers}</tr>')
    heading = "".join(f'<th scope="col">{_text(text)}</th>' for text in head)
    references = {run.references for run in group.runs if run.references is not None}
    sentences = [
        f"Score 0 is a return of {r.minimum:g} and score 100 a return of {r.maximum:g} ({r.source})."
        for r in references
    ]
    if not references:
        sentences = ["No reference scores are known for this data, so returns are not normalized."]
    if any(row.kind == "policy" and row.quantities for row in group.rows):
        sentences.append(
            "± is the standard deviation between seeds: what another training would give. The interval is a bootstrap "
            "over episodes: how exactly these policies were measured. IQM: inter-quartile mean over seeds."
        )
    if any(row.kind == "paper" for row in group.rows):
        sentences.append("The paper's scores were measured on D4RL's own data and simulator.")
    return (
        f'<div class="scroll"><table><thead><tr>{heading}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
        f'<p class="small">{_text(" ".join(sentences)).replace(" -", " −")}</p>'
    )


def _configuration(group: Group) -> str:
    """Every setting of every run; those in which runs differ are marked."""
    tables = [config_rows(run.config) for run in group.runs]
    meanings = {
        field.name: field.metadata.get("meaning", "")
        for run in group.runs
        for field in dataclasses.fields(find_method(run.config.algorithm).config)
    }
    head = "".join(f'<th scope="col">{_text(run.label)}</th>' for run in group.runs)
    lines = []
    for name in dict.fromkeys(name for settings in tables for name in settings):
        values = [_value(settings[name]) if name in settings else "" for settings in tables]
        changed = ' class="differs"' if len(set(values)) > 1 else ""
        cells = "".join(f"<td>{_text(value)}</td>" for value in values)
        lines.append(
            f'<tr{changed}><th scope="row">{_text(name)}</th>{cells}'
            f'<td class="words">{_text(meanings.get(name, ""))}</td></tr>'
        )
    facts = "".join(
        f"<details><summary>{_text(run.label)}: all of {_text(str(run.directory / 'config.json'))}</summary>"
        f"<pre>{_text(json.dumps(run.facts, indent=2, ensure_ascii=False))}</pre></details>"
        for run in group.runs
    )
    differs = '<p class="small">Settings in which the runs differ are marked.</p>' if len(group.runs) > 1 else ""
    return (
        f'<section id="{group.prefix}configuration"><h2>Configuration</h2>{differs}<details><summary>Settings</summary>'
        f'<div class="scroll"><table class="settings"><thead><tr><th scope="col">setting</th>{head}'
        f'<th scope="col">meaning</th></tr></thead><tbody>{"".join(lines)}</tbody></table></div></details>'
        f"{facts}</section>"
    )


def _note(note: str) -> str:
    """A note as HTML; the command after its last ``: vem`` is set as code."""
    before, mark, command = note.rpartition(": vem ")
    return f"{_text(before)}: <code>vem {_text(command)}</code>" if mark else _text(note)


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: float, digits: int) -> str:
    rounded = round(value, digits) + 0.0
    return f"{rounded:,.{digits}f}".replace("-", "−")


def _deviation(spread: Spread, digits: int, factor: float = 1.0) -> str:
    return "" if spread.std is None else f" ± {_number(factor * spread.std, digits)}"


def _spread(spread: Spread | None, factor: float, digits: int | None) -> str:
    if spread is None:
        return ""
    if digits is None:
        largest = max(abs(factor * spread.mean), abs(factor * (spread.std or 0.0)))
        digits = 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 1 else 3
    return _number(factor * spread.mean, digits) + _deviation(spread, digits, factor)


def _interval(spread: Spread | None, factor: float, digits: int) -> str:
    if spread is None or spread.interval is None:
        return ""
    ends = " to ".join(_number(factor * end, digits) for end in spread.interval)
    return f"{_number(factor * spread.interquartile_mean, digits)} [{ends}]"
