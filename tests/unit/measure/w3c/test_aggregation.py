"""The aggregation service adds up and has the noise that browsers charge for."""

import numpy as np
import pytest

from statistical.noise_checks import assert_discrete
from tulle.errors import ConfigError, DataError
from tulle.measure.w3c.aggregation import AggregationConfig, aggregate_reports
from tulle.measure.w3c.budgets import microepsilons
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise


@pytest.mark.parametrize(("epsilon", "max_value"), [(1.0, 1), (0.5, 8)])
def test_noise_has_the_scale_of_twice_the_largest_value(epsilon: float, max_value: int) -> None:
    config = AggregationConfig(epsilon=epsilon, max_value=max_value)

    def release(rng: NoiseSource, size: int) -> np.ndarray:
        return aggregate_reports(np.zeros((2, size), int), config, rng=rng)

    # Accepts this scale and refuses one that is 5% off.
    assert_discrete(
        release,
        lambda scale: DiscreteLaplaceConfig(scale=scale).pmf,
        scale=2 * max_value / epsilon,
    )


def test_the_noise_covers_what_a_browser_charges() -> None:
    config = AggregationConfig(epsilon=0.3, max_value=7)
    for value in range(1, 8):
        charged = microepsilons(2 * value, max_value=7, epsilon=0.3) / 1e6
        assert charged >= 2 * value / config.noise.scale - 1e-12
    assert config.noise.max_contribution / config.noise.scale == pytest.approx(0.3)


def test_reports_are_added_up() -> None:
    reports = np.array([[1, 0, 2], [0, 3, 0]])
    noisy = aggregate_reports(
        reports, AggregationConfig(epsilon=400.0, max_value=3), rng=SeededNoise(1)
    )
    assert noisy.tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    "reports", [[[2, 2]], [[-1, 1]], [1, 2], [[0.5, 0.5]]], ids=["sum", "sign", "shape", "type"]
)
def test_a_report_that_noise_does_not_cover_is_refused(reports: list[object]) -> None:
    with pytest.raises(DataError):
        aggregate_reports(reports, AggregationConfig(epsilon=1.0, max_value=3), rng=SeededNoise(1))


@pytest.mark.parametrize(("epsilon", "max_value"), [(0.0, 1), (5000.0, 1), (1.0, 0)])
def test_settings_outside_the_limits_are_refused(epsilon: float, max_value: int) -> None:
    with pytest.raises(ConfigError):
        AggregationConfig(epsilon=epsilon, max_value=max_value)
