import math

import numpy as np
import pytest
from scipy import stats

from tulle.errors import ConfigError
from tulle.measure.trees.level_noise import (
    GaussianLevels,
    LaplaceLevels,
    level_variances,
    rescaled_steps,
)
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig


def test_a_level_has_the_variance_of_its_share_of_epsilon() -> None:
    found = level_variances(LaplaceLevels(epsilon=2.0), [0.25, 0.0, 0.75])
    np.testing.assert_allclose(
        found, [stats.dlaplace(0.5).var(), np.inf, stats.dlaplace(1.5).var()], rtol=1e-12
    )


def test_steps_make_noise_finer_and_not_smaller_than_its_continuous_limit() -> None:
    coarse = LaplaceLevels(epsilon=1.0).variance(1.0)
    fine = LaplaceLevels(epsilon=1.0, max_steps_per_unit=1 << 16, steps=1 << 16).variance(1.0)
    assert coarse == pytest.approx(1.8413, rel=1e-3)
    assert fine == pytest.approx(2.0, rel=1e-9)


def test_a_share_with_more_noise_than_can_be_drawn_has_its_variance_all_the_same() -> None:
    budget = LaplaceLevels(epsilon=0.1, max_steps_per_unit=1 << 21, steps=1 << 16)
    assert budget.variance(1e-12) == pytest.approx(2 * (32 / 1e-13) ** 2)
    with pytest.raises(ConfigError, match="scale="):
        budget.level_noise(1e-12)


def test_a_level_has_the_variance_of_its_share_of_rho() -> None:
    budget = GaussianLevels(rho=0.5, max_steps_per_unit=6.0, steps=2)
    found = level_variances(budget, [0.1, 0.9, 0.0])
    np.testing.assert_allclose(found, [90.0, 10.0, np.inf])
    # Costs of the levels, sensitivity^2 / (2 variance), add up to rho.
    assert (9.0 / (2 * found[:2])).sum() == pytest.approx(0.5)


@pytest.mark.parametrize("shares", [[-0.1, 1.1], [0.0, 0.0], [0.6, 0.5], [np.nan, 1.0]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        level_variances(LaplaceLevels(epsilon=1.0), shares)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_that_is_none_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError, match="epsilon="):
        LaplaceLevels(epsilon=epsilon)
    with pytest.raises(ConfigError, match="rho="):
        GaussianLevels(rho=epsilon)


@pytest.mark.parametrize("epsilon", [0.5, 10.0, 64.0])
def test_scaling_contributions_is_the_same_as_giving_levels_shares_of_epsilon(
    epsilon: float,
) -> None:
    shares, steps = [0.5, 0.125, 0.3, 0.0], 1 << 16
    whole = rescaled_steps(shares, steps)
    # One noise for all levels, made for everything a contribution adds to them.
    shared = DiscreteLaplaceConfig(scale=steps / epsilon, max_contribution=steps)
    for share, level_steps in zip(shares, whole.tolist(), strict=True):
        if level_steps == 0:
            assert share == 0
            continue
        own = LaplaceLevels(
            epsilon=epsilon, max_steps_per_unit=level_steps, steps=level_steps
        ).level_noise(level_steps / steps)
        assert own.scale == pytest.approx(shared.scale, rel=1e-14)
        assert shared.variance / level_steps**2 == pytest.approx(
            own.variance / level_steps**2, rel=1e-12
        )
        # And this is the share of epsilon that was asked for, up to one step in 65536.
        assert level_steps / steps == pytest.approx(share, abs=1 / steps)
    # Together the levels move by no more than the noise was made for.
    assert whole.sum() <= steps


def test_scaled_contributions_of_the_browser_vectors() -> None:
    # Half the budget for a count, half for values up to 1024 of which 52 are spent: 32768, 1664.
    count, value = rescaled_steps([0.5, 0.5], 1 << 16).tolist()
    assert (count, 52 * value // 1024) == (32768, 1664)


@pytest.mark.parametrize("shares", [[0.7, 0.7], [-0.5, 1.0]])
def test_scaling_beyond_the_whole_is_refused(shares: list[float]) -> None:
    with pytest.raises(ConfigError, match="add up to 1"):
        rescaled_steps(shares, 1 << 16)
