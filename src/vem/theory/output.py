"""All studies and all statements of the paper in one run."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from jinja2 import Environment, PackageLoader
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from vem.errors import RunError
from vem.storage import write_file
from vem.theory.claims import (
    Claim,
    behavior_claims,
    convergence,
    expectile_learning,
    horizon_claims,
    memory,
    readings_claims,
    tradeoff_claims,
)
from vem.theory.examples import Table, Toy, draw_processes
from vem.theory.mdp import deterministic_transitions
from vem.theory.studies import (
    TRADEOFF_EXPECTILES,
    behavior_study,
    check_enumeration,
    horizon_study,
    readings_study,
    tradeoff_study,
)


@dataclass(frozen=True)
class Settings:
    """Every parameter of ``vem theory``; the defaults are the paper's where it states them."""

    toy: Toy = field(default_factory=Toy)
    expectiles: tuple[float, ...] = (0.6, 0.7, 0.8, 0.9)
    max_steps: tuple[int, ...] = (1, 2, 3, 4)
    temperature: float = 1.0
    num_removed: int = 1
    temperatures: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    behavior_max_steps: int = 10
    tradeoff: Toy = field(default_factory=lambda: Toy(num_mdps=20))
    tradeoff_expectiles: tuple[float, ...] = TRADEOFF_EXPECTILES
    dataset_sizes: tuple[int, ...] = (30, 100, 300, 1000, 10000)
    noise: float = 1.0
    num_datasets: int = 50
    readings: Toy = field(default_factory=lambda: Toy(num_mdps=50))
    readings_expectiles: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    readings_max_steps: int = 4

    def check(self) -> None:
        """Raise on settings that mean nothing, before anything is computed."""
        self.toy.check(self.expectiles, [*self.max_steps, self.behavior_max_steps])
        self.tradeoff.check(self.tradeoff_expectiles, [1])
        self.readings.check(self.readings_expectiles, [self.readings_max_steps])
        if self.can_enumerate:
            check_enumeration(self.readings, self.readings_max_steps)

    @property
    def can_enumerate(self) -> bool:
        """Rollouts can be enumerated in deterministic processes only."""
        return self.readings.transitions is deterministic_transitions


class Results(NamedTuple):
    """One table a study, and the paper's statements with what was measured."""

    tables: dict[str, Table]
    claims: list[Claim]


def run(settings: Settings) -> Results:
    """Compute everything; seconds with the defaults, most of them for the sampled variance."""
    settings.check()
    tradeoff = tradeoff_study(
        settings.tradeoff,
        expectiles=settings.tradeoff_expectiles,
        dataset_sizes=settings.dataset_sizes,
        noise=settings.noise,
        num_datasets=settings.num_datasets,
        temperature=settings.temperature,
    )
    horizon = horizon_study(
        settings.toy,
        expectiles=settings.expectiles,
        max_steps=settings.max_steps,
        temperature=settings.temperature,
        num_removed=settings.num_removed,
    )
    behavior = behavior_study(
        settings.toy,
        expectiles=settings.expectiles,
        temperatures=settings.temperatures,
        max_steps=settings.behavior_max_steps,
    )
    tables = {"tradeoff": tradeoff, "horizon": horizon, "behavior": behavior}
    found = [*tradeoff_claims(tradeoff), *horizon_claims(horizon)]
    found += behavior_claims(behavior, settings.toy.discount)
    if settings.can_enumerate:
        tables["readings"] = readings_study(
            settings.readings,
            expectiles=settings.readings_expectiles,
            max_steps=settings.readings_max_steps,
            temperature=settings.temperature,
        )
        found += readings_claims(tables["readings"])
    deterministic, stochastic = draw_processes(discount=settings.toy.discount, seed=settings.toy.seed)
    found += expectile_learning(deterministic, stochastic)
    found += convergence(deterministic, stochastic)
    found += memory(deterministic)
    return Results(tables, sorted(found, key=lambda claim: claim.section))


# The studies' tables as pictures. Every function returns a Matplotlib figure and leaves no global state.


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


# What each figure of ``vem theory`` shows, in words, with the settings it was drawn from.


class Caption(NamedTuple):
    """A heading, what the figure shows and how, and what to see in it."""

    title: str
    shows: str
    see: str


