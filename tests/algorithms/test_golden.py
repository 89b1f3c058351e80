"""Each method's losses on arrays small enough to work by hand: linear networks, one observation, one action."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.algorithms import awr, bail, bc, bcq, cql, iql, td3bc
from vem.algorithms.base import Batch, Rows, Spec
from vem.networks import Layer

SPEC = Spec(observation_size=1, action_size=1, num_rows=2)
BATCH = Batch(
    rows=jnp.arange(2),
    observations=jnp.asarray([[1.0], [2.0]]),
    actions=jnp.asarray([[0.5], [-0.5]]),
    rewards=jnp.asarray([1.0, 0.0]),
    continues=jnp.asarray([1.0, 0.0]),
    next_observations=jnp.asarray([[2.0], [3.0]]),
)
STILL = 1e-12
"""A learning rate that moves nothing, so that the parts of an update can be worked one by one."""
KEY = jax.random.key(0)


def linear(*rows: tuple[list[float], float]) -> tuple[Layer, ...]:
    """Stacked linear networks, each given as (weights, bias)."""
    weights = jnp.asarray([[[w] for w in weight] for weight, _ in rows])
    return (Layer(weights, jnp.asarray([[bias] for _, bias in rows])),)


def zero_actor(outputs: int = 1) -> tuple[Layer, ...]:
    return (Layer(jnp.zeros((1, outputs)), jnp.zeros(outputs)),)


def updated(algorithm, state, memory=(), stage=0):
    """The state and the metrics after one update on BATCH."""
    state, metrics = jax.jit(algorithm.stages[stage].update)(state, memory, BATCH, KEY)
    return state, {name: float(value) for name, value in metrics.items()}


def swept(**values: float) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value) for name, value in values.items()}


def test_cloning():
    settings = bc.BC(policy_hidden=(), log_std_low=-1.0, log_std_high=1.0)
    algorithm = bc.make(settings, SPEC, 1)
    state = algorithm.init(KEY, {})._replace(actor=zero_actor())
    _, metrics = updated(algorithm, state)
    # mean 0, σ = 1: −½·0.25 − ½·log 2π
    assert metrics["log_likelihood"] == pytest.approx(-0.125 - 0.9189385, abs=1e-5)


def test_iql():
    settings = iql.IQL(value_hidden=(), policy_hidden=(), value_lr=STILL, policy_lr=STILL, largest_weight=10.0)
    algorithm = iql.make(settings, SPEC, 1)
    critics = linear(([1.0, 2.0], 0.0), ([-1.0, 0.0], 4.0))
    state = algorithm.init(KEY, swept(expectile=0.7, inverse_temperature=3.0))
    state = state._replace(values=linear(([1.0], 0.0)), critics=critics, targets=critics, actor=zero_actor())
    _, metrics = updated(algorithm, state)
    # Q: (2, 1) and (3, 2), their minimum (2, 1); V: (1, 2); differences (1, −1), weights 0.7 and 0.3
    assert metrics["value_loss"] == pytest.approx((0.7 + 0.3) / 2, abs=1e-5)
    # weights min(e³, 10) and e⁻³; each log-likelihood −0.125 − ½·log 2π
    assert metrics["policy_loss"] == pytest.approx((10 + np.exp(-3)) / 2 * 1.0439385, rel=1e-5)
    # goals 1 + 0.99·2 and 0; errors (0.98² + 1)/2 and (0.02² + 4)/2
    assert metrics["critic_loss"] == pytest.approx((0.98**2 + 1 + 0.02**2 + 4) / 2, rel=1e-5)
    assert metrics["value_mean"] == pytest.approx(1.5)
    assert metrics["value_largest"] == pytest.approx(2.0)


def test_iql_moves_its_actor_by_a_cosine():
    algorithm = iql.make(iql.IQL(value_hidden=(), policy_hidden=(), policy_lr=0.1), SPEC, 2)
    state = algorithm.init(KEY, swept(expectile=0.7, inverse_temperature=3.0))._replace(actor=zero_actor())
    moves = []
    for _ in range(3):
        before = state.free_log_std
        state, _ = updated(algorithm, state)
        moves.append(abs(float((state.free_log_std - before)[0])))
    # Adam's first step is the rate itself; the cosine over two steps ends at 0.
    assert moves[0] == pytest.approx(0.1, rel=1e-3)
    assert 0.03 < moves[1] < 0.07
    assert moves[2] == 0


def test_awr():
    settings = awr.AWR(
        value_hidden=(), policy_hidden=(), discount=0.9, largest_weight=1.5, value_lr=STILL, policy_lr=STILL
    )
    algorithm = awr.make(settings, SPEC, 1)
    state = algorithm.init(KEY, swept(temperature=1.0))
    state = state._replace(critic=linear(([0.1], 0.0)), actor=zero_actor())
    memory = awr.AWRMemory(returns=jnp.asarray([2.0, 0.0]), mean=jnp.asarray(0.0), deviation=jnp.asarray(2.0))
    state, metrics = updated(algorithm, state, memory)
    # The critic's unit is 1/(1−γ) = 10, so V = (1, 2); errors in that unit (0.1, −0.2)
    assert metrics["value_loss"] == pytest.approx(0.5 * (0.01 + 0.04) / 2, rel=1e-4)
    # advantages (1, −2)/2; weights min(e^0.5, 1.5) and e⁻¹; log N(±0.5; 0, 0.4²)
    likelihood = -0.5 * (0.5 / 0.4) ** 2 - np.log(0.4) - 0.9189385
    assert metrics["policy_loss"] == pytest.approx(-(1.5 + np.exp(-1)) / 2 * likelihood, rel=1e-4)
    exported = algorithm.export(state)["critics"]
    assert float(exported[-1].weight[0, 0, 0]) == pytest.approx(1.0, rel=1e-5)


def test_awr_returns_bootstrap_at_a_cut_and_not_at_a_terminal():
    settings = awr.AWR(value_hidden=(), policy_hidden=(), discount=0.9, td_lambda=0.5)
    spec = SPEC._replace(num_rows=5)
    algorithm = awr.make(settings, spec, 1)
    state = algorithm.init(KEY, swept(temperature=1.0))._replace(critic=linear(([0.1], 0.0)))
    rows = Rows(
        observations=jnp.asarray([[1.0], [2.0], [3.0], [1.0], [7.0]]),
        actions=jnp.zeros((5, 1)),
        rewards=jnp.asarray([1.0, 1.0, 0.0, 1.0, 0.0]),
        continues=jnp.asarray([1.0, 1.0, 1.0, 0.0, 1.0]),
        valid=jnp.asarray([True, True, False, True, False]),
        drawable=jnp.asarray([0, 1, 3]),
        observation_mean=jnp.zeros(1),
        observation_deviation=jnp.ones(1),
        value_unit=jnp.ones(()),
    )
    stage = algorithm.stages[0]
    _, memory = stage.refresh(state, stage.empty(), rows, jnp.asarray(0), KEY)
    second = 1 + 0.9 * 3  # the cut trajectory is worth V = 3 after its last step
    first = 1 + 0.9 * (0.5 * 2 + 0.5 * second)
    np.testing.assert_allclose(memory.returns[jnp.asarray([0, 1, 3])], [first, second, 1.0], rtol=1e-5)
    advantages = np.asarray([first - 1, second - 2, 0.0])
    assert float(memory.mean) == pytest.approx(advantages.mean(), rel=1e-4)
    assert float(memory.deviation) == pytest.approx(advantages.std(), rel=1e-4)


def test_bail_envelope_and_selection():
    np.testing.assert_allclose(bail.envelope_loss(jnp.asarray([-1.0, 2.0, 0.0]), 1000.0), [1.0, 4000.0, 0.0])
    returns, values = jnp.asarray([1.0, 3.0, 4.0, -1.0]), jnp.asarray([2.0, 4.0, 4.0, -0.5])
    # G/V where V is above 0.04 = 1 % of the largest return; below, the margin in that unit
    np.testing.assert_allclose(bail.closeness(returns, values), [0.5, 0.75, 1.0, 1 - 0.5 / 0.04], rtol=1e-5)


def test_bail_ranks_negative_returns_by_their_margin():
    returns, values = jnp.asarray([-5.0, -4.0, -3.0]), jnp.asarray([-2.0, -2.0, -2.0])
    ranks = np.argsort(bail.closeness(returns, values))
    assert list(ranks) == [0, 1, 2]
    assert list(np.argsort(returns / values)) == [2, 1, 0], "the bare ratio ranks them backwards"


def test_bail_clones_the_selected_rows_only():
    algorithm = bail.make(bail.BAIL(policy_hidden=(), value_hidden=(), batch_size=1, kept=0.5), SPEC, 2)
    state = algorithm.init(KEY, {})._replace(actor=(Layer(jnp.zeros((1, 1)), jnp.full(1, jnp.arctanh(0.1))),))
    assert algorithm.stages[1].batch_size == 2
    for selected, expected, used in (([True, False], 0.16, 1), ([False, True], 0.36, 1), ([False, False], 0.0, 0)):
        _, metrics = updated(algorithm, state, jnp.asarray(selected), stage=1)
        assert metrics["policy_loss"] == pytest.approx(expected, abs=1e-6)
        assert metrics["used"] == used


def test_bcq_values_and_divergence():
    values = jnp.asarray([[1.0, 4.0], [3.0, 2.0]])
    np.testing.assert_allclose(bcq.soft_minimum(values, jnp.asarray(0.75)), [1.5, 2.5])
    assert float(bcq.divergence(jnp.asarray([1.0]), jnp.asarray([0.0]))) == pytest.approx(0.5)
    assert float(bcq.divergence(jnp.zeros(3), jnp.zeros(3))) == 0
    # ξ = 0 moves nothing, a large ξ moves by Φ, and the bounds hold
    flat = (Layer(jnp.zeros((2, 1)), jnp.zeros(1)),)
    steep = (Layer(jnp.zeros((2, 1)), jnp.full(1, 50.0)),)
    observations, actions = jnp.zeros((2, 1)), jnp.asarray([[0.5], [0.99]])
    np.testing.assert_allclose(bcq.perturb(flat, observations, actions, jnp.asarray(0.05)), actions)
    np.testing.assert_allclose(bcq.perturb(steep, observations, actions, jnp.asarray(0.05)), [[0.55], [1.0]])


def bcq_state(algorithm):
    """Decoder and perturbation that give action 0; critics Q₁ = s + a, Q₂ = 3 − a."""
    state = algorithm.init(KEY, swept(perturbation=0.05, minimum_weight=0.75))
    critics = linear(([1.0, 1.0], 0.0), ([0.0, -1.0], 3.0))
    flat = (Layer(jnp.zeros((2, 1)), jnp.zeros(1)),)
    return state._replace(
        decoder=(Layer(jnp.zeros((3, 1)), jnp.zeros(1)),),
        perturbation=flat,
        target_perturbation=flat,
        critics=critics,
        target_critics=critics,
    )


BCQ = {
    "generator_hidden": (),
    "value_hidden": (),
    "policy_hidden": (),
    "value_lr": STILL,
    "policy_lr": STILL,
    "generator_rate": STILL,
    "batch_size": 2,
}


def test_bcq():
    algorithm = bcq.make(bcq.BCQ(**BCQ), SPEC, 1)
    _, metrics = updated(algorithm, bcq_state(algorithm))
    # at s′ = 2: Q = (2, 3), 0.75·2 + 0.25·3 = 2.25; the second row ends. Q of the recorded: (1.5, 1.5), (2.5, 3.5)
    goal = 1 + 0.99 * 2.25
    expected = ((goal - 1.5) ** 2 + 1.5**2) / 2 + ((goal - 2.5) ** 2 + 3.5**2) / 2
    assert metrics["critic_loss"] == pytest.approx(expected, rel=1e-5)
    # −mean Q₁(s, 0) = −(1 + 2)/2
    assert metrics["policy_loss"] == pytest.approx(-1.5, rel=1e-5)
    assert metrics["generator_error"] == pytest.approx(0.25, rel=1e-5)


def test_bcq_em_regresses_on_its_memory():
    algorithm = bcq.make_episodic(bcq.BCQEM(**BCQ), SPEC, 1)
    memory = bcq.EpisodicMemory(jnp.zeros((1, 2)), jnp.asarray([[2.0, 1.0]]))
    _, metrics = updated(algorithm, bcq_state(algorithm), memory)
    assert metrics["critic_loss"] == pytest.approx((0.5**2 + 0.5**2) / 2 + (0.5**2 + 2.5**2) / 2, rel=1e-5)


def test_cql_gap():
    # Two uniform actions in ±1 have density ½ each: log Σ exp(0 − log ½) = log 4
    gap = cql.conservative_gap(jnp.zeros((1, 2, 3)), jnp.full((2, 3), np.log(0.5)), jnp.ones((1, 3)))
    np.testing.assert_allclose(gap, [np.log(4) - 1], rtol=1e-6)


def cql_metrics(threshold, weight, stage=-1):
    settings = cql.CQL(value_hidden=(), policy_hidden=(), value_lr=0.1, policy_lr=0.1, lagrange_threshold=threshold)
    algorithm = cql.make(settings, SPEC, 4)
    critics = linear(([0.0, 0.0], 1.0), ([0.0, 0.0], 2.0))
    state = algorithm.init(KEY, swept(conservative_weight=weight))
    state = state._replace(critics=critics, targets=critics, actor=zero_actor(2))
    return updated(algorithm, state, stage=stage)


def test_cql():
    _, metrics = cql_metrics(None, 5.0)
    # Q is 1 and 2 everywhere; the goals are 1 + 0.99·1 and 0, with no entropy in them
    assert metrics["critic_loss"] == pytest.approx((0.99**2 + 1 + 0.01**2 + 4) / 4, rel=1e-5)
    assert metrics["value_mean"] == pytest.approx(1.5)
    # logsumexp over 30 actions minus the constant Q: no less than 10 uniform ones, log (10·2), for each critic
    assert metrics["conservative_loss"] > 2 * 5 * np.log(20)
    assert metrics["multiplier"] == 1
    # α·log π − min Q, α = 1
    assert metrics["policy_loss"] == pytest.approx(-metrics["entropy"] - 1.0, rel=1e-5)


@pytest.mark.parametrize(("threshold", "grows"), [(1.0, True), (1000.0, False)])
def test_cql_multiplier_holds_the_gap_at_its_threshold(threshold, grows):
    _, metrics = cql_metrics(threshold, 1.0)
    assert (metrics["multiplier"] > 1) == grows


def test_cql_clones_first():
    assert [s.name for s in cql.make(cql.CQL(cloning_steps=3), SPEC, 10).stages] == ["cloning", "policy"]
    assert [s.num_steps for s in cql.make(cql.CQL(), SPEC, 10).stages] == [5, 5]
    assert [s.num_steps for s in cql.make(cql.CQL(), SPEC, 10**6).stages] == [40_000, 960_000]
    assert [s.name for s in cql.make(cql.CQL(cloning_steps=0), SPEC, 10).stages] == ["policy"]
    _, metrics = cql_metrics(None, 5.0, stage=0)
    # log density of tanh u = ±0.5 under u ~ N(0, 1): log N(u) − log (1 − 0.25)
    free = np.arctanh(0.5)
    likelihood = -0.5 * free**2 - 0.9189385 - np.log(0.75)
    assert metrics["policy_loss"] == pytest.approx(-metrics["entropy"] - likelihood, rel=1e-4)


def test_cql_entropy_weight_follows_the_entropy():
    state, metrics = cql_metrics(None, 5.0)
    # The target is −1; the entropy of tanh N(0, 1) is above it, so the weight falls.
    assert metrics["entropy"] > -1
    assert float(state.log_entropy_weight) < 0


def test_td3bc():
    settings = td3bc.TD3BC(value_hidden=(), policy_hidden=(), value_lr=STILL, policy_lr=0.1, target_noise=0.0)
    algorithm = td3bc.make(settings, SPEC, 2)
    critics = linear(([2.0, 1.0], 0.0), ([0.0, 0.0], 3.0))
    state = algorithm.init(KEY, swept(value_weight=2.5))
    state = state._replace(critics=critics, targets=critics, actor=zero_actor(), target_actor=zero_actor())
    once, metrics = updated(algorithm, state)
    # goals 1 + 0.99·min(4, 3) and 0; Q of the recorded: (2.5, 3.5), (3, 3)
    goal = 1 + 0.99 * 3
    expected = ((goal - 2.5) ** 2 + 3.5**2) / 2 + ((goal - 3) ** 2 + 9) / 2
    assert metrics["critic_loss"] == pytest.approx(expected, rel=1e-5)
    twice, later = updated(algorithm, once)
    # Q₁(s, 0) = (2, 4): 0.25 − 2.5·3/3, in every second update, so that its mean over updates is right
    assert metrics["policy_loss"] == 0
    assert later["policy_loss"] == pytest.approx(2 * (0.25 - 2.5), rel=1e-5)
    assert float(once.actor[0].bias[0]) == 0, "the actor waits for the second critic update"
    assert float(twice.actor[0].bias[0]) > 0
