"""Statistics over seeds and episodes, on scipy: spread, inter-quartile mean, bootstrap intervals, and who is best.

The unit of comparison is the training run (seed), whose result is the mean of its episodes. Two uncertainties differ
and are reported apart: the spread between seeds (standard deviation) says what another training would give, the
bootstrap interval, stratified over seeds, says how exactly these policies were measured by their episodes.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from vem.errors import printable

NUM_RESAMPLES = 2000
CONFIDENCE = 0.95

Mark = Literal["", "best", "close"]
SIGNS: dict[Mark, str] = {"best": " *", "close": " ≈", "": "  "}


class Spread(NamedTuple):
    """A quantity over seeds."""

    mean: float
    """Mean over seeds of the seeds' means."""
    std: float | None
    """Standard deviation over seeds, with n − 1; None for one seed."""
    interquartile_mean: float
    """Mean of the middle half of the seeds; with fewer than four, of all of them."""
    interval: tuple[float, float] | None
    """95 % interval of ``interquartile_mean``, episodes resampled within each seed; None for single episodes."""


def over_seeds(episodes: Sequence[np.ndarray]) -> Spread:
    """The Spread of a quantity; ``episodes`` holds one array a seed, one entry an episode."""
    means = np.array([values.mean() for values in episodes])
    return Spread(
        mean=float(means.mean()),
        std=float(means.std(ddof=1)) if len(means) > 1 else None,
        interquartile_mean=float(interquartile_mean(means)),
        interval=stratified_interval(episodes, _interquartile_mean_of_means),
    )


def interquartile_mean(values: np.ndarray, axis: int = -1) -> Any:
    """Mean of what is left when a quarter of the values, rounded down, is cut off at each end."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis)


def stratified_interval(
    strata: Sequence[np.ndarray],
    statistic: Callable[..., np.ndarray],
    confidence: float = CONFIDENCE,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> tuple[Any, Any] | None:
    """The percentile bootstrap interval of ``statistic(*strata, axis=-1)``, resampling within each stratum.

    Strata may be seeds with their episodes (``over_seeds``) or tasks with the scores of their seeds. None where a
    stratum has fewer than two values. A statistic of several numbers puts them on leading axes, and both ends are
    arrays then.
    """
    if not strata or min(map(len, strata)) < 2:
        return None
    from scipy.stats import bootstrap

    result = bootstrap(
        tuple(np.asarray(values, np.float64) for values in strata),
        statistic,
        n_resamples=num_resamples,
        vectorized=True,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = (end if np.ndim(end) else float(end) for end in result.confidence_interval)
    return low, high


def mark_best(spreads: Sequence[Spread]) -> list[Mark]:
    """``best`` for the highest mean and all equal to it, ``close`` for means that their interval contains.

    Nothing is marked where there is one alone, or where all are zero: nothing was achieved then.
    """
    means = [spread.mean for spread in spreads]
    if len(spreads) < 2 or all(_is_equal(mean, 0.0) for mean in means):
        return [""] * len(spreads)
    best = max(means)
    leading = [spread for spread in spreads if _is_equal(spread.mean, best)]
    low = min(best if spread.interval is None else spread.interval[0] for spread in leading)
    return ["best" if _is_equal(mean, best) else "close" if mean >= low else "" for mean in means]


def _is_equal(first: float, second: float) -> bool:
    """Whether two means differ by rounding at most."""
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)


def _interquartile_mean_of_means(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    return interquartile_mean(np.stack([values.mean(axis) for values in strata]), axis=0)


# Tables of text: drawn on a terminal, aligned elsewhere, HTML in a notebook.


class Table(NamedTuple):
    """Rows of text under a title and a header, and sentences below them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        """Aligned text, the first column to the left and the others to the right."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.header))]
        aligned = []
        for line in lines:
            cells = [text.rjust(width) for text, width in zip(line, widths, strict=True)]
            aligned.append("  ".join([line[0].ljust(widths[0]), *cells[1:]]).rstrip())
        return "\n".join([self.title, *aligned, *self.notes])

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        head = "".join(f"<th>{html.escape(text)}</th>" for text in self.header)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in self.rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        caption = f"<caption>{html.escape(self.title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def print(self) -> None:
        """Print it: drawn on a terminal, aligned text elsewhere."""
        if not sys.stdout.isatty():
            print(self)
            return
        from rich.console import Console
        from rich.table import Table as Drawn
        from rich.text import Text

        # Text and not strings: brackets in a cell are no markup.
        drawn = Drawn(title=Text(printable(self.title)), title_justify="left")
        for index, name in enumerate(self.header):
            drawn.add_column(Text(printable(name)), justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            drawn.add_row(*(Text(printable(text)) for text in row))
        Console(highlight=False).print(drawn)
        for note in self.notes:
            print(note)


class Tabled:
    """A result that prints as its table."""

    @property
    def table(self) -> Table:
        """The table."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The table as text."""
        return str(self.table)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.table.title}>"

    def _repr_html_(self) -> str:
        """The table in a notebook."""
        return self.table._repr_html_()


