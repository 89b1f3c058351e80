"""Several methods, or several settings of one, on several datasets, each trained and evaluated once.

``vem.compare(…)`` calls this package: the function and the package have one name. Names are imported on first use, so
that a node of a cluster loads what starts a cell's process and no numerics.
"""

import sys
import types
from typing import TYPE_CHECKING, Any

from vem.extras import require

if TYPE_CHECKING:
    from vem.compare.comparison import compare, sweep
    from vem.compare.results import Comparison, Result

__all__ = ["Comparison", "Result", "compare", "sweep"]


class _Package(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> "Comparison":
        require("jax", "filelock")
        from vem.compare.comparison import compare

        return compare(*arguments, **options)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """A public name, imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'vem.compare' has no attribute {name!r}")
    from vem.compare import comparison, results

    return getattr(comparison if name in ("compare", "sweep") else results, name)
