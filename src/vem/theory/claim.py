"""The form in which a statement of the paper and its measurement are reported."""

from typing import NamedTuple

import numpy as np


class Claim(NamedTuple):
    """A statement of the paper in our words, what was measured, and the verdict: holds, in part, or fails."""

    section: str
    statement: str
    measured: str
    verdict: str


def verdict(agrees: bool | np.bool, otherwise: str = "fails") -> str:
    """Return ``holds`` if the measurement agrees with the statement."""
    return "holds" if agrees else otherwise
