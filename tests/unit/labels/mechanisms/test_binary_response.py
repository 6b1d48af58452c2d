import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_private, measured_channel
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.binary_response import BinaryResponse
from tulle.mechanisms.entropy import SeededNoise
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_bits,
    release_randomized_response,
)


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 1.0, 3.0, 50.0])
def test_the_release_has_exactly_the_channel_of_randomized_response(epsilon: float) -> None:
    mechanism = BinaryResponse(epsilon=epsilon)

    def report(held: int, word: int) -> int:
        noisy = mechanism.release(np.array([held], np.uint8), rng=ScriptedNoise([word]))
        return int(noisy.labels[0])

    measured = measured_channel(report, [0, 1], 2)
    assert_private(measured, epsilon)
    assert measured == mechanism.response.realised_channel()


@pytest.mark.parametrize("epsilon", [0.001, 0.5, 1.0, 3.0])
def test_targets_have_the_label_as_mean_over_the_exact_channel(epsilon: float) -> None:
    mechanism = BinaryResponse(epsilon=epsilon)
    low, high = (Fraction(t) for t in mechanism.channel.debiased_targets((0, 1)).tolist())
    for label, (stays_0, becomes_1) in enumerate(mechanism.response.realised_channel()):
        mean = stays_0 * low + becomes_1 * high
        variance = stays_0 * (low - label) ** 2 + becomes_1 * (high - label) ** 2
        assert float(mean) == pytest.approx(mechanism.mean(label), abs=1e-9)
        assert float(variance) == pytest.approx(mechanism.variance(label), rel=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "variance"),
    [(0.1, 99.9), (0.5, 3.918), (1.0, 0.9207), (2.0, 0.1810), (3.0, 0.0551), (5.0, 0.0068)],
)
def test_the_variance_is_the_closed_form(epsilon: float, variance: float) -> None:
    exact = math.exp(epsilon) / math.expm1(epsilon) ** 2
    assert BinaryResponse(epsilon=epsilon).variance(0) == pytest.approx(exact, rel=1e-10)
    assert exact == pytest.approx(variance, rel=0.01)


def test_a_release_brings_targets_channel_and_variance() -> None:
    mechanism = BinaryResponse(epsilon=1.0)
    noisy = mechanism.release(np.array([0, 1, 1, 0] * 50), rng=SeededNoise(3))
    assert noisy.labels.dtype == np.uint8
    assert noisy.targets is not None
    assert noisy.channel is mechanism.channel
    assert noisy.targets.tolist() == noisy.channel.debiased_targets(noisy.labels).tolist()
    assert float(noisy.noise_variance) == mechanism.variance(0)


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int64, np.float32, np.float64])
def test_labels_of_any_number_type_give_the_same_reports(dtype: Any) -> None:
    mechanism = BinaryResponse(epsilon=1.0)
    raw = np.arange(70_000) % 2
    expected = release_randomized_response(
        raw, RandomizedResponseConfig(epsilon=1.0), rng=SeededNoise(5)
    )
    noisy = mechanism.release(raw.astype(dtype), rng=SeededNoise(5))
    assert noisy.labels.tolist() == expected.tolist()


def test_raw_labels_are_left_as_they_were() -> None:
    raw = np.zeros(1000, np.uint8)
    noisy = BinaryResponse(epsilon=0.1).release(raw, rng=SeededNoise(0))
    assert not raw.any()
    assert noisy.labels.any()


@pytest.mark.parametrize(
    "bad",
    [[0, 2], [-1, 0], [0.5], [math.nan], ["a"], [None], np.array([2], np.uint8), [2**63]],
)
def test_labels_other_than_0_and_1_are_refused_without_showing_them(bad: Any) -> None:
    mechanism = BinaryResponse(epsilon=1.0)
    for act in (mechanism.check_labels, lambda raw: mechanism.release(raw, rng=SeededNoise(0))):
        with pytest.raises(DataError, match="labels must be 0 or 1") as caught:
            act(np.asarray(bad))
        assert not any(text in str(caught.value) for text in ("0.5", "-1", "nan", str(2**63)))


def test_no_labels_give_no_reports() -> None:
    noisy = BinaryResponse(epsilon=1.0).release(np.array([], np.int64), rng=SeededNoise(0))
    assert noisy.labels.size == 0


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, 1e-25])
def test_epsilon_without_meaning_is_refused(epsilon: float) -> None:
    with pytest.raises(ConfigError):
        BinaryResponse(epsilon=epsilon)


def test_bits_are_for_two_values_and_bytes() -> None:
    with pytest.raises(ConfigError, match="num_values=3"):
        release_randomized_bits(
            np.zeros(2, np.uint8),
            RandomizedResponseConfig(epsilon=1.0, num_values=3),
            rng=SeededNoise(0),
        )
    for bad in (np.array([0, 2], np.uint8), np.zeros(2)):
        with pytest.raises(DataError, match="bytes of 0 and 1"):
            release_randomized_bits(bad, RandomizedResponseConfig(epsilon=1.0), rng=SeededNoise(0))
