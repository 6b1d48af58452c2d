"""Intervals of randomized counts cover with the stated chance, computed without sampling."""

import numpy as np
import pytest
from scipy import stats

from tulle.lab.trust.local_counts import response_releases
from tulle.mechanisms.noisy_reports import SupportConfig
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.rappor import RapporConfig
from tulle.mechanisms.subset_selection import SubsetSelectionConfig
from tulle.privacy.events import RandomizedResponse
from tulle.privacy.guarantee import Release

EVENT = RandomizedResponse(epsilon=1.0)


def releases_by_support(
    randomizer: SupportConfig, num_users: int, confidence: float
) -> tuple[Release, ...]:
    """The release for each possible number of reports that support a value."""
    found: list[Release] = []
    every_support = np.arange(num_users + 1)
    for start in range(0, num_users + 1, randomizer.num_values):
        support = np.zeros(randomizer.num_values, np.int64)
        part = every_support[start : start + randomizer.num_values]
        support[: part.size] = part
        found += response_releases(
            support,
            randomizer,
            num_users=num_users,
            values=range(part.size),
            event=EVENT,
            confidence=confidence,
        )
    return tuple(found)


def support_chances(randomizer: SupportConfig, num_users: int, count: int) -> np.ndarray:
    probs = randomizer.support_probs
    held = stats.binom.pmf(np.arange(count + 1), count, float(probs.if_held))
    rest = num_users - count
    return np.convolve(held, stats.binom.pmf(np.arange(rest + 1), rest, float(probs.if_not_held)))


RANDOMIZERS = [
    *(RandomizedResponseConfig(epsilon=e, num_values=k) for e in (0.1, 1, 5, 10) for k in (2, 40)),
    RapporConfig(epsilon=2.0, num_values=40),
    SubsetSelectionConfig(epsilon=2.0, num_values=40),
]


@pytest.mark.parametrize("randomizer", RANDOMIZERS, ids=str)
@pytest.mark.parametrize("num_users", [1, 8, 90, 700])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
def test_intervals_cover_whatever_the_count_is(
    randomizer: SupportConfig, num_users: int, confidence: float
) -> None:
    releases = releases_by_support(randomizer, num_users, confidence)
    for count in sorted({0, 1, num_users // 3, num_users - 1, num_users}):
        covers = np.array([r.interval.low <= count <= r.interval.high for r in releases])
        chances = support_chances(randomizer, num_users, count)
        assert float(chances[covers].sum()) >= confidence


def test_intervals_of_many_users_are_not_wider_than_they_need_be() -> None:
    randomizer = RandomizedResponseConfig(epsilon=1.0, num_values=5)
    releases = releases_by_support(randomizer, 4000, 0.95)
    covers = np.array([r.interval.low <= 1000 <= r.interval.high for r in releases])
    chances = support_chances(randomizer, 4000, 1000)
    assert 0.95 <= float(chances[covers].sum()) <= 0.96


def test_estimates_have_no_bias() -> None:
    randomizer = RandomizedResponseConfig(epsilon=0.7, num_values=4)
    values = np.array([release.value for release in releases_by_support(randomizer, 60, 0.95)])
    for count in (0, 17, 60):
        chances = support_chances(randomizer, 60, count)
        assert float(chances @ values) == pytest.approx(count, abs=1e-9)


def test_reports_that_no_count_explains_still_have_an_interval() -> None:
    randomizer = RandomizedResponseConfig(epsilon=0.05, num_values=2)
    least, *_, most = releases_by_support(randomizer, 500, 0.95)
    assert least.interval.high < 0
    assert most.interval.low > 500
