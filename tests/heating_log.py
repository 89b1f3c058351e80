"""A small heating controller's log for tests: two days of six steps, as an Arrow table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

MAPPING = {
    "observation": ["temp_in", "mode", "window"],
    "action": ["valve"],
    "reward": "reward",
    "episode": "day",
    "time": "time",
}


def columns(num_days: int = 2, num_steps: int = 6) -> dict[str, np.ndarray]:
    """The columns in order of time; the numbers tell day and step."""
    day, step = np.repeat(np.arange(num_days), num_steps), np.tile(np.arange(num_steps), num_days)
    seconds = np.arange(num_days * num_steps) * 600 + day * 43_200
    return {
        "day": day,
        "time": np.datetime64("2024-01-01T00:00:00", "us") + seconds.astype("timedelta64[s]"),
        "temp_in": 18 + day * 10 + step * 0.5,
        "mode": np.array(["eco", "comfort", "boost"])[step % 3],
        "window": step % 2 == 1,
        "valve": step / 10 + day * 0.2,
        "reward": -1.0 - step,
        "done": (step == num_steps - 1) & (day == 1),
    }


def table(rows: object = None, **changes: object) -> pa.Table:
    """The log with some columns changed, and some rows picked in some order."""
    held = {**columns(), **changes}
    made = pa.table({name: values for name, values in held.items() if values is not None})
    return made if rows is None else made.take(pa.array(rows))
