import dataclasses
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.noisy_reports import (
    BinaryChannel,
    SupportProbs,
    check_held_values,
    count_reports,
    debias_counts,
    variance_per_report,
)
from tulle.mechanisms.randomized_response import RandomizedResponseConfig


@dataclasses.dataclass(frozen=True)
class _Config:
    num_values: int = 3
    support_probs: SupportProbs = SupportProbs(  # noqa: RUF009
        if_held=Fraction(3, 4), if_not_held=Fraction(1, 8)
    )


def test_expected_report_counts_give_back_the_true_counts() -> None:
    true_counts = np.array([100, 40, 20])
    expected = true_counts * 0.75 + (160 - true_counts) * 0.125
    np.testing.assert_allclose(debias_counts(expected, 160, _Config()), true_counts)


def test_the_variance_mixes_units_that_hold_the_value_and_units_that_do_not() -> None:
    held, not_held = 3 / 16 / 0.625**2, 7 / 64 / 0.625**2
    assert variance_per_report(_Config(), frequency=1.0) == pytest.approx(held)
    assert variance_per_report(_Config()) == pytest.approx(not_held)
    assert variance_per_report(_Config(), frequency=0.25) == pytest.approx(
        0.25 * held + 0.75 * not_held
    )


def test_a_frequency_outside_the_unit_interval_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"frequency=1\.5"):
        variance_per_report(_Config(), frequency=1.5)


def test_counts_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(DataError, match="num_values=3"):
        debias_counts([1, 2], 3, _Config())


def test_values_and_rows_of_marks_are_counted() -> None:
    assert count_reports(np.array([0, 2, 2]), _Config()).tolist() == [1, 0, 2]
    marks = np.array([[True, True, False], [False, True, False]])
    assert count_reports(marks, _Config()).tolist() == [1, 2, 0]


def test_marks_with_a_missing_column_are_refused() -> None:
    with pytest.raises(DataError, match="num_values=3 columns"):
        count_reports(np.zeros((4, 2), np.bool_), _Config())


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, np.uint64])
def test_every_integer_type_is_taken(dtype: type) -> None:
    checked = check_held_values(np.array([0, 1, 1], dtype), 2)
    assert checked.dtype == np.int64
    assert checked.tolist() == [0, 1, 1]


ONE = BinaryChannel(prob_if_negative=0.1, prob_if_positive=0.7)
ROWS = BinaryChannel(
    prob_if_negative=np.array([0.0, 0.2, 0.45]), prob_if_positive=np.array([0.5, 1.0, 0.55])
)


def _law(channel: BinaryChannel, label: int) -> np.ndarray:
    """Chances of the reports 0 and 1, one column a row."""
    chance = np.atleast_1d(channel.prob_if_positive if label else channel.prob_if_negative)
    return np.stack([1 - chance, chance])


def _targets(channel: BinaryChannel) -> np.ndarray:
    size = channel.gain.shape
    return np.stack([np.atleast_1d(channel.debiased_targets(np.full(size, r))) for r in (0, 1)])


@pytest.mark.parametrize("channel", [ONE, ROWS], ids=["one channel", "one a row"])
@pytest.mark.parametrize("label", [0, 1])
def test_targets_have_the_label_as_mean_and_the_stated_variance(
    channel: BinaryChannel, label: int
) -> None:
    law, targets = _law(channel, label), _targets(channel)
    np.testing.assert_allclose((law * targets).sum(axis=0), label, atol=1e-12)
    variance = (law * (targets - label) ** 2).sum(axis=0)
    np.testing.assert_allclose(np.atleast_1d(channel.target_variance(label)), variance, rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_randomized_response_has_the_closed_form_of_its_variance(epsilon: float) -> None:
    channel = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=epsilon))
    expected = math.exp(epsilon) / math.expm1(epsilon) ** 2
    for label in (0, 1):
        assert float(channel.target_variance(label)) == pytest.approx(expected, rel=1e-12)
    assert float(channel.mean_variance(0.2)) == pytest.approx(expected, rel=1e-12)
    low, high = channel.debiased_targets([0, 1])
    assert low == pytest.approx(-1 / math.expm1(epsilon))
    assert high == pytest.approx(math.exp(epsilon) / math.expm1(epsilon))


