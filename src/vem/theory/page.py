"""The page of ``vem theory``: figures inline, numbers and statements as tables, nothing fetched."""

import base64
from typing import NamedTuple

from jinja2 import Environment, PackageLoader

from vem.theory.captions import Caption
from vem.theory.claim import Claim
from vem.theory.toy import Table

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
