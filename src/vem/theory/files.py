"""The files of ``vem theory``: a CSV, PNG and SVG for each study, and one HTML page that needs no other file."""

import csv
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from vem.errors import RunError
from vem.storage import write_file
from vem.theory import figures
from vem.theory.captions import captions
from vem.theory.page import Study, render_page
from vem.theory.run import Results, Settings
from vem.theory.toy import Table

DRAWINGS: dict[str, Callable[[Table], Figure]] = {
    "tradeoff": figures.tradeoff_figure,
    "horizon": figures.horizon_figure,
    "behavior": figures.behavior_figure,
    "readings": figures.readings_figure,
}
EXPECTED_BYTES = 2_000_000
"""A little more than all files of one command take with the default settings."""


def prepare(directory: Path) -> None:
    """Make a directory and write as much into it as will be needed, so that a bad place is known before the work."""
    probe = directory / ".probe"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            with probe.open("wb") as file:
                file.write(bytes(EXPECTED_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot write {EXPECTED_BYTES / 1e6:g} MB to {directory} ({error.strerror}): choose another place"
        ) from None


def write(results: Results, settings: Settings, directory: Path) -> Path:
    """Write every file into ``directory`` and return the path of the page."""
    described = captions(settings)
    studies = []
    for name, table in results.tables.items():
        # A fixed salt and no date: the same numbers give the same bytes.
        with matplotlib.rc_context({"svg.hashsalt": name}):
            drawn = DRAWINGS[name](table)
            pixels, vectors = io.BytesIO(), io.BytesIO()
            drawn.savefig(pixels, format="png", dpi=150)
            drawn.savefig(vectors, format="svg", metadata={"Date": None})
        write_file(directory / f"{name}.csv", _csv(table))
        write_file(directory / f"{name}.png", pixels.getvalue())
        write_file(directory / f"{name}.svg", vectors.getvalue())
        studies.append(Study(table, vectors.getvalue(), described[name]))
    page = directory / "index.html"
    write_file(page, render_page(studies, results.claims).encode())
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
    write_file(path, f'{{\n  "tables": {{\n{lines}\n  }},\n  "claims": [\n    {statements}\n  ]\n}}\n'.encode())


def _csv(table: Table) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(table[0]))
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue().encode()
