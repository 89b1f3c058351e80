"""Peak memory of training against the number of rows, each in a process of its own, as a record and a chart.

    python benchmarks/memory.py --out benchmarks/results/memory.json --chart benchmarks/results/memory.png

A process reads the rows from an HDF5 file of AntMaze's sizes and trains VEM for 1,000 steps. The line is what the
project holds itself to: 1.5 times the data and 800 MB.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from speed import peak_memory

ROWS = (125_000, 250_000, 500_000, 1_000_000, 2_000_000)


def limit(data_bytes: float) -> float:
    """What the peak should stay below."""
    return 1.5 * data_bytes + 800e6


def draw(points: list[dict[str, Any]], path: Path) -> None:
    """The chart of a record."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rows = [point["rows"] / 1e6 for point in points]
    figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
    axes.plot(rows, [point["peak_bytes"] / 1e6 for point in points], "o-", label="peak of the process")
    axes.plot(rows, [point["data_bytes"] / 1e6 for point in points], "s--", label="the rows themselves")
    axes.plot(rows, [limit(point["data_bytes"]) / 1e6 for point in points], ":", color="gray", label="limit")
    axes.set(xlabel="million rows (29 + 8 columns)", ylabel="MB", ylim=(0, None), xlim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--chart", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    options = parser.parse_args()
    points = []
    for count in options.rows:
        found = peak_memory(count)
        points.append({"rows": count, **found, "limit_bytes": limit(found["data_bytes"])})
        print(json.dumps(points[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")
    if options.chart:
        draw(points, options.chart)


if __name__ == "__main__":
    main()
