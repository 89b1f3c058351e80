"""The memory that training reads, on enumerated deterministic processes, against the tabular backups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.algorithms.base import Spec
from vem.algorithms.vem import VEM, make
from vem.data.arrays import from_arrays
from vem.networks import apply_networks
from vem.theory import operators
from vem.theory.mdp import enumerate_rollouts, random_mdps
from vem.theory.operators import bootstrapped_targets, plan, stepped_targets
from vem.training.rows import put_rows

NUM_STEPS, NUM_STATES, NUM_ACTIONS = 3, 4, 2


@pytest.mark.parametrize("num_actions", [1, NUM_ACTIONS])
@pytest.mark.parametrize("order", ["plan-then-expectile", "expectile-then-plan"])
def test_a_refresh_of_the_algorithm_is_the_tabular_backup(order, num_actions):
    """The memory that training reads, from networks on one-hot states, row by row."""
    mdp = random_mdps(np.random.default_rng(3), 1, num_states=NUM_STATES, num_actions=num_actions).take(0)
    behavior = np.full((NUM_STATES, num_actions), 1 / num_actions)
    recorded, _ = enumerate_rollouts(mdp, behavior, NUM_STEPS)
    states = recorded.states.reshape(-1, NUM_STEPS + 1)
    dataset = from_arrays(
        observations=np.eye(NUM_STATES)[states[:, :-1]].reshape(-1, NUM_STATES),
        actions=np.zeros((states.shape[0] * NUM_STEPS, 1)),
        rewards=recorded.rewards.ravel(),
        timeouts=np.tile(np.arange(NUM_STEPS) == NUM_STEPS - 1, states.shape[0]),
        next_observations=np.eye(NUM_STATES)[states[:, 1:]].reshape(-1, NUM_STATES),
        teleports="keep",
    )
    settings = VEM(
        expectile=0.3,
        discount=mdp.discount,
        order=order,
        value_loss="squared" if order == "expectile-then-plan" else "expectile",
        value_hidden=(16,),
        normalize_observations=False,
        normalize_rewards=False,
    )
    algorithm = make(settings, Spec(NUM_STATES, 1, dataset.num_rows), num_steps=1)
    rows = put_rows(dataset, discount=mdp.discount)
    key = jax.random.key(0)
    state = algorithm.init(key, {"expectile": jnp.float32(0.3), "temperature": jnp.float32(1)})
    stage = algorithm.stages[0]
    _, found = stage.refresh(state, stage.empty(), rows, jnp.int32(0), key)
    returns = np.asarray(found.returns).reshape(2, *recorded.states.shape)[..., :-1]
    for critic in range(2):
        values = np.asarray(apply_networks(state.targets, jnp.eye(NUM_STATES)), np.float64)[critic]
        if order == "plan-then-expectile":
            planned = bootstrapped_targets(values, recorded, mdp.discount)
        else:
            # Eq. 5 with V̂: the last row's successor has no step of its own and keeps its plain value.
            stepped = stepped_targets(values, recorded, mdp.discount, 0.3)
            after = np.concatenate([stepped[..., 1:], values[recorded.states[..., -1:]]], -1)
            planned = recorded.rewards + mdp.discount * after
        expected = plan(planned, recorded.rewards, mdp.discount, NUM_STEPS)[-1]
        np.testing.assert_allclose(returns[critic], expected, rtol=1e-4, atol=1e-5)
        if num_actions == 1 and order == "plan-then-expectile":
            # With nothing to choose, the backup of the whole process: max over n of (T^μ)ⁿ V.
            steps = [operators.evaluation(values, mdp, behavior)]
            for _ in range(NUM_STEPS - 1):
                steps.append(operators.evaluation(steps[-1], mdp, behavior))
            np.testing.assert_allclose(returns[critic][:, 0, 0], np.max(steps, 0), rtol=1e-4, atol=1e-5)
