"""Several methods on several datasets, each trained and evaluated once.

``vem.compare(…)`` calls this package: the function and the package have one name.
"""

import sys
import types
from typing import Any

from vem.compare.comparison import compare
from vem.compare.results import Comparison, Result

__all__ = ["Comparison", "Result", "compare"]


class _Package(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Comparison:
        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Package
