"""How every figure looks, and how it is written: PNG and SVG on white, and SVG for the page that follows its theme."""

from __future__ import annotations

import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vem.evaluation.statistics import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


INK = "#212226"
"""Text and axes. In the page it becomes the page's own text color, so that it is unique on purpose."""
GRID = "#8c8f97"
GRAY = "#83868e"
"""Recorded data, walls and reference lines: readable on white and on black."""
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d3b", "#7f5fd0", "#9a9a1e", "#b03060")
"""Okabe and Ito's colors without black, which dark screens swallow, and yellow, which white ones do; then four more."""
SWEEP = ("#2f7fd6", "#a65fb0", "#e07020")
"""Blue to orange, for the order of a swept setting; all of it stands out from white and from black."""
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "*")
LONG_LABEL = 30
NUM_BINS = 30


@dataclass(frozen=True)
class Style:
    """Color, line and marker of a series, the same in all figures of a dataset."""

    color: str
    line: Any
    marker: str


def distinct_styles(count: int) -> list[Style]:
    """That many styles that can be told apart; colors come again after ten, with other lines."""
    return [
        Style(PALETTE[index % len(PALETTE)], LINES[index % len(LINES)], MARKERS[index % len(MARKERS)])
        for index in range(count)
    ]


def ordered_styles(values: Sequence[float]) -> list[Style]:
    """A style for each value of a swept setting, with colors in the order of the values."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    colors = LinearSegmentedColormap.from_list("sweep", SWEEP)
    ranks = np.argsort(np.argsort(values)) / max(len(values) - 1, 1)
    return [
        dataclasses.replace(style, color=to_hex(colors(float(rank))))
        for style, rank in zip(distinct_styles(len(values)), ranks, strict=True)
    ]


@dataclass(frozen=True)
class Drawing:
    """A figure with the sentences that make it readable alone."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    """What is shown, with which uncertainty."""
    figure: Figure

    @cached_property
    def svg(self) -> str:
        """The figure as SVG text on white."""
        buffer = io.StringIO()
        with drawing_style(self.name):
            # The layout is worked out once; each later drawing of the figure would repeat it.
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
            self.figure.savefig(buffer, format="svg", facecolor="white", dpi=130, metadata={"Date": None})
        return buffer.getvalue()

    @property
    def inline_svg(self) -> str:
        """The figure as an ``<svg>`` element without ground, whose ink is the page's and whose ids are its own."""
        text = self.svg[self.svg.index("<svg") :]
        text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
        text = re.sub(r'<g id="patch_1">.*?</g>', "", text, count=1, flags=re.DOTALL)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{self.name}--", text)
        for _ in ("width", "height"):
            text = re.sub(r'(<svg[^>]*?) (?:height|width)="[^"]*"', r"\1", text, count=1)
        return text.replace(INK, "currentColor")

    def write_files(self, directory: Path) -> list[Path]:
        """Write the figure as PNG and SVG on white; return the files."""
        png, svg = directory / f"{self.name}.png", directory / f"{self.name}.svg"
        svg.write_text(self.svg, encoding="utf-8")
        with drawing_style(self.name):
            self.figure.savefig(png, dpi=160, facecolor="white")
        return [png, svg]


@contextmanager
def drawing_style(salt: str = "vem") -> Iterator[None]:
    """Matplotlib's settings for the time of drawing or writing one figure."""
    from matplotlib import rc_context

    settings: dict[Any, Any] = {
        "font.size": 10,
        "axes.titlesize": 10,
        "axes.labelsize": 10,
        "legend.fontsize": 9,
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "grid.alpha": 0.25,
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "axes.facecolor": "none",
        "legend.frameon": False,
        "path.simplify_threshold": 0.5,
    }
    with rc_context(settings):
        yield


def new_figure(width: float = 4.6, height: float = 3.2) -> tuple[Figure, Any]:
    """A figure of one panel, small enough to be readable on a phone, and its axes."""
    figure, (axes,) = new_panels(width, height, 1)
    return figure, axes


def new_panels(width: float, height: float, num_panels: int) -> tuple[Figure, list[Any]]:
    """A figure of several panels side by side, and their axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, num_panels, squeeze=False)[0])


def label_axes(axes: Any, x: str, y: str) -> None:
    """Name both axes; the vertical one above it, where long names can be read and phones have room."""
    axes.set_xlabel(x)
    axes.set_title(y, loc="left", x=0.0, pad=8)


def include_zero(axes: Any, reach: float = 0.0) -> None:
    """Stretch the vertical axis to 0 and to ``reach``."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), max(high, 0, reach))