# Statistics over several tasks: how good methods are on the whole, from the score of each task and seed.


NUM_THRESHOLDS = 101
LEAST_SHARE = 0.5
"""A method with scores on a smaller share of the tasks is left out, rather than most of the tasks."""


class Estimate(NamedTuple):
    """A statistic and its interval."""

    value: float
    interval: tuple[float, float] | None
    """None where a task has a single seed."""


class Aggregate(NamedTuple):
    """One method over all tasks."""

    interquartile_mean: Estimate
    """Mean of the middle half of the runs."""
    mean: Estimate
    """Mean over tasks of the means over seeds."""


class Profile(NamedTuple):
    """The share of a method's runs with a score above each threshold, each task counting alike."""

    shares: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None


@dataclass(frozen=True, repr=False)
class OverTasks(Tabled):
    """Methods on the tasks that all of them have; printing it gives a table."""

    scores: dict[str, dict[str, np.ndarray]]
    """Method → task → the score of each seed."""
    left_out: list[str] = field(default_factory=list)
    """What was left out and why, in sentences."""

    @property
    def methods(self) -> list[str]:
        """The methods that are compared."""
        return list(self.scores)

    @property
    def tasks(self) -> list[str]:
        """The tasks that all of them have."""
        return list(next(iter(self.scores.values()), {}))

    @property
    def is_enough(self) -> bool:
        """Whether there are two methods and two tasks, so that statistics over them mean something."""
        return len(self.methods) > 1 and len(self.tasks) > 1

    def strata(self, method: str) -> list[np.ndarray]:
        """The scores of a method's seeds, task by task."""
        return list(self.scores[method].values())

    @cached_property
    def aggregates(self) -> dict[str, Aggregate]:
        """The Aggregate of every method."""
        statistics = (_interquartile_mean_of_runs, _mean_over_tasks)
        return {
            method: Aggregate(*(_estimate(self.strata(method), statistic) for statistic in statistics))
            for method in self.methods
        }

    @cached_property
    def marks(self) -> dict[str, Mark]:
        """Which inter-quartile mean is the highest, and which ones its interval contains."""
        middles = [aggregate.interquartile_mean for aggregate in self.aggregates.values()]
        marks = mark_best([Spread(value, None, value, interval) for value, interval in middles])
        return dict(zip(self.methods, marks, strict=True))

    def improvement(self, first: str, second: str) -> Estimate:
        """The probability that a run of the first method scores higher than one of the second, mean over tasks.

        Equal scores count half.
        """
        return _estimate([*self.strata(first), *self.strata(second)], _probability_of_improvement)

    @cached_property
    def improvements(self) -> dict[str, Estimate]:
        """The probability that the first method improves on each of the others."""
        first, *others = self.methods
        return {other: self.improvement(first, other) for other in others}

    @property
    def thresholds(self) -> np.ndarray:
        """Scores from 0, or the lowest, to 100, or the highest, for a profile."""
        runs = np.concatenate([scores for method in self.methods for scores in self.strata(method)])
        return np.linspace(min(0.0, runs.min()), max(100.0, runs.max()), NUM_THRESHOLDS)

    def profile(self, method: str, thresholds: np.ndarray | None = None) -> Profile:
        """The performance profile of a method; ``thresholds``: by default this object's."""
        levels = self.thresholds if thresholds is None else np.asarray(thresholds, np.float64)
        strata = self.strata(method)

        def shares(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
            above = [(values > levels.reshape(-1, *[1] * values.ndim)).mean(axis) for values in strata]
            return np.mean(above, axis=0)

        return Profile(shares(*strata), *(stratified_interval(strata, shares) or (None, None)))

    @property
    def seeds_text(self) -> str:
        """How many seeds a method has on a task."""
        counts = sorted({len(scores) for method in self.methods for scores in self.strata(method)})
        if counts == [1]:
            return "one seed each"
        return f"{counts[0]} seeds each" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds each"

    @property
    def rows(self) -> list[list[str]]:
        """Method, inter-quartile mean, mean, and the probability that the first method is better, as text."""
        rows = []
        for method, aggregate in self.aggregates.items():
            better = self.improvements.get(method)
            chance = "" if better is None else estimate_text(better, 2)
            middle = estimate_text(aggregate.interquartile_mean) + SIGNS[self.marks[method]]
            rows.append([method, middle, estimate_text(aggregate.mean), chance])
        return rows

    @property
    def header(self) -> list[str]:
        """What heads the rows."""
        return ["method", "IQM [95 %]", "mean [95 %]", f"P({self.methods[0]} is better) [95 %]"]

    @property
    def table(self) -> Table:
        """The table that is printed."""
        title = f"score over {len(self.tasks)} datasets, {self.seeds_text}: {', '.join(self.tasks)}"
        notes = ["intervals resample the seeds of each dataset", *self.left_out]
        if any(self.marks.values()):
            notes[0] = f"* best   ≈ within the best one's interval; {notes[0]}"
        return Table(title, self.header, self.rows, notes)

    def to_json(self) -> dict[str, Any]:
        """The statistics as JSON values."""
        methods = {}
        for method, aggregate in self.aggregates.items():
            statistics = {name: estimate._asdict() for name, estimate in aggregate._asdict().items()}
            methods[method] = {**statistics, "mark": self.marks[method]}
        improvements = {other: estimate._asdict() for other, estimate in self.improvements.items()}
        return {
            "datasets": self.tasks,
            "methods": methods,
            "improvement": {"first": self.methods[0], "over": improvements},
            "left_out": self.left_out,
        }


def over_tasks(
    scores: Mapping[str, Mapping[str, Sequence[float] | np.ndarray]], notes: Sequence[str] = ()
) -> OverTasks:
    """The methods on the tasks that all of them have, from method → task → the score of each seed.

    A method with scores on fewer than half of the tasks is left out, then every task that one of the others lacks.
    """
    known = {
        method: {task: np.asarray(seeds, np.float64) for task, seeds in tasks.items() if len(seeds)}
        for method, tasks in scores.items()
    }
    every = list(dict.fromkeys(task for tasks in known.values() for task in tasks))
    few = {method: len(tasks) for method, tasks in known.items() if len(tasks) < LEAST_SHARE * len(every) or not tasks}
    compared = {method: tasks for method, tasks in known.items() if method not in few}
    lacking = {
        task: methods
        for task in every
        if (methods := [method for method, tasks in compared.items() if task not in tasks])
    }
    common = [task for task in every if task not in lacking]
    left_out = list(notes)
    if lacking:
        texts = ", ".join(f"{task} ({', '.join(methods)})" for task, methods in lacking.items())
        left_out.insert(0, f"Datasets left out, on which a method has no score: {texts}.")
    if few:
        counts = ", ".join(f"{method} ({count} of {len(every)})" for method, count in few.items())
        left_out.insert(0, f"Methods left out, with scores on fewer than half of the datasets: {counts}.")
    return OverTasks({method: {task: tasks[task] for task in common} for method, tasks in compared.items()}, left_out)


def estimate_text(estimate: Estimate, digits: int = 1) -> str:
    """``value [low, high]``."""
    value, *ends = (
        f"{round(number, digits) + 0.0:.{digits}f}" for number in (estimate.value, *(estimate.interval or ()))
    )
    return f"{value} [{', '.join(ends)}]" if ends else value


def _estimate(strata: Sequence[np.ndarray], statistic: Any) -> Estimate:
    return Estimate(float(statistic(*strata)), stratified_interval(strata, statistic))


def _interquartile_mean_of_runs(*strata: np.ndarray, axis: int = -1) -> Any:
    return interquartile_mean(np.concatenate(strata, axis), axis)


def _mean_over_tasks(*strata: np.ndarray, axis: int = -1) -> Any:
    return np.mean([values.mean(axis) for values in strata], axis=0)


def _probability_of_improvement(*strata: np.ndarray, axis: int = -1) -> Any:
    """Mean over tasks of P(x > y) + ½·P(x = y); the first half of the strata is one method, the second the other."""
    half = len(strata) // 2
    chances = []
    for x, y in zip(strata[:half], strata[half:], strict=True):
        difference = x[..., :, None] - y[..., None, :]
        chances.append(((difference > 0) + 0.5 * (difference == 0)).mean((-2, -1)))
    return np.mean(chances, axis=0)
