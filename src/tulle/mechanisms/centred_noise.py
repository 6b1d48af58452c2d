"""What all noise that is added to numbers shares: the interval it gives, and raw counts it fits.

Noise is symmetric around the raw number, so a noisy number lies in the middle of its interval. Raw
counts are integers far from the ends of 64 bits, so that no sum with noise overflows.
"""

import abc
import statistics

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import DataError
from tulle.mechanisms.exact import IntArray
from tulle.privacy.events import Event
from tulle.privacy.fields import check_prob
from tulle.privacy.guarantee import Interval, Release
from tulle.privacy.units import Adjacency


class CentredNoise(abc.ABC):
    """Settings of noise that is symmetric around the raw number."""

    @property
    @abc.abstractmethod
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each number."""

    @abc.abstractmethod
    def half_width(self, confidence: float = 0.95) -> float:
        """What the noise exceeds in size with probability <= 1 - confidence."""

    @abc.abstractmethod
    def event(self) -> Event:
        """What one release costs."""

    def as_release(self, noisy_value: float, *, confidence: float = 0.95) -> Release:
        """Puts a noisy number together with its noise, interval and cost."""
        half_width = self.half_width(confidence)
        return Release(
            value=noisy_value,
            noise_stddev=self.noise_stddev,
            interval=Interval(
                low=noisy_value - half_width, high=noisy_value + half_width, confidence=confidence
            ),
            event=self.event(),
        )


def neighbour_distance(adjacency: Adjacency | str, replace_factor: float) -> float:
    """How far apart two neighbours are, over what one unit adds.

    Args:
      adjacency: Relation under which data sets are neighbours, also as text.
      replace_factor: How much further than a removal a replacement moves the numbers.

    Raises:
      ConfigError: The text is no adjacency. It must not count as another one, which may need less
        noise.
    """
    if not isinstance(adjacency, Adjacency):
        adjacency = Adjacency.parse(adjacency)
    return replace_factor if adjacency is Adjacency.REPLACE else 1.0


def check_confidence(confidence: float) -> None:
    """Refuses confidences outside (0, 1)."""
    check_prob("confidence", confidence, example=0.95)


def normal_quantile(confidence: float) -> float:
    """What a standard normal number exceeds in size with probability 1 - confidence."""
    check_confidence(confidence)
    return -statistics.NormalDist().inv_cdf((1 - confidence) / 2)


MAX_COUNT = 2**62
"""Largest raw count in size; noise is always smaller, so sums fit int64."""


def checked_counts(raw_counts: ArrayLike) -> IntArray:
    """The counts as int64. Floats and counts near overflow are refused.

    Privacy:
      Releases nothing: the error shows none of the counts.
    """
    counts = np.asarray(raw_counts)
    if counts.dtype.kind not in "iu" and counts.size:
        raise DataError(
            f"raw_counts have dtype {counts.dtype}, but must be integers below 2^63; "
            "for real numbers use release_laplace() or release_gaussian()."
        )
    if counts.size and (int(counts.max()) > MAX_COUNT or int(counts.min()) < -MAX_COUNT):
        raise DataError(
            f"raw_counts must lie within +-{MAX_COUNT} for exact sums; count in larger steps."
        )
    return counts.astype(np.int64)
