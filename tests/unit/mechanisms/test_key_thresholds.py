import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistical.key_selection_checks import assert_least_safe_threshold, lone_key_prob
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import SeededNoise, release_rng
from tulle.mechanisms.key_thresholds import (
    GaussianKeyThresholdConfig,
    LaplaceKeyThresholdConfig,
    release_key_counts,
)
from tulle.privacy.events import (
    Composed,
    DiscreteLaplace,
    EpsilonDelta,
    Gaussian,
    event_from_json,
    event_to_json,
)

CONFIGS = [
    LaplaceKeyThresholdConfig(epsilon=1.0, delta=1e-3, max_keys_per_unit=2),
    GaussianKeyThresholdConfig(noise_multiplier=2.0, delta=1e-3, max_keys_per_unit=2),
]


@settings(max_examples=100)
@given(epsilon=st.floats(1e-3, 30.0), delta=st.floats(1e-15, 0.5), max_keys=st.integers(1, 20))
def test_the_laplace_threshold_is_the_least_safe_one(
    epsilon: float, delta: float, max_keys: int
) -> None:
    config = LaplaceKeyThresholdConfig(epsilon=epsilon, delta=delta, max_keys_per_unit=max_keys)
    assert_least_safe_threshold(config, config.threshold)


@settings(max_examples=100)
@given(noise=st.floats(0.1, 1e4), delta=st.floats(1e-15, 0.5), max_keys=st.integers(1, 20))
def test_the_gaussian_threshold_is_the_least_safe_one(
    noise: float, delta: float, max_keys: int
) -> None:
    config = GaussianKeyThresholdConfig(
        noise_multiplier=noise, delta=delta, max_keys_per_unit=max_keys
    )
    assert_least_safe_threshold(config, config.threshold)


@pytest.mark.parametrize("counts", list(itertools.product(range(1, 4), repeat=2)))
@pytest.mark.parametrize(
    ("max_keys", "change", "num_moved"),
    [(1, (-1, 0), 1), (1, (-1, 1), 2), (2, (-1, -1), 2), (2, (-1, 0), 1)],
)
def test_published_keys_are_private_for_all_small_counts(
    counts: tuple[int, int], max_keys: int, change: tuple[int, int], num_moved: int
) -> None:
    config = LaplaceKeyThresholdConfig(epsilon=0.8, delta=0.05, max_keys_per_unit=max_keys)
    one = _joint_law(config, counts)
    two = _joint_law(config, (counts[0] + change[0], counts[1] + change[1]))
    factor = math.exp(num_moved / config.noise_scale)
    for here, there in ((one, two), (two, one)):
        delta = sum(max(0.0, p - factor * there.get(out, 0.0)) for out, p in here.items())
        assert delta <= config.delta + 1e-12


def test_golden_laplace_threshold() -> None:
    # 1 + ln(1 / (delta (1 + e^-1))) = 16.8 for epsilon = 1, delta = 1e-7.
    assert LaplaceKeyThresholdConfig(epsilon=1.0, delta=1e-7).threshold == 17


def test_the_noise_is_at_least_what_the_event_says() -> None:
    laplace = LaplaceKeyThresholdConfig(epsilon=0.3, delta=1e-7, max_keys_per_unit=7)
    assert laplace.event() == Composed(
        (
            DiscreteLaplace(scale=laplace.noise_scale, max_contribution=7),
            EpsilonDelta(epsilon=0.0, delta=1e-7),
        )
    )
    assert 7 / laplace.noise_scale <= 0.3
    gaussian = GaussianKeyThresholdConfig(noise_multiplier=1.1, delta=1e-7, max_keys_per_unit=7)
    assert gaussian.event() == Composed(
        (
            Gaussian(noise_multiplier=1.1, replace_factor=math.sqrt(2)),
            EpsilonDelta(epsilon=0.0, delta=1e-7),
        )
    )
    assert gaussian.noise_stddev >= 1.1 * math.sqrt(7)
    for config in (laplace, gaussian):
        assert event_from_json(event_to_json(config.event())) == config.event()


@pytest.mark.parametrize("config", CONFIGS)
def test_only_counts_of_published_keys_leave(config: Any) -> None:
    result = release_key_counts([0, 1, 500, 600], config, rng=SeededNoise(1))
    assert result.is_published.tolist() == [False, False, True, True]
    assert result.noisy_counts.shape == (2,)
    assert (result.noisy_counts >= config.threshold).all()


@pytest.mark.parametrize("config", CONFIGS)
def test_keys_without_units_are_never_published(config: Any) -> None:
    result = release_key_counts(np.zeros(200_000, np.int64), config, rng=SeededNoise(0))
    assert not result.is_published.any()


@pytest.mark.parametrize("config", CONFIGS)
def test_lone_keys_are_published_as_rarely_as_stated(config: Any) -> None:
    result = release_key_counts(np.ones(200_000, np.int64), config, rng=SeededNoise(0))
    expected = 200_000 * float(lone_key_prob(config, config.threshold))
    assert abs(result.is_published.sum() - expected) < 6.5 * math.sqrt(expected)


@pytest.mark.parametrize("config", CONFIGS)
def test_no_keys_give_an_empty_release(config: Any) -> None:
    result = release_key_counts([], config, rng=release_rng())
    assert result.is_published.size == result.noisy_counts.size == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"max_keys_per_unit": 0},
        {"max_keys_per_unit": 1.5},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        LaplaceKeyThresholdConfig(**({"epsilon": 1.0, "delta": 1e-7} | wrong))
    with pytest.raises(ConfigError):
        GaussianKeyThresholdConfig(**({"noise_multiplier": 1.0, "delta": 1e-7} | wrong))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 1e-300])
def test_an_epsilon_that_no_noise_meets_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        LaplaceKeyThresholdConfig(epsilon=epsilon, delta=1e-7)


@pytest.mark.parametrize("noise", [0.0, -1.0, math.inf, math.nan])
def test_a_noise_multiplier_without_meaning_is_refused(noise: float) -> None:
    with pytest.raises(ConfigError):
        GaussianKeyThresholdConfig(noise_multiplier=noise, delta=1e-7)


def test_negative_counts_are_refused() -> None:
    with pytest.raises(DataError, match="negative"):
        release_key_counts([-1, 2], CONFIGS[0], rng=SeededNoise(0))


def _joint_law(config: LaplaceKeyThresholdConfig, counts: tuple[int, int]) -> dict[Any, float]:
    """Chances of all pairs of outputs: a noisy count, or None if the key is not published."""
    laws = [_law(config, count) for count in counts]
    return {(a, b): laws[0][a] * laws[1][b] for a in laws[0] for b in laws[1]}


def _law(config: LaplaceKeyThresholdConfig, count: int) -> dict[int | None, float]:
    if count == 0:
        return {None: 1.0}
    odds = math.exp(-1 / config.noise_scale)
    law: dict[int | None, float] = {
        noisy: (1 - odds) / (1 + odds) * odds ** abs(noisy - count)
        for noisy in range(config.threshold, config.threshold + 100)
    }
    return law | {None: 1 - sum(law.values())}
