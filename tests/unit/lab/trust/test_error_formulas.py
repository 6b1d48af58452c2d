"""The error of each trust model: closed forms, and simulations that agree with them."""

import math
from typing import Any

import numpy as np
import pytest

from tulle.lab.trust.central_counts import (
    CentralGaussianConfig,
    CentralLaplaceConfig,
    ValueCountsConfig,
)
from tulle.lab.trust.local_counts import (
    LocalLaplaceConfig,
    LocalRapporConfig,
    LocalResponseConfig,
    LocalSubsetConfig,
)
from tulle.lab.trust.shuffled_counts import MixedCountsConfig, ShuffledResponseConfig
from tulle.mechanisms.analytic_gaussian import gaussian_delta
from tulle.mechanisms.entropy import SeededNoise

EPSILONS = (0.1, 0.5, 1.0, 3.0)
DEVIATIONS_OF_ALARM = 6.2
"""Of a normal law: beyond it lies less than 1e-9."""


def response_stddev(num_users: int, epsilon: float) -> float:
    return math.sqrt(num_users * math.exp(epsilon)) / math.expm1(epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_randomized_response_has_the_variance_of_the_theorem(epsilon: float) -> None:
    config = LocalResponseConfig(epsilon=epsilon, num_users=1000)
    for frequency in (0.0, 0.3, 1.0):
        expected = response_stddev(1000, epsilon)
        assert config.expected_stddev(frequency) == pytest.approx(expected, rel=1e-12)
    # The slip e^(2 epsilon) - 1 in the denominator would promise e^epsilon + 1 times less.
    slip = math.sqrt(1000 * math.exp(epsilon)) / math.expm1(2 * epsilon)
    assert config.expected_stddev() > 2 * slip


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("num_values", [2, 915])
def test_rappor_is_randomized_response_at_half_of_epsilon(epsilon: float, num_values: int) -> None:
    config = LocalRapporConfig(epsilon=epsilon, num_users=1000, num_values=num_values)
    expected = response_stddev(1000, epsilon / 2)
    assert config.expected_stddev(0.2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_discrete_noise_is_a_little_below_the_continuous_formula(epsilon: float) -> None:
    central = CentralLaplaceConfig(epsilon=epsilon, num_users=1000).expected_stddev()
    # sqrt(2 p) / (1 - p) = (sqrt(2) / epsilon) (epsilon / 2) / sinh(epsilon / 2).
    assert central == pytest.approx(math.sqrt(0.5) / math.sinh(epsilon / 2), rel=1e-12)
    ratio = central * epsilon / math.sqrt(2)
    assert 1 - epsilon**2 / 24 <= ratio < 1
    local = LocalLaplaceConfig(epsilon=epsilon, num_users=1000).expected_stddev()
    assert local == pytest.approx(ratio * math.sqrt(2 * 1000) / epsilon, rel=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("num_values", [2, 9])
def test_split_and_mix_is_as_accurate_as_a_trusted_party(epsilon: float, num_values: int) -> None:
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "num_users": 1000,
        "num_values": num_values,
    }
    mixed = MixedCountsConfig(delta=1e-9, min_honest_users=1000, **settings)
    central = CentralLaplaceConfig(**settings)
    assert mixed.expected_stddev() == pytest.approx(central.expected_stddev(), rel=1e-12)


@pytest.mark.parametrize(("num_values", "distance"), [(2, 1.0), (9, math.sqrt(2))])
def test_gaussian_counts_have_the_least_noise_for_their_delta(
    num_values: int, distance: float
) -> None:
    config = CentralGaussianConfig(epsilon=1.0, delta=1e-6, num_users=10, num_values=num_values)
    stddev = config.expected_stddev()
    assert gaussian_delta(1.0, stddev, distance) <= 1e-6
    assert gaussian_delta(1.0, 0.999 * stddev, distance) > 1e-6


def test_the_trust_models_are_ordered_as_they_should_be() -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "num_users": 1_000_000}
    central = CentralLaplaceConfig(**settings).expected_stddev()
    shuffled = ShuffledResponseConfig(
        delta=1e-9, min_honest_users=1_000_000, **settings
    ).expected_stddev()
    response = LocalResponseConfig(**settings).expected_stddev()
    laplace = LocalLaplaceConfig(**settings).expected_stddev()
    assert central < shuffled < 0.05 * response < response < laplace


SIMULATED = [
    # config, number of releases, kurtosis of one estimate
    (CentralLaplaceConfig(epsilon=1.0, num_users=50, num_values=100_000), 1, 6.3),
    (CentralGaussianConfig(epsilon=1.0, delta=1e-6, num_users=50, num_values=40_000), 1, 3.0),
    (LocalResponseConfig(epsilon=2.0, num_users=20_000, num_values=500), 85, 3.1),
    (LocalRapporConfig(epsilon=2.0, num_users=200, num_values=1000), 41, 3.1),
    (LocalSubsetConfig(epsilon=2.0, num_users=200, num_values=1000), 41, 3.1),
    (LocalLaplaceConfig(epsilon=1.0, num_users=20, num_values=1000), 41, 3.2),
    (
        ShuffledResponseConfig(
            epsilon=1.0, delta=1e-6, num_users=20_000, num_values=500, min_honest_users=15_000
        ),
        85,
        3.2,
    ),
    pytest.param(
        MixedCountsConfig(
            epsilon=1.0, delta=1e-6, num_users=57, num_values=1000, min_honest_users=19
        ),
        45,
        4.1,
        marks=pytest.mark.long("a thousand values from 57 users, again and again"),
    ),
]


@pytest.mark.parametrize(
    ("config", "num_releases", "kurtosis"), SIMULATED, ids=lambda c: type(c).__name__
)
def test_simulated_errors_have_the_stated_size_and_intervals_cover(
    config: ValueCountsConfig, num_releases: int, kurtosis: float
) -> None:
    rng = SeededNoise(11)
    # Everybody holds the last value, so that the others are estimates of zero.
    values = np.full(config.num_users, config.num_values - 1)
    releases = [
        release
        for _ in range(num_releases)
        for release in config.release(values, rng=rng, confidence=0.9)[:-1]
    ]
    errors = np.array([release.value for release in releases])
    stddev = config.expected_stddev(0.0)
    spread = math.sqrt((kurtosis - 1) / errors.size)

    def is_plausible(stated: float) -> bool:
        return abs(np.mean((errors / stated) ** 2) - 1) < DEVIATIONS_OF_ALARM * spread

    assert is_plausible(stddev)
    assert not is_plausible(0.95 * stddev)
    assert not is_plausible(1.05 * stddev)
    assert abs(errors.mean()) < DEVIATIONS_OF_ALARM * stddev / math.sqrt(errors.size)
    covered = np.mean([r.interval.low <= 0 <= r.interval.high for r in releases])
    assert covered > 0.9 - DEVIATIONS_OF_ALARM * 0.3 / math.sqrt(errors.size)


@pytest.mark.parametrize(
    "config_class", [LocalResponseConfig, LocalRapporConfig, LocalSubsetConfig]
)
def test_a_held_value_has_the_stated_error_too(config_class: type[ValueCountsConfig]) -> None:
    # All users hold value 0 here; its estimate alone is looked at, over many small releases.
    config = config_class(epsilon=1.5, num_users=10, num_values=5)
    rng, values = SeededNoise(4), np.zeros(10, int)
    errors = np.array([config.release(values, rng=rng)[0].value - 10 for _ in range(1000)])
    squares = (errors / config.expected_stddev(1.0)) ** 2
    standard_error = squares.std() / math.sqrt(squares.size)
    assert abs(squares.mean() - 1) < DEVIATIONS_OF_ALARM * standard_error
    # With the variance of a value that nobody holds the check fails for K-ary response.
    if config_class is LocalResponseConfig:
        wrong = (errors / config.expected_stddev(0.0)) ** 2
        assert abs(wrong.mean() - 1) > DEVIATIONS_OF_ALARM * wrong.std() / math.sqrt(wrong.size)
