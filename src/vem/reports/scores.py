"""The table of scores: each run and swept setting over its seeds, the recorded behavior, and the paper."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

import numpy as np

from vem.data.dataset import Dataset
from vem.errors import VemError
from vem.evaluation.environments import References
from vem.evaluation.results import QUANTITIES, trial_values
from vem.evaluation.statistics import Spread, over_seeds
from vem.reports.records import RunRecord, Series, setting_symbol
from vem.reports.style import GRAY, Drawing, Look, include_zero, label_axes, legend_below, log_axis, new_figure, slug
from vem.tasks import normalized_score
from vem.training.records import EpisodeRecord

SCORE = "normalized score"
ONE_STEP_LIMIT = 0.2
"""Recorded episodes are cut differently for comparison if more than this share has a single step."""


@dataclass(frozen=True)
class ScoreRow:
    """One line of the table; a quantity that is not known is absent."""

    label: str
    kind: str
    """``policy``, ``behavior`` or ``paper``."""
    num_seeds: int = 0
    num_episodes: int = 0
    num_failed: int = 0
    steps: int | None = None
    quantities: dict[str, Spread] = field(default_factory=dict)
    """``score``, ``return``, ``success`` (0 to 1), ``value_error`` … → its spread over seeds."""
    effective_share: float | None = None
    remark: str = ""


def score_row(one: Series, steps: int | None = None) -> ScoreRow:
    """The row of a series after that many steps; None: its newest evaluation."""
    episodes = one.episodes(steps)
    spreads = _spreads(episodes, one.run.references)
    failed = sum(episode.error is not None for episode in episodes)
    at = episodes[0].steps if episodes else None
    evaluated = len({episode.trial for episode in episodes})
    remark = "" if episodes else "not evaluated"
    if at is not None and at < one.run.config.steps:
        remark = f"evaluated after {at:,} of {one.run.config.steps:,} steps"
    if failed:
        remark = "; ".join(filter(None, (remark, f"{failed} episodes failed and are left out")))
    return ScoreRow(one.label, "policy", evaluated, len(episodes) - failed, failed, at, spreads, None, remark)


def behavior_row(run: RunRecord, trajectories: Dataset) -> ScoreRow:
    """The recorded episodes as a row."""
    returns = trajectories.episode_returns
    quantities = {"return": _single(float(returns.mean()))}
    if run.references is not None:
        quantities["score"] = _single(float(normalized_score(run.references, returns).mean()))
        if (run.references.minimum, run.references.maximum) == (0.0, 1.0):
            quantities["success"] = _single(float((returns > 0).mean()))
    quantities["length"] = _single(float(trajectories.episode_lengths.mean()))
    cut = " to the first success," if trajectories.info.rules.get("split") == "first-success" else ","
    remark = f"as recorded{cut} from other starts"
    return ScoreRow("data", "behavior", 0, len(returns), quantities=quantities, remark=remark)


def trajectories_of(run: RunRecord, dataset: Dataset) -> Dataset:
    """The data in episodes whose returns can be compared with evaluated ones.

    Where an agent stays at its goal, every step there is a terminal and ends an episode of one step. Such data is read
    again, each trajectory cut at its first success, as an evaluation would.
    """
    if one_step_share(dataset) <= ONE_STEP_LIMIT or dataset.info.rules.get("split") != "terminals":
        return dataset
    try:
        return dataclasses.replace(run.config, rules={**run.config.rules, "split": "first-success"}).load()
    except VemError:
        return dataset


def paper_rows(run: RunRecord) -> list[ScoreRow]:
    """What the paper reports on the task, if it is one of its tasks and scored by the same references."""
    task = run.task
    if task is None or run.references is None or run.references.source != task.references:
        return []
    rows = []
    for method, score in task.paper_scores.items():
        spread = Spread(score.mean, score.std, score.mean, None)
        rows.append(ScoreRow(f"paper: {method}", "paper", quantities={"score": spread}))
    return rows


def trial_means(one: Series, quantity: str, steps: int | None = None) -> np.ndarray:
    """The mean of a quantity for each evaluated seed of a series."""
    found = trial_values(one.episodes(steps), quantity, one.run.references)
    return np.array([values.mean() for values in found.values()], float)


def score_quantity(series: list[Series]) -> tuple[str, str]:
    """The quantity that these series are compared by, and its name with its unit."""
    if series and all(one.run.references is not None for one in series):
        references = series[0].run.references
        assert references is not None
        return "score", f"{SCORE} ({references.source})"
    return "return", "return of an episode (unit of the reward)"


def one_step_share(dataset: Dataset) -> float:
    """Share of the recorded episodes that have one step."""
    return float(np.mean(dataset.episode_lengths == 1))


def _spreads(episodes: list[EpisodeRecord], references: References | None) -> dict[str, Spread]:
    found = {name: trial_values(episodes, name, references) for name in QUANTITIES}
    return {name: over_seeds(list(values.values())) for name, values in found.items() if values}


def _single(value: float) -> Spread:
    return Spread(value, None, value, None)


# Learning curves: each training metric, and the score where a run was evaluated several times.


METRICS = {
    "value_loss": ("value loss", "({reward})²"),
    "value_mean": ("mean value V(s) of a batch", "{reward}"),
    "value_largest": ("largest |V(s)| of a batch", "{reward}"),
    "return_mean": ("mean planned return of a batch", "{reward}"),
    "policy_loss": ("policy loss", "nats"),
    "log_likelihood": ("log-likelihood of recorded actions", "nats"),
    "effective_share": ("effective sample size", "share of the rows"),
    "temperature": ("temperature of the weights", "unit of the advantage"),
}
"""Metric → its name and unit on an axis."""
SHARES = ("effective_share",)
WITHOUT_ZERO = ("log_likelihood", "policy_loss")
"""Log-densities, in which 0 means nothing; every other linear axis shows it."""
LOG_RATIO = 50.0
"""A positive metric that spans more than this is drawn on a logarithmic axis."""


def draw_curves(series: list[Series], looks: list[Look], prefix: str) -> list[Drawing]:
    """One Drawing for each metric that any of the runs recorded."""
    found = {name for one in series for line in one.run.metrics for m in line.trials.values() for name in m}
    ordered = [name for name in METRICS if name in found] + sorted(found - METRICS.keys())
    drawings = [_draw_metric(name, series, looks, prefix) for name in ordered]
    return [drawing for drawing in drawings if drawing is not None]


def draw_score_curve(
    series: list[Series], looks: list[Look], prefix: str, quantity: str | None = None, unit: str = ""
) -> Drawing | None:
    """An evaluated quantity, by default the score, against steps; None unless evaluated at two times or more."""
    if quantity is None:
        quantity, unit = score_quantity(series)
    curves = []
    for one in series:
        found = [(time, trial_means(one, quantity, time)) for time in one.evaluated_at]
        curves.append([(time, means) for time, means in found if means.size])
    if all(len(curve) < 2 for curve in curves):
        return None
    figure, axes = new_figure()
    for index, (curve, one, look) in enumerate(zip(curves, series, looks, strict=True)):
        if curve:
            times = np.array([time for time, _ in curve], float)
            low, mean, high = (np.array([f(means) for _, means in curve]) for f in (np.min, np.mean, np.max))
            _draw_band(axes, index, look, one.label, times, low, mean, high, marker=look.marker)
    axes.set_xlim(0, max(one.run.config.steps for one in series))
    include_zero(axes, 102 if quantity == "score" else 0)
    label_axes(axes, "steps", unit)
    _thousands(axes)
    legend_below(axes)
    name = {"score": "Score", "return": "Return"}.get(quantity, "Value-estimation error")
    caption = f"Evaluated while training. {_interval_sentence(series)}"
    return Drawing(f"{prefix}curve-{quantity.replace('_', '-')}", f"{name} during training", caption, figure, caption)


def _draw_metric(metric: str, series: list[Series], looks: list[Look], prefix: str) -> Drawing | None:
    name, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
    curves = [one.curve(metric) for one in series]
    values = np.concatenate([curve.ravel() for _, curve in curves]) if curves else np.zeros(0)
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    figure, axes = new_figure()
    for index, ((steps, curve), one, look) in enumerate(zip(curves, series, looks, strict=True)):
        if steps.size:
            bounds = curve.min(0), curve.mean(0), curve.max(0)
            _draw_band(axes, index, look, one.label, steps, *bounds, marker=look.marker if steps.size < 3 else "")
    longest = max(one.run.config.steps for one in series)
    axes.set_xlim(0, longest)
    recorded = [one for one, (steps, _) in zip(series, curves, strict=True) if steps.size]
    unit = unit.format(reward=_reward_unit(recorded))
    is_log = values.min() > 0 and values.max() > LOG_RATIO * values.min()
    if is_log:
        log_axis(axes.yaxis, values.min(), values.max())
    if metric in SHARES:
        axes.set_ylim(0, 1.05)
    elif not is_log and metric not in WITHOUT_ZERO:
        include_zero(axes)
    scale = ", log scale" if is_log else ""
    label_axes(axes, "steps", f"{name} ({unit}{scale})" if unit else f"{name}{scale}")
    _mark_stages(axes, series)
    _thousands(axes)
    legend_below(axes)
    title = f"{name[0].upper()}{name[1:]}"
    caption = f"Mean over each chunk of steps. {_interval_sentence(series)}{_stage_sentence(series)}"
    return Drawing(f"{prefix}curve-{slug(metric)}", title, caption, figure, caption)


def _reward_unit(series: list[Series]) -> str:
    kinds = {bool(one.settings.get("normalize_rewards") or one.settings.get("return_span")) for one in series}
    return "reward of each run" if len(kinds) > 1 else "normalized reward" if True in kinds else "reward"


def _draw_band(
    axes: Any,
    index: int,
    look: Look,
    label: str,
    x: np.ndarray,
    low: np.ndarray,
    mean: np.ndarray,
    high: np.ndarray,
    marker: str,
) -> None:
    band = axes.fill_between(x, low, high, color=look.color, alpha=0.22, linewidth=0)
    (line,) = axes.plot(x, mean, color=look.color, linestyle=look.line, marker=marker, markersize=4, label=label)
    band.set_gid(f"series-{index}-band")
    line.set_gid(f"series-{index}-line")


def _mark_stages(axes: Any, series: list[Series]) -> None:
    """A dotted line where a run goes from one stage to the next."""
    for run in {id(one.run): one.run for one in series}.values():
        for before, after in zip(run.metrics, run.metrics[1:], strict=False):
            if before.stage != after.stage:
                axes.axvline(before.steps, color=GRAY, linewidth=0.9, linestyle=":")


def _stage_sentence(series: list[Series]) -> str:
    stages = {line.stage for one in series for line in one.run.metrics}
    return " Dotted: the next stage of training begins." if len(stages) > 1 else ""


def _interval_sentence(series: list[Series]) -> str:
    counts = sorted({len(one.trials) for one in series})
    if counts == [1]:
        return "One seed, so no interval."
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Line: mean over {seeds} seeds; shaded: from the smallest to the largest seed."


def _thousands(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))


# Results of evaluation side by side: scores, value-estimation errors, and both against a swept setting.


DOTS = (
    "Small dots below: seeds; large marker: inter-quartile mean over seeds, bar: its 95 % bootstrap interval over "
    "episodes."
)
TICK_WIDTH = 22
VALUE_UNIT = "discounted return, unit of the reward"


def draw_scores(series: list[Series], looks: list[Look], rows: list[ScoreRow], prefix: str) -> Drawing | None:
    """The score of each series, seeds as dots; None if nothing was evaluated."""
    quantity, unit = score_quantity(series)
    drawing = _draw_dots(series, looks, rows, [(quantity, "o")], unit, f"{prefix}scores", "Scores")
    if drawing is not None and quantity == "score":
        axes = drawing.figure.axes[0]
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -2), max(high, 102))
    return drawing


def draw_value_errors(series: list[Series], looks: list[Look], rows: list[ScoreRow], prefix: str) -> list[Drawing]:
    """Values minus the discounted returns that followed: by series, and during training."""
    quantities = [("value_error", "o"), ("value_error_start", "s")]
    dots = _draw_dots(
        series, looks, rows, quantities, f"V − G ({VALUE_UNIT})", f"{prefix}value-error", "Value-estimation error"
    )
    if dots is None:
        return []
    curve = draw_score_curve(series, looks, prefix, "value_error", f"V − G ({VALUE_UNIT})")
    return [dots] if curve is None else [dots, curve]


def _draw_dots(
    series: list[Series],
    looks: list[Look],
    rows: list[ScoreRow],
    quantities: list[tuple[str, str]],
    unit: str,
    name: str,
    title: str,
) -> Drawing | None:
    known = [
        (index, one, look, row)
        for index, (one, look, row) in enumerate(zip(series, looks, rows, strict=True))
        if any(quantity in row.quantities for quantity, _ in quantities)
    ]
    if not known:
        return None
    figure, axes = new_figure(4.6, 0.95 + 0.36 * len(known) * len(quantities))
    axes.axvline(0, color=GRAY, linewidth=1)
    shift = np.linspace(0.22, -0.22, len(quantities)) if len(quantities) > 1 else [0.0]
    for place, (index, one, look, row) in enumerate(reversed(known)):
        for (quantity, marker), offset in zip(quantities, shift, strict=True):
            if quantity not in row.quantities:
                continue
            spread, y = row.quantities[quantity], place + offset
            low, high = spread.interval or (spread.interquartile_mean,) * 2
            (bar,) = axes.plot([low, high], [y, y], color=look.color, linewidth=2.4, solid_capstyle="butt")
            (middle,) = axes.plot([spread.interquartile_mean], [y], marker, color=look.color, markersize=7)
            means = trial_means(one, quantity)
            (dots,) = axes.plot(means, np.full(len(means), y - 0.14), ".", color=look.color, markersize=5, alpha=0.8)
            for part, artist in (("bar", bar), ("middle", middle), ("dots", dots)):
                artist.set_gid(f"series-{index}-{part}-{quantity.replace('_', '-')}")
    axes.set_yticks(range(len(known)), [fill(one.label, TICK_WIDTH) for _, one, _, _ in reversed(known)])
    axes.set(xlabel=unit, ylim=(-0.6, len(known) - 0.4))
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    marks = " Circles: over all steps; squares: at the start of an episode." if len(quantities) > 1 else ""
    meaning = (
        " V is the estimated value and G the discounted return that followed (with V at a time limit); right of 0 is "
        "overestimation."
        if "value_error" in dict(quantities)
        else ""
    )
    caption = f"{title}.{meaning}{marks} {DOTS}"
    numbers = "; ".join(
        f"{one.label}: {row.quantities[quantities[0][0]].interquartile_mean:.3g}"
        for _, one, _, row in known
        if quantities[0][0] in row.quantities
    )
    return Drawing(name, title, caption, figure, f"{caption} {numbers}")


def draw_value_against_return(series: list[Series], looks: list[Look], prefix: str) -> Drawing | None:
    """The value of each evaluated episode's start against the return that followed; None without values."""
    figure, axes = new_figure(4.2, 4.0)
    points = []
    for index, (one, look) in enumerate(zip(series, looks, strict=True)):
        found = [(e.target_start, e.value_start) for e in one.episodes() if e.target_start is not None]
        found = [(target, value) for target, value in found if value is not None]
        if found:
            x, y = np.array(found, float).T
            (dots,) = axes.plot(x, y, look.marker, color=look.color, markersize=3.5, alpha=0.6, label=one.label)
            dots.set_gid(f"series-{index}-dots")
            points.extend(found)
    if not points:
        return None
    low, high = float(np.min(points)), float(np.max(points))
    margin = 0.05 * (high - low) or 0.5
    limits = min(low - margin, 0), max(high + margin, 0)
    axes.plot(limits, limits, color=GRAY, linewidth=1, linestyle=":")
    axes.set(xlim=limits, ylim=limits, aspect="equal")
    label_axes(axes, "discounted return that followed, G₀", "estimated value of the start, V(s₀)")
    legend_below(axes)
    caption = (
        "Estimated value of each evaluated episode's start against the discounted return that followed, one dot an "
        "episode. Dotted: a perfect estimate; dots above it are overestimated."
    )
    return Drawing(f"{prefix}value-against-return", "Values against returns", caption, figure, caption)


