"""Where rows are cut when not all of them are looked at together: at the ends of episodes, wherever possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np


class Stretch(NamedTuple):
    """Rows one after another, from ``start`` to ``stop``."""

    start: int
    stop: int
    is_cut: bool = False
    """The last row is a step of an episode that goes on; here it serves as the final observation."""

    @property
    def num_rows(self) -> int:
        """Rows of the stretch."""
        return self.stop - self.start


def whole_episodes(ends: np.ndarray, most_rows: int) -> Iterator[Stretch]:
    """All rows in stretches of whole episodes, of ``most_rows`` at most unless a single episode is longer.

    ``ends`` are the rows of the final observations, ascending.
    """
    start = 0
    while start <= ends[-1]:
        last = max(_last_end(ends, start, start + most_rows), int(ends[np.searchsorted(ends, start)]))
        yield Stretch(start, last + 1)
        start = last + 1


def cut_stretches(ends: np.ndarray, most_rows: int) -> list[Stretch]:
    """All rows in stretches of ``most_rows`` at most: whole episodes, and parts of those that are longer.

    The last row of a part is its final observation and the first row of the next part, so that no step is lost.
    """
    stretches = []
    for whole in whole_episodes(ends, most_rows):
        start = whole.start
        while whole.stop - start > most_rows:
            stretches.append(Stretch(start, start + most_rows, is_cut=True))
            start += most_rows - 1
        stretches.append(Stretch(start, whole.stop))
    return stretches


def pack(stretches: list[Stretch], ends: np.ndarray, section_rows: int, seed: int) -> Iterator[list[Stretch]]:
    """Endless sections of ``section_rows`` rows at most, filled with stretches in random order.

    Each stretch comes once an epoch. One that does not fit is parted between two episodes, if it can be, and the
    rest begins the next section.
    """
    section: list[Stretch] = []
    room = section_rows
    for epoch in count():
        for index in np.random.default_rng((seed, epoch)).permutation(len(stretches)).tolist():
            left: Stretch | None = stretches[index]
            while left is not None:
                head, left = _part(left, ends, room)
                if head is not None:
                    section.append(head)
                    room -= head.num_rows
                if left is not None:
                    yield section
                    section, room = [], section_rows


def _part(stretch: Stretch, ends: np.ndarray, room: int) -> tuple[Stretch | None, Stretch | None]:
    """What fits into ``room`` rows of a stretch, and the rest of it."""
    if stretch.num_rows <= room:
        return stretch, None
    last = _last_end(ends, stretch.start, stretch.start + room)
    if last < stretch.start:
        return None, stretch
    return Stretch(stretch.start, last + 1), stretch._replace(start=last + 1)


def _last_end(ends: np.ndarray, start: int, stop: int) -> int:
    """The last final observation before the row ``stop``, or ``start − 1`` if none is at or after ``start``."""
    index = int(np.searchsorted(ends, stop)) - 1
    return max(int(ends[index]), start - 1) if index >= 0 else start - 1
