import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import expectile as scipy_expectile

from vem import losses

DIFFERENCE = np.asarray([-2.0, -0.5, 0.0, 1.0, 3.0])


@pytest.mark.parametrize(
    ("level", "expectile", "squared", "quantile"),
    [
        (0.0, [4.0, 0.25, 0.0, 0.0, 0.0], [4.0, 0.25, 0.0, 0.0, 0.0], [2.0, 0.5, 0.0, 0.0, 0.0]),
        (0.5, [2.0, 0.125, 0.0, 0.5, 4.5], [1.0, 0.0625, 0.0, 0.25, 2.25], [1.0, 0.25, 0.0, 0.5, 1.5]),
        (0.75, [1.0, 0.0625, 0.0, 0.75, 6.75], [0.25, 0.015625, 0.0, 0.5625, 5.0625], [0.5, 0.125, 0.0, 0.75, 2.25]),
        (1.0, [0.0, 0.0, 0.0, 1.0, 9.0], [0.0, 0.0, 0.0, 1.0, 9.0], [0.0, 0.0, 0.0, 1.0, 3.0]),
    ],
)
def test_losses_by_hand(level, expectile, squared, quantile):
    np.testing.assert_allclose(losses.expectile_loss(DIFFERENCE, level), expectile)
    np.testing.assert_allclose(losses.squared_weight_loss(DIFFERENCE, level), squared)
    np.testing.assert_allclose(losses.quantile_loss(DIFFERENCE, level), quantile)
    in_jax = losses.expectile_loss(jnp.asarray(DIFFERENCE, jnp.float32), jnp.float32(level))
    np.testing.assert_allclose(in_jax, expectile, rtol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.5, 0.75, 1.0])
def test_gradients(level):
    gradient = jax.vmap(jax.grad(losses.expectile_loss), (0, None))(jnp.asarray(DIFFERENCE, jnp.float32), level)
    np.testing.assert_allclose(gradient, np.where(DIFFERENCE > 0, level, 1 - level) * 2 * DIFFERENCE, rtol=1e-6)
    step = losses.expectile_step(DIFFERENCE, level, 0.5)
    np.testing.assert_allclose(step, np.where(DIFFERENCE > 0, level, 1 - level) * DIFFERENCE)


@pytest.mark.parametrize("level", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
def test_the_minimizers_are_the_expectiles(level):
    sample = np.random.default_rng(0).gamma(2.0, size=400)

    def minimizer(loss):
        return minimize_scalar(
            lambda v: loss(sample - v, level).mean(),
            bounds=(sample.min(), sample.max()),
            method="bounded",
            options={"xatol": 1e-10},
        ).x

    assert minimizer(losses.expectile_loss) == pytest.approx(scipy_expectile(sample, level), abs=1e-6)
    effective = losses.effective_expectile(level)
    assert minimizer(losses.squared_weight_loss) == pytest.approx(scipy_expectile(sample, effective), abs=1e-6)
    assert minimizer(losses.quantile_loss) == pytest.approx(np.quantile(sample, level), abs=0.02)


def test_effective_expectiles_of_the_released_settings():
    expected = {0.1: 0.012, 0.2: 0.059, 0.3: 0.155, 0.4: 0.308, 0.5: 0.5, 0.6: 0.692, 0.7: 0.845}
    for level, effective in expected.items():
        assert losses.effective_expectile(level) == pytest.approx(effective, abs=6e-4)
