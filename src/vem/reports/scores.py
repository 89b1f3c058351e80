"""Results of evaluation and of training: the table of scores, and figures of scores, returns, values and metrics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from textwrap import fill

import numpy as np

from vem.data.dataset import Dataset
from vem.errors import VemError
from vem.evaluation.results import QUANTITIES, trial_values
from vem.evaluation.statistics import Spread, Table, over_seeds
from vem.reports.records import RunRecord, Series, setting_symbol
from vem.reports.style import (
    GRAY,
    PALETTE,
    Distribution,
    Drawing,
    cell_text,
    draw_band,
    draw_rows,
    draw_shares,
    include_zero,
    interval_text,
    label_axes,
    legend_below,
    log_axis,
    new_figure,
    plain_ticks,
    slug,
    spread_text,
)
from vem.tasks import normalized_score

SCORE = "normalized score"
ONE_STEP_LIMIT = 0.2
"""Recorded episodes are cut differently for comparison if more than this share has a single step."""
TICK_WIDTH = 22


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
    remark: str = ""


def score_row(one: Series) -> ScoreRow:
    """The row of a series' newest evaluation."""
    episodes, references = one.episodes(), one.run.references
    values = {name: trial_values(episodes, name, references) for name in QUANTITIES}
    spreads = {name: over_seeds(list(of_trials.values())) for name, of_trials in values.items() if of_trials}
    failed = sum(episode.error is not None for episode in episodes)
    at = episodes[0].steps if episodes else None
    remarks = [] if episodes else ["not evaluated"]
    if at is not None and at < one.run.config.steps:
        remarks.append(f"evaluated after {at:,} of {one.run.config.steps:,} steps")
    if failed:
        remarks.append(f"{failed} episode{'s' if failed > 1 else ''} failed and left out")
    num_seeds = len({episode.trial for episode in episodes})
    return ScoreRow(one.label, "policy", num_seeds, len(episodes) - failed, failed, at, spreads, "; ".join(remarks))


def behavior_row(run: RunRecord, trajectories: Dataset, rows: list[ScoreRow]) -> ScoreRow:
    """The recorded episodes as a row, with a remark where they are longer or shorter than those of ``rows``."""
    single = lambda value: Spread(float(value), None, float(value), None)
    returns, length = trajectories.episode_returns, float(trajectories.episode_lengths.mean())
    quantities = {"return": single(returns.mean()), "length": single(length)}
    if run.references is not None:
        quantities["score"] = single(normalized_score(run.references, returns).mean())
        if (run.references.minimum, run.references.maximum) == (0.0, 1.0):
            quantities["success"] = single((returns > 0).mean())
    cut = " to the first success," if trajectories.info.rules.get("split") == "first-success" else ","
    remark = f"as recorded{cut} from other starts"
    others = [row.quantities["length"].mean for row in rows if "length" in row.quantities]
    if others and not 0.8 < length / max(np.mean(others), 1) < 1.25:
        remark += f"; these episodes have {length:,.0f} steps, those of the policies {np.mean(others):,.0f}"
    return ScoreRow("recorded episodes", "behavior", 0, len(returns), quantities=quantities, remark=remark)


def trajectories_of(run: RunRecord, dataset: Dataset) -> Dataset:
    """The data in episodes whose returns can be compared with evaluated ones.

    Where an agent stays at its goal, every step there is a terminal and ends an episode of one step. Such data is read
    again, each trajectory cut at its first success, as an evaluation would.
    """
    one_step = float(np.mean(dataset.episode_lengths == 1))
    if one_step <= ONE_STEP_LIMIT or dataset.info.rules.get("split") != "terminals":
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
    return [
        ScoreRow(f"paper: {method}", "paper", quantities={"score": Spread(score.mean, score.std, score.mean, None)})
        for method, score in task.paper_scores.items()
    ]


COLUMNS: list[tuple[str, str, float, int | None]] = [
    ("return", "return", 1.0, None),
    ("success", "success (%)", 100.0, 1),
    ("length", "length", 1.0, 0),
    ("value_error", "V − G", 1.0, None),
]
"""Quantity, heading, factor, digits after the point (None: as many as the number needs); the score comes first."""


