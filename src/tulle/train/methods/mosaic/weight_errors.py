"""How far the weights of a table may be from the truth: posterior standard deviations.

While a model is trained, shrinkage keeps a variance of each cell (`shrinkage.unknown_variances`),
which serves to divide the budget. It takes the labels of a row for new ones in each release. They
are the same labels, so that the noise of releases averages out and the labels' own variation does
not: those variances are too small for an interval of a table that was measured several times.

Here every fit is followed as it was done. A weight is a part of (true log odds + sampling error),
plus noise:

    weight after a fit = (1 - g) * weight before + g * (log odds + sampling error + noise)

where g is the part of the difference that the fit took up. What no fit has taken up is as unknown
as it was before the first one. All of it is post-processing of noisy sums.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tulle.train.methods.mosaic.cell_likelihood import NoisyCells

FloatArray = NDArray[np.float64]

_TINY = 1e-15
"""Positive number that stands in for 0 in denominators: what is divided by it is beyond all
variances, and the prior variance takes its place."""


@dataclasses.dataclass(eq=False, repr=False)
class WeightErrors:
    """What is known about the errors of the weights of one table, fit by fit."""

    prior_variance: FloatArray | float
    """Variance of the log odds of cells before any of their own sums was seen: one for all, or one
    for each; 0 without a fit."""
    untaken: FloatArray
    """[cells]: part of the log odds that no fit has taken up yet; 1 before the first one."""
    noise_variance: FloatArray
    """[cells]: variance of the weights by the noise of all sums that they are made of."""
    information: FloatArray
    """[cells]: inverse variance of the sampling error: how much all labels of a cell tell of its
    log odds, without any noise."""

    @classmethod
    def empty(cls, num_cells: int) -> "WeightErrors":
        """Errors of a table without a fit."""
        # Of most tables of a round nothing more is ever known: their cells share one number.
        none, whole = np.broadcast_to(0.0, num_cells), np.broadcast_to(1.0, num_cells)
        return cls(prior_variance=0.0, untaken=whole, noise_variance=none, information=none)

    def note(
        self,
        cells: "NoisyCells",
        taken: FloatArray,
        *,
        prior_variance: FloatArray | float | None = None,
    ) -> None:
        """Remembers a fit.

        Args:
          cells: The sums that were fitted.
          taken: [cells]: part of the difference that the fit took up.
          prior_variance: Variance of the log odds, if weights were learnt anew from all sums so
            far; None if they were improved.
        """
        slopes = np.maximum(cells.predicted, 0.0) * (1 - cells.rate)
        variance = cells.unevenness * cells.dispersion * np.maximum(cells.row_weights, _TINY)
        information = slopes / variance
        if prior_variance is not None:
            empty = WeightErrors.empty(len(slopes))
            self.untaken, self.noise_variance = empty.untaken, empty.noise_variance
            self.prior_variance, self.information = prior_variance, information
        # Numbers of rows are noisy too; two of them are better than one.
        self.information = np.where(
            self.information > 0, (self.information + information) / 2, information
        )
        noise = np.square(cells.residual_stddev) / np.maximum(slopes**2, _TINY)
        self.noise_variance = (1 - taken) ** 2 * self.noise_variance + taken**2 * noise
        self.untaken = self.untaken * (1 - taken)

    def stddevs(
        self, log_odds: NDArray[np.float32], rate: float, *, is_noisy: bool
    ) -> NDArray[np.float32]:
        """Posterior standard deviation of the log odds of each cell.

        Args:
          log_odds: [cells]: weights of the model.
          rate: Typical prediction.
          is_noisy: Whether sums of predictions had noise too.
        """
        odds = rate / (1 - rate) * np.exp(log_odds.astype(np.float64))
        chances = odds / (1 + odds)
        # Slopes were taken at the typical prediction; where labels are rarer, sums tell less.
        bend = chances * (1 - chances) / (rate * (1 - rate))
        growth = chances / rate - 1 if is_noisy else 0.0
        noise = (1 + np.square(growth)) * self.noise_variance / bend**2
        taken = 1 - self.untaken
        sampling = np.where(taken > 0, taken**2 / np.maximum(bend * self.information, _TINY), 0.0)
        variances = self.untaken**2 * self.prior_variance + sampling + noise
        # Nothing that was seen makes a cell less known than it was before.
        known: NDArray[np.float32] = np.sqrt(np.minimum(variances, self.prior_variance))
        return known.astype(np.float32)


def mean_over_rows(values: NDArray[np.floating[Any]], rows: FloatArray) -> float:
    """Mean of a value of each cell over rows, by public or noisy numbers of rows.

    Args:
      values: [cells]: the values.
      rows: [cells]: number of rows of each cell, about.
    """
    weights = np.maximum(rows, 0.0)
    return float(weights @ values / max(float(weights.sum()), _TINY))
