"""Ranges of ratios hold every ratio of what lies in their parts, and no more."""

import numpy as np
import pytest

from tulle.measure.reach.noisy_numbers import NoisyNumbers, Range, average_range, share_range
from tulle.privacy.events import DiscreteLaplace


def around(value: float, half_width: float) -> Range:
    return Range.around(np.array([value]), half_width)


def test_a_share_lies_between_the_extremes_of_its_box() -> None:
    rng = np.random.default_rng(1)
    found = share_range(around(30.0, 5.0), around(60.0, 20.0))
    chosen, others = rng.uniform(25, 35, 100_000), rng.uniform(40, 80, 100_000)
    shares = chosen / (chosen + others)
    assert found.lows[0] <= shares.min() <= found.lows[0] + 0.01
    assert found.highs[0] >= shares.max() >= found.highs[0] - 0.01


@pytest.mark.parametrize(
    ("chosen", "others", "expected"),
    [(-50.0, 100.0, (0.0, 0.0)), (100.0, -50.0, (1.0, 1.0)), (0.0, 0.0, (0.0, 1.0))],
)
def test_shares_of_next_to_nothing_stay_between_0_and_1(
    chosen: float, others: float, expected: tuple[float, float]
) -> None:
    found = share_range(around(chosen, 10.0), around(others, 10.0))
    assert (found.lows[0], found.highs[0]) == expected


def test_an_average_lies_within_what_its_sums_allow() -> None:
    counts = np.array([40.0, 30.0, 20.0, 10.0])
    frequencies = np.arange(1, 5)
    sums = np.array([[counts @ (frequencies - centre) for centre in frequencies]])
    found = average_range(
        sums, np.full(4, 12.0), around(100.0, 10.0), centres=frequencies.astype(float), most=4
    )
    # Every c bounds it; the nearest to the average of 2 gives 2 + [-12, 12] / 90.
    assert found.lows[0] == pytest.approx(2 - 12 / 90)
    assert found.highs[0] == pytest.approx(2 + 12 / 90)


def test_an_average_over_nobody_may_be_anything() -> None:
    found = average_range(
        np.zeros((1, 3)), np.full(3, 5.0), around(0.0, 5.0), centres=np.arange(1.0, 4.0), most=3
    )
    assert (found.lows[0], found.highs[0]) == (1.0, 3.0)


def test_numbers_of_a_slice_are_its_release() -> None:
    numbers = NoisyNumbers.sums(np.array([5.0, 7.0]), stddev=2.0, half_width=4.0, confidence=0.9)
    release = numbers.release(1, DiscreteLaplace(scale=1.0))
    assert (release.value, release.noise_stddev) == (7.0, 2.0)
    assert (release.interval.low, release.interval.high) == (3.0, 11.0)
    assert release.interval.confidence == 0.9