def score_table(rows: list[ScoreRow], runs: list[RunRecord]) -> Table:
    """Scores with both uncertainties, and which references they have."""
    known = {name for row in rows for name in row.quantities}
    references = dict.fromkeys(run.references for run in runs if run.references is not None)
    if references and all((found.minimum, found.maximum) == (0.0, 1.0) for found in references):
        known -= {"return", "success"}  # the score says the same
    columns = [column for column in COLUMNS if column[0] in known]
    head = ["", *(["score ± std", "IQM [95 % interval]"] if "score" in known else [])]
    head += [*(heading for _, heading, *_ in columns), "episodes"]
    cells = []
    for row in rows:
        score = row.quantities.get("score")
        texts = [spread_text(score, 1.0, 1), interval_text(score, 1)] if "score" in known else []
        texts += [spread_text(row.quantities.get(name), factor, digits) for name, _, factor, digits in columns]
        seeds = f" of {row.num_seeds} seeds" if row.num_seeds > 1 else ""
        episodes = f"{row.num_episodes:,}{seeds}" if row.num_episodes else ""
        label = f"{row.label} ({row.remark})" if row.remark else row.label
        cells.append([label, *texts, episodes])
    sentences = [
        f"Score 0 is a return of {cell_text(float(found.minimum))} and score 100 one of "
        f"{cell_text(float(found.maximum))} ({found.source.removeprefix('vem: ')})."
        for found in references
    ] or ["No reference scores are known for this data, so returns are not normalized."]
    sentences.append(
        "±: standard deviation between seeds, what another training would give. Interval: bootstrap over episodes, how "
        "exactly these policies were measured. IQM: inter-quartile mean over seeds."
    )
    if "value_error" in known:
        sentences.append("V − G: estimated value minus the discounted return that followed.")
    if any(row.kind == "paper" for row in rows):
        sentences.append("The paper's scores were measured on D4RL's own data and simulator.")
    return Table("", head, cells, [" ".join(sentences)])


# Scores and value errors side by side, seeds as dots.


VALUE_UNIT = "discounted return, unit of the reward"
DOTS = (
    "Small dots: seeds; large marker: inter-quartile mean over seeds; bar: its 95 % bootstrap interval over episodes."
)


def score_quantity(series: list[Series]) -> tuple[str, str]:
    """The quantity that these series are compared by, and its name with its unit."""
    if series and all(one.run.references is not None for one in series):
        return "score", SCORE
    return "return", "return of an episode (unit of the reward)"


def draw_scores(series: list[Series], rows: list[ScoreRow]) -> list[Drawing]:
    """The score of each series, and its course where it was evaluated on the way."""
    quantity, unit = score_quantity(series)
    drawings = _draw_dots(series, rows, {quantity: "o"}, unit, "scores", "Scores", DOTS)
    if drawings and quantity == "score":
        axes = drawings[0].figure.axes[0]
        low, high = axes.get_xlim()
        axes.set_xlim(min(low, -2), max(high, 102))
    return drawings + draw_evaluated(series, quantity, unit)


def draw_value_errors(series: list[Series], rows: list[ScoreRow]) -> list[Drawing]:
    """Values minus the discounted returns that followed: by series, and during training."""
    caption = (
        "V is the estimated value and G the discounted return that followed (with V at a time limit); right of 0 is "
        f"overestimation. Circles: over all steps; squares: at the start of an episode. {DOTS}"
    )
    marks = {"value_error": "o", "value_error_start": "s"}
    unit = f"V − G ({VALUE_UNIT})"
    dots = _draw_dots(series, rows, marks, unit, "value-error", "Value-estimation error", caption)
    return dots + (draw_evaluated(series, "value_error", unit) if dots else [])


