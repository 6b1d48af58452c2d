import math
from typing import Any

import numpy as np
import pytest

from statistical.randomizer_checks import ScriptedNoise, assert_private, measured_channel
from tulle.errors import ConfigError, DataError
from tulle.labels.mechanisms.class_response import ClassResponse
from tulle.mechanisms.entropy import SeededNoise

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
def test_any_function_of_the_class_has_its_moments_in_closed_form(
    mechanism: ClassResponse,
) -> None:
    values = np.random.default_rng(1).normal(size=mechanism.num_classes) * 10
    table = mechanism.debiased_values(values, np.arange(mechanism.num_classes))
    for label, law in enumerate(_channel(mechanism)):
        mean = law @ table
        assert mean == pytest.approx(values[label], abs=1e-9)
        assert float(mechanism.mean(label, values)) == pytest.approx(values[label], abs=1e-9)
        variance = law @ (table - mean) ** 2
        assert float(mechanism.variance(label, values)) == pytest.approx(variance, rel=1e-9)


@each_case
def test_variances_of_indicators_are_those_of_brute_force(mechanism: ClassResponse) -> None:
    eye = np.eye(mechanism.num_classes)
    table = mechanism.debiased_indicators(np.arange(mechanism.num_classes))
    for label, law in enumerate(_channel(mechanism)):
        variance = law @ (table - eye[label]) ** 2
        np.testing.assert_allclose(mechanism.variance(label, eye), variance, rtol=1e-8)


@each_case
def test_counts_are_the_sums_of_the_indicators(mechanism: ClassResponse) -> None:
    reports = np.random.default_rng(2).integers(0, mechanism.num_classes, 200)
    np.testing.assert_allclose(
        mechanism.debiased_counts(reports),
        mechanism.debiased_indicators(reports).sum(axis=0),
        rtol=1e-9,
        atol=1e-9,
    )


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


def test_functions_and_labels_must_fit_the_classes() -> None:
    mechanism = ClassResponse(epsilon=1.0, num_classes=3)
    with pytest.raises(ConfigError, match="class_values"):
        mechanism.debiased_values([1.0, 2.0], np.array([0]))
    with pytest.raises(ConfigError, match="label=3"):
        mechanism.variance(3, [1.0, 2.0, 3.0])
