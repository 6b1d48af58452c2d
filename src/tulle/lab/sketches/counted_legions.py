"""Liquid Legions that also count: frequency across parties, released with noise.

A register keeps the hash of its user and how often he was seen. Where two different users meet,
it is marked as shared and counts no more; users who are alone in their register are a uniform
sample of all, because hashing knows nothing of frequencies.

One more user turns an empty register into one with a lonely user, or that into a shared one: the
number of marks moves by 0 or 1, and the histogram of lonely users by one count. Both get a share
of the budget.
"""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError, DataError
from tulle.lab.sketches.liquid_legions import (
    LiquidLegionsConfig,
    SketchReachConfig,
    UserIds,
    check_mergeable,
    hash_users,
    key_mark,
    reach_from_marks,
)
from tulle.measure.expected_error import NoisePart, SharedNoise, sum_half_width, sum_stddev
from tulle.measure.reach import Range, monotone_counts, share_range
from tulle.mechanisms.centred_noise import check_confidence, normal_quantile
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, Words
from tulle.privacy.events import Composed
from tulle.privacy.fields import check_count, check_epsilon, check_finite
from tulle.privacy.guarantee import Interval, Release
from tulle.privacy.units import Adjacency

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CountedLegions:
    """Registers with their users' counts. Sensitive: nothing may get out without noise."""

    config: LiquidLegionsConfig
    key_mark: str
    raw_owners: Words = dataclasses.field(repr=False)
    """A hash of the only user of each register; 0 if it has none or several."""
    raw_counts: IntArray = dataclasses.field(repr=False)
    """How often the only user was seen; 0 if there is none or several."""
    raw_is_shared: Marks = dataclasses.field(repr=False)

    @classmethod
    def of_impressions(
        cls, user_ids: UserIds, config: LiquidLegionsConfig, *, key: bytes
    ) -> "CountedLegions":
        """The sketch of impressions, given by the user of each.

        Args:
          user_ids: The user of each impression.
          config: Shape of the sketch.
          key: Secret that the parties share and whoever gets a sketch does not have.

        Privacy:
          Nothing is released. A user changes one register, whatever rows he has.
        """
        owners = np.maximum(hash_users(user_ids, key, "owner").words, np.uint64(1))
        registers = config.registers_of(hash_users(user_ids, key, "register").uniforms)
        users, first_rows, counts = np.unique(owners, return_index=True, return_counts=True)
        registers = registers[first_rows]
        is_shared = np.bincount(registers, minlength=config.num_registers) > 1
        is_alone = ~is_shared[registers]
        raw_owners = np.zeros(config.num_registers, np.uint64)
        raw_owners[registers[is_alone]] = users[is_alone]
        raw_counts = np.zeros(config.num_registers, np.int64)
        raw_counts[registers[is_alone]] = counts[is_alone]
        return cls(
            config=config,
            key_mark=key_mark(key),
            raw_owners=raw_owners,
            raw_counts=raw_counts,
            raw_is_shared=is_shared,
        )

    def __reduce__(self) -> tuple[object, ...]:
        raise DataError("a sketch tells who is in the set; release its frequencies with noise.")

    @property
    def raw_num_marks(self) -> int:
        """Registers with one user or more. Sensitive."""
        return int(np.sum(self.raw_is_shared | (self.raw_owners != 0)))

    def raw_frequencies(self, max_frequency: int) -> IntArray:
        """How many lonely users were seen 1, 2, ... and at least max_frequency times."""
        check_count("max_frequency", max_frequency)
        counts = np.minimum(self.raw_counts[self.raw_owners != 0], max_frequency)
        return np.bincount(counts, minlength=max_frequency + 1)[1:].astype(np.int64)


def merge_counted(sketches: list[CountedLegions]) -> CountedLegions:
    """The sketch of all impressions together: counts of the same user add up.

    Privacy:
      Nothing is released. Runs where all sketches may be seen: the central model.
    """
    if not sketches:
        raise ConfigError("sketches=[] has nothing to merge; give at least one.")
    check_mergeable([(sketch.config, sketch.key_mark) for sketch in sketches])
    merged = sketches[0]
    for other in sketches[1:]:
        merged = _merge_two(merged, other)
    return merged


