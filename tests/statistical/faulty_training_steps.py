"""Private steps that are wrong on purpose. An audit of the step must catch each one.

Each class takes the place of `PrivateStep`, each function that of a sampler's batches.
Every fault here is one that real training code has had; the list grows with every bug.
"""

import dataclasses
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.train.models.batches import ExampleBatch
from tulle.train.models.contributions import Contribution, Gradient, TableContribution
from tulle.train.steps.private_step import BatchUnits, PrivateStep, StepRelease


class HalfNoise(PrivateStep):
    noise_factor = 0.5

    def _noisy(self) -> StepRelease:
        right = self._settings
        less = self.noise_factor * right.noise_multiplier
        self._settings = dataclasses.replace(right, noise_multiplier=less)
        released = super()._noisy()
        self._settings = right
        return released


class NoiseOverRootTwo(HalfNoise):
    """Takes a variance for that of both sides of a difference."""

    noise_factor = math.sqrt(0.5)


class ClipsAfterSumming(PrivateStep):
    """Clips the mean gradient of the batch instead of each example's."""

    def _factors(self, norms: Tensor) -> Tensor:
        return torch.ones_like(norms)

    def _noisy(self) -> StepRelease:
        flat = torch.cat([values.flatten() for values in self._sums.values()])
        mean_norm = float(flat.norm()) / self._settings.expected_size
        for values in self._sums.values():
            values.mul_(min(1.0, self._settings.clip_norm / max(mean_norm, 1e-30)))
        return super()._noisy()


class ClipsEachParameter(PrivateStep):
    """Each parameter's part may be as long as the clip norm."""

    def _add_rows(self, batch: ExampleBatch, weights: Tensor) -> None:
        _, contributions = self._passes(batch)
        for contribution in contributions:
            norms = contribution.squared_norms().sqrt()
            is_finite = torch.isfinite(norms)
            self._add(batch, [contribution], weights * self._factors(norms), is_finite)


@dataclasses.dataclass(frozen=True)
class _WrongNorms:
    """A contribution whose sums are right and whose norms are not."""

    right: Contribution
    squares: Tensor

    def squared_norms(self) -> Tensor:
        return self.squares

    def inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        return self.right.inner_products(left, right)

    def weighted_sum(self, weights: Tensor) -> list[Gradient]:
        return self.right.weighted_sum(weights)


class IgnoresRepeatedIds(PrivateStep):
    """Takes the norms of all reads of a row where it should take that of their sum."""

    def _passes(self, batch: ExampleBatch) -> tuple[Tensor, list[Contribution]]:
        losses, contributions = super()._passes(batch)
        wrong: list[Contribution] = []
        for contribution in contributions:
            if isinstance(contribution, TableContribution):
                squares = contribution.grads.square().sum((1, 2))
                wrong.append(_WrongNorms(contribution, squares))
            else:
                wrong.append(contribution)
        return losses, wrong


class ForgetsTheSensitiveTower(PrivateStep):
    """Clips by the norm of the other towers alone."""

    def _passes(self, batch: ExampleBatch) -> tuple[Tensor, list[Contribution]]:
        losses, contributions = super()._passes(batch)
        wrong: list[Contribution] = []
        for contribution in contributions:
            names = [g.name for g in contribution.weighted_sum(torch.zeros_like(losses))]
            if names[0].startswith("sensitive."):
                wrong.append(_WrongNorms(contribution, torch.zeros_like(losses)))
            else:
                wrong.append(contribution)
        return losses, wrong


class DividesByTheDrawnSize(PrivateStep):
    """The mean over the rows that came, with the noise of a mean over the expected ones."""

    def release(
        self, batch: ExampleBatch, weights: Tensor, units: BatchUnits | None = None
    ) -> StepRelease:
        self._drawn_size = max(1.0, float(weights.sum()))
        return super().release(batch, weights, units)

    def _noisy(self) -> StepRelease:
        for values in self._sums.values():
            values.mul_(self._settings.expected_size / self._drawn_size)
        return super()._noisy()


class DividesSumAndNoiseByTheDrawnSize(DividesByTheDrawnSize):
    """The noisy sum over the size that was drawn: the divisor is not noisy."""

    def _noisy(self) -> StepRelease:
        right = self._settings
        self._settings = dataclasses.replace(right, expected_size=self._drawn_size)
        released = PrivateStep._noisy(self)
        self._settings = right
        return released


def fixed_size_batches(
    num_runs: int, rows_per_run: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """In every one of many runs side by side a uniform batch of always the same size."""
    places = rng.random((num_runs, rows_per_run)).argsort(axis=1)[:, :size]
    return np.sort((places + rows_per_run * np.arange(num_runs)[:, None]).ravel())
