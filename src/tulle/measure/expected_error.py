"""How large an error will be, before anything is measured: of a count, and of a sum of noise.

Noise is known beforehand; what is not known are the counts. Counts of a past period or a guess
take their place. A relative error divides by the count, but by no less than `tau`: nobody acts
on the relative error of a slice with three conversions.

Reach is a sum of noisy buckets, a tree's total one of noisy nodes, and a count of devices one of
their shares of noise: a sum of discrete Laplace numbers, which is neither discrete Laplace nor
normal. Its law is a product in the frequency domain and is computed there, on a circle so wide
that nothing wraps around. With p = exp(-1 / scale) one number has the characteristic function
(1 - p)^2 / (1 - 2 p cos t + p^2).
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.centred_noise import check_confidence, normal_quantile
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.gaussian import GaussianConfig

FloatArray = npt.NDArray[np.float64]
CountNoise = DiscreteLaplaceConfig | GaussianConfig
"""Noise that a count can get: whole numbers for pure privacy, or a Gaussian on a fine grid."""
Term = tuple[float, int, float]
"""A scale, a whole weight, and how many noises of both are added up; also fractions of one."""
_FINE_SCALE = 32.0
"""Wider noise in weighted sums, of which there are many, is computed in coarser steps of this
scale. A step is 3% of the scale and quantiles are rounded up to one."""
_WIDE_SUM = 8.0
"""Sums of larger weights are smooth enough for steps that are four times as coarse."""
_WEIGHT_STEPS = 32
"""Steps of the largest weight that fractions are rounded up to: 3% of it at most."""
_LOST_PROB = 1e-12
"""Probability beyond the circle on which sums are computed; quantiles give it away."""
_ROUNDING = 1e-9
"""What float errors can add to the tail of a very wide sum, with room to spare."""
_MAX_SHARED_CONFIDENCE = 1 - 1e-6
"""Largest confidence with shared noise; beyond it the tail is as small as the float errors of its
computation."""
_MAX_REACH = 1 << 20
"""Steps in which shared noise is computed to each side at the most."""
_LEAST_SMOOTHING = 0.25
"""Least deviation of the normal part, in steps of the lattice: less smooths no step."""
_WIDTH_PRECISION = 1e-5
"""Relative precision of a half-width that is found by bisection."""


def expected_relative_errors(
    expected_counts: ArrayLike,
    noise_variances: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    tau: float,
) -> FloatArray:
    """Root mean square error of each slice over max(tau, its expected count).

    Args:
      expected_counts: Expected count of each slice, >= 0: public, or from a past period.
      noise_variances: Noise variance of each slice, or one for all.
      bias: Expected value minus count, e.g. what clipping cuts off. None for none.
      tau: Counts below it are taken as this; > 0.
    """
    if not 0 < tau < math.inf:
        raise ConfigError(f"tau={tau} must be > 0 and finite, e.g. 5 for counts.")
    counts = _finite("expected_counts", expected_counts, least=0.0)
    variances = _fitting("noise_variances", noise_variances, counts, least=0.0)
    biases = _fitting("bias", 0.0 if bias is None else bias, counts, least=-math.inf)
    return np.asarray(np.sqrt(biases**2 + variances) / np.maximum(tau, counts), np.float64)


def rmsre(
    expected_counts: ArrayLike,
    noise_variances: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    tau: float,
) -> float:
    """Root mean square of the relative errors over all slices (RMSRE at tau).

    Args:
      expected_counts: Expected count of each slice, >= 0, of at least one slice.
      noise_variances: Noise variance of each slice, or one for all.
      bias: Expected value minus count, e.g. what clipping cuts off. None for none.
      tau: Counts below it are taken as this; > 0.
    """
    errors = expected_relative_errors(expected_counts, noise_variances, bias=bias, tau=tau)
    if errors.size == 0:
        raise DataError("expected_counts is empty; a mean error needs at least one slice.")
    return root_mean_square(errors)


def root_mean_square(errors: ArrayLike) -> float:
    """RMSRE of the relative errors of slices, or of that of several numbers; 0 of none."""
    squares = np.asarray(errors, np.float64) ** 2
    return math.sqrt(float(np.mean(squares))) if squares.size else 0.0


def smallest_count_within(relative_error: float, half_width: float) -> int:
    """The smallest count whose noise is at most a share of it, where noise is within a width.

    Args:
      relative_error: Relative error, for example 0.1 for 10%.
      half_width: What the noise exceeds in size with the probability that may be missed.
    """
    if not 0 < relative_error < math.inf:
        raise ConfigError(f"relative_error={relative_error} must be > 0, e.g. 0.1 for 10%.")
    if not 0 <= half_width < math.inf:
        raise ConfigError(f"half_width={half_width} must be >= 0 and finite.")
    count = max(1, math.ceil(half_width / relative_error))
    # A quotient that rounds up past a whole number, or down to it, is off by one.
    if count > 1 and relative_error * (count - 1) >= half_width:
        return count - 1
    return count if relative_error * count >= half_width else count + 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisePart:
    """Independent noise of one law, each draw with a weight of its own."""

    noise: CountNoise
    weights: tuple[float, ...]

    @property
    def variance(self) -> float:
        """Variance of the weighted sum."""
        return self.noise.noise_stddev**2 * math.fsum(weight**2 for weight in self.weights)


def sum_stddev(*parts: NoisePart) -> float:
    """Standard deviation of the sum of all parts."""
    return math.sqrt(math.fsum(part.variance for part in parts))


def sum_half_width(*parts: NoisePart, confidence: float) -> float:
    """What the sum of all parts exceeds in size with probability <= 1 - confidence.

    Weights that are no whole numbers are rounded up in size, by 3% of the largest or less.
    """
    check_confidence(confidence)
    if all(isinstance(part.noise, GaussianConfig) for part in parts):
        return _normal_half_width(parts, confidence)
    sizes = [abs(weight) for part in parts for weight in part.weights]
    is_whole = all(size == round(size) for size in sizes)
    steps = 1 if is_whole else max(1, math.ceil(_WEIGHT_STEPS / max(1.0, *sizes)))
    terms = _whole_terms(parts, steps)
    if not terms:
        return 0.0
    is_wide = math.sqrt(sum(count * weight**2 for _, weight, count in terms)) > _WIDE_SUM
    fine_scale = _FINE_SCALE / 4 if is_wide else _FINE_SCALE
    coarseness = max(1.0, max(scale for scale, _, _ in terms) / fine_scale)
    missed = max(0.0, 1 - confidence - _LOST_PROB)
    return _exceeded_size(terms, coarseness, missed) / steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedNoise:
    """Discrete Laplace noise that came in equal shares, maybe more or fewer than make up one.

    Shares of one noise, and whole noises of many devices, add up to the same law.
    """

    scale: float
    shape: float = 1.0
    """Shares that came over shares that make up discrete Laplace noise."""

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the total."""
        one = DiscreteLaplaceConfig(scale=self.scale).noise_stddev
        return math.sqrt(self.shape) * one

    def half_width(self, confidence: float = 0.95) -> int:
        """An integer that the total exceeds in size with probability <= 1 - confidence.

        The least one, unless the total is so wide that it is computed in coarser steps.

        Args:
          confidence: Confidence in (0, 1), not nearer to 1 than float errors are.
        """
        check_confidence(confidence)
        if confidence > _MAX_SHARED_CONFIDENCE:
            raise ConfigError(f"confidence={confidence} must be <= 1 - 1e-6; sums know no more.")
        terms = ((self.scale, 1, self.shape),)
        step = math.ceil(_circle_reach(terms) / _MAX_REACH)
        return _exceeded_size(terms, step, 1 - confidence - _ROUNDING)