def test_the_two_conventions_of_randomized_response_agree() -> None:
    # "Draw a uniform label with chance p = 2 / (e^eps + 1)" flips with chance p / 2.
    channel = BinaryChannel.of_response(RandomizedResponseConfig(epsilon=1.3))
    assert float(channel.prob_if_negative) == pytest.approx(1 / (1 + math.exp(1.3)))
    assert float(channel.prob_if_positive) == pytest.approx(1 / (1 + math.exp(-1.3)))


@pytest.mark.parametrize("channel", [ONE, ROWS], ids=["one channel", "one a row"])
def test_weights_are_one_over_the_variance_of_target_and_label(channel: BinaryChannel) -> None:
    rate = 0.3
    second = sum(
        share * (_law(channel, label) * _targets(channel) ** 2).sum(axis=0)
        for label, share in ((0, 1 - rate), (1, rate))
    )
    np.testing.assert_allclose(
        np.atleast_1d(channel.weights(rate)), 1 / (second - rate**2), rtol=1e-10
    )


@pytest.mark.parametrize("channel", [ONE, ROWS], ids=["one channel", "one a row"])
def test_calibration_undoes_the_chance_of_a_report(channel: BinaryChannel) -> None:
    for chance in (0.001, 0.2, 0.9, 1.0):
        reports = channel.report_probs(np.full(channel.gain.shape, chance))
        np.testing.assert_allclose(channel.label_probs(reports), chance, atol=1e-12)
    np.testing.assert_allclose(channel.report_probs(0.0), channel.prob_if_negative)
    np.testing.assert_allclose(channel.report_probs(1.0), channel.prob_if_positive)


def test_calibrated_chances_stay_within_their_limits_and_in_order() -> None:
    reports = np.array([0.0, 0.05, 0.3, 0.5, 0.9])
    calibrated = ONE.label_probs(reports, least=0.01)
    assert calibrated[0] == calibrated[1] == 0.01
    assert calibrated[-1] == 1.0
    assert np.all(np.diff(calibrated) >= 0)


@pytest.mark.parametrize(
    ("negative", "positive"),
    [
        (0.5, 0.5),
        (0.7, 0.1),
        (-0.1, 0.5),
        (0.5, 1.1),
        (math.nan, 0.5),
        ([0.1, 0.2], 0.5),
        ([[0.1]], [[0.2]]),
    ],
)
def test_chances_that_say_nothing_are_refused(negative: Any, positive: Any) -> None:
    with pytest.raises(ConfigError):
        BinaryChannel(prob_if_negative=negative, prob_if_positive=positive)


@pytest.mark.parametrize("bad", [[0, 2], [0.5], [math.nan], ["1"], [-1]])
def test_reports_other_than_0_and_1_are_refused(bad: list[Any]) -> None:
    with pytest.raises(DataError, match="0 and 1"):
        ONE.debiased_targets(bad)


def test_reports_must_match_the_rows_of_the_channel() -> None:
    for reports in ([0, 1], [0, 1, 0, 1], 1):
        with pytest.raises(DataError, match="one report for each row"):
            ROWS.debiased_targets(reports)


@pytest.mark.parametrize("base_rate", [0.0, 1.0, -0.1, math.nan])
def test_a_base_rate_without_both_labels_is_refused(base_rate: float) -> None:
    with pytest.raises(ConfigError, match="base_rate"):
        ONE.weights(base_rate)


def test_a_label_other_than_0_and_1_has_no_variance() -> None:
    with pytest.raises(ConfigError, match="label=2"):
        ONE.target_variance(2)


def test_a_channel_is_made_of_two_values_alone() -> None:
    with pytest.raises(ConfigError, match="num_values=3"):
        BinaryChannel.of_response(RandomizedResponseConfig(epsilon=1.0, num_values=3))