def draw_sweep(series: list[Series], data_values: list[np.ndarray], prefix: str, whose: str) -> list[Drawing]:
    """Score and value against each swept setting of one run; ``data_values``: mean V over the data, by seed.

    ``whose`` ends the titles, to tell runs apart.
    """
    drawings = []
    for name in series[0].swept:
        quantity, unit = score_quantity(series)
        ordered = sorted(range(len(series)), key=lambda index: series[index].swept[name])
        scored = [(index, trial_means(series[index], quantity)) for index in ordered]
        if any(found.size for _, found in scored):
            drawings.append(
                _sweep_figure(
                    name,
                    series,
                    [(unit, "o", "-", scored)],
                    unit,
                    prefix,
                    f"Score against {setting_symbol(name)}{whose}",
                )
            )
        lines = [("mean V(s) over the data", "o", "-", [(index, data_values[index]) for index in ordered])]
        for label, which, marker, line in (
            ("V at evaluated starts", "value_start", "s", "--"),
            ("discounted return reached", "discounted_return", "^", ":"),
        ):
            lines.append((label, marker, line, [(i, trial_means(series[i], which)) for i in ordered]))
        lines = [line for line in lines if any(found.size for _, found in line[3])]
        if lines:
            drawings.append(
                _sweep_figure(
                    name, series, lines, f"value ({VALUE_UNIT})", prefix, f"Value against {setting_symbol(name)}{whose}"
                )
            )
    return drawings


