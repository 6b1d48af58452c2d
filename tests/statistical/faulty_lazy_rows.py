"""Lazy noise that is wrong on purpose. The checks of its law must catch each one.

Some take the place of `AgeTable`, some that of `LazyRows`. Each is a shortcut that looks
right: several are exact without momentum, or at a constant rate, or if a row is read once.
"""

import dataclasses

import torch
from torch import Tensor

from tulle.train.steps.age_table import AgeMoments, AgeTable, RowMoves
from tulle.train.steps.lazy_rows import LazyRows


class RootOfDelayTimesRate(AgeTable):
    """LazyDP: missed noise is sqrt(missed steps) times the current rate."""

    _rate = 0.0

    def end_step(self, rate: float) -> None:
        super().end_step(rate)
        self._rate = rate

    def moments(self, ages: Tensor) -> AgeMoments:
        variance = ages.double() * self._rate**2
        return dataclasses.replace(super().moments(ages), weight_variance=variance)


class CurrentRateForTheMomentum(RootOfDelayTimesRate):
    """Moves along the old momentum as if the rate had always been the current one."""

    def moments(self, ages: Tensor) -> AgeMoments:
        right = AgeTable.moments(self, ages)
        drift = self._rate * (1 - right.memory) / (1 - self.momentum)
        return dataclasses.replace(right, drift=drift)


class NoCovariance(AgeTable):
    """Draws weight and momentum as if they did not share their noise."""

    def moments(self, ages: Tensor) -> AgeMoments:
        right = super().moments(ages)
        return dataclasses.replace(right, covariance=torch.zeros_like(right.covariance))


class NoNoiseInTheMomentum(AgeTable):
    """The momentum of a row that is not read only shrinks."""

    def moments(self, ages: Tensor) -> AgeMoments:
        right = super().moments(ages)
        none = torch.zeros_like(right.momentum_variance)
        return dataclasses.replace(right, covariance=none, momentum_variance=none.clone())


class OneStepTooYoung(AgeTable):
    def moments(self, ages: Tensor) -> AgeMoments:
        return super().moments((ages - 1).clamp(min=0))


class OneStepTooOld(AgeTable):
    def moments(self, ages: Tensor) -> AgeMoments:
        return super().moments((ages + ages.sign()).clamp(max=self.step - self._first_step))


class ForgetsDecay(AgeTable):
    """Decays a row only in the last step that it missed."""

    def moments(self, ages: Tensor) -> AgeMoments:
        right = super().moments(ages)
        kept = None if right.kept is None else super().moments(ages.clamp(max=1)).kept
        return dataclasses.replace(right, kept=kept)


class NoNoiseInTouchedSteps(LazyRows):
    """A read row makes its move at once, and is not noised in that step."""

    rates: tuple[float, ...] = ()

    def add_gradient(self, rows: Tensor, values: Tensor, scale: float = 1.0) -> None:
        super().add_gradient(rows, values, scale)
        step = self._ages.step
        self._weights[rows] -= self.rates[step] * self._mean[rows]
        self._mean[rows] *= self._ages.momentum
        self._exact_at[rows] = step + 1


class ForgetsVariance(LazyRows):
    """Takes the mean of the momentum for the momentum."""

    def _moves(self, variance: Tensor, ages: Tensor) -> RowMoves:
        right = super()._moves(variance, ages)
        return dataclasses.replace(right, variance=torch.zeros_like(right.variance))


class ReleasesTheMean(LazyRows):
    """Writes the mean of the momentum into a checkpoint, with too little noise in it."""

    def release_state(self) -> dict[str, Tensor]:
        self.flush()
        self._variance.zero_()
        return super().release_state()


class NeverMarksRows(LazyRows):
    """Adds noise that a row has already got."""

    def catch_up(self, rows: Tensor) -> None:
        before = self._exact_at.clone()
        super().catch_up(rows)
        self._exact_at.copy_(before)

    def add_gradient(self, rows: Tensor, values: Tensor, scale: float = 1.0) -> None:
        self._mean.index_add_(0, rows, values, alpha=scale)
