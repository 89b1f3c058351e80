"""The progress of all running cells in one view: a live table on a terminal, lines elsewhere.

It is read from the run directories, so it does not matter which process, on which machine, trains in them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TextIO

from vem.compare.cells import Cell
from vem.compare.mirror import Mirror
from vem.errors import VemError
from vem.evaluation.summary import read_evaluation
from vem.terminal import printable

SECONDS_PER_LOOK = 2.0
SECONDS_PER_LINE = 30.0
SECONDS_PER_PULL = 10.0
BAR = 20
"""Letters of a bar."""


class CellProgress(NamedTuple):
    """How far a cell is."""

    steps: int
    num_steps: int
    score: float | None
    """Mean over seeds of the newest evaluation: the score, or the return where there are no references."""

    @property
    def text(self) -> str:
        """Steps done, and the score if there is one."""
        score = "" if self.score is None else f"  score {self.score:.1f}"
        return f"{self.steps:,} / {self.num_steps:,} steps{score}"

    @property
    def bar(self) -> str:
        """The share that is done."""
        done = BAR * self.steps // max(1, self.num_steps)
        return "━" * done + " " * (BAR - done)


def read_progress(cell: Cell) -> CellProgress | None:
    """How far the cell is, or None if its run was not begun."""
    files = cell.files
    with suppress(VemError):  # another process may be writing
        if files.is_run:
            line, evaluation = files.newest_metrics(), read_evaluation(files)
            spread = evaluation and (evaluation.score or evaluation.returns)
            return CellProgress(line.steps if line else 0, files.config.steps, spread.mean if spread else None)
    return None


class View:
    """What is shown while cells run. Without a stream, nothing is."""

    def __init__(self, stream: TextIO | None, total: int, mirror: Mirror | None = None) -> None:
        self.stream, self.total, self.mirror = stream, total, mirror
        self._live: Any = None
        self._shown: dict[str, str] = {}
        self._looked = self._lined = self._pulled = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line."""
        if self.stream is None:
            return
        if self._live is not None:
            self._live.console.print(printable(text), markup=False, highlight=False)
        else:
            print(text, file=self.stream, flush=True)

    def refresh(self, cell: Cell) -> None:
        """Bring all records of a cell that ended, if its run is at an address."""
        if self.mirror is not None:
            try:
                self.mirror.pull_records(cell)
            except VemError as error:
                self.say(str(error))

    def update(self, cells: Sequence[Cell]) -> None:
        """Show how far the open cells are, if it is time to look again."""
        now = time.monotonic()
        if self.stream is None or now - self._looked < SECONDS_PER_LOOK:
            return
        self._looked = now
        if self._live is None and now - self._lined < SECONDS_PER_LINE:
            return
        if self.mirror is not None and now - self._pulled >= SECONDS_PER_PULL:
            self._pulled = now
            for cell in cells:
                with suppress(VemError):
                    self.mirror.pull_progress(cell)
        found = {cell.name: read_progress(cell) for cell in cells}
        if self._live is not None:
            self._live.update(self._table(found))
            return
        self._lined = now
        for name, progress in found.items():
            if progress is not None and self._shown.get(name) != progress.text:
                self._shown[name] = progress.text
                self.say(f"{name}: {progress.text}")

    def _table(self, found: dict[str, CellProgress | None]) -> Any:
        """A line about all cells, then a row for each that was begun: what does not fit on the terminal is cut off."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        begun = {name: progress for name, progress in found.items() if progress is not None}
        table = Table(box=None, padding=(0, 1), show_header=False)
        for name, progress in begun.items():
            table.add_row(*map(Text, (printable(name), progress.bar, progress.text)))
        waiting = len(found) - len(begun)
        return Group(Text(f"{len(found)} of {self.total} cells are open, {waiting} of them not begun"), table)


@contextmanager
def showing(view: View) -> Iterator[View]:
    """The view with a live table, if its stream is a terminal."""
    if view.stream is None or not view.stream.isatty():
        yield view
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(file=view.stream), refresh_per_second=2, transient=True) as live:
        view._live = live
        try:
            yield view
        finally:
            view._live = None
