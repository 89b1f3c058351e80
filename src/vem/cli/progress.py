"""What a long command shows, and how it is asked to stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vem.runs.loop import Progress


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in mid-chunk; a second one interrupts at once."""
    requests: list[int] = []

    def handle(number: int, _: Any) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        print("\nstopping after this chunk (again to stop at once) …", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def display(quiet_stdout: bool) -> Iterator[Any]:
    """A function that shows progress: a live bar on a terminal, a line every ten seconds elsewhere."""
    stream = sys.stderr if quiet_stdout else sys.stdout
    started, first, last = time.monotonic(), None, 0.0

    def describe(progress: Progress) -> tuple[str, float, float]:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = (progress.steps, now)
        rate = (progress.steps - first[0]) / (now - first[1]) if now > first[1] and progress.steps > first[0] else 0.0
        left = (progress.num_steps - progress.steps) / rate if rate else float("nan")
        shown = ("value_mean", "value_loss", "log_likelihood", "policy_loss")
        metrics = "  ".join(f"{name} {progress.metrics[name].mean():.3g}" for name in shown if name in progress.metrics)
        return metrics, rate, left

    if stream.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.fields[stage]:>7}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%  {task.fields[text]}"),
        )
        with Bar(*columns, console=Console(file=stream), transient=False) as bar:
            task = bar.add_task("train", total=None, stage="compile", text="")

            def show(progress: Progress) -> None:
                metrics, rate, left = describe(progress)
                ending = f"{rate:,.0f} steps/s  {_clock(left)} left  {metrics}" if rate else metrics
                bar.update(
                    task,
                    total=progress.num_steps,
                    completed=progress.steps,
                    stage=progress.stage.name,
                    text=ending,
                )

            yield show
        return

    def line(progress: Progress) -> None:
        nonlocal last
        now = time.monotonic()
        metrics, rate, left = describe(progress)
        if now - last >= 10 or progress.steps == progress.num_steps:
            last = now
            speed = f"{rate:,.0f} steps/s  {_clock(left)} left" if rate else f"{now - started:.0f} s"
            text = f"{progress.stage.name:>7}  {progress.steps:>9,} / {progress.num_steps:,}  {speed}  {metrics}"
            print(text, file=stream, flush=True)

    yield line


def _clock(seconds: float) -> str:
    if seconds != seconds:
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