def _draw_dots(
    series: list[Series], rows: list[ScoreRow], marks: dict[str, str], unit: str, name: str, title: str, caption: str
) -> list[Drawing]:
    """Quantities by series, each with its marker; nothing where none is known."""
    known = [(one, row) for one, row in zip(series, rows, strict=False) if row.quantities.keys() & marks.keys()]
    if not known:
        return []
    figure, axes = new_figure(4.6, 0.95 + 0.36 * len(known) * len(marks))
    axes.axvline(0, color=GRAY, linewidth=1)
    shifts = np.linspace(-0.22, 0.22, len(marks)) if len(marks) > 1 else [0.0]
    for place, (one, row) in enumerate(known):
        for (quantity, marker), shift in zip(marks.items(), shifts, strict=True):
            if quantity not in row.quantities:
                continue
            spread, y, color = row.quantities[quantity], place + shift, one.style.color
            low, high = spread.interval or (spread.interquartile_mean,) * 2
            means = one.means(quantity)
            parts = {
                "bar": axes.plot([low, high], [y, y], color=color, linewidth=2.4, solid_capstyle="butt"),
                "middle": axes.plot([spread.interquartile_mean], [y], marker, color=color, markersize=7),
                "dots": axes.plot(means, np.full(len(means), y + 0.14), ".", color=color, markersize=5, alpha=0.8),
            }
            for part, (artist,) in parts.items():
                artist.set_gid(f"series-{one.index}-{part}-{quantity.replace('_', '-')}")
    draw_rows(axes, [fill(one.label, TICK_WIDTH) for one, _ in known])
    axes.set_xlabel(unit)
    axes.margins(x=0.08)
    return [Drawing(name, title, caption, figure)]


def draw_evaluated(series: list[Series], quantity: str, unit: str) -> list[Drawing]:
    """An evaluated quantity against steps; nothing unless evaluated at two times or more."""
    curves = []
    for one in series:
        by_time = {time: one.means(quantity, time) for time in one.evaluated_at}
        by_time = {time: means for time, means in by_time.items() if means.size == len(one.trials)}
        if by_time:
            curves.append((one, np.array(list(by_time), float), np.array(list(by_time.values())).T))
    if all(times.size < 2 for _, times, _ in curves):
        return []
    figure, axes = new_figure()
    for one, times, lines in curves:
        draw_band(axes, one.index, one.style, one.label, times, lines, one.style.marker)
    axes.set_xlim(0, max(one.run.config.steps for one in series))
    include_zero(axes, 102 if quantity == "score" else 0)
    label_axes(axes, "steps", unit)
    plain_ticks(axes.xaxis)
    legend_below(axes)
    title = {"score": "Score", "return": "Return"}.get(quantity, "Value-estimation error")
    caption = f"Evaluated while training. {_seeds_sentence(series)}"
    return [Drawing(f"curve-{quantity.replace('_', '-')}", f"{title} during training", caption, figure)]


# Returns of episodes, and the values that were expected of them.


FEW_VALUES = 6


def draw_returns(series: list[Series], trajectories: Dataset | None) -> list[Drawing]:
    """Share of the evaluated episodes by return, beside the recorded ones; nothing without an evaluation."""
    entries = []
    for one in series:
        found = np.array([e.episode_return for e in one.episodes() if e.episode_return is not None], float)
        if found.size:
            entries.append(Distribution(f"{one.label}: {found.size} episodes", found, one.index, one.style))
    if not entries:
        return []
    caption = "Returns of evaluated episodes, all seeds together, each distribution adding up to 100 %."
    if trajectories is not None:
        entries.insert(0, Distribution("recorded", trajectories.episode_returns))
        cut = ", cut at their first success," if trajectories.info.rules.get("split") == "first-success" else ""
        caption += f" Gray: {trajectories.num_episodes:,} recorded episodes{cut} from their own starts."
    figure, axes = new_figure()
    distinct = np.unique(np.concatenate([entry.values for entry in entries]))
    if len(distinct) <= FEW_VALUES:
        entries = [dataclasses.replace(entry, values=np.searchsorted(distinct, entry.values)) for entry in entries]
        draw_shares(axes, entries, [cell_text(float(value)) for value in distinct])
    else:
        draw_shares(axes, entries)
    label_axes(axes, "return of an episode (undiscounted, unit of the reward)", "share of the episodes (%)")
    legend_below(axes)
    return [Drawing("returns", "Returns", caption, figure)]