def captions(settings: Settings) -> dict[str, Caption]:
    """One caption for each table of ``theory.run``."""
    step = "the largest permitted one" if settings.toy.step_size is None else f"{settings.toy.step_size:g}"
    measured = (
        f"{_processes(settings.toy)} with step size α: {step}. The contraction rate is measured twice: from "
        f"V = 0 toward the fixed point in one application, as the paper's figure does, and as a supremum over "
        f"{settings.toy.num_pairs} pairs of values, as its text defines it. The bias is the distance of the "
        f"fixed point to V*. The deviation is that of one sampled update at V = 0 from T_vem, over "
        f"{settings.toy.num_rollouts:,} rollouts of {settings.toy.rollout_steps} steps in each process. "
        f"Bars are 95 % intervals of the mean."
    )
    removed = "the first action" if settings.num_removed == 1 else f"the first {settings.num_removed} actions"
    return {
        "tradeoff": Caption(
            "Figure 2: how far to trust a dataset",
            f"The mean fixed point of the expectile operator when every one-step target of (s,a) carries "
            f"Gaussian noise of standard deviation {settings.noise:g}/√n(s,a), with n(s,a) = "
            f"max(1, N·μ(a|s)/states) the number of samples that a dataset of N transitions holds. The noise is "
            f"drawn once for each dataset. {_processes(settings.tradeoff)}, {settings.num_datasets} datasets of "
            f"each size, μ = softmax(Q*/{settings.temperature:g}). Bands are 95 % intervals of the mean "
            f"difference to V*.",
            "At τ = ½ all curves meet the value of the behavior. Toward τ = 1 they tend to the optimality "
            "operator, which picks the luckiest noise and bootstraps on it: the smaller the dataset, the higher "
            "it lies above V*. Where a curve crosses V* is the τ that its dataset can bear.",
        ),
        "horizon": Caption(
            "Figure 4(a): planning further ahead",
            f"T_vem for n_max = {_listed(settings.max_steps)}; μ = softmax(Q*/{settings.temperature:g})"
            f"{', with probability 0 for ' + removed if settings.num_removed else ''}. {measured}",
            "From V = 0 a larger n_max is faster and noisier, and it leaves the bias alone; a larger τ lowers the "
            "bias and is slower. The supremum does not depend on n_max: where values are too high, the best n "
            "is 1."
            + (" Actions that μ never takes cannot be learned, so a bias remains." if settings.num_removed else ""),
        ),
        "behavior": Caption(
            "Figure 4(b): better data",
            f"T_vem with n_max = {settings.behavior_max_steps}; μ = softmax(Q*/temperature) for temperatures "
            f"{_listed(settings.temperatures)}. {measured}",
            "The nearer the behavior is to the optimal policy, the smaller are the bias, the rate from V = 0 "
            "and the deviation. The supremum does not depend on the behavior.",
        ),
        "readings": Caption(
            "Beyond the paper: four readings of the memory, and τ below ½",
            f"Where repeated application settles, for n_max = {settings.readings_max_steps}. "
            f"{_processes(settings.readings)}, μ = softmax(Q*/{settings.temperature:g}), every rollout "
            f"enumerated with its probability, so that no sampling noise remains. Bars are 95 % intervals of "
            f"the mean.",
            "T_vem takes the best n of expectations and keeps the fixed point of T_τ for τ ≥ ½; below ½ it lies "
            "above it. An algorithm cannot take expectations before it compares: it takes the best n along each "
            "recorded trajectory, which is optimistic already at τ = ½. The authors' program plans with plain "
            "values and then regresses with squared weights, so its τ acts like τ²/(τ²+(1−τ)²). On such plans "
            "τ = ½ is not the behavior's value, and a τ below ½ takes the optimism back.",
        ),
    }


def _processes(toy: Toy) -> str:
    kind = "deterministic" if toy.transitions is deterministic_transitions else "stochastic"
    return (
        f"{toy.num_mdps} random {kind} processes of {toy.num_states} states and {toy.num_actions} actions, "
        f"γ = {toy.discount:g}"
    )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


# The page of ``vem theory``: figures inline, numbers and statements as tables, nothing fetched.


VERDICTS = ("holds", "in part", "fails")


class Study(NamedTuple):
    """A table of numbers, the figure drawn from it (SVG) and its caption."""

    table: Table
    figure: bytes
    caption: Caption

    @property
    def picture(self) -> str:
        """The figure as base64, to stand inside the page."""
        return base64.b64encode(self.figure).decode()

    @property
    def heads(self) -> list[str]:
        """The columns that the page shows; the ends of intervals are left to the CSV."""
        return [name for name in self.table[0] if not name.endswith(("_low", "_high"))]

    @property
    def rows(self) -> list[list[str]]:
        """The numbers of these columns as text."""
        return [[f"{row[name]:.4g}" for name in self.heads] for row in self.table]


def render_page(studies: list[Study], claims: list[Claim]) -> str:
    """The page as HTML."""
    counts = {word: sum(claim.verdict == word for claim in claims) for word in VERDICTS}
    templates = Environment(
        loader=PackageLoader("vem.theory"), autoescape=True, trim_blocks=True, keep_trailing_newline=True
    )
    return templates.get_template("page.html").render(studies=studies, claims=claims, counts=counts)


# The files of ``vem theory``: a CSV, PNG and SVG for each study, and one HTML page that needs no other file.


DRAWINGS: dict[str, Callable[[Table], Figure]] = {
    "tradeoff": tradeoff_figure,
    "horizon": horizon_figure,
    "behavior": behavior_figure,
    "readings": readings_figure,
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
