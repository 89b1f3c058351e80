"""Heads against their definitions: densities of numbers, probabilities of choices, and both side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from vem.networks import log_likelihood, make_head
from vem.policy import kinds as numpy_heads

OUTPUTS = jnp.asarray(np.random.default_rng(0).normal(size=(5, 6)), jnp.float32)
"""For the columns: a number, three choices, another number, one choice."""
CHOICES = (0, 3, 0, 1)
ACTIONS = jnp.asarray([[0.5, 2, -1, 0], [0.1, 0, 0.3, 0], [-1, 1, 1, 0], [0, 2, 0, 0], [0.2, 0, 0.9, 0]], jnp.float32)
LOG_STD = jnp.log(jnp.asarray([0.5, 2.0]))


def test_a_box_is_the_gaussian_to_the_bit():
    head, outputs, actions = make_head(3), OUTPUTS[:, :3], OUTPUTS[:, 3:]
    log_std = jnp.asarray([0.1, -1.0, 0.5])
    expected = log_likelihood(actions, jnp.tanh(outputs), log_std)
    assert np.array_equal(head.log_likelihood(outputs, log_std, actions), expected)
    assert np.array_equal(head.error(outputs, actions), jnp.mean((jnp.tanh(outputs) - actions) ** 2, axis=-1))
    assert np.array_equal(head.mode(outputs), jnp.tanh(outputs))
    assert head.encode(actions) is actions
    assert (head.num_outputs, head.num_inputs, head.num_boxes) == (3, 3, 3)
    assert make_head(2, (0, 0)).num_boxes == 2


def test_columns_are_independent():
    head = make_head(4, CHOICES)
    assert (head.num_outputs, head.num_inputs, head.num_boxes) == (6, 6, 2)
    means, deviations = np.tanh(np.asarray(OUTPUTS)[:, [0, 4]]), np.exp(np.asarray(LOG_STD))
    expected = stats.norm.logpdf(np.asarray(ACTIONS)[:, [0, 2]], means, deviations).sum(axis=1)
    probabilities = np.asarray(jax.nn.softmax(OUTPUTS[:, 1:4]))
    codes = np.asarray(ACTIONS)[:, 1].astype(int)
    expected += np.log(probabilities[np.arange(5), codes])
    np.testing.assert_allclose(head.log_likelihood(OUTPUTS, LOG_STD, ACTIONS), expected, rtol=1e-5)


def test_choices_alone_sum_to_one():
    head = make_head(2, (3, 2))
    every = jnp.asarray([[first, second] for first in range(3) for second in range(2)], jnp.float32)
    outputs = jnp.broadcast_to(OUTPUTS[0, :5], (6, 5))
    assert float(jnp.exp(head.log_likelihood(outputs, jnp.zeros(0), every)).sum()) == pytest.approx(1, rel=1e-5)
    best = every[jnp.argmax(head.log_likelihood(outputs, jnp.zeros(0), every))]
    np.testing.assert_array_equal(head.mode(outputs)[0], best)


def test_the_error_is_a_mean_over_columns():
    head = make_head(4, CHOICES)
    squared = (np.tanh(np.asarray(OUTPUTS)[:, [0, 4]]) - np.asarray(ACTIONS)[:, [0, 2]]) ** 2
    choice = -np.asarray(make_head(1, (3,)).log_likelihood(OUTPUTS[:, 1:4], jnp.zeros(0), ACTIONS[:, 1:2]))
    np.testing.assert_allclose(head.error(OUTPUTS, ACTIONS), (squared.sum(axis=1) + choice) / 4, rtol=1e-5)


def test_choices_are_seen_one_hot():
    encoded = make_head(4, CHOICES).encode(ACTIONS[:2])
    np.testing.assert_allclose(encoded, [[0.5, 0, 0, 1, -1, 1], [0.1, 1, 0, 0, 0.3, 1]], rtol=1e-6)


@pytest.mark.parametrize("choices", [CHOICES, (), (6,), (2, 4), (3, 3)])
def test_numpy_takes_the_same_action(choices):
    head = make_head(len(choices) or 6, choices)
    outputs, actions = np.asarray(OUTPUTS), head.mode(OUTPUTS)
    np.testing.assert_allclose(numpy_heads.most_likely(outputs, choices), actions, atol=1e-6)
    log_std, actions = jnp.full(head.num_boxes, -0.7), jnp.where(actions == actions.round(), 0, actions + 0.1)
    expected = head.log_likelihood(OUTPUTS, log_std, actions)
    likelihood = numpy_heads.log_likelihood(outputs, choices, np.asarray(log_std), np.asarray(actions))
    np.testing.assert_allclose(likelihood, expected, rtol=1e-5)


def test_numpy_samples_from_the_head():
    outputs = np.repeat(np.asarray(OUTPUTS[:1]), 20_000, axis=0)
    draws = numpy_heads.sampled(outputs, CHOICES, np.asarray(LOG_STD), np.random.default_rng(0))
    np.testing.assert_allclose(draws[:, [0, 2]].mean(axis=0), np.tanh(outputs[0, [0, 4]]), atol=0.05)
    np.testing.assert_allclose(draws[:, [0, 2]].std(axis=0), np.exp(np.asarray(LOG_STD)), rtol=0.05)
    shares = np.bincount(draws[:, 1].astype(int), minlength=3) / len(draws)
    np.testing.assert_allclose(shares, jax.nn.softmax(OUTPUTS[0, 1:4]), atol=0.015)
    assert not draws[:, 3].any()