def half_width_beside_normal(
    noise: SharedNoise, normal_stddev: float, *, confidence: float
) -> float:
    """Half-width of the interval of a number with shared noise plus an independent normal one.

    Args:
      noise: The shared noise.
      normal_stddev: Standard deviation of the normal one.
      confidence: Probability with which the interval holds the number.
    """
    from scipy.special import ndtr

    check_confidence(confidence)
    coarseness = max(1.0, noise.scale / _FINE_SCALE)
    probs = _size_probs(_coarse_scale(noise.scale, coarseness), noise.shape)
    values = coarseness * np.arange(len(probs), dtype=np.float64)
    # The normal part smooths the steps of the lattice; where it is missing, little does as well.
    stddev = max(normal_stddev, _LEAST_SMOOTHING * coarseness)
    goal = min(confidence, 1 - 2 * _LOST_PROB)

    def covers(half_width: float) -> bool:
        inside = ndtr((half_width - values) / stddev) - ndtr((-half_width - values) / stddev)
        return float(probs @ inside) >= goal

    low, high = 0.0, stddev + noise.noise_stddev
    while not covers(high):
        low, high = high, 2 * high
    while high - low > _WIDTH_PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high


def _finite(name: str, values: ArrayLike, *, least: float) -> FloatArray:
    array = np.asarray(values, np.float64)
    if not np.all(np.isfinite(array)) or np.any(array < least):
        limit = "" if math.isinf(least) else f" and >= {least:g}"
        raise DataError(f"{name} must be finite{limit} for every slice; correct or drop the rest.")
    return array


