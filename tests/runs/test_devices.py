import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from small_runs import make_run, tiny_dataset, tiny_settings
from vem.data.arrays import ALIGNMENT, aligned, aligned_empty
from vem.policy import load_policy
from vem.training.machine import Layout, lay_out
from vem.training.request import make_config
from vem.training.run import create_run

TESTS = Path(__file__).parents[1]
PROGRAM = """
import json, sys
import jax
sys.path.insert(0, sys.argv[1])
jax.config.update("jax_num_cpu_devices", 4)
from small_runs import tiny_dataset, tiny_settings
from vem.training.machine import lay_out
from vem.training.request import make_config
from vem.training.run import create_run
sizes = []
for count in map(int, sys.argv[3:]):
    config = make_config("tiny", "iql", settings=tiny_settings("iql"), seeds=count, steps=10)
    run = create_run(f"{sys.argv[2]}/{count}", config, tiny_dataset())
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
    config = make_config("tiny", "iql", settings=tiny_settings("iql"), seeds=5, steps=10)
    here = create_run(tmp_path / "here", config, tiny_dataset()).train()
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
from vem.training.request import make_config
from vem.training.run import create_run
settings = {**tiny_settings("vem"), "steps_per_refresh": 2}
config = make_config("tiny", "vem", settings=settings, seeds=2, steps=12)
run = create_run(sys.argv[2], config, tiny_dataset(kind="discrete")).train()
assert run.policies[0].tensors["log_std"].size == 0
"""


def test_states_with_empty_arrays_stay_on_their_devices_from_chunk_to_chunk(tmp_path):
    """Policies of choices have no σ; what JAX makes of arrays without elements must fit the next chunk."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", CHOICES, str(TESTS), str(tmp_path / "choices")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


SPLIT = """
import sys
from functools import partial
import jax
sys.path.insert(0, sys.argv[1])
jax.config.update("jax_num_cpu_devices", 4)
from small_runs import tiny_dataset, tiny_settings
from vem.runs import devices, loop
from vem.training.request import make_config
from vem.training.run import create_run
loop.lay_out = partial(devices.lay_out, split_batch=True)
config = make_config("tiny", "vem", settings=tiny_settings("vem"), seeds=1, steps=10)
run = create_run(sys.argv[2], config, tiny_dataset())
for progress in run.progress():
    assert progress.layout.mesh.shape == {"batch": 4}
assert "sharding" in str(jax.make_jaxpr(lambda b: devices.spread_batch(b, progress.layout.mesh))(run.rows.rewards[:8]))
"""


def test_one_trial_with_its_batch_on_four_devices_learns_the_same(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [sys.executable, "-c", SPLIT, str(TESTS), str(tmp_path / "split")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    config = make_config("tiny", "vem", settings=tiny_settings("vem"), seeds=1, steps=10)
    here = create_run(tmp_path / "here", config, tiny_dataset()).train()
    there = load_policy(tmp_path / "split" / "policies" / "seed0.safetensors")
    for name, ours in here.policy.tensors.items():  # sums of a batch are taken in another order
        np.testing.assert_allclose(there.tensors[name], ours, rtol=1e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize(("trials", "devices", "slots"), [(1, 1, 1), (3, 1, 3)])
def test_one_device_needs_no_empty_slots(trials, devices, slots):
    assert len(jax.devices()) == devices
    assert lay_out(trials) == Layout(trials, slots, None)


def test_empty_slots_are_left_out_again():
    layout = Layout(3, 4, None)
    spread = layout.spread({"a": np.arange(6.0).reshape(3, 2)})
    assert spread["a"].shape == (4, 2)
    assert layout.counts(7).tolist() == [7, 7, 7, 0]
    np.testing.assert_array_equal(layout.gather(spread)["a"], np.arange(6.0).reshape(3, 2))


def test_rows_of_a_run_are_not_copied(tmp_path):
    run = make_run("bc", tmp_path / "run")
    assert run.dataset.observations.ctypes.data % ALIGNMENT == 0
    assert run.rows.observations.unsafe_buffer_pointer() == run.dataset.observations.ctypes.data


def test_aligned_arrays_stay_and_others_are_copied():
    array = aligned_empty((5, 3), np.float32)
    assert aligned(array) is array
    shifted = np.frombuffer(bytearray(64 + 4 * 16), np.float32)[1:]
    copy = aligned(shifted)
    assert copy.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(copy, shifted)
    assert aligned_empty((0, 4), np.float32).shape == (0, 4)
