"""What the noisy sums of a cell say about its log odds: likelihoods on a fixed grid of changes.

Labels are rare: the probability after a change of log odds is far from linear in the change, and a
normal approximation would be wrong for cells of few labels. So every change on a grid gets its
likelihood, and priors are probabilities of the same grid points.

All of it is post-processing of noisy sums, so nothing here can cost privacy.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_FINE = 0.2
"""Change of log odds up to which the grid is nearly even, in steps of 0.011; beyond it, steps grow
in proportion to the change."""
_NUM_BELOW, _NUM_ABOVE = 64, 57
"""Number of grid points below 0, and of those from 0 on."""
GRID = _FINE * np.sinh(
    np.concatenate(
        [
            np.linspace(-np.arcsinh(3.5 / _FINE), 0, _NUM_BELOW, endpoint=False),
            np.linspace(0, np.arcsinh(2.5 / _FINE), _NUM_ABOVE),
        ]
    )
)
"""Changes of log odds that are considered, from -3.5 to 2.5. Rare labels can become much rarer,
but not much more frequent."""
_ZERO = _NUM_BELOW
"""Place of the change 0 in the grid."""
_LOG_STEPS = np.log(np.gradient(GRID))
"""Logs of the distances of grid points, which make a density a probability at each point."""
SPREADS = np.array([0.03, 0.045, 0.065, 0.1, 0.15, 0.22, 0.32, 0.47, 0.7, 1.0, 1.5])
"""Standard deviations that a normal prior may have; the one with the most evidence is taken."""
SCALES = np.array([2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.1, 0.05, 0.02])
"""Factors of the variances of all cells that `further_changes` chooses from."""
_LEAST_FOR_SHAPE = 200
"""Number of cells that it takes to learn the shape of the prior; with fewer it stays normal."""
_SHAPE_ROUNDS = 10
"""Rounds of EM. There are few of them, since a converged nonparametric prior tends to spikes."""
_LEAST_PRIOR = 1e-12
"""Least prior probability of a grid point, so that its logarithm is finite."""
_SMOOTHING = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
"""Kernel that smooths the prior over neighbouring grid points after each round of EM."""
_NORMAL_PART = 0.02
"""Weight of the normal prior in the learnt one, which keeps the tails from vanishing."""
_CELLS_AT_A_TIME = 1 << 15
"""Cells that are handled together: a [cells, grid] array of float64 then takes 32 MB."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyCells:
    """Noisy sums over the cells of a table, with the scale of their noise."""

    residuals: FloatArray
    """[cells]: noisy sums of labels less predictions."""
    predicted: FloatArray
    """[cells]: sums of predictions, noisy or public."""
    residual_stddev: FloatArray | float
    """Standard deviation of the noise on residuals: one for all cells, or one for each, like the
    next two."""
    predicted_stddev: FloatArray | float
    """Standard deviation of the noise on sums of predictions; 0 if predictions are public."""
    row_weights: FloatArray | float = 1.0
    """Weight of a typical row in sums. The sum of labels of rows of weight a has a variance of
    about a times its mean."""
    unevenness: float = 1.0
    """Factor by which that variance is larger because the rows of a cell weigh unequally."""
    rate: float
    """Typical prediction, which says how log odds move probabilities."""
    dispersion: float = 1.0
    """Variance of a label over that of a label of 0 or 1 with the same mean: below 1 for values,
    which are rarely as large as their clip."""


