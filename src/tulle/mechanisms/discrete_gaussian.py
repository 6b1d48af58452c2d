"""Discrete Gaussian noise for counts: P(i) proportional to exp(-i^2 / (2 scale^2)).

Drawn exactly by rejection from the discrete Laplace (Canonne, Kamath, Steinke
2020, algorithm 3): a candidate y of scale t is kept with probability
exp(-(|y| - scale^2 / t)^2 / (2 scale^2)).
"""

import dataclasses
import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tulle.mechanisms.centred_noise import (
    CentredNoise,
    check_confidence,
    checked_counts,
    normal_quantile,
)
from tulle.mechanisms.discrete_laplace import discrete_laplace_law
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import (
    BLOCK,
    FloatArray,
    IntArray,
    Size,
    as_shape,
    check_scale,
    decide_bernoulli_exps,
    sample_signed_floors,
)
from tulle.privacy import events
from tulle.privacy.guarantee import Release

_LEAST_SCALE = 0.02
"""Least scale: below it there is no noise in practice."""
_SMOOTH_SCALE = 8.0
"""Scale from which on the variance equals scale^2 and the sum of weights is the integral,
to double precision: both are off by about exp(-2 pi^2 scale^2) (Poisson summation)."""
_MAX_SUMMED_SCALE = 1000.0
"""Largest scale whose weights are summed for an interval; beyond it a bound is as good."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianConfig(CentredNoise):
    """Settings of discrete Gaussian noise on one count. Every field is public information.

    A unit that changes several counts pays the event once for each of them:
    wrap it in `events.Repeated`.
    """

    scale: float
    """Scale of the noise, about its standard deviation; `noise_stddev` is exact."""
    max_contribution: int = 1
    """Most that one unit changes one count by."""
    replace_factor: float = 2.0
    """How much further than a removal a replacement moves a count; see privacy.events."""

    def __post_init__(self) -> None:
        self.event()
        check_scale("scale", self.scale, least=_LEAST_SCALE)

    @property
    def variance(self) -> float:
        """Variance of the noise on each count."""
        return self.noise_stddev**2

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each count."""
        if self.scale >= _SMOOTH_SCALE:
            return float(self.scale)
        # Relative to the weight of 1, which would underflow at small scales.
        squares = np.arange(1, math.ceil(12 * self.scale) + 2, dtype=np.float64) ** 2
        moment = 2 * float(np.sum(squares * np.exp(-0.5 * (squares - 1) / self.scale**2)))
        return math.exp(-0.25 / self.scale**2) * math.sqrt(moment / self._total_weight())

    def pmf(self, values: ArrayLike) -> FloatArray:
        """The probability of each integer."""
        ratios = np.asarray(values, dtype=np.float64) / self.scale
        weights: FloatArray = np.exp(-0.5 * ratios**2)
        return weights / self._total_weight()

    def half_width(self, confidence: float = 0.95) -> int:
        """An integer that the noise exceeds in size with probability <= 1 - confidence.

        The least one, or one more for scales above 1000.
        """
        check_confidence(confidence)
        if self.scale > _MAX_SUMMED_SCALE:
            # The weights beyond h sum to less than their integral from h on.
            return math.ceil(self.scale * normal_quantile(confidence))
        weights = self._positive_weights()
        tails = 2 * np.append(np.cumsum(weights[::-1])[::-1], 0.0) / self._total_weight()
        return int(np.argmax(tails <= 1 - confidence))

    def event(self) -> events.DiscreteGaussian:
        """What the release of one count costs."""
        return events.DiscreteGaussian(
            scale=self.scale,
            max_contribution=self.max_contribution,
            replace_factor=self.replace_factor,
        )

    def _positive_weights(self) -> FloatArray:
        """exp(-i^2 / (2 scale^2)) for i = 1, 2, ... as far as it counts."""
        # Beyond 12 scales a weight is below e^-72 = 5e-32, far below the rounding of the sum.
        values = np.arange(1, math.ceil(12 * self.scale) + 2, dtype=np.float64)
        weights: FloatArray = np.exp(-0.5 * (values / self.scale) ** 2)
        return weights

    def _total_weight(self) -> float:
        if self.scale >= _SMOOTH_SCALE:
            return self.scale * math.sqrt(2 * math.pi)
        return 1 + 2 * float(np.sum(self._positive_weights()))


def release_discrete_gaussian(
    raw_counts: ArrayLike, config: DiscreteGaussianConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """Adds discrete Gaussian noise to counts.

    Args:
      raw_counts: Exact integer counts of any shape, after contribution bounding.
      config: Noise and contribution settings.
      rng: Source of the noise; None: the operating system. Sensitive: never log its state.

    Privacy:
      Unit: the caller's. Sensitivity: max_contribution in each count (times
      replace_factor under replace). Event: one DiscreteGaussian for each count
      that a unit can change. Relies on: no unit adds more than max_contribution
      to a count, and the caller spends `events.Repeated` if it can change several.
    """
    rng = rng or release_rng()
    counts = checked_counts(raw_counts)
    return counts + sample_discrete_gaussian(config.scale, counts.shape, rng=rng)


def release_one_discrete_gaussian(
    raw_count: int,
    config: DiscreteGaussianConfig,
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
      As `release_discrete_gaussian` for one count.
    """
    noisy_count = int(release_discrete_gaussian(raw_count, config, rng=rng))
    return config.as_release(noisy_count, confidence=confidence)


def sample_discrete_gaussian(scale: float, size: Size, *, rng: NoiseSource) -> IntArray:
    """Exact draws with probabilities proportional to exp(-i^2 / (2 scale^2)).

    Args:
      scale: Scale of the noise, about its standard deviation.
      size: Number of draws, or their shape.
      rng: Source of the noise. Sensitive: never log or save its state.
    """
    check_scale("scale", scale, least=_LEAST_SCALE)
    result = np.empty(math.prod(as_shape(size)), dtype=np.int64)
    num_kept = 0
    while num_kept < len(result):
        # Every candidate is kept with a probability of at least 0.4, mostly about 0.76.
        num_candidates = min(BLOCK, int(1.5 * (len(result) - num_kept)) + 8)
        kept = _kept_candidates(scale, num_candidates, rng)[: len(result) - num_kept]
        result[num_kept : num_kept + len(kept)] = kept
        num_kept += len(kept)
    return result.reshape(as_shape(size))


def _kept_candidates(scale: float, num_candidates: int, rng: NoiseSource) -> IntArray:
    proposal_scale = math.floor(scale) + 1
    law = discrete_laplace_law(float(proposal_scale))
    candidates = sample_signed_floors(law, num_candidates, rng=rng)
    variance = Fraction(scale) ** 2

    def exact_exponent(index: int) -> Fraction:
        gap = abs(int(candidates[index])) - variance / proposal_scale
        return gap**2 / (2 * variance)

    # In floats this errs by less than 2^-48 (1 + exponent).
    gaps = (np.abs(candidates) - float(variance / proposal_scale)) / scale
    return candidates[decide_bernoulli_exps(0.5 * gaps**2, exact_exponent, rng=rng)]
