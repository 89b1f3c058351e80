import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from small_runs import make_run, tiny_dataset, tiny_settings
from vem.data.arrays import ALIGNMENT
from vem.policy import load_policy
from vem.training.request import make_request
from vem.training.run import Run

TESTS = Path(__file__).parents[1]
PROGRAM = """
import json, sys
import jax
sys.path.insert(0, sys.argv[1])
jax.config.update("jax_num_cpu_devices", 4)
from small_runs import tiny_dataset, tiny_settings
from vem.training.machine import lay_out
from vem.training.request import make_request
from vem.training.run import Run
sizes = []
for count in map(int, sys.argv[3:]):
    config = make_request("tiny", "iql", settings=tiny_settings("iql"), seeds=count, steps=10)
    run = Run.create(f"{sys.argv[2]}/{count}", config, tiny_dataset())
    run.train()
    layout = lay_out(count)
    places = {shard.device.id for shard in run.rows.rewards.addressable_shards}
    sizes.append([len(places), layout.num_slots])
print(json.dumps(sizes))
"""


def test_trials_on_four_devices_equal_trials_on_one(tmp_path):
    """Two, four and five trials on four devices, and the same seeds alone here."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", PROGRAM, str(TESTS), str(tmp_path / "many"), "2", "4", "5"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [[2, 2], [4, 4], [3, 6]]
    config = make_request("tiny", "iql", settings=tiny_settings("iql"), seeds=5, steps=10)
    here = Run.create(tmp_path / "here", config, tiny_dataset()).train()
    for count in (2, 4, 5):
        for seed in range(count):
            there = load_policy(tmp_path / "many" / str(count) / "policies" / f"seed{seed}.safetensors")
            ours = here.policies[seed]
            assert all(np.array_equal(ours.tensors[name], there.tensors[name]) for name in ours.tensors), (count, seed)


CHOICES = """
import sys
import jax
sys.path.insert(0, sys.argv[1])
jax.config.update("jax_num_cpu_devices", 2)
from small_runs import tiny_dataset, tiny_settings
from vem.training.request import make_request
from vem.training.run import Run
settings = {**tiny_settings("vem"), "steps_per_refresh": 2}
config = make_request("tiny", "vem", settings=settings, seeds=2, steps=12)
run = Run.create(sys.argv[2], config, tiny_dataset(kind="discrete")).train()
assert run.policies[0].tensors["log_std"].size == 0
"""


def test_states_with_empty_arrays_stay_on_their_devices_from_chunk_to_chunk(tmp_path):
    """Policies of choices have no σ; what JAX makes of arrays without elements must fit the next chunk."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", CHOICES, str(TESTS), str(tmp_path / "choices")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def test_rows_of_a_run_are_not_copied(tmp_path):
    run = make_run("bc", tmp_path / "run")
    assert run.dataset.observations.ctypes.data % ALIGNMENT == 0
    assert run.rows.observations.unsafe_buffer_pointer() == run.dataset.observations.ctypes.data
