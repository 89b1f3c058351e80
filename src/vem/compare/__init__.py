"""Several methods on several datasets, each trained and evaluated once.

``vem.compare(…)`` calls this package: the function and the package have one name.
"""

from vem.compare.comparison import compare
from vem.compare.results import Comparison, Result
from vem.packages import make_callable

__all__ = ["Comparison", "Result", "compare"]

make_callable(__name__, compare)