def plain_ticks(axis: Any) -> None:
    """A few whole numbers on an axis, with commas, that do not run into each other."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−")))


def log_axis(axis: Any, low: float, high: float) -> None:
    """Make an axis logarithmic, with plain numbers at places that do not crowd."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.axes.set_xscale("log") if axis.axis_name == "x" else axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(axes: Any) -> None:
    """A legend under the axes, where it covers no data; none for a single entry."""
    labels = axes.get_legend_handles_labels()[1]
    if len(labels) > 1:
        columns = 2 if max(map(len, labels)) < LONG_LABEL else 1
        axes.figure.legend(loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.2)


def slug(text: str) -> str:
    """``text`` fit for a file name and an id."""
    return "".join(letter if letter.isalnum() or letter in "-." else "-" for letter in text).strip("-.") or "x"


# What several figures are made of; ``index`` is that of the series, by which the page hides its parts.


def draw_band(axes: Any, index: int, style: Style, label: str, x: Any, lines: np.ndarray, marker: str = "") -> None:
    """The mean of the lines, one for each seed, on a band from the smallest to the largest."""
    band = axes.fill_between(x, lines.min(0), lines.max(0), color=style.color, alpha=0.22, linewidth=0)
    (line,) = axes.plot(
        x, lines.mean(0), color=style.color, linestyle=style.line, marker=marker, markersize=4, label=label
    )
    band.set_gid(f"series-{index}-band")
    line.set_gid(f"series-{index}-line")


@dataclass(frozen=True)
class Distribution:
    """Values whose shares are drawn beside others: those of a series, or recorded ones without index and style."""

    label: str
    values: np.ndarray
    index: int | None = None
    style: Style | None = None


def draw_shares(axes: Any, entries: list[Distribution], ticks: Sequence[str] | None = None) -> None:
    """The share of the values in each of some bins; with ``ticks`` values are codes of these."""
    count = NUM_BINS if ticks is None else len(ticks)
    pooled = np.concatenate([entry.values for entry in entries])
    edges = np.linspace(float(pooled.min()), float(pooled.max()) + 1e-9, count + 1)
    width = 0.8 / len(entries)
    for number, entry in enumerate(entries):
        gid = "recorded" if entry.index is None else f"series-{entry.index}-shares"
        color, line = (entry.style.color, entry.style.line) if entry.style else (GRAY, "-")
        if ticks is not None:
            shares = 100 * np.bincount(entry.values.astype(int), minlength=count) / len(entry.values)
            places = np.arange(count) + (number - (len(entries) - 1) / 2) * width
            for part, bar in enumerate(axes.bar(places, shares, 0.92 * width, color=color, label=entry.label)):
                bar.set_gid(f"{gid}-{part}")
            continue
        shares = 100 * np.histogram(entry.values, edges)[0] / len(entry.values)
        look = {"fill": True, "alpha": 0.45} if entry.style is None else {"linestyle": line, "linewidth": 1.6}
        axes.stairs(shares, edges, color=color, label=entry.label, **look).set_gid(gid)
    if ticks is None:
        plain_ticks(axes.xaxis)
    else:
        axes.set_xticks(range(count), ticks, rotation=30 if count > 5 else 0)
        axes.grid(axis="x", visible=False)
    axes.set_ylim(bottom=0)


def draw_rows(axes: Any, names: Sequence[str]) -> None:
    """Name the rows of a figure, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


# Numbers as the page writes them.


def number_text(value: float, digits: int) -> str:
    """A number with a true minus sign and no negative zero."""
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def spread_text(spread: Spread | None, factor: float = 1.0, digits: int | None = None) -> str:
    """``mean ± std``; without ``digits`` as many after the point as the size of the numbers asks for."""
    if spread is None:
        return ""
    mean, std = factor * spread.mean, None if spread.std is None else factor * spread.std
    if digits is None:
        largest = max(abs(mean), abs(std or 0.0))
        digits = 0 if largest >= 100 else 1 if largest >= 10 else 2 if largest >= 1 else 3
    return number_text(mean, digits) + ("" if std is None else f" ± {number_text(std, digits)}")


def interval_text(spread: Spread | None, digits: int) -> str:
    """The inter-quartile mean and its interval."""
    if spread is None or spread.interval is None:
        return ""
    ends = " to ".join(number_text(end, digits) for end in spread.interval)
    return f"{number_text(spread.interquartile_mean, digits)} [{ends}]"


def cell_text(value: Any) -> str:
    """A value in four digits or as a whole number, labels as they are."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value + 0.0:.4g}").replace("-", "−")
    return str(value)
