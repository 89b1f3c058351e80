"""Updates of other libraries, timed from their own programs. The programs are given by path and never copied:

    git clone https://github.com/EmptyJackson/unifloral
    git clone https://github.com/nissymori/JAX-CORL
    git clone https://github.com/tinkoff-ai/CORL
    pip install flax distrax omegaconf pydantic tqdm tyro torch
    python benchmarks/peers.py --unifloral unifloral --jax-corl JAX-CORL --corl CORL

What they import for data, environments and logging (d4rl, gym, wandb, pyrallis) is not needed and need not be there.
Each is set to the networks and the batch of ours: two hidden layers of 256 units without layer norm, 256 rows.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import jax
import jax.numpy as jnp
import numpy as np

from vem.data.dataset import Dataset

UNUSED = ("d4rl", "gym", "wandb", "pyrallis")
JITTED = 8
"""Updates that JAX-CORL unrolls in one program: its default."""
BATCH_SIZE = 256

Peers = dict[tuple[str, str], Callable[[int], None]]
"""(library, method) → a function that does so many updates."""


def make_foreign(dataset: Dataset, folders: dict[str, Path]) -> Peers:
    """The updates of the libraries whose folders are given."""
    peers: Peers = {}
    for name, folder in folders.items():
        peers |= LIBRARIES[name](dataset, folder)
    for update in peers.values():
        update(2 * JITTED)  # compiles
    return peers


def load_program(path: Path) -> Any:
    """A program as a module, with stand-ins for what it imports and does not need here."""
    before = os.environ.get("XLA_FLAGS")
    absent = [name for name in UNUSED if name not in sys.modules and importlib.util.find_spec(name) is None]
    for name in absent:
        sys.modules[name] = MagicMock()
    try:
        spec = importlib.util.spec_from_file_location(f"foreign_{path.parent.name}_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        for name in absent:
            del sys.modules[name]
        if before is None:
            os.environ.pop("XLA_FLAGS", None)
        else:
            os.environ["XLA_FLAGS"] = before
    return module


def columns(dataset: Dataset) -> tuple[np.ndarray, ...]:
    """Observations, actions, rewards, next observations and terminals of all transitions."""
    rows = np.flatnonzero(dataset.valid)
    terminal = dataset.terminal[rows].astype(np.float32)
    return (
        dataset.observations[rows],
        dataset.actions[rows],
        dataset.rewards[rows],
        dataset.observations[rows + 1],
        terminal,
    )


def unifloral(dataset: Dataset, folder: Path) -> Peers:
    """Its scan of training steps; a step of its TD3+BC is two updates of the critics."""
    iql = load_program(folder / "algorithms" / "iql.py")
    td3bc = load_program(folder / "algorithms" / "td3_bc.py")
    data = columns(dataset)
    size, acted = data[0].shape[1], data[1].shape[1]
    normalizer = jnp.asarray(data[0].mean(0)), jnp.asarray(data[0].std(0))
    seen, done = jnp.zeros(size), jnp.zeros(acted)
    keys = jax.random.split(jax.random.key(0), 4)

    def make_iql() -> tuple[Any, Any]:
        args = iql.Args()
        nets = (
            iql.TanhGaussianActor(acted, *normalizer),
            iql.DualQNetwork(*normalizer),
            iql.StateValueFunction(*normalizer),
        )
        inputs = [seen], [seen, done], [seen, done], [seen]
        states = [
            iql.create_train_state(args, key, net, given)
            for key, net, given in zip(keys, (nets[0], nets[1], nets[1], nets[2]), inputs, strict=True)
        ]
        agent = iql.AgentTrainState(actor=states[0], dual_q=states[1], dual_q_target=states[2], value=states[3])
        rows = iql.Transition(*map(jnp.asarray, data))
        return agent, iql.make_train_step(args, *(net.apply for net in nets), rows)

    def make_td3bc() -> tuple[Any, Any]:
        args = td3bc.Args()
        actor, critic = td3bc.DeterministicTanhActor(acted, *normalizer), td3bc.DualQNetwork(*normalizer)
        make = td3bc.create_train_state
        agent = td3bc.AgentTrainState(
            actor=make(args, keys[0], actor, [seen]),
            actor_target=make(args, keys[0], actor, [seen]),
            dual_q=make(args, keys[1], critic, [seen, done]),
            dual_q_target=make(args, keys[1], critic, [seen, done]),
        )
        rows = td3bc.Transition(*map(jnp.asarray, data))
        return agent, td3bc.make_train_step(args, actor.apply, critic.apply, rows)

    def scanned(agent: Any, step: Any, updates_per_step: int) -> Callable[[int], None]:
        carry = [(jax.random.key(1), agent)]
        programs: dict[int, Any] = {}

        def update(count: int) -> None:
            length = -(-count // updates_per_step)
            if length not in programs:
                programs[length] = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length)[0], donate_argnums=0)
            carry[0] = jax.block_until_ready(programs[length](carry[0]))

        return update

    return {("unifloral", "iql"): scanned(*make_iql(), 1), ("unifloral", "td3bc"): scanned(*make_td3bc(), 2)}


def jax_corl(dataset: Dataset, folder: Path) -> Peers:
    """Its jitted call of eight unrolled updates."""
    observations, actions, rewards, following, terminal = map(jnp.asarray, columns(dataset))
    key = jax.random.key(0)

    def repeated(method: Any, state: Any, data: Any, config: Any) -> Callable[[int], None]:
        program = jax.jit(lambda state, data, key: method.update_n_times(state, data, key, config)[0])
        held = [state, key]

        def update(count: int) -> None:
            for _ in range(-(-count // JITTED)):
                held[1], drawn = jax.random.split(held[1])
                held[0] = program(held[0], data, drawn)
            jax.block_until_ready(held[0])

        return update

    iql = load_program(folder / "algos" / "iql.py")
    config = iql.IQLConfig(layer_norm=False, n_jitted_updates=JITTED, batch_size=BATCH_SIZE)
    data = iql.Transition(observations, actions, rewards, following, terminal, terminal)
    state = iql.create_iql_train_state(key, observations[:1], actions[:1], config)
    td3bc = load_program(folder / "algos" / "td3bc.py")
    config3 = td3bc.TD3BCConfig(n_jitted_updates=JITTED, batch_size=BATCH_SIZE)
    data3 = td3bc.Transition(observations, actions, rewards, following, terminal)
    state3 = td3bc.create_td3bc_train_state(key, observations[:1], actions[:1], config3)
    return {
        ("jax-corl", "iql"): repeated(iql.IQL, state, data, config),
        ("jax-corl", "td3bc"): repeated(td3bc.TD3BC, state3, data3, config3),
    }


def corl(dataset: Dataset, folder: Path) -> Peers:
    """Its PyTorch trainers, with a batch drawn for each update."""
    import torch

    names = ("observations", "actions", "rewards", "next_observations", "terminals")
    data = dict(zip(names, columns(dataset), strict=True))
    size, acted = data["observations"].shape[1], data["actions"].shape[1]
    adam = lambda net: torch.optim.Adam(net.parameters(), lr=3e-4)

    def make(program: Any, trainer: Any) -> Callable[[int], None]:
        buffer = program.ReplayBuffer(size, acted, len(data["rewards"]))
        buffer.load_d4rl_dataset(data)

        def update(count: int) -> None:
            for _ in range(count):
                trainer.train(buffer.sample(BATCH_SIZE))

        return update

    offline = folder / "algorithms" / "offline"
    iql, td3bc, bc = (load_program(offline / f"{name}.py") for name in ("iql", "td3_bc", "any_percent_bc"))
    nets = iql.GaussianPolicy(size, acted, 1.0), iql.TwinQ(size, acted), iql.ValueFunction(size)
    learner = iql.ImplicitQLearning(1.0, *(part for net in nets for part in (net, adam(net))))
    three = td3bc.Actor(size, acted, 1.0), td3bc.Critic(size, acted), td3bc.Critic(size, acted)
    learner3 = td3bc.TD3_BC(1.0, *(part for net in three for part in (net, adam(net))))
    actor = bc.Actor(size, acted, 1.0)
    return {
        ("corl", "iql"): make(iql, learner),
        ("corl", "td3bc"): make(td3bc, learner3),
        ("corl", "bc"): make(bc, bc.BC(1.0, actor, adam(actor))),
    }


LIBRARIES: dict[str, Callable[[Dataset, Path], Peers]] = {"unifloral": unifloral, "jax-corl": jax_corl, "corl": corl}
