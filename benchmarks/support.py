"""Which measure of distance tells recorded rows from altered ones: AUROC on held-out episodes of three datasets.

Run with: python benchmarks/support.py DATA_DIRECTORY    (writes benchmarks/results/trials/support.json)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import vem

DATASETS = ("antmaze-umaze", "hopper-medium", "door-human")
RECORD = Path(__file__).parent / "results" / "trials" / "support.json"
NUM_PROTOTYPES, NUM_HELD_OUT, NUM_NEIGHBORS = 2048, 2000, 16

StateMeasure = Callable[[np.ndarray], np.ndarray]
ActionMeasure = Callable[[np.ndarray, np.ndarray], np.ndarray]


def auroc(recorded: np.ndarray, altered: np.ndarray) -> float:
    """How often an altered row is farther than a recorded one; ties count half."""
    _, place, counts = np.unique(np.concatenate([recorded, altered]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts + 1) / 2)[place][len(recorded) :]
    size = len(altered)
    return float((ranks.sum() - size * (size - 1) / 2) / (len(recorded) * size))


def squares(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Squared distances of all pairs."""
    products = -2 * first @ second.T
    return np.maximum(np.square(first).sum(1)[:, None] + products + np.square(second).sum(1), 0)


def centers(points: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Eight rounds of k-means."""
    points = points[random.permutation(len(points))[:20_000]]
    found = points[random.choice(len(points), min(NUM_PROTOTYPES, len(points) // 2), replace=False)]
    for _ in range(8):
        parts = [squares(points[i : i + 4096], found).argmin(1) for i in range(0, len(points), 4096)]
        nearest = np.concatenate(parts)
        counts, sums = np.bincount(nearest, minlength=len(found)), np.zeros_like(found)
        np.add.at(sums, nearest, points)
        found = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], found)
    return found


def directions(scaled: np.ndarray, power: float) -> np.ndarray:
    """Principal directions, each scaled by its variance to this power."""
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(scaled) + 1e-3 * np.eye(scaled.shape[1]))
    return vectors * values**power


def state_measures(states: np.ndarray, random: np.random.Generator) -> dict[str, StateMeasure]:
    """Distances of states, by name."""
    mean, deviation = states.mean(0), np.maximum(states.std(0), 1e-3)
    known = (states - mean) / deviation
    chosen = random.permutation(len(known))[:NUM_PROTOTYPES]
    found: dict[str, StateMeasure] = {}
    turned = {"": np.eye(known.shape[1]), ", half whitened": directions(known, -0.25)}
    turned[", whitened"] = directions(known, -0.5)
    full = turned[", whitened"]
    found["Mahalanobis"] = lambda x: np.square((x - mean) / deviation @ full).sum(1)
    for name, turn in turned.items():
        rows, middles = known[chosen] @ turn, centers(known @ turn, random)
        found[f"nearest{name}"] = lambda x, turn=turn, p=rows: squares((x - mean) / deviation @ turn, p).min(1)
        found[f"nearest k-means center{name}"] = lambda x, turn=turn, p=middles: squares(
            (x - mean) / deviation @ turn, p
        ).min(1)
    rows = known[chosen]
    found["mean of 5 nearest"] = lambda x: np.sort(squares((x - mean) / deviation, rows), axis=1)[:, :5].mean(1)
    width = 0.3 * np.sqrt(np.median(squares(rows[:300], rows[300:600])))
    factors, offsets = random.normal(size=(known.shape[1], 1024)) / width, random.uniform(0, 2 * np.pi, 1024)
    average = np.cos(known[random.permutation(len(known))[:20_000]] @ factors + offsets).mean(0)
    found["random Fourier features"] = lambda x: -np.cos((x - mean) / deviation @ factors + offsets) @ average
    return found


def action_measures(states: np.ndarray, actions: np.ndarray, random: np.random.Generator) -> dict[str, ActionMeasure]:
    """Distances of actions in states, by name."""
    mean, deviation = states.mean(0), np.maximum(states.std(0), 1e-3)
    center, unit = actions.mean(0), np.maximum(actions.std(0), 1e-3)
    known, taken = (states - mean) / deviation, (actions - center) / unit
    turn, chosen = directions(known, -0.25), random.permutation(len(known))[:NUM_PROTOTYPES]
    rows = known[chosen] @ turn
    factors, offsets = random.normal(size=(known.shape[1], 256)) / np.sqrt(known.shape[1]), random.normal(size=256)
    features: dict[str, StateMeasure] = {
        "": lambda z: np.zeros((len(z), 1)),
        "linear residual, ": lambda z: np.concatenate([z, np.ones((len(z), 1))], 1),
        "random-feature residual, ": lambda z: np.concatenate([np.maximum(z @ factors + offsets, 0), z], 1),
    }
    sample = random.permutation(len(known))[:20_000]
    found: dict[str, ActionMeasure] = {}
    for name, make in features.items():
        seen = make(known[sample])
        penalty = 1e-2 * len(sample) * np.eye(seen.shape[1])
        slope = np.linalg.solve(seen.T @ seen + penalty, seen.T @ taken[sample])
        spread = (taken[sample] - seen @ slope).std(0) + 1e-3
        kept = (taken[chosen] - make(known[chosen]) @ slope) / spread

        def left(x, u, make=make, slope=slope, spread=spread):
            return ((u - center) / unit - make((x - mean) / deviation) @ slope) / spread

        if name:
            found[f"{name}alone"] = lambda x, u, left=left: np.square(left(x, u)).sum(1)

        def apart(x, u, kept=kept, left=left):
            near = np.argpartition(squares((x - mean) / deviation @ turn, rows), NUM_NEIGHBORS, 1)[:, :NUM_NEIGHBORS]
            return np.square(left(x, u)[:, None] - kept[near]).sum(2)

        def kernel(x, u, apart=apart):
            logs = -apart(x, u) / (2 * 0.05 * u.shape[1])
            largest = logs.max(1)
            return -largest - np.log(np.exp(logs - largest[:, None]).mean(1))

        found[f"{name}nearest of 16"] = lambda x, u, apart=apart: apart(x, u).min(1)
        found[f"{name}kernel of 16"] = kernel
    return found


def altered_states(states: np.ndarray, deviation: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """States that were not recorded."""
    count, columns = states.shape
    signs, chosen = random.choice([-1, 1], (count, 1)), random.integers(0, columns, count)
    two = states.copy()
    for row in range(count):
        places = random.choice(columns, 2, replace=False)
        two[row, places] = states[random.integers(count), places]
    return {
        "one column moved by 3 deviations": states + 3 * deviation * np.eye(columns)[chosen] * signs,
        "columns of other rows": np.stack([column[random.permutation(count)] for column in states.T], 1),
        "two columns of another row": two,
        "noise of half a deviation": states + 0.5 * deviation * random.normal(size=states.shape),
        "between two rows": (states + states[random.permutation(count)]) / 2,
    }


def altered_actions(actions: np.ndarray, known: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Actions that were not recorded in these states."""
    count, columns = actions.shape
    deviation = np.maximum(known.std(0), 1e-3)
    moves = np.eye(columns)[random.integers(0, columns, count)] * random.choice([-1, 1], (count, 1))
    return {
        "of another row": actions[random.permutation(count)],
        "noise of half a deviation": actions + 0.5 * deviation * random.normal(size=actions.shape),
        "uniform": random.uniform(known.min(0), known.max(0), actions.shape),
        "one column moved by one deviation": actions + deviation * moves,
        "the mean action": np.broadcast_to(known.mean(0), actions.shape),
    }


def measure(name: str, directory: Path) -> list[dict[str, object]]:
    """The records of one dataset."""
    dataset, random = vem.load(directory / f"{name}.hdf5"), np.random.default_rng(0)
    is_held = np.zeros(dataset.num_episodes, bool)
    is_held[random.permutation(dataset.num_episodes)[: max(1, dataset.num_episodes // 5)]] = True
    of_row = np.repeat(is_held, dataset.episode_lengths + 1)
    known = np.flatnonzero(dataset.valid & ~of_row)
    held = random.permutation(np.flatnonzero(dataset.valid & of_row))[:NUM_HELD_OUT]
    states, actions = dataset.observations.astype(np.float64), dataset.actions.astype(np.float64)
    records: list[dict[str, object]] = []
    changed = altered_states(states[held], np.maximum(states[known].std(0), 1e-3), random)
    for what, distance in state_measures(states[known], np.random.default_rng(1)).items():
        base = distance(states[held])
        scores = {kind: round(auroc(base, distance(rows)), 3) for kind, rows in changed.items()}
        records.append({"dataset": name, "of": "state", "measure": what, "auroc": scores})
    chosen = altered_actions(actions[held], actions[known], random)
    for what, distance in action_measures(states[known], actions[known], np.random.default_rng(1)).items():
        base = distance(states[held], actions[held])
        scores = {kind: round(auroc(base, distance(states[held], rows)), 3) for kind, rows in chosen.items()}
        records.append({"dataset": name, "of": "action", "measure": what, "auroc": scores})
    return [{**r, "mean": round(float(np.mean(list(r["auroc"].values()))), 3)} for r in records]  # pyright: ignore


if __name__ == "__main__":
    found = [record for name in DATASETS for record in measure(name, Path(sys.argv[1]))]
    RECORD.write_text("[\n" + ",\n".join(f" {json.dumps(record)}" for record in found) + "\n]\n", encoding="utf-8")
    for record in found:
        print(record["dataset"], record["of"], record["measure"], record["mean"])
