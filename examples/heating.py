"""From a heating controller's log to a policy that takes the log's own columns.

Run with: python examples/heating.py [DIRECTORY]    (the log and the mapping are written there)
"""

import datetime
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import vem

NUM_DAYS, STEPS_A_DAY = 28, 48


def record_log() -> pa.Table:
    """Four weeks of half-hours: a house, the weather, a tariff, and a thermostat with some noise at the valve."""
    random = np.random.default_rng(0)
    start = datetime.datetime(2024, 1, 8, tzinfo=datetime.UTC)
    rows, temp_in = [], 19.0
    for step in range(NUM_DAYS * STEPS_A_DAY):
        time = start + datetime.timedelta(minutes=30 * step)
        hour = time.hour + time.minute / 60
        mode = "comfort" if 6 <= hour < 22 else "eco"
        temp_out = 4 + 5 * np.sin((hour - 9) / 24 * 2 * np.pi) + random.normal(0, 0.5)
        price = 0.4 if 17 <= hour < 21 else 0.25
        target = 21 if mode == "comfort" else 18
        valve = float(np.clip(0.35 + 0.3 * (target - temp_in) + random.normal(0, 0.15), 0, 1))
        cold = max(0.0, target - temp_in)
        row = {"time": time, "day": time.date(), "hour": hour, "mode": mode, "price": price}
        row |= {"temp_in": temp_in, "temp_out": temp_out, "valve": valve}
        rows.append(row | {"reward": -cold - 2 * price * valve})
        temp_in += 1.6 * valve - 0.045 * (temp_in - temp_out) + random.normal(0, 0.05)
    # The logger joins two controllers' files: the rows are no longer in order.
    return pa.Table.from_pylist(rows).take(pa.array(random.permutation(len(rows))))


directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
pyarrow.parquet.write_table(record_log(), directory / "log.parquet")

# Which column is what; `vem data map log.parquet --out map.toml` proposes such a file.
(directory / "map.toml").write_text(
    """
observation = ["hour", "mode", "price", "temp_in", "temp_out"]
action = ["valve"]
reward = "reward"
episode = "day"
time = "time"

[columns.valve]
kind = "box"
low = 0.0   # what the valve can do
high = 1.0
""",
    encoding="utf-8",
)

dataset = vem.load(directory / "log.parquet", mapping=directory / "map.toml")
print(vem.describe(dataset))

run = vem.train(dataset, "bc", steps=300, batch_size=64, progress=False)
now = {"hour": 7.5, "mode": "comfort", "price": 0.25, "temp_in": 17.0, "temp_out": -2.0}
cold, warm = run.policy.act(now), run.policy.act({**now, "temp_in": 23.0})
print(f"cold inside: {cold}   warm inside: {warm}")
