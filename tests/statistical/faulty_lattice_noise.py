"""Deliberately wrong noise on a lattice. `test_lattice_noise` must catch each one.

Every class takes the place of `LatticeGradientNoise`; the list grows with every bug.
"""

import torch
from torch import Tensor

from tulle.mechanisms.entropy import NoiseSource
from tulle.train.steps.gradient_noise import LatticeGradientNoise
from tulle.train.steps.training_noise import TrainingNoise


class FloatNoise(LatticeGradientNoise):
    """Adds float normals and leaves out the lattice."""

    def __init__(self, rng: NoiseSource, *, grid: float) -> None:
        super().__init__(rng, grid=grid)
        self._floats = TrainingNoise(rng)

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:  # noqa: ARG002
        self._floats.add_to(values, stddev)


class OnlyNoiseIsRounded(LatticeGradientNoise):
    """Adds rounded noise to a sum that is not on the grid: each sum has a lattice of its own."""

    def add_to_sum(self, name: str, values: Tensor, stddev: float) -> None:
        noise = torch.zeros_like(values)
        super().add_to_sum(name, noise, stddev)
        values += noise


class GridIsNoPowerOfTwo(LatticeGradientNoise):
    """Multiples of the grid are rounded, and so are sums in units of it."""

    def __init__(self, rng: NoiseSource, *, grid: float) -> None:
        super().__init__(rng, grid=grid)
        self._grid = 0.7 * grid


class NoiseIsRoundedTowardZero(LatticeGradientNoise):
    def _rounded_normals(self, num_draws: int, stddev: float, device: torch.device) -> Tensor:
        # A finer draw stands for the normal itself.
        fine = super()._rounded_normals(num_draws, 1024 * stddev, device)
        return torch.div(fine, 1024, rounding_mode="trunc")


class FivePercentLessNoise(LatticeGradientNoise):
    def _noise_in_steps(self, stddev: float) -> float:
        return super()._noise_in_steps(0.95 * stddev)


class NoiseOfTheGridAbove(LatticeGradientNoise):
    """Takes the grid of the clip norm for that of the noise."""

    def _noise_in_steps(self, stddev: float) -> float:
        return super()._noise_in_steps(stddev) / 2


class TwoEntriesShareADraw(LatticeGradientNoise):
    def _rounded_normals(self, num_draws: int, stddev: float, device: torch.device) -> Tensor:
        half = super()._rounded_normals((num_draws + 1) // 2, stddev, device)
        return half.repeat_interleave(2)[:num_draws]