class CellLikelihood:
    """Likelihoods of the sums of cells for every change on the grid.

    They are kept as logs: in a cell with many rows, all changes but one may have a likelihood that
    is below the smallest float.
    """

    def __init__(self, cells: NoisyCells) -> None:
        self._cells = cells
        rate = cells.rate
        odds = rate / (1 - rate) * np.exp(GRID)
        # For each change on the grid: the probability p(b), the mean of a residual for each
        # predicted label, p(b)/p - 1, and the variance of labels for each predicted label.
        self._changed = odds / (1 + odds)
        self._growth = self._changed / rate - 1
        self._variance = cells.dispersion * self._changed * (1 - self._changed) / rate
        self._base_log_odds = math.log(rate / (1 - rate))

    def log_likelihoods(self, places: NDArray[np.int64]) -> FloatArray:
        """Log likelihoods of some cells as [cells, grid], each row up to a constant."""
        cells = self._cells
        residuals, predicted = cells.residuals[places], cells.predicted[places]
        # P itself is noisy, and its error is multiplied by the growth.
        noise = _column(cells.residual_stddev, places) ** 2
        noise = noise + (self._growth * _column(cells.predicted_stddev, places)) ** 2
        weights = cells.unevenness * _column(cells.row_weights, places)
        variance = predicted[:, None] * weights * self._variance + noise
        distance = residuals[:, None] - np.outer(predicted, self._growth)
        logs: FloatArray = -0.5 * (np.log(variance) + distance**2 / variance)
        return logs

    def evidences(self, places: NDArray[np.int64]) -> FloatArray:
        """Nats by which each of `SPREADS` explains the sums better than no change does."""
        total = np.zeros(len(SPREADS))
        for part in parts_of(places):
            logs = self.log_likelihoods(part)
            total += [
                float((_log_sums(logs + log_prior) - logs[:, _ZERO]).sum())
                for log_prior in LOG_NORMAL_PRIORS
            ]
        return total

    def scale_evidences(self, places: NDArray[np.int64], variances: FloatArray) -> FloatArray:
        """Nats by which each factor of the variances explains the sums better than no change.

        Args:
          places: Cells to learn from.
          variances: Variance of the log odds of each of these cells.
        """
        logs = self.log_likelihoods(places)
        return np.array(
            [
                float((_log_sums(logs + log_normal(scale * variances)) - logs[:, _ZERO]).sum())
                for scale in SCALES
            ]
        )

    def learnt_prior(self, places: NDArray[np.int64], start: FloatArray) -> FloatArray:
        """Logs of the prior, with the shape that many cells give it (smoothed EM).

        Args:
          places: Cells to learn from; with too few of them the prior stays as it is.
          start: [grid]: logs of the normal prior to start from.
        """
        if places.size < _LEAST_FOR_SHAPE:
            return start
        logs, log_prior = self.log_likelihoods(places), start
        for _ in range(_SHAPE_ROUNDS):
            joint = logs + log_prior
            share = np.exp(joint - _log_sums(joint)[:, None]).mean(axis=0)
            edges = np.pad(share, 2, mode="edge")
            share = np.convolve(edges, _SMOOTHING, mode="valid")
            prior = (1 - _NORMAL_PART) * share / share.sum() + _NORMAL_PART * np.exp(start)
            log_prior = np.log(np.maximum(prior, _LEAST_PRIOR))
        return log_prior

    def posterior_log_odds(self, places: NDArray[np.int64], log_prior: FloatArray) -> FloatArray:
        """Changes of log odds that make each cell's probability its posterior mean.

        Args:
          places: Cells to compute changes of.
          log_prior: Logs of one prior as [grid], or of one for each cell as [cells, grid].
        """
        # The mean of the probability, not of the log odds: predictions then stay calibrated.
        joint = self.log_likelihoods(places) + log_prior
        joint -= joint.max(axis=1, keepdims=True)
        weights = np.exp(joint, out=joint)
        chances = weights @ self._changed / weights.sum(axis=1)
        change: FloatArray = np.log(chances / (1 - chances)) - self._base_log_odds
        return change

    def normal_sites(
        self, places: NDArray[np.int64], centres: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Means and precisions of normal likelihoods in place of those of some cells.

        Args:
          places: The cells.
          centres: Change of each of them about which the mean of its sum is taken as linear.
        """
        # One step of Fisher scoring. Sums vary as they would at the centre, not as they happen to
        # be: many cells of few labels that are added up along a chain would else be biased alike.
        cells = self._cells
        odds = np.exp(self._base_log_odds + centres)
        changed = odds / (1 + odds)
        growth = changed / cells.rate - 1
        of_a_label = cells.unevenness * cells.dispersion * changed * (1 - changed) / cells.rate
        predicted = cells.predicted[places]
        variance = _column(cells.residual_stddev, places)[:, 0] ** 2
        variance = variance + (growth * _column(cells.predicted_stddev, places)[:, 0]) ** 2
        variance = variance + predicted * _column(cells.row_weights, places)[:, 0] * of_a_label
        slope = predicted * changed * (1 - changed) / cells.rate
        means: FloatArray = centres + (cells.residuals[places] - predicted * growth) / slope
        precisions: FloatArray = slope**2 / variance
        return means, precisions


def parts_of(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Splits places into parts that are small enough for an array of [places, grid]."""
    for start in range(0, places.size, _CELLS_AT_A_TIME):
        yield places[start : start + _CELLS_AT_A_TIME]


def _column(values: FloatArray | float, places: NDArray[np.int64]) -> FloatArray:
    """Values of some cells as [cells, 1], or the one value that all cells have as [1, 1]."""
    chosen = np.asarray(values, np.float64)
    return chosen[places, None] if chosen.ndim else chosen.reshape(1, 1)


def log_normal(variances: FloatArray, means: FloatArray | float = 0.0) -> FloatArray:
    """Logs of a normal prior for each cell, as [cells, grid]."""
    centres = np.broadcast_to(means, variances.shape)[:, None]
    logs: FloatArray = _LOG_STEPS - 0.5 * (GRID - centres) ** 2 / variances[:, None]
    logs -= _log_sums(logs)[:, None]
    return logs


def _log_sums(logs: FloatArray) -> FloatArray:
    """log(sum(exp(logs))) of each row; terms that are far too small are left out."""
    most = logs.max(axis=1)
    sums: FloatArray = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return sums


# They depend on public grids alone, so that all tables share them.
LOG_NORMAL_PRIORS = log_normal(SPREADS**2)
