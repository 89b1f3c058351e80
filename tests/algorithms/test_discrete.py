"""Discrete CQL and discrete BCQ by hand: targets, losses, allowed actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.algorithms import bcq, cql
from vem.algorithms.base import METHODS, Batch, Spec
from vem.networks import Layer

SPEC = Spec(observation_size=1, action_size=1, num_rows=3, choices=(3,))
KEY = jax.random.key(0)
BATCH = Batch(
    rows=jnp.arange(2),
    observations=jnp.asarray([[1.0], [2.0]]),
    actions=jnp.asarray([[2.0], [0.0]]),
    rewards=jnp.asarray([1.0, 5.0]),
    continues=jnp.asarray([1.0, 0.0]),
    next_observations=jnp.asarray([[2.0], [3.0]]),
)


def linear(*weights):
    """Q(s, b) = s·weight of b."""
    return (Layer(jnp.asarray([weights]), jnp.zeros(3)),)


def test_the_target_takes_the_other_networks_value_of_the_best_action():
    q, target = jnp.asarray([[1.0, 3.0, 2.0]]), jnp.asarray([[10.0, 20.0, 30.0]])
    assert cql.double_q_target(q, target).tolist() == [20]
    assert float(cql.choice_gap(jnp.zeros((1, 3)), jnp.zeros(1))[0]) == pytest.approx(np.log(3))


@pytest.mark.parametrize(("given", "weight"), [({"conservative_weight": jnp.asarray(4.0)}, 4.0), ({}, 1.0)])
def test_cql(given, weight):
    algorithm = cql.make(cql.CQL(value_hidden=(), discount=0.5, target_rate=0.25), SPEC, 10)
    state = algorithm.init(KEY, given)._replace(critic=linear(0.0, 1.0, 0.5), target=linear(0.0, 3.0, 9.0))
    after, metrics = algorithm.stages[0].update(state, (), BATCH, KEY)
    # s′ = 2: the critic prefers action 1, which the target values at 6; the second row ends.
    targets, recorded = np.array([1 + 0.5 * 6, 5.0]), np.array([0.5, 0.0])
    assert float(metrics["critic_loss"]) == pytest.approx(0.5 * np.mean((targets - recorded) ** 2))
    all_q = np.array([[0, 1, 0.5], [0, 2, 1.0]])
    gap = np.mean(np.log(np.exp(all_q).sum(1)) - recorded)
    assert float(metrics["conservative_loss"]) == pytest.approx(weight * gap, rel=1e-5)
    moved = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, after.critic, state.target)
    np.testing.assert_allclose(after.target[0].weight, moved[0].weight, rtol=1e-6)
    assert algorithm.policy_kind == "greedy"


def test_bcq_allows_what_the_behavior_finds_likely():
    logits = jnp.log(jnp.asarray([[0.6, 0.3, 0.1], [0.34, 0.33, 0.33]]))
    assert bcq.allowed(logits, 0.3).tolist() == [[True, True, False], [True, True, True]]
    assert bcq.allowed(logits, 1.0).tolist() == [[True, False, False], [True, False, False]]
    q = bcq.constrained(jnp.asarray([[1.0, 2.0, 9.0]]), logits[:1], 0.3)
    assert q.tolist() == [[1.0, 2.0, -np.inf]]


def test_bcq():
    config = bcq.BCQ(value_hidden=(), generator_hidden=(), discount=0.5)
    algorithm = bcq.make(config, SPEC, 10)
    state = algorithm.init(KEY, {})._replace(
        critic=linear(0.0, 1.0, 0.5), target=linear(0.0, 3.0, 2.0), behavior=linear(1.0, -2.0, 1.0)
    )
    _, metrics = algorithm.stages[0].update(state, (), BATCH, KEY)
    # s′ = 2: action 1 has the largest Q and is hardly ever taken, so 2 is chosen, which the target values at 4.
    errors = np.array([1 + 0.5 * 4 - 0.5, 5.0])
    huber = np.where(np.abs(errors) < 1, errors**2 / 2, np.abs(errors) - 0.5)
    assert float(metrics["critic_loss"]) == pytest.approx(huber.mean())
    logits = np.array([[1, -2, 1], [2, -4, 2.0]])
    likelihood = (logits - np.log(np.exp(logits).sum(1, keepdims=True)))[[0, 1], [2, 0]].mean()
    assert float(metrics["log_likelihood"]) == pytest.approx(likelihood, rel=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(0.01 * np.mean(logits**2) - likelihood, rel=1e-5)
    assert float(metrics["allowed_share"]) == pytest.approx(2 / 3)
    assert algorithm.policy_kind == "constrained-greedy"


def test_the_data_decide_which_version_is_meant():
    for name, config in (("cql", cql.CQL(value_hidden=(4,))), ("bcq", bcq.BCQ(value_hidden=(4,)))):
        box, discrete = (METHODS[name].make(config, spec, 10) for spec in (Spec(1, 1, 3), SPEC))
        assert box.policy_kind in ("tanh-gaussian", "bcq")
        assert "greedy" in discrete.policy_kind
