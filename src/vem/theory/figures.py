"""The studies' tables as pictures. Every function returns a Matplotlib figure and leaves no global state."""

from collections.abc import Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vem.theory.toy import Table

# Okabe and Ito's palette, which stays apart for color-blind readers.
BLUE, GREEN, ORANGE, VERMILION, PURPLE = "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7"


def tradeoff_figure(table: Table) -> Figure:
    """Figure 2: value against τ, one curve a dataset size; the star at τ = 1 is the optimality operator."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    sizes = _axis(table, "dataset_size")
    for size, color in zip(sizes, _shades(len(sizes)), strict=True):
        rows = [row for row in table if row["dataset_size"] == size]
        levels, values = [row["expectile"] for row in rows], [row["value"] for row in rows]
        axes.fill_between(
            levels,
            [row["value_low"] for row in rows],
            [row["value_high"] for row in rows],
            color=color,
            alpha=0.2,
            linewidth=0,
        )
        axes.plot(levels, values, color=color, marker="o", markersize=3, label=f"N = {size:,.0f}")
        axes.plot(levels[-1], values[-1], color=color, marker="*", markersize=11, clip_on=False, zorder=3)
    for name, where, color, style in (
        (r"optimal value $V^*$", "optimal_value", GREEN, "-"),
        (r"value of the behavior $V^\mu$", "behavior_value", BLUE, "--"),
    ):
        height = table[0][where]
        axes.axhline(height, color=color, linestyle=style, linewidth=1.8, zorder=1)
        axes.annotate(name, (0.09, height), (0, 4), textcoords="offset points", color=color, fontsize=10, weight="bold")
    axes.set(xlabel="expectile τ   (★ at τ = 1: optimality operator)", ylabel="value at the fixed point")
    axes.legend(title="transitions in the dataset", loc="upper left", frameon=False)
    return _tidied(figure)


def horizon_figure(table: Table) -> Figure:
    """Figure 4(a): bias, contraction and variance as n_max and τ change."""
    figure = _indicators(table, "max_steps", "n = {:.0f}", (12, -3))
    for axes in figure.axes[1:]:
        axes.set_xlabel(r"largest number of steps $n_{\max}$")
    return figure


def behavior_figure(table: Table) -> Figure:
    """Figure 4(b): bias, contraction and variance as the behavior and τ change."""
    figure = _indicators(table, "temperature", "temp. {:g}", (4, -18))
    for axes in figure.axes[1:]:
        axes.set(xlabel="behavior temperature (expert → random)", xscale="log")
        axes.set_xticks(_axis(table, "temperature"), [f"{value:g}" for value in _axis(table, "temperature")])
        axes.minorticks_off()
    return figure


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


def _indicators(table: Table, group: str, label: str, offset: tuple[float, float]) -> Figure:
    """Three panels; color is τ in all of them, and in the first the spots grow with the deviation."""
    figure = Figure(figsize=(11.5, 4.2), layout="constrained")
    overview, rates, deviations = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    levels, groups = _axis(table, "expectile"), _axis(table, group)
    largest = max(row["deviation"] for row in table) or 1
    for expectile, color in zip(levels, _shades(len(levels)), strict=True):
        rows = sorted((row for row in table if row["expectile"] == expectile), key=lambda row: row[group])
        biases, speeds = [row["bias"] for row in rows], [row["rate_from_zero"] for row in rows]
        overview.plot(biases, speeds, color=color, linewidth=1, zorder=1)
        overview.scatter(biases, speeds, s=[260 * row["deviation"] / largest for row in rows], color=color, alpha=0.85)
        _curve(rates, rows, group, "rate_from_zero", color=color, marker="o", label=f"τ = {expectile:g}")
        _curve(rates, rows, group, "rate_supremum", color=color, marker="", linestyle="--")
        _curve(deviations, rows, group, "deviation", color=color, marker="o")
    lead = sorted((row for row in table if row["expectile"] == levels[0]), key=lambda row: row[group])
    for row in lead:
        where = (row["bias"], row["rate_from_zero"])
        overview.annotate(label.format(row[group]), where, offset, textcoords="offset points", fontsize=9)
    overview.margins(y=0.12)
    overview.set_xlim(0, 1.3 * max(row["bias"] for row in table))
    overview.set(
        xlabel=r"fixed-point bias $\Vert V^*_{\mathrm{vem}} - V^*\Vert_\infty$", ylabel="contraction rate from V = 0"
    )
    overview.set_title("spot size: update deviation", fontsize=10)
    rates.set(ylabel="contraction rate", ylim=(None, 1.02))
    rates.set_title("solid: from V = 0,  dashed: supremum", fontsize=10)
    rates.legend(frameon=False, fontsize=9, loc="best")
    deviations.set(ylabel="update deviation at V = 0", ylim=(0, None))
    spreads = [[row["deviation"] for row in table if row[group] == value] for value in groups]
    if max(max(spread) - min(spread) for spread in spreads) < 1e-9:
        deviations.set_title("the same for every τ", fontsize=10)
    for axes in (rates, deviations):
        axes.set_xticks(groups, [f"{value:g}" for value in groups])
    return _tidied(figure)


def _curve(axes: Axes, rows: Table, x: str, measure: str, **style: Any) -> None:
    """Draw means with their 95 % intervals."""
    means = [row[measure] for row in rows]
    spread = [
        [row[measure] - row[f"{measure}_low"] for row in rows],
        [row[f"{measure}_high"] - row[measure] for row in rows],
    ]
    axes.errorbar([row[x] for row in rows], means, spread, capsize=2, markersize=5, **style)


def _axis(table: Table, name: str) -> list[float]:
    return sorted({row[name] for row in table})


def _shades(count: int) -> Sequence[str]:
    """Viridis from light to dark without its palest end: ordered, and ordered in gray as well."""
    shades = colormaps["viridis"]
    return [to_hex(shades(0.85 * (1 - index / max(count - 1, 1)))) for index in range(count)]


def _tidied(figure: Figure) -> Figure:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return figure
