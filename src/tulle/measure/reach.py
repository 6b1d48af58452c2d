"""Reach and frequency of each slice, all from one noisy histogram.

Reach is the sum of the buckets, k+ reach a sum of the last ones, and frequencies are ratios of
both: nothing but the histogram costs budget. With `reach_share`, reach is counted on its own as
well, and both measurements are joined by weighted least squares.

A unit is in one bucket of each of its slices, so it moves the histograms by one count a slice:
`max_slices_per_unit` in L1 and its square root in L2.

A ratio of noisy sums has no useful variance when its denominator can be near 0. A box that holds
both sums with the stated confidence still holds: the ratio lies between its extremes there.

A histogram is non-negative exactly if its sums from bucket k on fall with k and end above 0.
Cutting buckets at 0 instead would add noise to reach in every empty bucket; isotonic regression
changes a sum only where neighbouring ones contradict it, and so leaves reach mostly alone.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import CountNoise, NoisePart, sum_half_width, sum_stddev
from tulle.measure.slice_jobs import Frequencies
from tulle.mechanisms.analytic_gaussian import calibrate_gaussian
from tulle.mechanisms.centred_noise import check_confidence
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.privacy.events import Composed, Event, Gaussian
from tulle.privacy.fields import check_count, check_epsilon, check_finite
from tulle.privacy.guarantee import Interval, Release
from tulle.privacy.units import Adjacency

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
MAX_FREQUENCY_LIMIT = 100
"""Most buckets: each adds its noise to reach."""
_MOST_CENTRES = 8
"""Most centres from which the average frequency is bounded; more cost confidence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrequencyConfig:
    """Settings of one noisy frequency histogram a slice. Every field is public information."""

    epsilon: float
    max_frequency: int
    """Buckets of a slice; the last one holds everybody with this many impressions or more."""
    adjacency: Adjacency
    max_slices_per_unit: int = 1
    delta: float = 0.0
    """0 for discrete Laplace noise. Above it noise is Gaussian: less where a unit is in
    many slices, for it grows with the square root of their number."""
    reach_share: float = 0.0
    """Part of the budget for a count of reach of its own. Worth it above
    2 / (max_frequency + 1) if reach matters more than the shape of the histogram."""

    def __post_init__(self) -> None:
        check_count("max_frequency", self.max_frequency)
        check_count("max_slices_per_unit", self.max_slices_per_unit)
        if self.max_frequency > MAX_FREQUENCY_LIMIT:
            raise ConfigError(
                f"max_frequency={self.max_frequency} must be at most {MAX_FREQUENCY_LIMIT}; "
                "higher frequencies count as the last bucket."
            )
        check_epsilon(self.epsilon)
        if not 0 <= check_finite("delta", self.delta) < 1:
            raise ConfigError(
                f"delta={self.delta} must be in [0, 1): 0 for discrete Laplace noise, "
                "e.g. 1e-9 for Gaussian noise."
            )
        if not 0 <= check_finite("reach_share", self.reach_share) < 1:
            raise ConfigError(
                f"reach_share={self.reach_share} must be in [0, 1); 0 takes reach as the sum "
                "of the buckets."
            )
        self.event()

    @property
    def bucket_noise(self) -> CountNoise:
        """The noise on each bucket."""
        return self._noise(1 - self.reach_share)

    @property
    def reach_noise(self) -> CountNoise | None:
        """The noise on the count of reach, None if it gets no budget."""
        return self._noise(self.reach_share) if self.reach_share else None

    def event(self) -> Event:
        """What all histograms together cost."""
        if self.delta:
            # Each count over its own noise: one vector with the L2 norm of the whole budget.
            return Gaussian(
                noise_multiplier=self._whole_multiplier(), replace_factor=math.sqrt(2.0)
            )
        buckets, reach = self.bucket_noise, self.reach_noise
        return buckets.event() if reach is None else Composed((reach.event(), buckets.event()))

    def _noise(self, share: float) -> CountNoise:
        if self.delta:
            return GaussianConfig(
                # Rounded up, so that both parts together are not above the whole.
                noise_multiplier=self._whole_multiplier() / math.sqrt(share) * (1 + 2.0**-50),
                max_contribution=math.sqrt(self.max_slices_per_unit),
                max_values_per_unit=self.max_slices_per_unit,
                replace_factor=math.sqrt(2.0),
            )
        # Rounded down, so that both shares together do not exceed epsilon.
        return DiscreteLaplaceConfig.for_epsilon(
            share * self.epsilon * (1 - 2.0**-50),
            adjacency=self.adjacency,
            max_contribution=self.max_slices_per_unit,
        )

    def _whole_multiplier(self) -> float:
        # A replaced unit leaves one bucket of a slice and enters another: sqrt(2) in L2.
        distance = math.sqrt(2.0) if self.adjacency is Adjacency.REPLACE else 1.0
        return _calibrated(self.epsilon, self.delta, distance)