def _sweep_figure(name: str, series: list[Series], lines: list[Any], unit: str, prefix: str, title: str) -> Drawing:
    figure, axes = new_figure()
    others = sorted({tuple(v for k, v in one.swept.items() if k != name) for one in series})
    for number, (label, marker, style, entries) in enumerate(lines):
        for other in others:
            chosen = [
                (series[index].swept[name], found)
                for index, found in entries
                if found.size and tuple(v for k, v in series[index].swept.items() if k != name) == other
            ]
            if not chosen:
                continue
            x = [value for value, _ in chosen]
            mean = [found.mean() for _, found in chosen]
            error = [found.std(ddof=1) if found.size > 1 else 0.0 for _, found in chosen]
            color = ("#0072b2", "#d55e00", "#009e73")[number]
            shade = 1 - 0.6 * others.index(other) / max(len(others) - 1, 1)
            text = f"{label}{' at ' if other else ''}{', '.join(f'{v:g}' for v in other)}"
            axes.errorbar(
                x, mean, error, color=color, marker=marker, linestyle=style, capsize=3, label=text, alpha=shade
            )
            for value, found in chosen:
                axes.plot(np.full(found.size, value), found, ".", color=color, markersize=3, alpha=0.7)
    values = sorted({one.swept[name] for one in series})
    if values[0] > 0 and values[-1] > 20 * values[0]:
        axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
    axes.margins(x=0.06)
    include_zero(axes, 102 if unit.startswith(SCORE) else 0)
    label_axes(axes, f"{setting_symbol(name)} ({name.replace('_', ' ')})", unit)
    if len(lines) * len(others) > 1:
        legend_below(axes)
    seeds = max(len(one.trials) for one in series)
    interval = "One seed, so no interval." if seeds == 1 else "Mean ± standard deviation over seeds; dots: seeds."
    kind = title.split()[0].lower()
    return Drawing(f"{prefix}sweep-{name.replace('_', '-')}-{kind}", title, interval, figure, f"{title}. {interval}")


