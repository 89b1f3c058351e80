"""A walk on a line of states whose values are known: small enough to be solved exactly."""

from __future__ import annotations

import numpy as np

from vem.data.arrays import from_arrays
from vem.data.dataset import Dataset
from vem.policy import Policy, make_policy

NUM_STATES = 5
DISCOUNT = 0.8
NOISE = 0.2


def transitions() -> tuple[np.ndarray, np.ndarray]:
    """P[a, s, s'] and r[a, s]: action 1 walks right, 0 left, and both slip; the right end pays and ends."""
    p, r = np.zeros((2, NUM_STATES, NUM_STATES)), np.zeros((2, NUM_STATES))
    for state in range(NUM_STATES - 1):
        for action in (0, 1):
            for way, chance in ((1 if action else -1, 1 - NOISE), (-1 if action else 1, NOISE)):
                after = max(state + way, 0)
                p[action, state, after] += chance
                r[action, state] += chance * float(after == NUM_STATES - 1)
    return p, r


def exact_value(prob_right: float, horizon: int, start: int = 1) -> float:
    """Σ_{t<H} γᵗ·E[r_t] of walking right with a probability, by the Bellman equation."""
    p, r = transitions()
    mixed_p = prob_right * p[1] + (1 - prob_right) * p[0]
    mixed_r = prob_right * r[1] + (1 - prob_right) * r[0]
    v = np.zeros(NUM_STATES)
    for _ in range(horizon):
        v = mixed_r + DISCOUNT * mixed_p @ v
    return float(v[start])


def record_walks(num_episodes: int, prob_right: float = 0.5, limit: int = 12, seed: int = 0) -> Dataset:
    """Episodes from state 1; observed is the state one-hot with a small random mark, so that no two are copies."""
    random = np.random.default_rng(seed)
    columns: dict[str, list] = {"o": [], "a": [], "r": [], "t": [], "c": [], "n": []}
    for _ in range(num_episodes):
        state, mark = 1, random.normal(scale=0.01)
        for step in range(limit):
            action = int(random.random() < prob_right)
            way = 1 if action else -1
            after = max(state + (way if random.random() > NOISE else -way), 0)
            is_done = after == NUM_STATES - 1
            row = (observed(state, mark), action, float(is_done), is_done, step == limit - 1 and not is_done)
            for name, value in zip("oartc", row, strict=True):
                columns[name].append(value)
            columns["n"].append(observed(after, mark))
            state = after
            if is_done:
                break
    arrays = [np.asarray(columns[name]) for name in "oartcn"]
    return from_arrays(*arrays, name="walks", teleports="keep", discrete=True)


def observed(state: int, mark: float) -> np.ndarray:
    """What is seen of a state."""
    return np.append(np.eye(NUM_STATES, dtype=np.float32)[state], np.float32(mark))


def choosing(log_odds: float, discount: float = DISCOUNT) -> Policy:
    """A policy that goes right with these log-odds in every state: its likeliest choice, or a sampled one."""
    size = NUM_STATES + 1
    layer = {"weight": np.zeros((size, 2), np.float32), "bias": np.array([0, log_odds], np.float32)}
    parameters = {"actor": [layer], "log_std": np.zeros(0, np.float32), "value_unit": np.float32(1)}
    parameters["action_choices"] = np.array([2], np.int32)
    bounds, normalizer = (np.zeros(1), np.ones(1)), (np.zeros(size), np.ones(size))
    info = {"algorithm": "bc", "settings": {"discount": discount}, "trial": "seed0"}
    return make_policy("gaussian", parameters, bounds, normalizer, info)