@dataclasses.dataclass(frozen=True, kw_only=True)
class SketchFrequencyConfig:
    """Noise on the marks and the histogram of a sketch. Every field is public information."""

    epsilon: float
    max_frequency: int
    adjacency: Adjacency
    reach_share: float = 0.5
    """Part of epsilon that the number of marks gets."""

    def __post_init__(self) -> None:
        check_count("max_frequency", self.max_frequency)
        check_epsilon(self.epsilon)
        if not 0 < check_finite("reach_share", self.reach_share) < 1:
            raise ConfigError(
                f"reach_share={self.reach_share} must be in (0, 1); for reach alone use "
                "release_sketch_reach()."
            )
        self.event()

    @property
    def marks_noise(self) -> DiscreteLaplaceConfig:
        """The noise on the number of marks."""
        epsilon = self.reach_share * self.epsilon * (1 - 2.0**-50)
        return SketchReachConfig(epsilon=epsilon).noise

    @property
    def bucket_noise(self) -> DiscreteLaplaceConfig:
        """The noise on each bucket of the histogram."""
        return DiscreteLaplaceConfig.for_epsilon(
            (1 - self.reach_share) * self.epsilon * (1 - 2.0**-50), adjacency=self.adjacency
        )

    def event(self) -> Composed:
        """What reach and frequencies together cost."""
        return Composed((self.marks_noise.event(), self.bucket_noise.event()))


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SketchFrequencyRelease:
    """Noisy reach and frequencies of a sketch. What it holds is protected already."""

    reach: Release
    noisy_counts: FloatArray
    """[max_frequency]: users alone in their register, by frequency."""
    config: SketchFrequencyConfig
    confidence: float

    def k_frequency(self, k: int) -> Release:
        """The share with exactly k impressions among all that were reached.

        The interval covers the noise and that lonely users are a sample.
        """
        if not 1 <= k <= self.config.max_frequency:
            raise ConfigError(f"k={k} must be from 1 to max_frequency={self.config.max_frequency}.")
        chosen = np.arange(self.config.max_frequency) == k - 1
        shape = monotone_counts(self.noisy_counts[None, :])[0]
        total = max(float(shape.sum()), 1.0)
        value = float(shape[chosen].sum()) / total
        weights = (chosen.astype(np.float64) - value) / total
        noise = NoisePart(noise=self.config.bucket_noise, weights=tuple(weights.tolist()))
        interval = self._interval(chosen)
        return Release(
            value=min(max(value, interval.low), interval.high),
            noise_stddev=math.hypot(sum_stddev(noise), math.sqrt(value * (1 - value) / total)),
            interval=interval,
            event=self.config.event(),
        )

    def _interval(self, chosen: npt.NDArray[np.bool_]) -> Interval:
        part_confidence = 1 - (1 - self.confidence) / 2
        ranges = []
        for mask in (chosen, ~chosen):
            noise = NoisePart(noise=self.config.bucket_noise, weights=(1.0,) * int(mask.sum()))
            half_width = sum_half_width(noise, confidence=math.sqrt(part_confidence))
            total = self.noisy_counts[mask].sum(keepdims=True)
            ranges.append(Range.around(total, half_width))
        box = share_range(*ranges)
        low, high = float(box.lows[0]), float(box.highs[0])
        num_sampled = max(sum(float(part.lows[0]) for part in ranges), 1.0)
        return Interval(
            low=max(low - _sampling_width(low, num_sampled, part_confidence), 0.0),
            high=min(high + _sampling_width(high, num_sampled, part_confidence), 1.0),
            confidence=self.confidence,
        )


def release_sketch_frequencies(
    sketch: CountedLegions,
    config: SketchFrequencyConfig,
    *,
    rng: NoiseSource,
    confidence: float = 0.95,
) -> SketchFrequencyRelease:
    """Reach and frequencies of a counted sketch, by a trusted party that sees it.

    Args:
      sketch: The sketch, alone or merged.
      config: Noise on marks and histogram.
      rng: Source of the noise. Sensitive: never log or save its state.
      confidence: Probability with which each interval holds its number.

    Privacy:
      Unit: user. L1 sensitivity: 1 for the number of marks and 1 for the histogram (2 under
      replace). Event: `config.event()`, both composed. Relies on: the sketch was made by
      `of_impressions` and merged here, with a key that does not depend on the users.
    """
    check_confidence(confidence)
    raw_counts = sketch.raw_frequencies(config.max_frequency)
    noisy_marks = int(release_discrete_laplace(sketch.raw_num_marks, config.marks_noise, rng=rng))
    noisy_counts = release_discrete_laplace(raw_counts, config.bucket_noise, rng=rng)
    return SketchFrequencyRelease(
        reach=reach_from_marks(
            noisy_marks,
            sketch.config,
            SharedNoise(scale=config.marks_noise.scale),
            config.event(),
            confidence=confidence,
        ),
        noisy_counts=noisy_counts.astype(np.float64),
        config=config,
        confidence=confidence,
    )


def _merge_two(first: CountedLegions, second: CountedLegions) -> CountedLegions:
    has_both = (first.raw_owners != 0) & (second.raw_owners != 0)
    differs = has_both & (first.raw_owners != second.raw_owners)
    is_shared = first.raw_is_shared | second.raw_is_shared | differs
    owners = np.maximum(first.raw_owners, second.raw_owners)
    return dataclasses.replace(
        first,
        raw_owners=np.where(is_shared, np.uint64(0), owners),
        raw_counts=np.where(is_shared, 0, first.raw_counts + second.raw_counts),
        raw_is_shared=is_shared,
    )


def _sampling_width(share: float, num_sampled: float, confidence: float) -> float:
    """Wilson's width, which stays open at shares of 0 and 1."""
    quantile = normal_quantile(confidence)
    square = quantile**2 / num_sampled
    centre_move = abs(0.5 - share) * square / (1 + square)
    spread = math.sqrt(share * (1 - share) * square + square**2 / 4) / (1 + square)
    return centre_move + spread
