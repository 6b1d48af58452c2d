"""One noisy number for each of many slices, with its noise and interval.

A ratio of noisy sums has no useful variance when its denominator can be near 0. A box that holds
both sums with the stated confidence still holds: the ratio lies between its extremes there.

A histogram is non-negative exactly if its sums from bucket k on fall with k and end above 0.
Cutting buckets at 0 instead would add noise to reach in every empty bucket; isotonic regression
changes a sum only where neighbouring ones contradict it, and so leaves reach mostly alone.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tulle.privacy.events import Event
from tulle.privacy.guarantee import Interval, Release

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Range:
    """Range that a count may lie in, never below 0."""

    lows: FloatArray
    highs: FloatArray

    @classmethod
    def around(cls, noisy_values: FloatArray, half_width: float) -> "Range":
        """Range of a half-width around a noisy count."""
        return cls(
            lows=np.maximum(noisy_values - half_width, 0.0),
            highs=np.maximum(noisy_values + half_width, 0.0),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoisyNumbers:
    """One metric of many slices."""

    values: FloatArray
    noise_stddevs: FloatArray
    lows: FloatArray
    highs: FloatArray
    confidence: float

    @classmethod
    def sums(
        cls, values: FloatArray, *, stddev: float, half_width: float, confidence: float
    ) -> "NoisyNumbers":
        """Numbers that are noisy counts with the same noise.

        Args:
          values: The counts.
          stddev: Standard deviation of their noise.
          half_width: Half-width of their intervals.
          confidence: Probability with which an interval holds its number.
        """
        return cls(
            values=values,
            noise_stddevs=np.full(len(values), stddev),
            lows=values - half_width,
            highs=values + half_width,
            confidence=confidence,
        )

    @classmethod
    def ratios(
        cls, values: FloatArray, *, stddevs: FloatArray, limits: Range, confidence: float
    ) -> "NoisyNumbers":
        """Numbers that are ratios; a value outside its limits is moved to them.

        Args:
          values: The ratios.
          stddevs: Standard deviations of their noise.
          limits: Their intervals.
          confidence: Probability with which an interval holds its number.
        """
        return cls(
            values=np.clip(values, limits.lows, limits.highs),
            # A ratio of all to all has no noise of first order, and still is no exact number.
            noise_stddevs=np.maximum(stddevs, np.finfo(np.float64).tiny),
            lows=limits.lows,
            highs=limits.highs,
            confidence=confidence,
        )

    def release(self, index: int, event: Event) -> Release:
        """The number of one slice."""
        return Release(
            value=float(self.values[index]),
            noise_stddev=float(self.noise_stddevs[index]),
            interval=Interval(
                low=float(self.lows[index]),
                high=float(self.highs[index]),
                confidence=self.confidence,
            ),
            event=event,
        )


def share_range(chosen: Range, others: Range) -> Range:
    """Range of chosen / (chosen + others), which rises with the one and falls with the other."""
    return Range(
        lows=_quotient(chosen.lows, chosen.lows + others.highs, if_empty=0.0),
        highs=_quotient(chosen.highs, chosen.highs + others.lows, if_empty=1.0),
    )


def average_range(
    noisy_sums: FloatArray, half_widths: FloatArray, reach: Range, *, centres: FloatArray, most: int
) -> Range:
    """Range of the average frequency, from sums of (frequency - c) over units for several c.

    Each c bounds the average by c + sum / reach, most tightly where c is near the average.

    Args:
      noisy_sums: [slices, centres].
      half_widths: [centres], of the sums.
      reach: Holds together with all sums.
      centres: The values of c.
      most: The largest frequency; the least is 1.
    """
    lows, highs = noisy_sums - half_widths, noisy_sums + half_widths
    least_reach, most_reach = reach.lows[:, None], reach.highs[:, None]
    # The bound is least where a negative sum is over a small reach, a positive one over a large.
    low_divisors = np.where(lows >= 0, most_reach, least_reach)
    high_divisors = np.where(highs >= 0, least_reach, most_reach)
    low = np.max(centres + _quotient(lows, low_divisors, if_empty=-most), axis=1)
    high = np.min(centres + _quotient(highs, high_divisors, if_empty=most), axis=1)
    low, high = np.clip(low, 1.0, most), np.clip(high, 1.0, most)
    return Range(lows=np.minimum(low, high), highs=np.maximum(low, high))


def monotone_counts(counts: FloatArray) -> FloatArray:
    """The histograms, one a row, whose k+ sums are nearest to those given and in order.

    A sum over j buckets has j times the variance of one, and weighs 1 / j.
    """
    counts = np.asarray(counts, np.float64)
    if counts.size == 0:
        return counts.copy()
    tail_sums = np.cumsum(counts[:, ::-1], axis=1)
    weights = 1 / np.arange(1, counts.shape[1] + 1, dtype=np.float64)
    rising = np.stack([isotonic_regression(row, weights) for row in tail_sums])
    # Cutting at 0 after the regression is the projection onto both conditions.
    rising = np.maximum(rising, 0.0)
    fixed: FloatArray = np.diff(rising, axis=1, prepend=0.0)[:, ::-1]
    return np.maximum(fixed, 0.0)


def isotonic_regression(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The nearest rising sequence in weighted squares, by pooling adjacent violators."""
    means: list[float] = []
    masses: list[float] = []
    lengths: list[int] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, mass, length = value, weight, 1
        while means and means[-1] >= mean:
            earlier = masses.pop()
            mean = (means.pop() * earlier + mean * mass) / (earlier + mass)
            mass += earlier
            length += lengths.pop()
        means.append(mean)
        masses.append(mass)
        lengths.append(length)
    return np.repeat(means, lengths)


def _quotient(parts: FloatArray, wholes: FloatArray, *, if_empty: float) -> FloatArray:
    quotients: FloatArray = np.where(
        wholes > 0, parts / np.where(wholes > 0, wholes, 1.0), if_empty
    )
    return quotients