def draw_value_against_return(series: list[Series]) -> list[Drawing]:
    """The value of each evaluated episode's start against the return that followed; nothing without values."""
    points = {
        one.label: np.array(
            [(e.target_start, e.value_start) for e in one.episodes() if None not in (e.target_start, e.value_start)],
            float,
        ).reshape(-1, 2)
        for one in series
    }
    if not any(len(found) for found in points.values()):
        return []
    figure, axes = new_figure(4.6, 3.6)
    for one in series:
        if len(points[one.label]):
            x, y = points[one.label].T
            look = {"color": one.style.color, "markersize": 3.5, "alpha": 0.6, "label": one.label}
            axes.plot(x, y, one.style.marker, **look)[0].set_gid(f"series-{one.index}-dots")
    pooled = np.concatenate(list(points.values()))
    low, high = float(pooled.min()), float(pooled.max())
    margin = 0.05 * (high - low) or 0.5
    limits = min(low - margin, 0), max(high + margin, 0)
    axes.plot(limits, limits, color=GRAY, linewidth=1, linestyle=":")
    axes.set(xlim=limits, ylim=limits)
    label_axes(axes, "discounted return that followed, G₀", "estimated value of the start, V(s₀)")
    legend_below(axes)
    caption = (
        "Estimated value of each evaluated episode's start against the discounted return that followed, one dot an "
        "episode. Dotted: a perfect estimate; dots above it are overestimated."
    )
    return [Drawing("value-against-return", "Values against returns", caption, figure)]


# Learning curves: each training metric.


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


def draw_curves(series: list[Series]) -> list[Drawing]:
    """One Drawing for each metric that any of the runs recorded.

    An executor knows the move that followed, so its metrics are not drawn beside those of policies that do not.
    """
    names = {metric for one in series for line in one.run.metrics for found in line.trials.values() for metric in found}
    executors = [one for one in series if any(line.stage == "executor" for line in one.run.metrics)]
    others = [one for one in series if all(line.stage != "executor" for line in one.run.metrics)]
    drawings = []
    for metric in [name for name in METRICS if name in names] + sorted(names - METRICS.keys()):
        if metric in WITHOUT_ZERO and executors and others:
            drawings += _draw_metric(metric, others)
            drawings += _draw_metric(metric, executors, " of the executor")
        else:
            drawings += _draw_metric(metric, series)
    return drawings


def _draw_metric(metric: str, series: list[Series], whose: str = "") -> list[Drawing]:
    name, unit = METRICS.get(metric, (metric.replace("_", " "), ""))
    name += whose
    curves = [(one, *one.curve(metric)) for one in series]
    curves = [(one, steps, lines) for one, steps, lines in curves if np.isfinite(lines).any()]
    if not curves:
        return []
    values = np.concatenate([lines.ravel() for *_, lines in curves])
    values = values[np.isfinite(values)]
    figure, axes = new_figure()
    for one, steps, lines in curves:
        draw_band(axes, one.index, one.style, one.label, steps, lines, one.style.marker if steps.size < 3 else "")
    axes.set_xlim(0, max(one.run.config.steps for one in series))
    is_log = values.min() > 0 and values.max() > LOG_RATIO * values.min()
    if is_log:
        log_axis(axes.yaxis, values.min(), values.max())
    elif metric in SHARES:
        axes.set_ylim(0, 1.05)
    elif metric not in WITHOUT_ZERO:
        include_zero(axes)
    units = [unit.format(reward=_reward_unit([one for one, *_ in curves])), "log scale" if is_log else ""]
    unit_text = ", ".join(filter(None, units))
    label_axes(axes, "steps", f"{name} ({unit_text})" if unit_text else name)
    for run in {id(one.run): one.run for one in series}.values():
        for before, after in zip(run.metrics, run.metrics[1:], strict=False):
            if before.stage != after.stage:
                axes.axvline(before.steps, color=GRAY, linewidth=0.9, linestyle=":")
    plain_ticks(axes.xaxis)
    legend_below(axes)
    caption = f"Mean over each chunk of steps. {_seeds_sentence(series)}"
    if any(len({line.stage for line in one.run.metrics}) > 1 for one in series):
        caption += " Dotted: the next stage of training begins."
    suffix = "-executor" if whose else ""
    return [Drawing(f"curve-{slug(metric)}{suffix}", f"{name[0].upper()}{name[1:]}", caption, figure)]


