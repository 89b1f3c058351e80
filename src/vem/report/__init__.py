"""The report: run directories in, one self-contained HTML page and its figures out.

``vem.report(…)`` calls this package: the function and the package have one name.
"""

from vem.packages import make_callable
from vem.report.build import Report, write_report, write_score_curve

__all__ = ["Report", "write_report", "write_score_curve"]

make_callable(__name__, write_report)
