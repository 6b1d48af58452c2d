"""Counts with noise that is added to them and does not depend on them, whoever adds it."""

import abc
import dataclasses
from collections.abc import Sequence

from tulle.errors import ConfigError
from tulle.measure.noise_sums import SharedNoise
from tulle.measure.trust.value_counts import ValueCountsConfig
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray
from tulle.mechanisms.intervals import CentredNoise
from tulle.privacy.release import Interval, Release


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveCountsConfig(ValueCountsConfig):
    """Settings of counts with additive noise. Every field is public information."""

    @property
    def counts_per_user(self) -> int:
        """Counts that another value of one user changes: the only one, or two of a histogram."""
        return 1 if self.num_values == 2 else 2

    @property
    @abc.abstractmethod
    def total_noise(self) -> CentredNoise | SharedNoise:
        """The noise on one count, from all who add some."""

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count, the same for every frequency."""
        if not 0 <= frequency <= 1:
            raise ConfigError(f"frequency={frequency} must be in [0, 1].")
        return self.total_noise.noise_stddev

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        noise_stddev, event = self.expected_stddev(), self.event()
        half_width = self.total_noise.half_width(confidence)
        return tuple(
            Release(
                value=count,
                noise_stddev=noise_stddev,
                interval=Interval(
                    low=count - half_width, high=count + half_width, confidence=confidence
                ),
                event=event,
            )
            for count in self._noisy_counts(values, rng)
        )

    @abc.abstractmethod
    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> Sequence[float]:
        """One for each of `released_values`."""