def _reward_unit(series: list[Series]) -> str:
    kinds = {bool(one.settings.get("normalize_rewards") or one.settings.get("return_span")) for one in series}
    return "reward of each run" if len(kinds) > 1 else "normalized reward" if True in kinds else "reward"


def _seeds_sentence(series: list[Series]) -> str:
    counts = sorted({len(one.trials) for one in series})
    if counts == [1]:
        return "One seed, so no interval."
    seeds = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"Line: mean over {seeds} seeds; shaded: from the smallest to the largest seed."


# Score and value against a swept setting.


def draw_sweep(series: list[Series], data_values: list[np.ndarray], whose: str = "") -> list[Drawing]:
    """Score and value against each swept setting of one run; ``data_values``: mean V over the data, by seed.

    ``whose`` ends the titles, to tell runs apart.
    """
    quantity, unit = score_quantity(series)
    scores = {unit: [one.means(quantity) for one in series]}
    values = {
        "mean V(s) over the data": data_values,
        "V at evaluated starts": [one.means("value_start") for one in series],
        "discounted return reached": [one.means("discounted_return") for one in series],
    }
    drawings = []
    for name in series[0].swept:
        drawings += _draw_against(name, series, scores, unit, "Score", whose)
        drawings += _draw_against(name, series, values, f"value ({VALUE_UNIT})", "Value", whose)
    return drawings


def _draw_against(
    name: str, series: list[Series], lines: dict[str, list[np.ndarray]], unit: str, what: str, whose: str
) -> list[Drawing]:
    """Lines of quantities, given by seed for each series, against one swept setting at every value of the others."""
    lines = {label: by_series for label, by_series in lines.items() if any(found.size for found in by_series)}
    if not lines:
        return []
    figure, axes = new_figure()
    others = [{k: v for k, v in one.swept.items() if k != name} for one in series]
    distinct = [other for index, other in enumerate(others) if other not in others[:index]]
    for number, (label, by_series) in enumerate(lines.items()):
        look = {"color": PALETTE[number], "marker": "os^"[number], "linestyle": ("-", "--", ":")[number]}
        for rank, other in enumerate(distinct):
            points = [
                (one.swept[name], found)
                for one, found, its_other in zip(series, by_series, others, strict=True)
                if found.size and its_other == other
            ]
            points.sort(key=lambda point: point[0])
            if not points:
                continue
            mean = [found.mean() for _, found in points]
            error = [found.std(ddof=1) if found.size > 1 else 0.0 for _, found in points]
            text = label + (f" at {', '.join(f'{value:g}' for value in other.values())}" if other else "")
            shade = 1 - 0.6 * rank / max(len(distinct) - 1, 1)
            axes.errorbar([x for x, _ in points], mean, error, capsize=3, label=text, alpha=shade, **look)
            for x, found in points:
                axes.plot(np.full(found.size, x), found, ".", color=look["color"], markersize=3, alpha=0.7)
    ticks = sorted({one.swept[name] for one in series})
    if ticks[0] > 0 and ticks[-1] > 20 * ticks[0]:
        axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{value:g}" for value in ticks], minor=False)
    axes.margins(x=0.06)
    include_zero(axes, 102 if unit == SCORE else 0)
    label_axes(axes, setting_symbol(name), unit)
    legend_below(axes)
    caption = "Mean ± standard deviation over seeds; dots: seeds."
    if max(len(one.trials) for one in series) == 1:
        caption = "One seed, so no interval."
    title = f"{what} against {setting_symbol(name)}{whose}"
    return [Drawing(f"sweep-{name.replace('_', '-')}-{what.lower()}", title, caption, figure)]
