"""What ``vem theory`` writes: a CSV, PNG and SVG for each study, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import csv
import io
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vem.errors import RunError, SettingsError
from vem.storage import write_file, write_json
from vem.theory.claims import Claim, measure_claims
from vem.theory.studies import DATASET_SIZES, EXPECTILES, HORIZONS, SMALL, STUDIES, TEMPERATURES, Sizes, Table, column

# Okabe and Ito's palette, which stays apart for color-blind readers.
BLUE, GREEN, ORANGE, VERMILION, PURPLE = "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7"


def run(out: Path, numbers: Path | None = None, *, seed: int = 0, small: bool = False) -> list[Claim]:
    """Measure everything, write figures, tables and the page to ``out``, and return the paper's statements.

    With ``numbers``, all tables and statements go to that JSON file as well, numbers to six digits.
    """
    sizes = SMALL if small else Sizes()
    if seed < 0:
        raise SettingsError(f"the seed is {seed}; it must be at least 0")
    for directory in (out, *([numbers.parent] if numbers else [])):
        _prepare(directory)
    tables = {name: study(sizes, seed) for name, study in STUDIES.items()}
    claims = measure_claims(tables, sizes, seed)
    pictures = {name: _write_study(out, name, table) for name, table in tables.items()}
    templates = Environment(
        loader=PackageLoader("vem.theory"), autoescape=True, trim_blocks=True, keep_trailing_newline=True
    )
    page = templates.get_template("page.html").render(tables=tables, claims=claims, pictures=pictures, sizes=sizes)
    write_file(out / "index.html", page.encode())
    if numbers:
        rounded = {
            name: [{key: float(f"{value:.6g}") for key, value in row.items()} for row in table]
            for name, table in tables.items()
        }
        write_json(numbers, {"tables": rounded, "claims": [claim._asdict() for claim in claims]})
    return claims


def _prepare(directory: Path) -> None:
    """Make a directory and try it, so that a bad place is known before the work."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise RunError(f"cannot write to {directory} ({error.strerror}): choose another place") from None


def _write_study(directory: Path, name: str, table: Table) -> str:
    """Write a table as CSV, PNG and SVG, and return the SVG as base64, to stand inside the page."""
    draw = {
        "tradeoff": tradeoff_figure,
        "horizon": horizon_figure,
        "behavior": behavior_figure,
        "readings": readings_figure,
    }[name]
    rows, pixels, vectors = io.StringIO(newline=""), io.BytesIO(), io.BytesIO()
    writer = csv.DictWriter(rows, list(table[0]))
    writer.writeheader()
    writer.writerows(table)
    # A fixed salt and no date: the same numbers give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": name}):
        drawn = draw(table)
        drawn.savefig(pixels, format="png", dpi=150)
        drawn.savefig(vectors, format="svg", metadata={"Date": None})
    write_file(directory / f"{name}.csv", rows.getvalue().encode())
    write_file(directory / f"{name}.png", pixels.getvalue())
    write_file(directory / f"{name}.svg", vectors.getvalue())
    return base64.b64encode(vectors.getvalue()).decode()


