"""Tables of speed: updates per second, other libraries, and the time of the paper's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import scale
from table_text import table

PEERS = Path(__file__).resolve().parent / "results" / "peers.json"


def speed_table(path: Path = PEERS) -> str:
    """Updates per second of every method, against one seed of before, and the share of the machine's matrix rate."""
    rows = []
    for name, figures in _speeds(path).items():
        rate, before, stages = figures["updates_per_second"], figures.get("before"), figures["stages"].values()
        rows.append(
            [
                name,
                f"{rate['one_seed']:,.0f}",
                f"{rate['3_seeds']:,.0f}",
                "" if before is None else f"{before['updates_per_second']:,.0f}",
                " / ".join(f"{100 * stage['share_of_sgemm']['one_seed']:.0f}" for stage in stages),
            ]
        )
    head = ["method", "steps/s, one seed", "three seeds together", "one seed, before", "% of sgemm, one seed"]
    return table(head, rows)


def peers_table(path: Path = PEERS) -> str:
    """Other libraries' updates per second, and how many times as fast ours are."""
    rows = [
        [
            name,
            library,
            f"{peer['updates_per_second']:,.0f}",
            f"{peer['times_as_fast']['one_seed']:.2f}",
            f"{peer['times_as_fast']['3_seeds']:.2f}",
        ]
        for name, figures in _speeds(path).items()
        for library, peer in figures.get("peers", {}).items()
    ]
    return table(["method", "library", "its steps/s", "ours ÷ its, one seed", "ours ÷ its, three seeds"], rows)


def seeds_table(path: Path = PEERS) -> str:
    """IQL's updates per second by the number of seeds that train together."""
    rates = _speeds(path).get("iql", {}).get("updates_per_second", {})
    counts = sorted((1 if label == "one_seed" else int(label.split("_")[0]), rate) for label, rate in rates.items())
    rows = [[str(count), f"{rate:,.0f}", f"{rate / rates['one_seed']:.2f}"] for count, rate in counts]
    return table(["seeds", "steps/s of all together", "times one seed"], rows)


def scale_table(path: Path = PEERS) -> str:
    """Hours of the paper's table by the number of cores: equal time a cell, and the official number of updates."""
    rates = scale.core_rates(path) if path.exists() else {}
    equal = [scale.EQUAL_MINUTES / 60] * (scale.NUM_TASKS * len(rates))
    official, apart = scale.cell_hours(rates), scale.cell_hours(rates, seeds_apart=True)
    rows = [
        [str(cores), *(_short_hours(scale.makespan(cells, cores)) for cells in (equal, official, apart))]
        for cores in scale.CORES
        if rates
    ]
    head = ["cores", f"{scale.EQUAL_MINUTES} minutes of a core for each cell"]
    return table([*head, "a million updates, a cell a core", "the same, each seed a cell"], rows)


def cell_table(path: Path = PEERS) -> str:
    """What one cell of each method takes on one core."""
    rates = scale.core_rates(path) if path.exists() else {}
    rows = [
        [
            name,
            f"{rate:,.0f}",
            f"{scale.EQUAL_MINUTES * 60 * rate / scale.NUM_SEEDS:,.0f}",
            _short_hours(scale.NUM_SEEDS * scale.OFFICIAL_STEPS / rate / 3600),
        ]
        for name, rate in rates.items()
    ]
    head = ["method", "updates/s of one core", f"updates of each of three seeds in {scale.EQUAL_MINUTES} minutes"]
    return table([*head, "three seeds, a million updates each"], rows)


def _short_hours(hours: float) -> str:
    return f"{60 * hours:.0f} min" if hours < 2 else f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def _speeds(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))["methods"] if path.exists() else {}
