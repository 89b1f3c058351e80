"""How long the paper's table takes: arithmetic from measured update rates (benchmarks/results/peers.json)."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

PEERS = Path(__file__).resolve().parent / "results" / "peers.json"
METHODS = ("vem", "bc", "awr", "bail", "bcq", "cql", "iql", "td3bc")
NUM_TASKS, NUM_SEEDS = 23, 3
CORES = (2, 8, 64)
EQUAL_MINUTES = 20
OFFICIAL_STEPS = 1_000_000


def core_rates(path: Path = PEERS) -> dict[str, float]:
    """Updates per second of one core while all cores train, for each method that was timed."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    cores = stored["about"]["cores"]
    rates = {name: figures["updates_per_second"]["3_seeds"] / cores for name, figures in stored["methods"].items()}
    return {name: rates[name] for name in METHODS if name in rates}


def makespan(hours: Sequence[float], num_cores: int) -> float:
    """Hours until all cells are done, the longest first, each on the core that is free next."""
    free = [0.0] * num_cores
    for cell in sorted(hours, reverse=True):
        heapq.heappushpop(free, free[0] + cell)
    return max(free)


def cell_hours(rates: Mapping[str, float], steps: int = OFFICIAL_STEPS, seeds_apart: bool = False) -> list[float]:
    """Hours of every cell on one core: tasks × methods, three seeds in a cell or one."""
    repeats, seeds = (NUM_SEEDS, 1) if seeds_apart else (1, NUM_SEEDS)
    return [seeds * steps / rate / 3600 for rate in rates.values() for _ in range(NUM_TASKS * repeats)]
