"""The figures of docs/results.md, drawn from records.

    python benchmarks/figures.py

A figure without records is not drawn. Each PNG holds the fingerprint of the numbers in it, which a test compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ablations
import landscapes
from score_records import Record

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
EXPECTILES, LANDSCAPES = "ablations.png", "landscapes.png"
DPI = 110


def expectiles_text() -> str:
    """The figure of τ; empty without records of ablations."""
    return f"![Score and mean value against the expectile]({EXPECTILES})" if expectile_records() else ""


def landscapes_text() -> str:
    """The figure of V over the mazes' floors; empty without records of landscapes."""
    if not (found := landscapes.read_landscapes()):
        return ""
    names = ", ".join(record["dataset"] for record in found)
    steps = ", ".join(f"{record['dataset']} {record['steps']:,}" for record in found)
    return f"![V over the floor of {names}]({LANDSCAPES})\n\nSteps of these runs: {steps}."


def expectile_records() -> list[Record]:
    """The records of ablations that differ by their expectile."""
    names = {ablations.variant_of(expectile) for expectile in ablations.EXPECTILES}
    found = [r for r in ablations.read_ablations() if r["variant"] in names]
    return found if len({r["variant"] for r in found}) > 1 else []


def fingerprint(numbers: Any) -> str:
    """A name for what a figure shows."""
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def fingerprints() -> dict[str, str]:
    """File name of each figure that the records give → the fingerprint of its numbers."""
    found = {}
    if levels := expectile_records():
        found[EXPECTILES] = fingerprint(
            [[r["dataset"], r["variant"], r["value_mean"], r["evaluation"]["trials"]] for r in levels]
        )
    if floors := landscapes.read_landscapes():
        found[LANDSCAPES] = fingerprint([[r["dataset"], r["values"]] for r in floors])
    return found


def draw_all(folder: Path = DOCS) -> list[Path]:
    """Draw every figure that the records give and return the files."""
    from vem.reports.style import drawing_style

    makers: dict[str, Callable[[], Any]] = {
        EXPECTILES: lambda: ablations.draw(expectile_records()),
        LANDSCAPES: lambda: landscapes.draw(landscapes.read_landscapes()),
    }
    written = []
    for name, mark in fingerprints().items():
        with drawing_style():
            figure = makers[name]()
            metadata = {"Software": None, "Description": f"records {mark}"}
            figure.savefig(folder / name, dpi=DPI, facecolor="white", metadata=metadata)
        written.append(folder / name)
    return written


def main() -> None:
    for path in draw_all():
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
