"""Noise in whole steps of the declared values of a label: discrete Laplace and staircase.

Both have exact probabilities, since a label is one of few values and so is a noisy one. Discrete
Laplace noise is a baseline. Staircase noise has the least variance of all additive noise; it is
drawn in finer steps than those of the label where that makes it smaller. Its variance is that of
the best noise on real numbers to within 0.1% up to epsilon 12, or less on coarse grids.
"""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tulle.labels.label_mechanism import (
    DescribedMechanism,
    Description,
    FloatArray,
    IntArray,
    NoiseDensity,
)
from tulle.labels.mechanisms.added_noise import NUM_POINTS_SHOWN, AddedNoise, AdditiveLabels
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.staircase_noise import StaircaseAim, StaircaseConfig, release_staircase
from tulle.privacy.events import DiscreteLaplace, EpsilonDelta
from tulle.privacy.units import Adjacency

_MOST_STEPS = 1 << 13
"""Most steps of staircase noise in the range of a label; finer ones gain nothing to speak of."""
_SLACK = 1.0005
"""Noise that is larger than the least by this factor is as good, and coarser steps are cheaper."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SteppedLabels(AdditiveLabels):
    """Symmetric noise in whole steps of the label's grid, or of a finer one."""

    def __post_init__(self) -> None:
        _ = self.noise

    @property
    @abc.abstractmethod
    def noise(self) -> DiscreteLaplaceConfig | StaircaseConfig:
        """The noise in its own steps. A label moves by at most all of them."""

    @functools.cached_property
    def refinement(self) -> int:
        """Steps of the noise in a step of the grid."""
        return 1

    def mean(self, label: float) -> float:
        """Mean of the noisy label: the grid's value, unless it is clipped."""
        place = int(self.grid.index_of(np.asarray(label)))
        shift = self._cut_moments(place)[0] if self.clip else 0.0
        value = min(self.grid.low + self.grid.step * place, self.grid.high)
        return value + self._step * shift

    def variance(self, label: float) -> float:
        """Variance of the noisy label over the noise."""
        if not self.clip:
            return self._step**2 * self.noise.variance
        shift, square = self._cut_moments(int(self.grid.index_of(np.asarray(label))))
        return self._step**2 * (square - shift**2)

    @property
    def _step(self) -> float:
        return self.grid.step / self.refinement

    @property
    @abc.abstractmethod
    def _tails(self) -> FloatArray:
        """Probabilities that the noise is at least 1, 2, ... steps, up to the range."""

    @abc.abstractmethod
    def _noisy_steps(self, places: IntArray, rng: NoiseSource) -> IntArray:
        """Places in steps of the noise, after the noise."""

    def _drawn(self, raw_labels: NDArray[Any], rng: NoiseSource) -> FloatArray:
        steps = self._noisy_steps(self.grid.index_of(raw_labels) * self.refinement, rng)
        return np.asarray(self.grid.low + self._step * steps, np.float64)

    @functools.cached_property
    def _tail_sums(self) -> tuple[FloatArray, FloatArray]:
        """Sums of P(z >= s) and of (2 s - 1) P(z >= s) over 1 <= s <= each room."""
        sizes = np.arange(1, self._tails.size + 1)
        return _cumulated(self._tails), _cumulated((2 * sizes - 1) * self._tails)

    def _cut_moments(self, place: int) -> tuple[float, float]:
        """Mean of the noise and of its square, cut to the room below and above a place."""
        first, second = self._tail_sums
        below = place * self.refinement
        above = first.size - 1 - below
        return float(first[above] - first[below]), float(second[above] + second[below])

    def density(self) -> NoiseDensity:
        """The law of the noise, beside Laplace noise."""
        reach, scale = self._reach
        most = max(1, int(reach / self._step))
        steps = np.arange(-most, most + 1, max(1, most * 2 // NUM_POINTS_SHOWN))
        return NoiseDensity(
            name=self.name,
            noise=(self._step * steps).tolist(),
            density=(self.noise.pmf(steps) / self._step).tolist(),
            laplace_scale=scale,
        )

    def _prob_of_at_least(self, num_values: int) -> float:
        if num_values == 0:
            return (1 + float(self.noise.pmf(0))) / 2
        return float(self._tails[num_values * self.refinement - 1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceLabels(_SteppedLabels):
    """Discrete Laplace noise in steps of the label's grid. Every field is public."""

    word: ClassVar[str] = "discrete-laplace"

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

    def _noisy_steps(self, places: IntArray, rng: NoiseSource) -> IntArray:
        return places + sample_discrete_laplace(self.noise.scale, places.shape, rng=rng)

    def _noise_facts(self) -> dict[str, Any]:
        return {"noise_scale": self.grid.step * self.noise.scale}

    @functools.cached_property
    def _tails(self) -> FloatArray:
        sizes = np.arange(1, self.grid.num_values)
        odds = math.exp(-1 / self.noise.scale)
        return np.asarray(np.exp(-sizes / self.noise.scale) / (1 + odds))


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaircaseLabels(_SteppedLabels):
    """Staircase noise on the label's grid, with its epsilon. Every field is public."""

    word: ClassVar[str] = "staircase"

    aim: StaircaseAim = StaircaseAim.VARIANCE
    """What is made small: the variance of the noise, or its mean size."""

    @functools.cached_property
    def refinement(self) -> int:
        """Steps of the noise in a step of the grid: the least power of two that does well."""
        num_steps = self.grid.num_values - 1
        finer = [1]
        while num_steps * finer[-1] * 2 <= _MOST_STEPS:
            finer.append(finer[-1] * 2)
        noise = [self._noise_with(steps) for steps in finer]
        return next(s for s, size in zip(finer, noise, strict=True) if size <= _SLACK * min(noise))

    @functools.cached_property
    def noise(self) -> StaircaseConfig:
        """The noise in its own steps. A label moves by at most all of them."""
        return self._config_with(self.refinement)

    def event(self) -> EpsilonDelta:
        """What one noisy label of a unit costs."""
        return self.noise.event()

    @classmethod
    def from_description(cls, described: Description) -> Self:
        """The mechanism that `describe` spoke of."""
        aim = StaircaseAim(described["aim"])
        return dataclasses.replace(super().from_description(described), aim=aim)

    def _noisy_steps(self, places: IntArray, rng: NoiseSource) -> IntArray:
        return release_staircase(places, self.noise, rng=rng)

    def _noise_facts(self) -> dict[str, Any]:
        return {
            "aim": self.aim.value,
            "noise_step": self._step,
            "inner_width": self._step * self.noise.inner_width,
            "noise_variance": self._step**2 * self.noise.variance,
        }

    def _config_with(self, refinement: int) -> StaircaseConfig:
        sensitivity = (self.grid.num_values - 1) * refinement
        return StaircaseConfig(epsilon=self.epsilon, sensitivity=sensitivity, aim=self.aim)

    def _noise_with(self, refinement: int) -> float:
        config = self._config_with(refinement)
        if self.aim is StaircaseAim.SIZE:
            return config.mean_size / refinement
        return config.variance / refinement**2

    @functools.cached_property
    def _tails(self) -> FloatArray:
        return self.noise.tail(np.arange(1, self.noise.sensitivity + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceNoise(AddedNoise):
    """Discrete Laplace noise on each label, in steps of its declared values."""

    kind: ClassVar[str] = "discrete-laplace"
    mechanism_class: ClassVar[type[DescribedMechanism]] = DiscreteLaplaceLabels


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteLaplaceNoiseClipped(DiscreteLaplaceNoise):
    """Discrete Laplace noise on each label, cut to the range, which biases it."""

    kind: ClassVar[str] = "discrete-laplace-clipped"
    clip: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaircaseNoise(AddedNoise):
    """Staircase noise on each label that is a number: additive noise of least variance."""

    kind: ClassVar[str] = "staircase"
    mechanism_class: ClassVar[type[DescribedMechanism]] = StaircaseLabels


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaircaseNoiseClipped(StaircaseNoise):
    """Staircase noise on each number, cut to the range, which biases it."""

    kind: ClassVar[str] = "staircase-clipped"
    clip: ClassVar[bool] = True


def _cumulated(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])
