"""From a heating controller's log to a policy that takes the log's own columns.

Run with: python examples/heating.py [DIRECTORY [STEPS]]    (the log, the mapping, the run and the policy go there)
"""

import datetime
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import vem

NUM_DAYS, STEPS_A_DAY = 28, 48
START = datetime.datetime(2024, 1, 8, tzinfo=datetime.UTC)


def heat(controller: Callable, num_days: int, seed: int) -> list[dict]:
    """Half-hours of a house, the weather and a tariff; the reward is cold rooms and money, both negative."""
    random = np.random.default_rng(seed)
    rows, temp_in = [], 19.0
    for step in range(num_days * STEPS_A_DAY):
        time = START + datetime.timedelta(minutes=30 * step)
        hour = time.hour + time.minute / 60
        mode = "comfort" if 6 <= hour < 22 else "eco"
        temp_out = 4 + 5 * np.sin((hour - 9) / 24 * 2 * np.pi) + random.normal(0, 0.5)
        price = 0.4 if 17 <= hour < 21 else 0.25
        seen = {"hour": hour, "mode": mode, "price": price, "temp_in": temp_in, "temp_out": temp_out}
        valve = controller(seen, random)
        cold = max(0.0, (21 if mode == "comfort" else 18) - temp_in)
        rows.append({"time": time, "day": time.date(), **seen, "valve": valve, "reward": -cold - 2 * price * valve})
        temp_in += 1.6 * valve - 0.045 * (temp_in - temp_out) + random.normal(0, 0.05)
    return rows


def thermostat(seen: dict, random: np.random.Generator) -> float:
    """What ran while the log was recorded: proportional control, with some noise at the valve."""
    target = 21 if seen["mode"] == "comfort" else 18
    return float(np.clip(0.35 + 0.3 * (target - seen["temp_in"]) + random.normal(0, 0.15), 0, 1))


def a_day(rows: list[dict]) -> float:
    """The mean reward of a day."""
    return float(sum(row["reward"] for row in rows) / (len(rows) / STEPS_A_DAY))


directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
directory.mkdir(parents=True, exist_ok=True)
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 3000

# 1. A log. It was joined from two controllers' files: its rows are no longer in order.
log = pa.Table.from_pylist(heat(thermostat, NUM_DAYS, seed=0))
log = log.take(pa.array(np.random.default_rng(0).permutation(len(log))))
pyarrow.parquet.write_table(log, directory / "log.parquet")

# 2. Which column is what; `vem data map log.parquet --out map.toml` proposes such a file.
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

# 3. Look at the data before anything is trained.
dataset = vem.load(directory / "log.parquet", mapping=directory / "map.toml")
print(vem.describe(dataset))

# 4. Train. The policy is one file.
run = vem.train(dataset, "vem", steps=steps, batch_size=64, out=directory / "run", progress=False)
shutil.copy(run.policy_paths[0], directory / "policy.safetensors")

# 5. Where it acts: NumPy and the file are enough, and it takes what the log's columns are called.
policy = vem.load_policy(directory / "policy.safetensors")
now = {"hour": 7.5, "mode": "comfort", "price": 0.25, "temp_in": 17.0, "temp_out": -2.0}
cold, warm = policy.act(now), policy.act({**now, "temp_in": 23.0})
print(f"cold inside: {cold}   warm inside: {warm}")

# 6. This house is a simulation, so both controllers can heat it for two more weeks.
before, after = heat(thermostat, 14, seed=7), heat(lambda seen, _: policy.act(seen)["valve"], 14, seed=7)
print(f"reward a day: thermostat {a_day(before):.1f}, policy {a_day(after):.1f}")
