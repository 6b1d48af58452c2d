"""Real numbers and their noise on one grid, so that no float betrays the raw value.

Float noise leaks through its low-order bits (Mironov 2012; Haney et al. 2022).
Here the raw value s is rounded to a multiple of a grid width g, and the noise
added to it is round(z / g) steps for a real z of the exact continuous law. As s
is on the grid, s + g round(z / g) = g round((s + z) / g): a rounding of the
continuous mechanism's output, so its guarantee holds without any slack, and
all neighbours share one set of possible outputs. What is left to pay is that
rounding the raw values moves two neighbours apart by at most g in each value
that differs: the contribution is widened by that before noise is scaled to it.
"""

import abc
import dataclasses
import functools
import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.centred_noise import CentredNoise
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import FloatArray, IntArray, Size, check_scale, rounded_up


class RoundedSampler(Protocol):
    """Draws of continuous noise of some scale, rounded to integers."""

    def __call__(self, scale: float, size: Size, /, *, rng: NoiseSource) -> IntArray:
        """Draws as many as `size` says."""


_LEAST_BITS = 20
"""Bits by which the grid is finer than the noise: rounding then adds a millionth to it."""
_MOST_BITS = 30
"""Most such bits, so that noise in grid widths stays below `exact.MAX_SCALE`."""
_MAX_MULTIPLE = 2.0**62
"""Largest value in grid widths; noise is smaller, so sums fit 64 bits."""
_MAX_EXPONENT = 900
"""Largest exponent of the noise in size, far from where floats lose bits."""
_MAX_EXACT_INTEGER = 2**53
"""Largest integer up to which every integer is a float."""


@dataclasses.dataclass(frozen=True)
class Lattice:
    """All multiples of a power of two."""

    exponent: int
    """The grid width is 2^exponent."""

    @property
    def width(self) -> float:
        """The distance between two neighbouring points."""
        return math.ldexp(1.0, self.exponent)

    def multiples(self, raw_values: ArrayLike) -> IntArray:
        """The nearest grid point of each value, in grid widths.

        Privacy:
          Releases nothing: multiples are as sensitive as the values. Rounding moves two neighbours
          apart by at most one width in each value; the contribution must be widened by that.
        """
        values = _exact_floats(np.asarray(raw_values))
        if not np.isfinite(values).all():
            raise DataError(
                "raw_values contain NaN or infinity; replace them by a public default "
                "before contributions are bounded."
            )
        with np.errstate(over="ignore", under="ignore"):
            steps = np.rint(np.ldexp(values, -self.exponent))
        if (np.abs(steps) > _MAX_MULTIPLE).any():
            raise DataError(
                f"raw_values must lie within +-{_MAX_MULTIPLE * self.width:g}, 2^62 grid widths; "
                "so large a value needs no noise as small as this. Raise noise_multiplier or "
                "max_contribution."
            )
        return steps.astype(np.int64)

    def values(self, multiples: IntArray) -> FloatArray:
        """The grid points as floats.

        Exact up to 2^53 grid widths. Beyond, the nearest float, which is a
        coarser multiple of the width and a function of the noisy value alone.
        """
        points: FloatArray = np.ldexp(multiples.astype(np.float64), self.exponent)
        return points


