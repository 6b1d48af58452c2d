import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_private, measured_channel
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.class_response import BinaryResponse, ClassResponse
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
        assert float(mean) == pytest.approx(label, abs=1e-9)
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


CASES = [
    ClassResponse(epsilon=epsilon, num_classes=num_classes)
    for epsilon in (0.05, 1.0, 4.0)
    for num_classes in (2, 3, 7)
]
each_case = pytest.mark.parametrize(
    "mechanism", CASES, ids=lambda m: f"{m.num_classes} classes, epsilon {m.epsilon}"
)


def _channel(mechanism: ClassResponse) -> np.ndarray:
    return np.array([[float(c) for c in row] for row in mechanism.response.realised_channel()])


@each_case
def test_the_release_is_private_for_all_labels_and_reports(mechanism: ClassResponse) -> None:
    def report(held: int, word: int) -> int:
        return int(mechanism.release(np.array([held]), rng=ScriptedNoise([word])).labels[0])

    classes = list(range(mechanism.num_classes))
    measured = measured_channel(report, classes, mechanism.num_classes)
    assert_private(measured, mechanism.epsilon)
    assert measured == mechanism.response.realised_channel()


@each_case
def test_indicators_have_the_one_hot_label_as_mean(mechanism: ClassResponse) -> None:
    table = mechanism.debiased_indicators(np.arange(mechanism.num_classes))
    np.testing.assert_allclose(_channel(mechanism) @ table, np.eye(len(table)), atol=1e-11)


@each_case
def test_the_correction_equals_the_inverse_of_the_channel(mechanism: ClassResponse) -> None:
    inverse = np.linalg.inv(_channel(mechanism))
    table = mechanism.debiased_indicators(np.arange(mechanism.num_classes))
    np.testing.assert_allclose(table, inverse, rtol=1e-8, atol=1e-8)


def test_chances_are_those_of_the_text_book() -> None:
    mechanism = ClassResponse(epsilon=1.5, num_classes=5)
    total = math.exp(1.5) + 4
    facts = mechanism.describe()
    assert facts["prob_of_the_truth"] == pytest.approx(math.exp(1.5) / total)
    assert facts["prob_of_each_other_class"] == pytest.approx(1 / total)
    assert mechanism.random_prob == pytest.approx(5 / total)


def test_more_than_two_classes_have_no_single_target() -> None:
    raw = np.arange(30) % 3
    three = ClassResponse(epsilon=1.0, num_classes=3).release(raw, rng=SeededNoise(0))
    assert (three.targets, three.noise_variance, three.channel) == (None, None, None)
    two = ClassResponse(epsilon=1.0, num_classes=2).release(raw % 2, rng=SeededNoise(0))
    assert two.targets is not None
    assert two.channel is not None


@pytest.mark.parametrize("bad", [[3], [-1], [0.5], [math.nan], ["a"], [None], [math.inf]])
def test_labels_that_are_no_class_are_refused(bad: list[Any]) -> None:
    mechanism = ClassResponse(epsilon=1.0, num_classes=3)
    with pytest.raises(DataError, match="classes from 0 to num_classes - 1 = 2"):
        mechanism.check_labels(np.asarray(bad))


def test_classes_may_come_as_floats() -> None:
    mechanism = ClassResponse(epsilon=1.0, num_classes=3)
    raw = np.arange(60) % 3
    whole, floats = (mechanism.release(r, rng=SeededNoise(1)) for r in (raw, raw * 1.0))
    assert whole.labels.tolist() == floats.labels.tolist()


@pytest.mark.parametrize("wrong", [{"epsilon": 0.0}, {"num_classes": 1}, {"num_classes": 2.5}])
def test_settings_without_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClassResponse(**({"epsilon": 1.0, "num_classes": 3} | wrong))
