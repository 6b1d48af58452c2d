"""A noisy number with the interval that its noise gives it."""

import abc
import statistics

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.release import Interval, Release


class CentredNoise(abc.ABC):
    """Settings of noise that is symmetric around the raw number."""

    @property
    @abc.abstractmethod
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each number."""

    @abc.abstractmethod
    def half_width(self, confidence: float = 0.95) -> float:
        """What the noise exceeds in size with chance <= 1 - confidence."""

    @abc.abstractmethod
    def event(self) -> Event:
        """What one release costs."""

    def as_release(self, noisy_value: float, *, confidence: float = 0.95) -> Release:
        """One noisy number together with its noise, interval and cost."""
        half_width = self.half_width(confidence)
        return Release(
            value=noisy_value,
            noise_stddev=self.noise_stddev,
            interval=Interval(
                low=noisy_value - half_width, high=noisy_value + half_width, confidence=confidence
            ),
            event=self.event(),
        )


def check_confidence(confidence: float) -> None:
    """Refuses confidences outside (0, 1)."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence} must be in (0, 1), e.g. 0.95.")


def normal_quantile(confidence: float) -> float:
    """What a standard normal number exceeds in size with chance 1 - confidence."""
    check_confidence(confidence)
    return -statistics.NormalDist().inv_cdf((1 - confidence) / 2)