def tradeoff_figure(table: Table) -> Figure:
    """Figure 2: value against τ, one curve a dataset size; the star at τ = 1 is the optimality operator."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    for size, color in zip(DATASET_SIZES, _shades(len(DATASET_SIZES)), strict=True):
        levels, values, low, high = (
            column(table, name, dataset_size=size) for name in ("expectile", "value", "value_low", "value_high")
        )
        axes.fill_between(levels, low, high, color=color, alpha=0.2, linewidth=0)
        axes.plot(levels, values, color=color, marker="o", markersize=3, label=f"N = {size:,}")
        axes.plot(levels[-1], values[-1], color=color, marker="*", markersize=11, clip_on=False, zorder=3)
    for name, height, color, style in (
        (r"optimal value $V^*$", table[0]["optimal_value"], GREEN, "-"),
        (r"value of the behavior $V^\mu$", table[0]["behavior_value"], BLUE, "--"),
    ):
        axes.axhline(height, color=color, linestyle=style, linewidth=1.8, zorder=1)
        axes.annotate(name, (0.09, height), (0, 4), textcoords="offset points", color=color, fontsize=10, weight="bold")
    axes.set(xlabel="expectile τ   (★ at τ = 1: optimality operator)", ylabel="value at the fixed point")
    axes.legend(title="transitions in the dataset", loc="upper left", frameon=False)
    return _tidied(figure)


def horizon_figure(table: Table) -> Figure:
    """Figure 4(a): bias, contraction and variance as n_max and τ change."""
    figure = _indicators(table, "max_steps", "n = {:.0f}", (12, -3))
    for axes in figure.axes[1:]:
        axes.set(xlabel=r"largest number of steps $n_{\max}$", xticks=HORIZONS)
    return figure


def behavior_figure(table: Table) -> Figure:
    """Figure 4(b): bias, contraction and variance as the behavior and τ change."""
    figure = _indicators(table, "temperature", "temp. {:g}", (4, -18))
    for axes in figure.axes[1:]:
        axes.set(xlabel="behavior temperature (expert → random)", xscale="log")
        axes.set_xticks(TEMPERATURES, [f"{temperature:g}" for temperature in TEMPERATURES])
        axes.minorticks_off()
    return figure


def _indicators(table: Table, group: str, label: str, offset: tuple[float, float]) -> Figure:
    """Three panels; color is τ in all of them, and in the first the spots grow with the deviation."""
    figure = Figure(figsize=(11.5, 4.2), layout="constrained")
    overview, rates, deviations = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    largest = max(column(table, "deviation"))
    for tau, color in zip(EXPECTILES, _shades(len(EXPECTILES)), strict=True):
        rows = [row for row in table if row["expectile"] == tau]
        biases, speeds = column(rows, "bias"), column(rows, "rate_from_zero")
        overview.plot(biases, speeds, color=color, linewidth=1, zorder=1)
        overview.scatter(biases, speeds, s=[260 * row["deviation"] / largest for row in rows], color=color, alpha=0.85)
        _curve(rates, rows, group, "rate_from_zero", color=color, marker="o", label=f"τ = {tau:g}")
        _curve(rates, rows, group, "rate_supremum", color=color, marker="", linestyle="--")
        _curve(deviations, rows, group, "deviation", color=color, marker="o")
        if tau == EXPECTILES[0]:
            for row in rows:
                where = (row["bias"], row["rate_from_zero"])
                overview.annotate(label.format(row[group]), where, offset, textcoords="offset points", fontsize=9)
    overview.margins(y=0.12)
    overview.set_xlim(0, 1.3 * max(column(table, "bias")))
    overview.set(
        xlabel=r"fixed-point bias $\Vert V^*_{\mathrm{vem}} - V^*\Vert_\infty$", ylabel="contraction rate from V = 0"
    )
    overview.set_title("spot size: update deviation", fontsize=10)
    rates.set(ylabel="contraction rate", ylim=(None, 1.02))
    rates.set_title("solid: from V = 0,  dashed: supremum", fontsize=10)
    rates.legend(frameon=False, fontsize=9, loc="best")
    deviations.set(ylabel="update deviation at V = 0", ylim=(0, None))
    deviations.set_title("the same for every τ", fontsize=10)
    return _tidied(figure)


def readings_figure(table: Table) -> Figure:
    """Where the expectile operator and three readings of the memory operator settle, against τ."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    styles = {
        "memory_authors": (r"authors' program: plan with $V$, then regress", VERMILION, "s", "-"),
        "memory_sampled": (r"$T_{\mathrm{vem}}$, best $n$ along each trajectory", ORANGE, "^", "-"),
        "memory_operator": (r"$T_{\mathrm{vem}}$, best $n$ of the expectations", PURPLE, "o", "-"),
        "expectile_operator": (r"$T_\tau$, no memory", "black", "x", ":"),
    }
    for measure, (name, color, marker, line) in styles.items():
        _curve(axes, table, "expectile", measure, color=color, marker=marker, linestyle=line, label=name)
    for name, height, color in ((r"$V^*$", 1, GREEN), (r"$V^\mu$", 0, BLUE)):
        axes.axhline(height, color=color, linewidth=1.5, zorder=1)
        axes.annotate(name, (0.995, height), (0, 3), xycoords=("axes fraction", "data"),
                      textcoords="offset points", color=color, weight="bold", ha="right")  # fmt: skip
    axes.set(xlabel="expectile τ", ylabel=r"fixed point, $(V - V^\mu)\,/\,(V^* - V^\mu)$")
    axes.legend(loc="lower right", frameon=False)
    return _tidied(figure)


def _curve(axes: Axes, rows: Table, x: str, measure: str, **style: Any) -> None:
    """Draw means with their 95 % intervals."""
    means, low, high = (np.array(column(rows, measure + end)) for end in ("", "_low", "_high"))
    axes.errorbar(column(rows, x), means, [means - low, high - means], capsize=2, markersize=5, **style)


def _shades(count: int) -> list[str]:
    """Viridis from light to dark without its palest end: ordered, and ordered in gray as well."""
    shades = colormaps["viridis"]
    return [to_hex(shades(0.85 * (1 - index / (count - 1)))) for index in range(count)]


def _tidied(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure
