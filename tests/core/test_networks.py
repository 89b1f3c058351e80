import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vem.networks import Layer, apply_network, apply_networks, gradient_in_tiles, init_network, init_networks

KEY = jax.random.key(0)


def test_initial_weights_fill_their_bounds_and_no_two_are_the_same():
    network = init_network(KEY, (100, 50, 20))
    numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(network)])
    assert np.unique(numbers).size > 0.99 * numbers.size
    for layer, fan_in in zip(network, (100, 50), strict=True):
        assert float(layer.weight.std()) == pytest.approx(fan_in**-0.5 / np.sqrt(3), rel=0.1)
        assert abs(float(layer.weight.mean())) < 0.1 * fan_in**-0.5


def test_output_worked_by_hand():
    network = (
        Layer(jnp.asarray([[1.0, -1.0]]), jnp.asarray([0.0, 0.5])),
        Layer(jnp.asarray([[2.0], [3.0]]), jnp.asarray([1.0])),
    )
    # x = 2: hidden relu(2, −1.5) = (2, 0), output 5; x = −1: hidden (0, 1.5), output 5.5
    np.testing.assert_allclose(apply_network(network, jnp.asarray([[2.0], [-1.0]])), [[5.0], [5.5]])


def test_stacked_networks_are_separate_ones():
    networks = init_networks(KEY, (3, 8, 1), 2)
    inputs = jax.random.normal(KEY, (4, 3))
    together = apply_networks(networks, inputs)
    assert together.shape == (2, 4)
    for index in (0, 1):
        alone = apply_network(jax.tree.map(lambda leaf, i=index: leaf[i], networks), inputs)[:, 0]
        np.testing.assert_allclose(together[index], alone, atol=1e-6)
    assert not np.allclose(together[0], together[1])


def test_dropout_keeps_the_mean_and_needs_a_key():
    network = (
        Layer(jnp.zeros((1, 4000)), jnp.ones(4000)),
        Layer(jnp.full((4000, 1), 1 / 4000), jnp.zeros(1)),
    )
    inputs = jnp.zeros((1, 1))
    assert float(apply_network(network, inputs, None, 0.5)[0, 0]) == pytest.approx(1.0, rel=1e-5)
    dropped = float(apply_network(network, inputs, KEY, 0.5)[0, 0])
    assert dropped != pytest.approx(1.0, rel=1e-5)
    assert dropped == pytest.approx(1.0, abs=0.1)


def test_a_batch_of_two_axes_is_a_longer_batch():
    network = init_network(KEY, (3, 8, 2))
    inputs = jax.random.normal(KEY, (4, 5, 3))
    outputs = apply_network(network, inputs)
    assert outputs.shape == (4, 5, 2)
    np.testing.assert_array_equal(outputs.reshape(20, 2), apply_network(network, inputs.reshape(20, 3)))


@pytest.mark.parametrize(("num_rows", "tile", "num_tiles"), [(12, 4, 3), (12, 5, 3), (7, 4, 7), (6, 100, 1), (1, 1, 1)])
def test_the_gradient_in_tiles_is_that_of_all_rows(num_rows, tile, num_tiles):
    network = init_network(KEY, (3, 8, 1))
    rows = (jax.random.normal(KEY, (num_rows, 3)), jnp.arange(num_rows, dtype=jnp.float32))

    def loss(network, rows):
        inputs, goals = rows
        errors = (apply_network(network, inputs)[:, 0] - goals) ** 2
        return errors.mean(), errors

    whole, errors = jax.grad(loss, has_aux=True)(network, rows)
    tiled, errors_of_tiles = gradient_in_tiles(loss, network, rows, tile)
    assert errors_of_tiles.shape == (num_tiles, num_rows // num_tiles)
    np.testing.assert_allclose(errors_of_tiles.ravel(), errors, rtol=1e-5)
    for ours, theirs in zip(jax.tree.leaves(tiled), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