def _fitting(name: str, values: ArrayLike, counts: FloatArray, *, least: float) -> FloatArray:
    array = _finite(name, values, least=least)
    if array.shape not in {(), counts.shape}:
        raise DataError(
            f"{name} has shape {array.shape}, expected_counts {counts.shape}; "
            "give one number for each slice, or one for all."
        )
    return array


def _normal_half_width(parts: tuple[NoisePart, ...], confidence: float) -> float:
    quantile = normal_quantile(confidence)
    grid = math.fsum(
        part.noise.fitted.lattice.width * abs(weight)
        for part in parts
        if isinstance(part.noise, GaussianConfig)
        for weight in part.weights
    )
    return quantile * sum_stddev(*parts) + grid


def _whole_terms(parts: tuple[NoisePart, ...], steps: int) -> tuple[Term, ...]:
    """Draws of the same scale and weight together, weights in steps and rounded up in size."""
    repeats: collections.Counter[tuple[float, int]] = collections.Counter()
    for part in parts:
        if not isinstance(part.noise, DiscreteLaplaceConfig):
            raise ConfigError("a sum of noise must be all discrete Laplace or all Gaussian.")
        weights = [math.ceil(abs(weight) * steps * (1 - 1e-12)) for weight in part.weights]
        repeats.update((part.noise.scale, weight) for weight in weights if weight)
    return tuple(sorted((*term, float(count)) for term, count in repeats.items()))


@functools.lru_cache(maxsize=256)
def _exceeded_size(terms: tuple[Term, ...], coarseness: float, missed: float) -> int:
    """The least size that the sum of all terms exceeds with probability <= missed.

    It is rounded up where noise is computed in coarser steps.
    """
    sizes = _probs_of_sizes(
        [(_coarse_scale(scale, coarseness), weight, count) for scale, weight, count in terms]
    )
    # From the far end, where probabilities are small: float errors can only add to a tail.
    tails = np.append(np.cumsum(sizes[:0:-1])[::-1], 0.0)
    size = int(np.argmax(tails <= missed))
    return size if coarseness == 1 else math.ceil(coarseness * (size + 0.5))


@functools.lru_cache(maxsize=64)
def _size_probs(scale: float, shape: float) -> FloatArray:
    sizes = _probs_of_sizes([(scale, 1, shape)])
    counted = sizes[: int(np.searchsorted(np.cumsum(sizes), 1 - _LOST_PROB / 2)) + 1]
    counted.setflags(write=False)
    return counted


def _coarse_scale(scale: float, step: float) -> float:
    """The scale with which noise in multiples of `step` has the same standard deviation.

    One noise has the variance 1 / (2 sinh^2(1 / (2 scale))); below the least scale there is none.
    """
    if step == 1:
        return scale
    return 0.5 / math.asinh(step * math.sinh(min(0.5 / scale, 600.0)))


def _circle_reach(terms: Sequence[Term]) -> float:
    """What all terms together exceed in size with a probability below e^-36.

    Each has an exponential tail, and the deviation of the sum covers what many of them add.
    """
    widest = max(scale * weight for scale, weight, _ in terms)
    variance = sum(2 * (scale * weight) ** 2 * count for scale, weight, count in terms)
    return 36 * widest + 12 * math.sqrt(variance) + 64


def _probs_of_sizes(terms: Sequence[Term]) -> FloatArray:
    """Probabilities of the sizes 0, 1, 2, ... of a sum of independent discrete Laplace noises."""
    middle = 1 << math.ceil(_circle_reach(terms)).bit_length()
    circle = 2 * middle
    frequencies = np.arange(middle + 1, dtype=np.int64)
    log_product = np.zeros(middle + 1)
    for scale, weight, count in terms:
        half_angles = np.pi / circle * ((weight * frequencies) % circle)
        # 1 - 2 p cos t + p^2 = (1 - p)^2 + 4 p sin^2(t / 2), without cancellation.
        excess = 4 * math.exp(-1 / scale) * np.sin(half_angles) ** 2 / math.expm1(-1 / scale) ** 2
        log_product -= count * np.log1p(excess)
    probs = np.maximum(np.fft.irfft(np.exp(log_product), circle), 0.0)
    # Negative values are at the end of the circle, as -1 is the last index.
    sizes: FloatArray = probs[:middle]
    sizes[1:] += probs[:middle:-1]
    return sizes
