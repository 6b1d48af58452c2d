"""Laplace and discrete Laplace noise on numeric labels: the baselines.

The label moves by at most its declared range, and noise of that size hides it. The
noisy label has the label as its mean, so it is its own target. Clipped to the range it
looks better, but its mean is pulled inwards, and models trained on it are worse.
"""

import dataclasses
import functools
import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.labels.label_grid import LabelGrid
from tulle.labels.row_mechanism import NoisyLabels
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.laplace import LaplaceConfig, release_laplace
from tulle.privacy.events import DiscreteLaplace, Laplace
from tulle.privacy.units import Adjacency

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveLabels:
    """What mechanisms that add noise to a label share. Every field is public."""

    word: ClassVar[str]
    """The noise on the command line and on cards."""

    epsilon: float
    grid: LabelGrid
    """The declared range. Noise in steps of the grid moves a label between two values to the
    nearest; other noise takes it as it is."""
    clip: bool = False
    """Cut the noisy label to the range. Biased: there is then no target."""

    def __post_init__(self) -> None:
        if not isinstance(self.clip, bool):
            raise ConfigError(f"clip={self.clip!r} must be True or False.")

    @property
    def name(self) -> str:
        """The word for it on the command line and on cards."""
        return f"{self.word}-clipped" if self.clip else self.word

    def check_labels(self, raw_labels: NDArray[Any]) -> None:
        """Refuses labels outside of the declared range, without showing them.

        Privacy:
          Releases nothing: the error shows none of the labels.
        """
        self.grid.check(raw_labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceLabels(AdditiveLabels):
    """Settings of Laplace noise on labels in a range. Every field is public."""

    word: ClassVar[str] = "laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.noise

    @functools.cached_property
    def noise(self) -> LaplaceConfig:
        """The noise on a label, whose contribution is the whole range."""
        span = self.grid.high - self.grid.low
        if Fraction(span) < Fraction(self.grid.high) - Fraction(self.grid.low):
            span = math.nextafter(span, math.inf)
        return LaplaceConfig.for_epsilon(
            self.epsilon, adjacency=Adjacency.REPLACE, max_contribution=span, replace_factor=1.0
        )

    def event(self) -> Laplace:
        """What one noisy label of a unit costs."""
        return self.noise.event()

    def mean(self, label: float) -> float:
        """Mean of the noisy label, up to the noise's own grid of 2^-20 of its scale."""
        return self._moments(label)[0]

    def variance(self, label: float) -> float:
        """Variance of the noisy label over the noise, up to the same."""
        return self._moments(label)[1]

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Numbers in the declared range.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one label, replace. Sensitivity: the range. Event: one Laplace.
          Relies on: one label a unit, drawn once.
        """
        noisy = release_laplace(self.grid.check(raw_labels), self.noise, rng=rng)
        return packed_labels(noisy, self.grid, self.variance(self.grid.low), clip=self.clip)

    def describe(self) -> dict[str, Any]:
        """Settings and the noise as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "grid": dataclasses.asdict(self.grid),
            "clip": self.clip,
            "noise_scale": self.noise.noise_scale,
        }

    def _moments(self, label: float) -> tuple[float, float]:
        below, above = self._room(label)
        scale = self.noise.noise_scale
        if not self.clip:
            # Laplace noise rounded to steps of its grid: with h = half a step over the scale,
            # P(|i| >= k) = exp(-(2k - 1) h), so the variance is cosh(h) / (2 sinh(h)^2) steps^2.
            half = 0.5 / self.noise.fitted.noise_in_steps
            steps = math.cosh(half) / (2 * math.sinh(half) ** 2)
            return label, steps * self.noise.fitted.lattice.width**2
        # Noise z cut to [-below, above]: E z = integral of P(z > s) to above, less that of
        # P(z < -s) to below; E z^2 is the sum of the integrals of 2 s P(...).
        shift = scale / 2 * (math.exp(-below / scale) - math.exp(-above / scale))
        square = sum(
            scale**2 - math.exp(-room / scale) * scale * (room + scale) for room in (below, above)
        )
        return label + shift, square - shift**2

    def _room(self, label: float) -> tuple[float, float]:
        self.grid.check(np.asarray(label))
        return label - self.grid.low, self.grid.high - label


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceLabels(AdditiveLabels):
    """Settings of discrete Laplace noise in steps of the label's grid. Every field is public."""

    word: ClassVar[str] = "discrete-laplace"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.noise

    @functools.cached_property
    def noise(self) -> DiscreteLaplaceConfig:
        """The noise in steps of the grid. A label moves by at most all its steps."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            max_contribution=self.grid.num_values - 1,
            replace_factor=1.0,
        )

    def event(self) -> DiscreteLaplace:
        """What one noisy label of a unit costs."""
        return self.noise.event()

    def mean(self, label: float) -> float:
        """Mean of the noisy label: the grid's value, unless it is clipped."""
        return self._steps.mean(label, self.grid, clip=self.clip)

    def variance(self, label: float) -> float:
        """Variance of the noisy label over the noise."""
        return self._steps.variance(label, self.grid, clip=self.clip)

    def release(self, raw_labels: NDArray[Any], *, rng: NoiseSource) -> NoisyLabels:
        """Draws one noisy label a row, once.

        Args:
          raw_labels: Numbers in the declared range.
          rng: Source of the noise. Sensitive: never log or save its state.

        Privacy:
          Unit: one label, replace. Sensitivity: the range. Event: one DiscreteLaplace.
          Relies on: one label a unit, drawn once.
        """
        places = self.grid.index_of(raw_labels)
        steps = places + sample_discrete_laplace(self.noise.scale, places.shape, rng=rng)
        noisy = np.asarray(self.grid.low + self.grid.step * steps, np.float64)
        return packed_labels(noisy, self.grid, self.variance(self.grid.low), clip=self.clip)

    def describe(self) -> dict[str, Any]:
        """Settings and the noise as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "grid": dataclasses.asdict(self.grid),
            "clip": self.clip,
            "noise_scale": self.grid.step * self.noise.scale,
        }

    @functools.cached_property
    def _steps(self) -> "StepMoments":
        sizes = np.arange(1, self.grid.num_values)
        odds = math.exp(-1 / self.noise.scale)
        tails = np.exp(-sizes / self.noise.scale) / (1 + odds)
        return StepMoments(steps_per_value=1, variance_in_steps=self.noise.variance, tails=tails)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class StepMoments:
    """Moments of symmetric integer noise on a grid, cut to the range or not."""

    steps_per_value: int
    """Steps of the noise in a step of the label's grid."""
    variance_in_steps: float
    tails: FloatArray
    """The chances that the noise is at least 1, 2, ... steps, up to the range."""

    def mean(self, label: float, grid: LabelGrid, *, clip: bool) -> float:
        """Mean of the noisy label."""
        place = int(grid.index_of(np.asarray(label)))
        shift = self._cut_moments(place)[0] if clip else 0.0
        return min(grid.low + grid.step * place, grid.high) + self._step(grid) * shift

    def variance(self, label: float, grid: LabelGrid, *, clip: bool) -> float:
        """Variance of the noisy label."""
        if not clip:
            return self._step(grid) ** 2 * self.variance_in_steps
        shift, square = self._cut_moments(int(grid.index_of(np.asarray(label))))
        return self._step(grid) ** 2 * (square - shift**2)

    def _step(self, grid: LabelGrid) -> float:
        return grid.step / self.steps_per_value

    @functools.cached_property
    def _sums(self) -> tuple[FloatArray, FloatArray]:
        """Sums of P(z >= s) and of (2 s - 1) P(z >= s) over 1 <= s <= each room."""
        sizes = np.arange(1, self.tails.size + 1)
        return _cumulated(self.tails), _cumulated((2 * sizes - 1) * self.tails)

    def _cut_moments(self, place: int) -> tuple[float, float]:
        """Mean of the noise and of its square, cut to the room below and above a place."""
        below = place * self.steps_per_value
        above = self.tails.size - below
        first, second = self._sums
        return float(first[above] - first[below]), float(second[above] + second[below])


def packed_labels(
    noisy: FloatArray, grid: LabelGrid, variance: float, *, clip: bool
) -> NoisyLabels:
    """Noisy numbers with what is known of their noise; clipped ones have no target."""
    if clip:
        cut = np.clip(noisy, grid.low, grid.high)
        return NoisyLabels(labels=cut, targets=None, noise_variance=None)
    return NoisyLabels(labels=noisy, targets=noisy, noise_variance=np.asarray(variance))


def _cumulated(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])
