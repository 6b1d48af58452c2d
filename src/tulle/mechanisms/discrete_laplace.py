"""Discrete Laplace noise for counts: P(i) proportional to exp(-|i| / scale).

The noise of pure differential privacy on integers. Its size |i| is the floor of
a shifted exponential, drawn exactly from one word (inversion of the tail
P(|i| >= k) = 2 exp(-k / scale) / (1 + exp(-1 / scale)) for k >= 1).
"""

import dataclasses
import functools
import math
from decimal import Decimal

import numpy as np
from numpy.typing import ArrayLike

from tulle.mechanisms.centred_noise import (
    CentredNoise,
    check_confidence,
    checked_counts,
    neighbour_distance,
)
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import (
    Bounds,
    ExponentialFloor,
    FloatArray,
    IntArray,
    Size,
    check_scale,
    directed_contexts,
    sample_signed_floors,
)
from tulle.privacy import events
from tulle.privacy.fields import check_epsilon
from tulle.privacy.guarantee import Release
from tulle.privacy.units import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceConfig(CentredNoise):
    """Settings of discrete Laplace noise. Every field is public information."""

    scale: float
    """Noise scale: the probability falls by a factor e every `scale` steps."""
    max_contribution: int = 1
    """Largest L1 contribution of one unit over all counts of the release."""
    replace_factor: float = 2.0
    """How much further than a removal a replacement moves the counts; see privacy.events."""

    def __post_init__(self) -> None:
        self.event()
        check_scale("scale", self.scale)

    @classmethod
    def for_epsilon(
        cls,
        epsilon: float,
        *,
        adjacency: Adjacency | str,
        max_contribution: int = 1,
        replace_factor: float = 2.0,
    ) -> "DiscreteLaplaceConfig":
        """The least noise with which one release costs at most `epsilon`.

        Args:
          epsilon: What one release may cost.
          adjacency: Relation under which data sets are neighbours, also as text.
          max_contribution: Largest L1 contribution of one unit over all counts.
          replace_factor: How much further than a removal a replacement moves the counts.
        """
        check_epsilon(epsilon)
        factor = neighbour_distance(adjacency, replace_factor)
        # Rounded up, so that the epsilon computed from it is not above the one asked for.
        return cls(
            scale=factor * max_contribution / epsilon * (1 + 2.0**-50),
            max_contribution=max_contribution,
            replace_factor=replace_factor,
        )

    @property
    def variance(self) -> float:
        """Variance of the noise on each count."""
        return self.noise_stddev**2

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each count."""
        # Variance 2 p / (1 - p)^2 with p = exp(-1 / scale).
        return math.sqrt(2) * math.exp(-0.5 / self.scale) / -math.expm1(-1 / self.scale)

    def pmf(self, values: ArrayLike) -> FloatArray:
        """The probability of each integer."""
        sizes = np.abs(np.asarray(values, dtype=np.float64))
        return math.tanh(0.5 / self.scale) * np.exp(-sizes / self.scale)

    def half_width(self, confidence: float = 0.95) -> int:
        """The least integer that the noise exceeds in size with probability <= 1 - confidence."""
        check_confidence(confidence)
        # P(|noise| > h) = 2 p^(h + 1) / (1 + p).
        tail = math.log(2 / (1 - confidence)) - math.log1p(math.exp(-1 / self.scale))
        return max(0, math.ceil(self.scale * tail) - 1)

    def event(self) -> events.DiscreteLaplace:
        """What one release costs."""
        return events.DiscreteLaplace(
            scale=self.scale,
            max_contribution=self.max_contribution,
            replace_factor=self.replace_factor,
        )


def release_discrete_laplace(
    raw_counts: ArrayLike, config: DiscreteLaplaceConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """Adds discrete Laplace noise to counts.

    Args:
      raw_counts: Exact integer counts of any shape, after contribution bounding.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: the caller's. L1 sensitivity: max_contribution (times replace_factor
      under replace). Event: one DiscreteLaplace for all counts together.
      Relies on: no unit adds more than max_contribution over all counts.
    """
    rng = rng or release_rng()
    counts = checked_counts(raw_counts)
    return counts + sample_discrete_laplace(config.scale, counts.shape, rng=rng)


def release_one_discrete_laplace(
    raw_count: int,
    config: DiscreteLaplaceConfig,
    *,
    rng: NoiseSource | None = None,
    confidence: float = 0.95,
) -> Release:
    """Releases one count with its interval.

    Args:
      raw_count: The exact count, after contribution bounding.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.
      confidence: Probability with which the interval holds the raw count.

    Privacy:
      As `release_discrete_laplace` for one count.
    """
    noisy_count = int(release_discrete_laplace(raw_count, config, rng=rng))
    return config.as_release(noisy_count, confidence=confidence)


def sample_discrete_laplace(scale: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Exact draws with probabilities proportional to exp(-|i| / scale).

    Args:
      scale: Steps over which the probability falls by a factor e.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    check_scale("scale", scale)
    return sample_signed_floors(discrete_laplace_law(scale), size, rng=rng)


def discrete_laplace_law(scale: float) -> ExponentialFloor:
    """The law of the size of discrete Laplace noise."""
    return ExponentialFloor(
        scale=scale,
        offset=-scale * math.log1p(math.expm1(-1 / scale) / 2),
        offset_bounds=functools.partial(_offset_bounds, Decimal(scale)),
    )


@functools.lru_cache(maxsize=64)
def _offset_bounds(scale: Decimal, num_digits: int) -> Bounds:
    """Bounds on scale * ln(2 / (1 + p)) with p = exp(-1 / scale)."""
    # The logarithm of a number near 1 loses as many digits as the scale has.
    down, up = directed_contexts(num_digits + 20)
    least_p = down.next_minus(down.exp(down.divide(Decimal(-1), scale)))
    most_p = up.next_plus(up.exp(up.divide(Decimal(-1), scale)))
    least = down.ln(down.divide(Decimal(2), up.add(1, most_p)))
    most = up.ln(up.divide(Decimal(2), down.add(1, least_p)))
    return down.multiply(scale, down.next_minus(least)), up.multiply(scale, up.next_plus(most))
