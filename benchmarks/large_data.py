"""Training on data larger than memory: resident memory, and the update rate against rows that are held in memory.

    python benchmarks/large_data.py --folder DIR --out benchmarks/results/large_data.json

Makes NUM_ROWS synthetic rows as shards in DIR (kept, and gone on with if interrupted; 15 GB for 100 million), then
trains each method twice at the same time: on these through a pool, and on the first million of them held in memory.
Each runs in a process of its own, which tells its peak resident memory; they take turns of some chunks, so that
other work on the machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OBSERVATION_SIZE, ACTION_SIZE, EPISODE_STEPS = 29, 8, 1000
BLOCK_EPISODES = 256
CHUNK_STEPS = 200
LEAST_TURNS = 8
METHODS = ("vem", "iql")
LIMITS = {"resident_bytes": 4 * 2**30, "share_of_rate": 0.8}


def make_block(number: int, num_episodes: int) -> Any:
    """Episodes of a damped random walk; the same block whenever it is made."""
    import numpy as np

    from vem.data.dataset import RowBlock

    random = np.random.default_rng(number)
    shape = (num_episodes, EPISODE_STEPS + 1)
    valid = np.ones(shape, bool)
    valid[:, -1] = False
    drift = random.uniform(-1, 1, (num_episodes, 1, OBSERVATION_SIZE)).astype(np.float32)
    along = np.linspace(0, 1, EPISODE_STEPS + 1, dtype=np.float32)[:, None]
    observations = drift * along + 0.1 * random.random((*shape, OBSERVATION_SIZE), dtype=np.float32)
    actions = (2 * random.random((*shape, ACTION_SIZE), dtype=np.float32) - 1) * valid[..., None]
    rewards = ((observations[..., 0] > 0.5) & valid).astype(np.float32)
    return RowBlock(
        observations.reshape(-1, OBSERVATION_SIZE),
        actions.reshape(-1, ACTION_SIZE),
        rewards.reshape(-1),
        valid.reshape(-1),
        np.zeros(valid.size, bool),
    )


def make_shards(path: Path, num_rows: int) -> None:
    """Write the shards, or go on with them."""
    from vem.data.dataset import DataInfo, RowBlock
    from vem.data.shards import Report, write_shards

    num_episodes = max(2, num_rows // (EPISODE_STEPS + 1))
    counts = [min(BLOCK_EPISODES, num_episodes - first) for first in range(0, num_episodes, BLOCK_EPISODES)]
    block_rows = BLOCK_EPISODES * (EPISODE_STEPS + 1)

    def blocks(first: int) -> Iterator[RowBlock]:
        for number in range(first // block_rows, len(counts)):
            block = make_block(number, counts[number])
            yield RowBlock(*(values[max(0, first - number * block_rows) :] for values in block))

    last = time.monotonic()

    def report(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            print(f"{what} {done:,} / {total:,} rows", file=sys.stderr, flush=True)

    shown: Report = report
    write_shards(
        path,
        blocks,
        DataInfo(f"synthetic-{num_rows}", rules={"split": "terminals", "time_limit": "bootstrap"}),
        observation_size=OBSERVATION_SIZE,
        action_size=ACTION_SIZE,
        num_rows=num_episodes * (EPISODE_STEPS + 1),
        key={"benchmark": "large_data", "rows": num_rows},
        report=shown,
    )


def first_rows(path: Path, num_rows: int) -> Any:
    """The first episodes, held in memory."""
    from vem.data.dataset import Dataset
    from vem.data.load import load

    dataset = load(path)
    count = min(num_rows, dataset.num_rows) // (EPISODE_STEPS + 1) * (EPISODE_STEPS + 1)
    return Dataset(*dataset.block(0, count), info=dataset.info)


def train(path: Path, kind: str, options: argparse.Namespace) -> None:
    """The process that trains: runs as many chunks as each line of the input says, and tells how long they took."""
    from vem.data.load import load
    from vem.training.request import make_request
    from vem.training.run import Run

    dataset = load(path) if kind == "pool" else first_rows(path, options.held_rows)
    num_steps = CHUNK_STEPS * options.chunks
    pool_rows = options.pool_rows if kind == "pool" else None
    config = make_request(str(path), options.method, steps=num_steps, pool_rows=pool_rows)
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", config, dataset)
        run.seconds_per_checkpoint = float("inf")
        chunks, stage = run.progress(), ""
        for line in sys.stdin:
            started, count = time.perf_counter(), 0
            for count in range(1, int(line) + 1):  # noqa: B007
                progress = next(chunks, None)
                if progress is None:
                    break
                stage = progress.stage.name
            seconds = time.perf_counter() - started
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps({"seconds": seconds, "chunks": count, "stage": stage, "peak": peak}), flush=True)
        held = run._planned[1]
        print(json.dumps({"held_rows": held.num_rows if held else dataset.num_rows}), flush=True)
        chunks.close()


class Trainer:
    """A process that trains in turns."""

    def __init__(self, kind: str, method: str, options: argparse.Namespace) -> None:
        command = [sys.executable, __file__, "--part", kind, "--method", method]
        for name in ("folder", "rows", "held_rows", "pool_rows", "chunks"):
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def run(self, num_chunks: int) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None  # noqa: PT018
        self.process.stdin.write(f"{num_chunks}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> dict[str, Any]:
        rest, _ = self.process.communicate()
        return json.loads(rest.splitlines()[-1])


def measure(method: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both ways in turns; the first turn of each stage compiles and does not count."""
    ways = {kind: Trainer(kind, method, options) for kind in ("pool", "memory")}
    seconds: dict[str, dict[str, float]] = {}
    peaks, before, left = dict.fromkeys(ways, 0), "", options.chunks
    while left > 0:
        count = min(options.turn, left)
        left -= count
        turns = {kind: way.run(count) for kind, way in ways.items()}
        stage = turns["pool"]["stage"]
        peaks = {kind: turn["peak"] for kind, turn in turns.items()}
        if stage == before:
            kept = seconds.setdefault(stage, {"pool": 0.0, "memory": 0.0, "chunks": 0})
            for kind, turn in turns.items():
                kept[kind] += turn["seconds"]
            kept["chunks"] += count
        before = stage
    facts = {kind: way.close() for kind, way in ways.items()}
    total = {kind: sum(kept[kind] for kept in seconds.values()) for kind in ways}
    steps = CHUNK_STEPS * sum(kept["chunks"] for kept in seconds.values())
    return {
        "steps_per_second": {kind: steps / value for kind, value in total.items()},
        "share_of_rate": total["memory"] / total["pool"],
        "share_of_rate_by_stage": {stage: kept["memory"] / kept["pool"] for stage, kept in seconds.items()},
        "peak_resident_bytes": peaks,
        "held_rows": {kind: fact["held_rows"] for kind, fact in facts.items()},
        "steps": steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the shards are made, and stay")
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--held-rows", type=int, default=1_000_000, help="rows of the run that holds all of its rows")
    parser.add_argument("--pool-rows", type=int, default=1 << 20)
    parser.add_argument("--chunks", type=int, default=600, help=f"of {CHUNK_STEPS} steps, for each method")
    parser.add_argument("--turn", type=int, default=10, help="chunks that one way trains before the other does")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--method", choices=METHODS, default="vem", help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("make", "pool", "memory"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = options.folder / f"synthetic-{options.rows}.shards"
    if options.part == "make":
        return make_shards(path, options.rows)
    if options.part is not None:
        return train(path, options.part, options)

    if options.chunks < LEAST_TURNS * options.turn:
        parser.error(f"--chunks must be {LEAST_TURNS} times --turn or more: the first turn of a stage does not count")
    options.folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    made = (path / "index.json").exists()
    if not made:
        # A process of its own: memory maps that it looked through would count as resident.
        command = [sys.executable, __file__, "--part", "make", "--folder", str(options.folder)]
        subprocess.run([*command, "--rows", str(options.rows)], check=True)
    figures: dict[str, Any] = {
        "making_seconds": None if made else time.perf_counter() - started,
        "methods": {method: measure(method, options) for method in METHODS},
        "limits": LIMITS,
    }
    about = {
        "rows": options.rows,
        "bytes": sum(file.stat().st_size for file in path.iterdir()),
        "observation_size": OBSERVATION_SIZE,
        "action_size": ACTION_SIZE,
        "episode_steps": EPISODE_STEPS,
        "chunks": options.chunks,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    text = json.dumps({"about": about, "figures": figures}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")
    return None


if __name__ == "__main__":
    main()
