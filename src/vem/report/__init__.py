"""The report: run directories in, one self-contained HTML page and its figures out.

``vem.report(…)`` calls this package: the function and the package have one name.
"""

import sys
import types
from typing import Any

from vem.report.build import Report, write_report, write_score_curve

__all__ = ["Report", "write_report", "write_score_curve"]


class _Package(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Report:
        return write_report(*arguments, **options)


sys.modules[__name__].__class__ = _Package
