"""What training shows, and how it is asked to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from vem.tasks import task_of

if TYPE_CHECKING:
    from vem.training.loop import Progress
    from vem.training.run import Run


SECONDS_PER_LINE = 10.0
SHOWN_METRICS = ("value_mean", "value_loss", "log_likelihood", "policy_loss")


def headline(run: Run) -> str:
    """What is about to be trained, in four lines at most."""
    config, data, held_out = run.config, run.training_data, run.parts.held_out
    count = len(config.trials)
    task = task_of(data.info)
    known = f"task: {task.name} (decided by: {data.info.task_source})\n" if task else ""
    apart = ""
    if held_out is not None:
        apart = f"held out: {held_out.num_episodes:,} more episodes with {held_out.num_transitions:,} transitions\n"
    return (
        f"{config.algorithm} (preset {config.preset}) on {data.info.name}: {data.num_transitions:,} transitions in "
        f"{data.num_episodes:,} episodes; {count} {'policy' if count == 1 else 'policies'}, "
        f"{config.steps:,} steps each\n{apart}{known}run directory: {run.directory}"
    )


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying in mid-chunk; a second one interrupts at once.

    Only in the main thread, and only where the program has no handlers of its own.
    """
    requests: list[int] = []

    def handle(number: int, _: Any) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        print("\nstopping after this chunk (again to stop at once) …", file=sys.stderr, flush=True)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler):
                before[number] = signal.signal(number, handle)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def progress_display(stream: TextIO | None = None, is_shown: bool = True) -> Iterator[Callable[[Progress], None]]:
    """A function that shows progress: a live bar on a terminal, a line every ten seconds elsewhere."""
    if not is_shown:
        yield lambda progress: None
        return
    target: TextIO = sys.stdout if stream is None else stream
    speed = _Speed()
    if not target.isatty():
        yield _line_display(target, speed)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.fields[stage]:>7}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%  {task.fields[text]}"),
    )
    with Bar(*columns, console=Console(file=target), transient=False) as bar:
        task = bar.add_task("train", total=None, stage="compile", text="")

        def show(progress: Progress) -> None:
            text = "  ".join(filter(None, [speed(progress), _metrics(progress)]))
            bar.update(task, total=progress.num_steps, completed=progress.steps, stage=progress.stage.name, text=text)

        yield show


def _line_display(stream: TextIO, speed: _Speed) -> Callable[[Progress], None]:
    last = float("-inf")

    def show(progress: Progress) -> None:
        nonlocal last
        text = speed(progress)
        if time.monotonic() - last >= SECONDS_PER_LINE or progress.steps == progress.num_steps:
            last = time.monotonic()
            counts = f"{progress.stage.name:>7}  {progress.steps:>9,} / {progress.num_steps:,}"
            print("  ".join(filter(None, [counts, text, _metrics(progress)])), file=stream, flush=True)

    return show


class _Speed:
    """Steps a second since the first chunk, which also compiled, and the time left."""

    def __init__(self) -> None:
        self.first: tuple[int, float] | None = None

    def __call__(self, progress: Progress) -> str:
        now = time.monotonic()
        if self.first is None:
            self.first = (progress.steps, now)
        steps, seconds = progress.steps - self.first[0], now - self.first[1]
        if steps <= 0 or seconds <= 0:
            return ""
        left = (progress.num_steps - progress.steps) * seconds / steps
        return f"{steps / seconds:,.0f} steps/s  {_clock(left)} left"


def _metrics(progress: Progress) -> str:
    metrics = progress.metrics
    return "  ".join(f"{name} {metrics[name].mean():.3g}" for name in SHOWN_METRICS if name in metrics)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
