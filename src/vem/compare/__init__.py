"""Several methods on several datasets, each trained and evaluated once."""

from vem.compare.comparison import compare
from vem.compare.results import Comparison, Result

__all__ = ["Comparison", "Result", "compare"]