@dataclasses.dataclass(frozen=True)
class FittedNoise:
    """A grid and the size of the noise on it."""

    lattice: Lattice
    contribution: float
    """Largest contribution of one unit after rounding to the grid."""
    noise: float
    """Noise multiplier times `contribution`."""

    @property
    def noise_in_steps(self) -> float:
        """The noise in grid widths, an exact quotient."""
        return math.ldexp(self.noise, -self.lattice.exponent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealNoiseConfig(CentredNoise):
    """Settings of noise on real numbers, Laplace or Gaussian. Every field is public information.

    The size of noise and contributions is that of the law: for Laplace noise its scale and the L1
    norm, for Gaussian noise its standard deviation and the L2 norm.
    """

    noise_multiplier: float
    """Size of the noise over the largest contribution."""
    max_contribution: float = 1.0
    """Largest norm of what one unit adds to all values of the release."""
    max_values_per_unit: int = 1
    """Most values that one unit adds something to."""
    replace_factor: float = 2.0
    """How much further than a removal a replacement moves the values; see privacy.events."""

    def __post_init__(self) -> None:
        self.event()
        check_contribution(self.max_contribution, self.max_values_per_unit)
        check_scale("noise in grid widths", self.fitted.noise_in_steps)

    @functools.cached_property
    def fitted(self) -> FittedNoise:
        """The grid and the noise on it."""
        return fit_lattice(self.noise_multiplier, self.max_contribution, self._rounding_steps)

    @property
    @abc.abstractmethod
    def _rounding_steps(self) -> float:
        """Most grid widths, in the norm of the law, that rounding adds between neighbours."""


def release_on_lattice(
    raw_values: ArrayLike, config: RealNoiseConfig, sample: RoundedSampler, *, rng: NoiseSource
) -> FloatArray:
    """Rounds the values to the grid and adds noise that `sample` draws in whole grid widths.

    Args:
      raw_values: Finite numbers of any shape, sums of bounded contributions.
      config: Noise and contribution settings.
      sample: Draws rounded noise of the config's law.
      rng: Source of the noise. Sensitive: never log or save its state.

    Privacy:
      That of the mechanism whose rounded noise `sample` draws; see the module.
    """
    fitted = config.fitted
    # The sum is one of integers: a float sum would round by an amount that depends on raw values.
    multiples = fitted.lattice.multiples(raw_values)
    noise = sample(fitted.noise_in_steps, multiples.shape, rng=rng)
    return fitted.lattice.values(multiples + noise)


def fit_lattice(
    noise_multiplier: float, max_contribution: float, rounding_steps: float
) -> FittedNoise:
    """Chooses a grid that is fine against the noise, and scales the noise to it.

    Args:
      noise_multiplier: Noise over the largest contribution.
      max_contribution: Largest contribution of one unit before rounding.
      rounding_steps: Most grid widths, in the norm of the contribution, that
        rounding can add to the distance of two neighbours.
    """
    noise = noise_multiplier * max_contribution
    if not 2.0**-_MAX_EXPONENT < noise < 2.0**_MAX_EXPONENT:
        raise ConfigError(
            f"noise_multiplier * max_contribution = {noise} must be in "
            f"(2^-{_MAX_EXPONENT}, 2^{_MAX_EXPONENT}); choose another unit for the values."
        )
    # Finer where many values are rounded, to widen by no more than 2^-20 if bits allow.
    extra_bits = math.ceil(math.log2(max(1.0, rounding_steps * noise_multiplier)))
    num_bits = min(_LEAST_BITS + extra_bits, _MOST_BITS)
    # A power of two, so that scaling to the grid and back is exact; and of public settings alone,
    # since a grid that followed the data would tell of them.
    lattice = Lattice(math.frexp(noise)[1] - 1 - num_bits)
    # Both products go up: less noise than the event states would be a leak, a little more is none.
    contribution = rounded_up(max_contribution + rounding_steps * lattice.width)
    return FittedNoise(lattice, contribution, rounded_up(noise_multiplier * contribution))


def check_contribution(max_contribution: float, max_values_per_unit: int) -> None:
    """Refuses bounds that bound nothing."""
    if not 0 < max_contribution < math.inf:
        raise ConfigError(
            f"max_contribution={max_contribution} must be > 0 and finite; "
            "bound the contributions first."
        )
    if not isinstance(max_values_per_unit, int) or max_values_per_unit < 1:
        raise ConfigError(
            f"max_values_per_unit={max_values_per_unit!r} must be a whole number >= 1."
        )


def _exact_floats(values: NDArray[Any]) -> FloatArray:
    """The values as float64, refused where that would move them (and so widen a difference)."""
    is_exact = values.size == 0 or values.dtype in (np.float16, np.float32, np.float64, np.bool_)
    if not is_exact and values.dtype.kind in "iu":
        is_exact = max(int(values.max()), -int(values.min())) <= _MAX_EXACT_INTEGER
    if not is_exact:
        raise DataError(
            f"raw_values of dtype {values.dtype} do not all fit float64 exactly; pass float64, "
            "or use release_discrete_laplace() for large counts."
        )
    return values.astype(np.float64)
