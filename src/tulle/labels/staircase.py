"""Staircase noise on numeric labels: the additive noise of least variance.

The noise is drawn in whole steps of the label's grid, or of a finer one where that makes
it smaller, so that its chances are exact. Its variance is that of the best noise on
real numbers to within 0.1% up to epsilon 12, or less on coarse grids.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tulle.labels.additive_noise import AdditiveLabels, StepMoments, packed_labels
from tulle.labels.row_mechanism import NoisyLabels
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.staircase_noise import StaircaseAim, StaircaseConfig, release_staircase
from tulle.privacy.events import EpsilonDelta

_MOST_STEPS = 1 << 13
_SLACK = 1.0005


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaircaseLabels(AdditiveLabels):
    """Settings of staircase noise on the label's grid. Every field is public."""

    word: ClassVar[str] = "staircase"

    aim: StaircaseAim = StaircaseAim.VARIANCE
    """What is made small: the variance of the noise, or its mean size."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.noise

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
          Unit: one label, replace. Sensitivity: the range. Event: one EpsilonDelta without
          delta. Relies on: one label a unit, drawn once.
        """
        places = self.grid.index_of(raw_labels) * self.refinement
        steps = release_staircase(places, self.noise, rng=rng)
        noisy = np.asarray(self.grid.low + self._step * steps, np.float64)
        return packed_labels(noisy, self.grid, self.variance(self.grid.low), clip=self.clip)

    def describe(self) -> dict[str, Any]:
        """Settings and the noise as plain data."""
        return {
            "mechanism": self.name,
            "epsilon": self.epsilon,
            "grid": dataclasses.asdict(self.grid),
            "clip": self.clip,
            "aim": self.aim.value,
            "noise_step": self._step,
            "inner_width": self._step * self.noise.inner_width,
            "noise_variance": self._step**2 * self.noise.variance,
        }

    @property
    def _step(self) -> float:
        return self.grid.step / self.refinement

    def _config_with(self, refinement: int) -> StaircaseConfig:
        sensitivity = (self.grid.num_values - 1) * refinement
        return StaircaseConfig(epsilon=self.epsilon, sensitivity=sensitivity, aim=self.aim)

    def _noise_with(self, refinement: int) -> float:
        config = self._config_with(refinement)
        if self.aim is StaircaseAim.SIZE:
            return config.mean_size / refinement
        return config.variance / refinement**2

    @functools.cached_property
    def _steps(self) -> StepMoments:
        sizes = np.arange(1, self.noise.sensitivity + 1)
        return StepMoments(
            steps_per_value=self.refinement,
            variance_in_steps=self.noise.variance,
            tails=self.noise.tail(sizes),
        )