# Distributions of returns: evaluated episodes against recorded ones.


Entry = tuple[str, tuple[int, Look] | None, np.ndarray]
"""Label, number and Look of the series (None: recorded), returns."""
FEW_VALUES = 6
NUM_BINS = 30


def draw_returns(series: list[Series], looks: list[Look], dataset: Dataset | None, prefix: str) -> Drawing | None:
    """Share of the episodes by return; None if there is neither an evaluated nor a recorded one."""
    entries: list[Entry] = []
    if dataset is not None:
        entries.append(("data", None, dataset.episode_returns))
    for index, (one, look) in enumerate(zip(series, looks, strict=True)):
        found = np.array([e.episode_return for e in one.episodes() if e.episode_return is not None], float)
        if found.size:
            entries.append((f"{one.label}: {found.size} episodes", (index, look), found))
    if not entries:
        return None
    figure, axes = new_figure()
    pooled = np.concatenate([found for *_, found in entries])
    distinct = np.unique(pooled)
    if len(distinct) <= FEW_VALUES:
        _draw_bars(axes, entries, distinct)
    else:
        low, high = float(pooled.min()), float(pooled.max())
        _draw_steps(axes, entries, np.linspace(low, high, NUM_BINS + 1))
    label_axes(axes, "return of an episode (undiscounted, unit of the reward)", "share of the episodes (%)")
    axes.set_ylim(bottom=0)
    legend_below(axes)
    caption = "Returns of evaluated episodes, all seeds together, each distribution adding up to 100 %."
    if dataset is not None:
        cut = ", cut at their first success," if dataset.info.rules.get("split") == "first-success" else ""
        caption += f" Gray: {dataset.num_episodes:,} recorded episodes{cut} which start where the trajectory did."
    return Drawing(f"{prefix}returns", "Returns", caption, figure, caption)


