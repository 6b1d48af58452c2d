"""Local counts: every device noises its own value, and nobody sees a raw one.

No trust is needed, and the price is an error that grows with the square root of the number of
users. Randomized reports are much better than Laplace noise on every device, which is here
for comparison.
"""

import abc
import dataclasses
import functools
import math

import numpy as np

from tulle.measure.noise_sums import SharedNoise
from tulle.measure.trust.additive_counts import AdditiveCountsConfig
from tulle.measure.trust.response_counts import response_releases
from tulle.measure.trust.value_counts import ValueCountsConfig
from tulle.mechanisms import randomized_response, rappor, subset_selection
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import (
    BitMatrix,
    FrequencyConfig,
    IntArray,
    count_reports,
    variance_per_report,
)
from tulle.mechanisms.randomized_response import RandomizedResponseConfig
from tulle.mechanisms.rappor import RapporConfig
from tulle.mechanisms.subset_selection import SubsetSelectionConfig
from tulle.privacy.events import DiscreteLaplace, RandomizedResponse, Repeated, SubsetSelection
from tulle.privacy.release import Release
from tulle.privacy.units import Adjacency, TrustModel

_BLOCK_MARKS = 1 << 24
"""Most marks or noise terms, one for each user and value, that are in memory at once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LocalReportsConfig(ValueCountsConfig):
    """Settings of counts from one randomized report a user."""

    trust_model = TrustModel.LOCAL

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @property
    @abc.abstractmethod
    def randomizer(self) -> FrequencyConfig:
        """What runs on each device."""

    @abc.abstractmethod
    def _draw(self, values: IntArray, rng: NoiseSource) -> IntArray | BitMatrix: ...

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on the count of a value of this frequency."""
        return math.sqrt(self.num_users * variance_per_report(self.randomizer, frequency=frequency))

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        report_counts = np.zeros(self.num_values, np.int64)
        for block in _blocks(values, self.num_values):
            report_counts += count_reports(self._draw(block, rng), self.randomizer)
        return response_releases(
            report_counts,
            self.randomizer,
            num_users=self.num_users,
            values=self.released_values,
            event=self.event(),
            confidence=confidence,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalResponseConfig(_LocalReportsConfig):
    """Settings of binary or K-ary randomized response on each device. Every field is public."""

    mechanism = "Every device reports its value by randomized response."

    @functools.cached_property
    def randomizer(self) -> RandomizedResponseConfig:
        """What runs on each device."""
        return RandomizedResponseConfig(epsilon=self.epsilon, num_values=self.num_values)

    def event(self) -> RandomizedResponse:
        """What one report of each user costs."""
        return self.randomizer.event()

    def _draw(self, values: IntArray, rng: NoiseSource) -> IntArray:
        return randomized_response.randomize(values, self.randomizer, rng=rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalRapporConfig(_LocalReportsConfig):
    """Settings of one-hot bits that each device flips. Every field is public."""

    mechanism = "Every device reports one bit for each value, flipped at half of epsilon."

    @functools.cached_property
    def randomizer(self) -> RapporConfig:
        """What runs on each device."""
        return RapporConfig(epsilon=self.epsilon, num_values=self.num_values)

    def event(self) -> Repeated:
        """What one report of each user costs."""
        return self.randomizer.event()

    def _draw(self, values: IntArray, rng: NoiseSource) -> BitMatrix:
        return rappor.randomize(values, self.randomizer, rng=rng)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSubsetConfig(_LocalReportsConfig):
    """Settings of subset selection on each device. Every field is public."""

    mechanism = "Every device reports a random set of values that favours its own."

    @functools.cached_property
    def randomizer(self) -> SubsetSelectionConfig:
        """What runs on each device, with the subset size of least variance."""
        return SubsetSelectionConfig(epsilon=self.epsilon, num_values=self.num_values)

    def event(self) -> SubsetSelection:
        """What one report of each user costs."""
        return self.randomizer.event()

    def _draw(self, values: IntArray, rng: NoiseSource) -> BitMatrix:
        return subset_selection.randomize(values, self.randomizer, rng=rng)


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


def _blocks(values: IntArray, numbers_per_user: int) -> list[IntArray]:
    users_per_block = max(1, _BLOCK_MARKS // numbers_per_user)
    return [
        values[start : start + users_per_block] for start in range(0, len(values), users_per_block)
    ]