def release_frequencies(
    frequencies: Frequencies,
    config: FrequencyConfig,
    *,
    rng: NoiseSource | None = None,
    confidence: float = 0.95,
) -> "FrequencyRelease":
    """Adds noise to the frequency histograms of all slices.

    Args:
      frequencies: Exact histograms after contribution bounding.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system's. Sensitive: never log or save its
        state.
      confidence: Confidence of the intervals, each on its own.

    Privacy:
      Unit: the one that `frequencies` was bounded for. L1 sensitivity: max_slices_per_unit
      (L2: its square root; under replace 2 and sqrt(2) times that), for the buckets and for
      reach. Event: `config.event()` for everything that the result shows. Relies on: no unit
      is in more than max_slices_per_unit slices, nor in two buckets of a slice; slices are
      public, or were chosen privately.
    """
    rng = rng or release_rng()
    check_confidence(confidence)
    raw_counts = _checked_counts(frequencies, config)
    noisy_counts = _with_noise(raw_counts, config.bucket_noise, rng)
    noisy_reach = None
    if config.reach_noise is not None:
        noisy_reach = _with_noise(raw_counts.sum(axis=1), config.reach_noise, rng)
    return FrequencyRelease(
        slices=frequencies.slices,
        noisy_counts=noisy_counts,
        noisy_reach=noisy_reach,
        config=config,
        confidence=confidence,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Range:
    """Intervals of many numbers."""

    lows: FloatArray
    highs: FloatArray

    @classmethod
    def around(cls, noisy_values: FloatArray, half_width: float) -> "Range":
        """Intervals of a half-width around noisy counts, never below 0."""
        return cls(
            lows=np.maximum(noisy_values - half_width, 0.0),
            highs=np.maximum(noisy_values + half_width, 0.0),
        )


_Numbers = tuple[FloatArray, FloatArray, Range]


"""One metric of many slices: values, standard deviations of their noise, and intervals."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FrequencyRelease:
    """Noisy reach and frequency of every slice. What it holds is protected already."""

    slices: pl.DataFrame
    noisy_counts: FloatArray
    """[slices, max_frequency], as measured."""
    noisy_reach: FloatArray | None
    """[slices], as measured; None if reach had no budget of its own."""
    config: FrequencyConfig
    confidence: float = 0.95

    @functools.cached_property
    def counts(self) -> FloatArray:
        """[slices, max_frequency]: the least-squares estimates, unbiased; some may be < 0."""
        if self.noisy_reach is None:
            return self.noisy_counts
        gaps = self.noisy_reach - self.noisy_counts.sum(axis=1)
        moved: FloatArray = self.noisy_counts + self._reach_weight * gaps[:, None]
        return moved

    @functools.cached_property
    def consistent_counts(self) -> FloatArray:
        """The counts without negative ones: k+ reach made monotone by isotonic regression."""
        return monotone_counts(self.counts)

    def reach(self, index: int) -> Release:
        """Units with at least one impression in the slice of this row."""
        return self.k_plus_reach(index, 1)

    def k_plus_reach(self, index: int, k: int) -> Release:
        """Units with at least k impressions."""
        self._check_frequency(k)
        return self._release(self._sums(_row(index), k))

    def k_frequency(self, index: int, k: int) -> Release:
        """The share with exactly k impressions among all that were reached.

        The last k stands for all above it as well. The value comes from consistent counts.
        """
        self._check_frequency(k)
        if self.config.max_frequency == 1:
            raise ConfigError("max_frequency=1 makes every share 1; raise it.")
        return self._release(self._shares(_row(index), self._frequencies == k))

    def k_plus_frequency(self, index: int, k: int) -> Release:
        """The share with at least k impressions among all that were reached."""
        self._check_frequency(k)
        if k == 1:
            raise ConfigError("k=1: everybody who was reached was reached once; ask for k >= 2.")
        return self._release(self._shares(_row(index), self._frequencies >= k))

    def average_frequency(self, index: int) -> Release:
        """Impressions a reached unit, counting at most max_frequency of each."""
        if self.config.max_frequency == 1:
            raise ConfigError("max_frequency=1 makes every average 1; raise it.")
        return self._release(self._averages(_row(index)))

    def table(self) -> pl.DataFrame:
        """One row for each number: its slice, metric, k, value, noise and interval.

        Sorted by metric and k, and within them as the slices are.
        """
        frames = []
        for metric, k, (values, stddevs, limits) in self._metrics():
            named = pl.DataFrame(
                {
                    "metric": [metric] * len(self.counts),
                    "k": [k] * len(self.counts),
                    "value": values,
                    "noise_stddev": stddevs,
                    "low": limits.lows,
                    "high": limits.highs,
                },
                schema_overrides={"metric": pl.String, "k": pl.Int64},
            )
            is_sliced = self.slices.width > 0
            frames.append(pl.concat([self.slices, named], how="horizontal") if is_sliced else named)
        return pl.concat(frames)

    def _metrics(self) -> Iterator[tuple[str, int | None, _Numbers]]:
        rows = slice(None)
        largest = self.config.max_frequency
        yield "reach", None, self._sums(rows, 1)
        for k in range(2, largest + 1):
            yield "k_plus_reach", k, self._sums(rows, k)
        if largest > 1:
            for k in range(1, largest + 1):
                yield "k_frequency", k, self._shares(rows, self._frequencies == k)
            yield "average_frequency", None, self._averages(rows)

    @property
    def _frequencies(self) -> IntArray:
        return np.arange(1, self.config.max_frequency + 1)

    @property
    def _reach_weight(self) -> float:
        """What a bucket takes of the gap between reach as counted and as summed."""
        if self.config.reach_noise is None:
            return 0.0
        bucket_variance = self.config.bucket_noise.noise_stddev**2
        total = self.config.max_frequency * bucket_variance
        return bucket_variance / (self.config.reach_noise.noise_stddev**2 + total)

    def _parts(self, weights: FloatArray) -> list[NoisePart]:
        """The noise of a weighted sum of the estimated counts."""
        pull = self._reach_weight * float(weights.sum())
        own = tuple((weights - pull).tolist())
        parts = [NoisePart(noise=self.config.bucket_noise, weights=own)]
        if self.config.reach_noise is not None:
            parts.append(NoisePart(noise=self.config.reach_noise, weights=(pull,)))
        return parts

    def _half_width(self, weights: FloatArray, confidence: float) -> float:
        return sum_half_width(*self._parts(weights), confidence=confidence)

    def _sums(self, rows: slice, k: int) -> _Numbers:
        weights = (self._frequencies >= k).astype(np.float64)
        sums = self.counts[rows] @ weights
        half_width = self._half_width(weights, self.confidence)
        stddevs = np.full(len(sums), sum_stddev(*self._parts(weights)))
        return sums, stddevs, Range(lows=sums - half_width, highs=sums + half_width)

    def _shares(self, rows: slice, chosen: npt.NDArray[np.bool_]) -> _Numbers:
        # As measured, both sums have noise of their own, so their confidences multiply.
        each = math.sqrt(self.confidence)
        ranges = []
        for mask in (chosen, ~chosen):
            noise = NoisePart(noise=self.config.bucket_noise, weights=(1.0,) * int(mask.sum()))
            half_width = sum_half_width(noise, confidence=each) if mask.any() else 0.0
            ranges.append(Range.around(self.noisy_counts[rows][:, mask].sum(axis=1), half_width))
        return self._ratios(rows, chosen.astype(np.float64), share_range(*ranges))

    def _averages(self, rows: slice) -> _Numbers:
        largest = self.config.max_frequency
        centres = np.unique(np.rint(np.geomspace(1, largest, _MOST_CENTRES)))
        # Sums and reach share their noise, so the probabilities to miss one of them add up.
        each = 1 - (1 - self.confidence) / (len(centres) + 1)
        ones = np.ones(largest)
        frequencies = self._frequencies.astype(np.float64)
        above = frequencies[:, None] - centres
        limits = average_range(
            self.counts[rows] @ above,
            np.array([self._half_width(weights, each) for weights in above.T]),
            Range.around(self.counts[rows] @ ones, self._half_width(ones, each)),
            centres=centres,
            most=largest,
        )
        return self._ratios(rows, frequencies, limits)

    def _ratios(self, rows: slice, weights: FloatArray, limits: Range) -> _Numbers:
        """Weighted sums over reach, with the noise of their first-order expansion."""
        shapes = self.consistent_counts[rows]
        ratios = (shapes @ weights) / np.maximum(shapes.sum(axis=1), 1.0)
        reach = np.maximum(self.counts[rows].sum(axis=1), 1.0)
        slopes = (weights - ratios[:, None]) / reach[:, None]
        pulls = self._reach_weight * slopes.sum(axis=1)
        variances = self.config.bucket_noise.noise_stddev**2 * np.sum(
            (slopes - pulls[:, None]) ** 2, axis=1
        )
        if self.config.reach_noise is not None:
            variances += self.config.reach_noise.noise_stddev**2 * pulls**2
        # A ratio of all to all has no noise of first order, and still is no exact number.
        stddevs = np.maximum(np.sqrt(variances), np.finfo(np.float64).tiny)
        return np.clip(ratios, limits.lows, limits.highs), stddevs, limits

    def _release(self, numbers: _Numbers) -> Release:
        """The numbers of one row as a release."""
        values, stddevs, limits = numbers
        interval = Interval(
            low=float(limits.lows[0]), high=float(limits.highs[0]), confidence=self.confidence
        )
        return Release(
            value=float(values[0]),
            noise_stddev=float(stddevs[0]),
            interval=interval,
            event=self.config.event(),
        )

    def _check_frequency(self, k: int) -> None:
        if not 1 <= k <= self.config.max_frequency:
            raise ConfigError(f"k={k} must be from 1 to max_frequency={self.config.max_frequency}.")


def divided(parts: FloatArray, wholes: FloatArray, *, if_empty: float) -> FloatArray:
    """Quotients, with a value of their own where the divisor is not above 0.

    Args:
      parts: The dividends.
      wholes: The divisors.
      if_empty: What stands for a quotient that is not known.
    """
    is_known = wholes > 0
    return np.where(is_known, parts / np.where(is_known, wholes, 1.0), if_empty)


def share_range(chosen: Range, others: Range) -> Range:
    """Range of chosen / (chosen + others), which rises with the one and falls with the other."""
    return Range(
        lows=divided(chosen.lows, chosen.lows + others.highs, if_empty=0.0),
        highs=divided(chosen.highs, chosen.highs + others.lows, if_empty=1.0),
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
    low = np.max(centres + divided(lows, low_divisors, if_empty=-most), axis=1)
    high = np.min(centres + divided(highs, high_divisors, if_empty=most), axis=1)
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


def _row(index: int) -> slice:
    if index < 0:
        raise ConfigError(f"index={index} must be >= 0, the row of a slice.")
    return slice(index, index + 1)


def _checked_counts(frequencies: Frequencies, config: FrequencyConfig) -> IntArray:
    raw_counts = frequencies.raw_counts
    if raw_counts.ndim != 2 or raw_counts.shape[1] != config.max_frequency:
        raise DataError(
            f"raw_counts has shape {raw_counts.shape}; it needs "
            f"max_frequency={config.max_frequency} columns, as a job of frequencies makes them."
        )
    if frequencies.slices.width and frequencies.slices.height != len(raw_counts):
        raise DataError(
            f"slices has {frequencies.slices.height} rows, raw_counts {len(raw_counts)}; "
            "they must be rows of one table."
        )
    return raw_counts


def _with_noise(raw_counts: IntArray, noise: CountNoise, rng: NoiseSource) -> FloatArray:
    if isinstance(noise, DiscreteLaplaceConfig):
        return release_discrete_laplace(raw_counts, noise, rng=rng).astype(np.float64)
    return release_gaussian(raw_counts, noise, rng=rng)


@functools.lru_cache(maxsize=64)
def _calibrated(epsilon: float, delta: float, distance: float) -> float:
    return calibrate_gaussian(epsilon, delta, distance=distance)
