"""Deliberately wrong correlated noise. Each class takes the place of `BandedGradientNoise`.

`test_banded_noise` must catch every one of them; the list grows with every bug.
"""

import torch
from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource
from tulle.train.run_context import NoiseMemory
from tulle.train.settings.band_matrix import BandMatrix
from tulle.train.steps.banded import BandedGradientNoise


class FivePercentLess(BandedGradientNoise):
    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        super().add_to_sum(name, values, 0.95 * stddev)


class FivePercentMore(BandedGradientNoise):
    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        super().add_to_sum(name, values, 1.05 * stddev)


class ColumnsThatAreNotScaled(BandedGradientNoise):
    """Bands that start with 1: columns are longer than what is accounted."""

    def __init__(self, matrix: BandMatrix, rng: NoiseSource, memory: NoiseMemory) -> None:
        super().__init__(matrix, rng, memory)
        self._scale = float(matrix.coefficients[0])

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        super().add_to_sum(name, values, self._scale * stddev)


class NoRestart(BandedGradientNoise):
    """Goes on with noise of steps that the checkpoint does not know."""

    def restart(self) -> None:
        pass


class NormalsAgainAfterARestart(BandedGradientNoise):
    """Counts steps from 0 again, so that the first block's normals come a second time."""

    def restart(self) -> None:
        super().restart()
        self._step, self._start = 0, 0


class NormalsReusedAcrossSteps(BandedGradientNoise):
    """Every second step has the normals of the step before it."""

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        if self._step % 2 == 1:
            self._step -= 1
            super().add_to_sum(name, values, stddev)
            self._step += 1
        else:
            super().add_to_sum(name, values, stddev)


class OneBandForgotten(BandedGradientNoise):
    """Takes back one step less than it should."""

    def __init__(self, matrix: BandMatrix, rng: NoiseSource, memory: NoiseMemory) -> None:
        super().__init__(matrix, rng, memory)
        self._past_factors[-1] = 0.0


class OneNoiseForAllSums(BandedGradientNoise):
    """The same key for every sum."""

    def __init__(self, matrix: BandMatrix, rng: NoiseSource, memory: NoiseMemory) -> None:
        super().__init__(matrix, rng, memory)
        words = rng.words(4)
        self._normals._key = lambda name: words  # type: ignore[method-assign]  # noqa: ARG005


class IndependentOfThePast(BandedGradientNoise):
    """Fresh noise of the size of C^-1 z: as large, but none of it is taken back."""

    def end_step(self) -> None:
        super().end_step()
        self.restart()


def zeros() -> dict[str, Tensor]:
    """Two sums of a step."""
    return {"a": torch.zeros(200_000), "b": torch.zeros(100_000)}
