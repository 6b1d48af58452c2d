"""Local counts: every device noises its own value, and nobody sees a raw one.

No trust is needed, and the price is an error that grows with the square root of the number of
users. Randomized reports are much better than Laplace noise on every device, which is here
for comparison.

The number of reports that support a value is a sum of two binomial numbers: of users who hold
it and of users who do not. Its variance depends on the count that is sought, so an interval holds
all counts that explain the reports, as Wilson's does for a proportion.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, cast

import numpy as np

from tulle.lab.trust.central_counts import AdditiveCountsConfig, ValueCountsConfig
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.centred_noise import normal_quantile
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import (
    BitMatrix,
    IntArray,
    SupportConfig,
    count_reports,
    debias_counts,
    variance_per_report,
)
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.mechanisms.rappor import RapporConfig, release_rappor
from tulle.mechanisms.subset_selection import SubsetSelectionConfig, release_subset_selection
from tulle.privacy.events import DiscreteLaplace, Event
from tulle.privacy.guarantee import Interval, Release
from tulle.privacy.units import Adjacency, TrustModel

_BLOCK_MARKS = 1 << 24
"""Most marks or noise terms, one for each user and value, that are in memory at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportedCountsConfig(ValueCountsConfig):
    """Settings of counts from one randomized report a user. Every field is public."""

    trust_model = TrustModel.LOCAL

    _settings: ClassVar[Callable[..., Any]]
    """Class of the settings of what runs on each device."""
    _randomize: ClassVar[Callable[..., IntArray | BitMatrix]]
    """Function that draws one report for each value."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @functools.cached_property
    def randomizer(self) -> SupportConfig:
        """What runs on each device."""
        made: SupportConfig = self._settings(epsilon=self.epsilon, num_values=self.num_values)
        return made

    def event(self) -> Event:
        """What one report of each user costs."""
        cost: Event = cast(Any, self.randomizer).event()
        return cost

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on the count of a value of this frequency."""
        return math.sqrt(self.num_users * variance_per_report(self.randomizer, frequency=frequency))

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        report_counts = np.zeros(self.num_values, np.int64)
        for block in _blocks(values, self.num_values):
            reports = self._randomize(block, self.randomizer, rng=rng)
            report_counts += count_reports(reports, self.randomizer)
        return response_releases(
            report_counts,
            self.randomizer,
            num_users=self.num_users,
            values=self.released_values,
            event=self.event(),
            confidence=confidence,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalResponseConfig(ReportedCountsConfig):
    """Settings of binary or K-ary randomized response on each device. Every field is public."""

    mechanism = "Every device reports its value by randomized response."
    _settings = RandomizedResponseConfig
    _randomize = staticmethod(release_randomized_response)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalRapporConfig(ReportedCountsConfig):
    """Settings of one-hot bits that each device flips. Every field is public."""

    mechanism = "Every device reports one bit for each value, flipped at half of epsilon."
    _settings = RapporConfig
    _randomize = staticmethod(release_rappor)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSubsetConfig(ReportedCountsConfig):
    """Settings of subset selection, of the size with least variance. Every field is public."""

    mechanism = "Every device reports a random set of values that favours its own."
    _settings = SubsetSelectionConfig
    _randomize = staticmethod(release_subset_selection)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalLaplaceConfig(AdditiveCountsConfig):
    """Settings of discrete Laplace noise on each device, for comparison. Every field is public.

    A device noises one number, or one for each value of a histogram.
    """

    trust_model = TrustModel.LOCAL
    mechanism = "Every device adds discrete Laplace noise to its own row of a histogram."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise that one device adds to one number."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            replace_factor=self.counts_per_user,
        )

    @property
    def total_noise(self) -> SharedNoise:
        """The noise of all devices on one count."""
        return SharedNoise(scale=self.noise.scale, shape=self.num_users)

    def event(self) -> DiscreteLaplace:
        """What the noisy row of each user costs."""
        return self.noise.event()

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[int]:
        released = self.released_values
        noisy_counts = np.zeros(len(released), np.int64)
        for block in _blocks(values, len(released)):
            rows = block[:, None] == np.asarray(released)[None, :]
            noisy_rows = rows + sample_discrete_laplace(self.noise.scale, rows.shape, rng=rng)
            noisy_counts += noisy_rows.sum(axis=0)
        return [int(count) for count in noisy_counts]


def response_releases(
    report_counts: IntArray,
    randomizer: SupportConfig,
    *,
    num_users: int,
    values: range,
    event: Event,
    confidence: float,
) -> tuple[Release, ...]:
    """Unbiased counts from how many reports support each value.

    Args:
      report_counts: Number of reports that support each value. Already protected.
      randomizer: The settings that the reports were made with.
      num_users: How many reports there are.
      values: The values to release.
      event: What the reports cost.
      confidence: Confidence of each interval.
    """
    estimates = debias_counts(report_counts, num_users, randomizer)
    variances = _Variances(randomizer, num_users)
    return tuple(
        Release(
            value=float(estimates[value]),
            noise_stddev=math.sqrt(variances.at(float(np.clip(estimates[value], 0, num_users)))),
            interval=variances.interval(float(estimates[value]), confidence),
            event=event,
        )
        for value in values
    )


def _blocks(values: IntArray, numbers_per_user: int) -> list[IntArray]:
    users_per_block = max(1, _BLOCK_MARKS // numbers_per_user)
    return [
        values[start : start + users_per_block] for start in range(0, len(values), users_per_block)
    ]


class _Variances:
    """Variance of an estimate as a linear function of the count it estimates."""

    def __init__(self, randomizer: SupportConfig, num_users: int) -> None:
        self._of_holder = variance_per_report(randomizer, frequency=1.0)
        self._of_other = variance_per_report(randomizer, frequency=0.0)
        self._num_users = num_users
        probs = randomizer.support_probs
        self._count_per_report = 1 / float(probs.if_held - probs.if_not_held)

    def at(self, count: float) -> float:
        """The variance if `count` users hold the value."""
        return count * self._of_holder + (self._num_users - count) * self._of_other

    def interval(self, estimate: float, confidence: float) -> Interval:
        """All counts c with |estimate - c| <= reach + quantile sqrt(variance at c)."""
        quantile = normal_quantile(confidence)
        # Half a report because reports are whole, and Cornish and Fisher's (z^2 - 1) / 6 times
        # the skewness, which for a sum of coins is at most one over its standard deviation.
        reach = (0.5 + max(0.0, quantile**2 - 1) / 6) * self._count_per_report
        return Interval(
            low=self._end(estimate - reach, -quantile),
            high=self._end(estimate + reach, quantile),
            confidence=confidence,
        )

    def _end(self, start: float, quantile: float) -> float:
        """The count c furthest from `start` with |c - start| <= |quantile| sqrt(variance at c).

        Counts beyond 0 or num_users do not exist; they get the variance at that edge.
        """
        shift = quantile**2 * (self._of_holder - self._of_other) / 2
        square = quantile**2 * self.at(start) + shift**2
        root = start + shift + math.copysign(math.sqrt(max(0.0, square)), quantile)
        if square >= 0 and 0 <= root <= self._num_users and (root - start) * quantile >= 0:
            return root
        lies_low = start < 0 or (quantile < 0 and start <= self._num_users)
        edge = 0 if lies_low else self._num_users
        return start + quantile * math.sqrt(self.at(edge))