def _draw_bars(axes: Any, entries: list[Entry], distinct: np.ndarray) -> None:
    width = 0.8 / len(entries)
    for number, (label, drawn, found) in enumerate(entries):
        shares = [100 * float(np.mean(found == value)) for value in distinct]
        places = np.arange(len(distinct)) + (number - (len(entries) - 1) / 2) * width
        index, color = (None, GRAY) if drawn is None else (drawn[0], drawn[1].color)
        bars = axes.bar(places, shares, 0.92 * width, color=color, label=label)
        for part, bar in enumerate(bars):
            bar.set_gid(f"recorded-{part}" if index is None else f"series-{index}-bar-{part}")
    axes.set_xticks(range(len(distinct)), [f"{value:g}" for value in distinct])
    axes.grid(axis="x", visible=False)


def _draw_steps(axes: Any, entries: list[Entry], edges: np.ndarray) -> None:
    for label, drawn, found in entries:
        shares = 100 * np.histogram(found, edges)[0] / found.size
        if drawn is None:
            axes.stairs(shares, edges, fill=True, color=GRAY, alpha=0.45, label=label).set_gid("recorded")
        else:
            index, look = drawn
            patch = axes.stairs(shares, edges, color=look.color, linestyle=look.line, linewidth=1.6, label=label)
            patch.set_gid(f"series-{index}-steps")
