"""Tables of text: drawn on a terminal, aligned elsewhere, HTML in a notebook."""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence
from typing import NamedTuple

from vem.terminal import printable


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
