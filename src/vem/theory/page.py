"""The files of ``vem theory``: a CSV, PNG and SVG for each study, and one HTML page that needs no other file."""

import base64
import csv
import html
import io
import json
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vem.errors import RunError
from vem.theory import figures
from vem.theory.captions import Caption, captions
from vem.theory.claim import Claim
from vem.theory.run import Results, Settings
from vem.theory.toy import Table

DRAWINGS: dict[str, Callable[[Table], Figure]] = {
    "tradeoff": figures.tradeoff_figure,
    "horizon": figures.horizon_figure,
    "behavior": figures.behavior_figure,
    "readings": figures.readings_figure,
}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
figure { margin: 1rem 0 } figure img { width: 100%; height: auto }
figcaption, details { font-size: 0.9rem; color: #444 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-size: 0.85rem } th, td { padding: 0.3rem 0.6rem; text-align: left }
th { border-bottom: 2px solid #888 } td { border-bottom: 1px solid #ddd; vertical-align: top }
.verdict { white-space: nowrap; font-weight: 600 }
.holds { color: #00614a } .in-part { color: #7a5200 } .fails { color: #a33d00 }
"""


def prepare(directory: Path) -> None:
    """Make a directory to write in, so that a place that cannot be written to is known before the work."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RunError(f"cannot write to {directory} ({error.strerror}): choose another place") from error


def write(results: Results, settings: Settings, directory: Path) -> Path:
    """Write every file into ``directory`` and return the path of the page."""
    described = captions(settings)
    sections = []
    for name, table in results.tables.items():
        _write_csv(directory / f"{name}.csv", table)
        # A fixed salt and no date: the same numbers give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": name}):
            drawn = DRAWINGS[name](table)
            drawn.savefig(directory / f"{name}.png", dpi=150)
            picture = io.BytesIO()
            drawn.savefig(picture, format="svg", metadata={"Date": None})
        (directory / f"{name}.svg").write_bytes(picture.getvalue())
        sections.append(_section(described[name], picture.getvalue(), table))
    page = directory / "index.html"
    page.write_text(_page(sections, results.claims), encoding="utf-8")
    return page


def write_json(results: Results, path: Path) -> None:
    """Write the tables and statements as one JSON file, numbers to six digits."""
    tables = {
        name: [{key: float(f"{value:.6g}") for key, value in row.items()} for row in table]
        for name, table in results.tables.items()
    }
    lines = ",\n".join(
        f'    "{name}": [\n      ' + ",\n      ".join(json.dumps(row) for row in table) + "\n    ]"
        for name, table in tables.items()
    )
    statements = ",\n    ".join(json.dumps(claim._asdict(), ensure_ascii=False) for claim in results.claims)
    content = f'{{\n  "tables": {{\n{lines}\n  }},\n  "claims": [\n    {statements}\n  ]\n}}\n'
    path.write_text(content, encoding="utf-8")


def _write_csv(path: Path, table: Table) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)


def _section(caption: Caption, picture: bytes, table: Table) -> str:
    source = "data:image/svg+xml;base64," + base64.b64encode(picture).decode()
    heads = [name for name in table[0] if not name.endswith(("_low", "_high"))]
    rows = [[f"{row[name]:.4g}" for name in heads] for row in table]
    return (
        f"<section><h2>{html.escape(caption.title)}</h2><p>{html.escape(caption.see)}</p>"
        f'<figure><img src="{source}" alt="{html.escape(caption.title)}">'
        f"<figcaption>{html.escape(caption.shows)}</figcaption></figure>"
        f"<details><summary>Numbers (means; intervals are in the CSV)</summary>"
        f"{_table(heads, rows)}</details></section>"
    )


def _page(sections: list[str], claims: list[Claim]) -> str:
    rows = [
        f"<tr><td>{claim.section}</td><td>{html.escape(claim.statement)}</td>"
        f"<td>{html.escape(claim.measured)}</td>"
        f'<td class="verdict {claim.verdict.replace(" ", "-")}">{claim.verdict}</td></tr>'
        for claim in claims
    ]
    listed = (
        '<div class="scroll"><table><thead><tr><th>Section</th><th>Statement</th><th>Measured</th>'
        f"<th>Verdict</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
    counts = ", ".join(
        f"{sum(claim.verdict == word for claim in claims)} {word}" for word in ("holds", "in part", "fails")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>VEM: the theory, measured</title><style>{STYLE}</style></head><body>"
        "<h1>Value-based Episodic Memory: the theory, measured</h1>"
        "<p>The toy figures of the paper, drawn from many random processes, and every statement of its sections "
        "3.1, 3.2 and 4.1–4.3 that can be checked, with what was measured. A statement that starts "
        "with “Implied” is not in the paper in words but is what a reader would take from it.</p>"
        f"{''.join(sections)}<section><h2>Statement by statement</h2><p>Verdicts: {counts}.</p>{listed}</section>"
        "</body></html>\n"
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
