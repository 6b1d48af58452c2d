"""How far a weighted sum of independent noise can be off.

Reach is a sum of noisy buckets, so its interval is that of a sum of discrete Laplace numbers:
neither discrete Laplace nor normal. Its law is a product in the frequency domain and is computed
there, on a circle so wide that nothing wraps around.
"""

import dataclasses
import functools
import math
import statistics

import numpy as np
import numpy.typing as npt

from tulle.errors import ConfigError
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.gaussian import GaussianConfig
from tulle.mechanisms.intervals import check_confidence

FloatArray = npt.NDArray[np.float64]
CountNoise = DiscreteLaplaceConfig | GaussianConfig
"""Noise that a count can get: whole numbers for pure privacy, or a Gaussian on a fine grid."""

_FINE_SCALE = 32.0
"""Wider discrete Laplace noise is computed in coarser steps of this scale. A step is 3% of the
scale and quantiles are rounded up to one; the shape itself is off by 1 / (8 scale^2), 1e-4."""
_WIDE_SUM = 8.0
"""Sums of larger weights are smooth enough for steps that are four times as coarse."""
_WEIGHT_STEPS = 32
_LOST_CHANCE = 1e-12
_CIRCLE_SCALES = 36.0
_LEAST_SMOOTHING = 0.25
_WIDTH_PRECISION = 1e-5


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
    """What the sum of all parts exceeds in size with chance <= 1 - confidence.

    Weights that are no whole numbers are rounded up in size, by 3% of the largest or less.
    """
    check_confidence(confidence)
    if all(isinstance(part.noise, GaussianConfig) for part in parts):
        return _normal_half_width(parts, confidence)
    sizes = [abs(weight) for part in parts for weight in part.weights]
    is_whole = all(size == round(size) for size in sizes)
    steps = 1 if is_whole else max(1, math.ceil(_WEIGHT_STEPS / max(1.0, *sizes)))
    laws = []
    for part in parts:
        if not isinstance(part.noise, DiscreteLaplaceConfig):
            raise ConfigError("a sum of noise must be all discrete Laplace or all Gaussian.")
        weights = [math.ceil(abs(weight) * steps * (1 - 1e-12)) for weight in part.weights]
        laws.append((float(part.noise.scale), tuple(sorted(w for w in weights if w))))
    return _laplace_half_width(tuple(laws), confidence) / steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedNoise:
    """Discrete Laplace noise that came in equal shares, of which there may be more than needed."""

    scale: float
    shape: float = 1.0
    """Shares that came over shares that make up discrete Laplace noise."""

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the total."""
        one = DiscreteLaplaceConfig(scale=self.scale).noise_stddev
        return math.sqrt(self.shape) * one


def half_width_beside_normal(
    noise: SharedNoise, normal_stddev: float, *, confidence: float
) -> float:
    """The same for one number with shared noise plus an independent normal one."""
    from scipy.special import ndtr

    check_confidence(confidence)
    coarseness = max(1.0, noise.scale / _FINE_SCALE)
    chances = _size_chances(noise.scale / coarseness, noise.shape)
    values = coarseness * np.arange(len(chances), dtype=np.float64)
    # The normal part smooths the steps of the lattice; where it is missing, little does as well.
    stddev = max(normal_stddev, _LEAST_SMOOTHING * coarseness)
    goal = min(confidence, 1 - 2 * _LOST_CHANCE)

    def covers(half_width: float) -> bool:
        inside = ndtr((half_width - values) / stddev) - ndtr((-half_width - values) / stddev)
        return float(chances @ inside) >= goal

    low, high = 0.0, stddev + noise.noise_stddev
    while not covers(high):
        low, high = high, 2 * high
    while high - low > _WIDTH_PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return high


@functools.lru_cache(maxsize=64)
def _size_chances(scale: float, shape: float) -> FloatArray:
    """Chances of the sizes 0, 1, 2, ... of shared noise, as far as they count."""
    sizes = _fold(_chances_on_circle({(scale, 1): shape}))
    return sizes[: int(np.searchsorted(np.cumsum(sizes), 1 - _LOST_CHANCE / 2)) + 1]


def _normal_half_width(parts: tuple[NoisePart, ...], confidence: float) -> float:
    quantile = -statistics.NormalDist().inv_cdf((1 - confidence) / 2)
    grid = math.fsum(
        part.noise.fitted.lattice.width * abs(weight)
        for part in parts
        if isinstance(part.noise, GaussianConfig)
        for weight in part.weights
    )
    return quantile * sum_stddev(*parts) + grid


@functools.lru_cache(maxsize=256)
def _laplace_half_width(
    laws: tuple[tuple[float, tuple[int, ...]], ...], confidence: float
) -> float:
    """For whole weights; each law is a scale with its weights."""
    terms = [(scale, weight) for scale, weights in laws for weight in weights]
    if not terms:
        return 0.0
    is_wide = math.hypot(*(weight for _, weight in terms)) > _WIDE_SUM
    fine_scale = _FINE_SCALE / 4 if is_wide else _FINE_SCALE
    coarseness = max(1.0, max(scale for scale, _ in terms) / fine_scale)
    repeats: dict[tuple[float, int], float] = {}
    for scale, weight in terms:
        term = (scale / coarseness, weight)
        repeats[term] = repeats.get(term, 0) + 1
    inside = np.cumsum(_fold(_chances_on_circle(repeats)))
    half_width = int(np.searchsorted(inside, min(confidence + _LOST_CHANCE, inside[-1])))
    if coarseness == 1.0:
        return float(half_width)
    return float(math.ceil(coarseness * (half_width + 0.5)))


def _fold(chances: FloatArray) -> FloatArray:
    """Chances of sizes, from those of values around a circle."""
    middle = len(chances) // 2
    sizes = chances[:middle].copy()
    sizes[1:] += chances[:middle:-1]
    return sizes


def _chances_on_circle(repeats: dict[tuple[float, int], float]) -> FloatArray:
    """The law of a sum of draws, each given as (scale, weight), by how often it comes.

    The characteristic function of one is (1 - p)^2 / ((1 - p)^2 + 2 p (1 - cos t)). Negative
    values are at the end, as -1 is the last index.
    """
    # All draws together leave half the circle with a chance below e^-36: each has an
    # exponential tail, and the deviation of the sum covers what many of them add.
    widest = max(scale * weight for scale, weight in repeats)
    variance = sum(2 * (scale * weight) ** 2 * n for (scale, weight), n in repeats.items())
    circle = 2 << math.ceil(_CIRCLE_SCALES * widest + 12 * math.sqrt(variance) + 64).bit_length()
    product = np.ones(circle // 2 + 1)
    frequencies = np.arange(circle // 2 + 1, dtype=np.int64)
    for (scale, weight), count in repeats.items():
        half_angles = np.pi / circle * ((weight * frequencies) % circle)
        gap = math.expm1(-1 / scale) ** 2
        spread = 4 * math.exp(-1 / scale) * np.sin(half_angles) ** 2
        product *= (gap / (gap + spread)) ** count
    chances: FloatArray = np.maximum(np.fft.irfft(product, circle), 0.0)
    return chances
