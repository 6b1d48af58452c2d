"""The law of a sum of discrete Laplace noises, or of shares of one.

With p = exp(-1 / scale) one noise has the characteristic function
(1 - p)^2 / (1 - 2 p cos t + p^2). A sum of `shape` of them, also of fractions, has it to that
power, and its chances follow by one Fourier transform.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.mechanisms.intervals import check_confidence

_MAX_POINTS = 1 << 21
_REACH = 45.0
"""Standard deviations, or scales, beyond which a chance below 1e-16 is left."""
_ROUNDING = 1e-9
"""What float errors of the transform can add to a tail, with room to spare."""


def laplace_sum_stddev(scale: float, shape: float) -> float:
    """Standard deviation of a sum of `shape` discrete Laplace noises."""
    return math.sqrt(2 * shape) * math.exp(-0.5 / scale) / -math.expm1(-1 / scale)


def laplace_sum_half_width(scale: float, shape: float, confidence: float = 0.95) -> int:
    """An integer that the sum exceeds in size with chance <= 1 - confidence.

    The least one, unless the sum is so wide that it is computed in coarser steps.

    Args:
      scale: Of one discrete Laplace noise.
      shape: How many noises are added up; 1 / n for one of n equal shares.
      confidence: In (0, 1), not nearer to 1 than float errors are.
    """
    check_confidence(confidence)
    if confidence > 1 - 1e-6:
        raise ConfigError(f"confidence={confidence} must be <= 1 - 1e-6; sums know no more.")
    width = _REACH * max(scale, laplace_sum_stddev(scale, shape)) + 2
    step = math.ceil(2 * width / _MAX_POINTS)
    coarse_scale = scale if step == 1 else _coarse_scale(scale, step)
    tails = _tails(laplace_sum_pmf(coarse_scale, shape, math.ceil(width / step)))
    reach = int(np.argmax(tails <= 1 - confidence - _ROUNDING))
    return reach if step == 1 else (reach + 1) * step


def laplace_sum_pmf(scale: float, shape: float, most: int) -> NDArray[np.float64]:
    """Chances of 0, 1, ..., `most`; what is further away must not matter."""
    num_points = 1 << (2 * most + 2).bit_length()
    angles = 2 * math.pi * np.arange(num_points // 2 + 1) / num_points
    gap = -math.expm1(-1 / scale)
    # 1 - 2 p cos t + p^2 = (1 - p)^2 + 4 p sin^2(t / 2), without cancellation.
    excess = 4 * math.exp(-1 / scale) * np.sin(angles / 2) ** 2 / gap**2
    chances = np.fft.irfft(np.exp(-shape * np.log1p(excess)), num_points)
    return np.asarray(np.maximum(chances[: most + 1], 0.0), np.float64)


def _coarse_scale(scale: float, step: int) -> float:
    """The scale with which noise in multiples of `step` has the same standard deviation.

    One noise has the variance 1 / (2 sinh^2(1 / (2 scale))).
    """
    return 0.5 / math.asinh(step * math.sinh(0.5 / scale))


def _tails(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    """P(|sum| > h) for h = 0, 1, ..."""
    beyond = np.append(np.cumsum(chances[:0:-1])[::-1], 0.0)
    return np.asarray(2 * beyond, np.float64)
