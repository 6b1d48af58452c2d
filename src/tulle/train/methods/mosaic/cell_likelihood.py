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
_CELLS_AT_A_TIME = 1 << 9
"""Cells that are handled together: a [cells, grid] array of float64 then takes 0.5 MB, and the
steps of a formula find it in the cache of a processor."""
_LEAST_EXPONENT = -340.0
"""Least logarithm of a likelihood or prior probability, relative to the largest of its cell. What
is smaller is taken as e^-340, so that no product of two is too small for a float."""
_CLEAR_SUM = math.exp(-290)
"""Least sum over the grid of likelihood times prior that can be trusted: what is taken as e^-340
adds less than e^-330 to it, which is below its rounding. Smaller sums are taken by logs."""


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

    They are logs: in a cell with many rows, all changes but one may have a likelihood that is
    below the smallest float.
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
        """Log likelihoods of some cells as [cells, grid], relative to the largest of each cell."""
        cells = self._cells
        residuals, predicted = cells.residuals[places], cells.predicted[places]
        # Labels vary by P * variance, and sums have noise. P itself is noisy too, and its error is
        # multiplied by the growth.
        weights = cells.unevenness * _chosen(cells.row_weights, places)
        noise = _chosen(cells.residual_stddev, places) ** 2
        noise_of_predicted = _chosen(cells.predicted_stddev, places) ** 2
        variance = np.column_stack([predicted * weights, noise, noise_of_predicted]) @ np.stack(
            [self._variance, np.ones_like(GRID), self._growth**2]
        )
        logs: FloatArray = np.column_stack([residuals, -predicted]) @ np.stack(
            [np.ones_like(GRID), self._growth]
        )
        # -(distance^2 / variance + log(variance)) / 2, in place since this takes much of the time.
        np.square(logs, out=logs)
        logs /= variance
        logs += np.log(variance, out=variance)
        logs *= -0.5
        logs -= logs.max(axis=1, keepdims=True)
        return logs

    def scale_evidences(self, places: NDArray[np.int64], variances: FloatArray) -> FloatArray:
        """Nats by which each factor of the variances explains the sums better than no change.

        Args:
          places: Cells to learn from.
          variances: Variance of the log odds of each of these cells.
        """
        total = np.zeros(len(SCALES))
        for rows in _parts(places.size):
            logs = self.log_likelihoods(places[rows])
            relative = _powers(logs)
            for number, scale in enumerate(SCALES):
                log_priors = log_normal(scale * variances[rows])
                priors = _powers(log_priors)
                sums = np.einsum("cg,cg->c", relative, priors) / priors.sum(axis=1)
                found, faint = np.log(sums), np.flatnonzero(sums < _CLEAR_SUM)
                if faint.size:
                    found[faint] = _log_sums(logs[faint] + _normalised(log_priors[faint]))
                total[number] += (found - logs[:, _ZERO]).sum()
        return total

    def posterior_log_odds(self, places: NDArray[np.int64], log_prior: FloatArray) -> FloatArray:
        """Changes of log odds that make each cell's probability its posterior mean.

        Args:
          places: Cells to compute changes of.
          log_prior: Logs of one prior as [grid], or of one for each cell as [cells, grid]; each
            prior up to a constant.
        """
        logs = self.log_likelihoods(places)
        logs += log_prior
        logs -= logs.max(axis=1, keepdims=True)
        return self.mean_log_odds(_powers(logs))

    def mean_log_odds(self, weights: FloatArray, prior: FloatArray | float = 1.0) -> FloatArray:
        """Changes of log odds that make each cell's probability its mean under some weights.

        Args:
          weights: [cells, grid]: weight of each change for each cell.
          prior: [grid]: factors of the weights that all cells have in common.
        """
        # The mean of the probability, not of the log odds: predictions then stay calibrated.
        factors = prior * np.ones_like(GRID)
        sums = weights @ np.column_stack([factors * self._changed, factors])
        chances = sums[:, 0] / sums[:, 1]
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
        variance = _chosen(cells.residual_stddev, places) ** 2
        variance = variance + (growth * _chosen(cells.predicted_stddev, places)) ** 2
        variance = variance + predicted * _chosen(cells.row_weights, places) * of_a_label
        slope = predicted * changed * (1 - changed) / cells.rate
        means: FloatArray = centres + (cells.residuals[places] - predicted * growth) / slope
        precisions: FloatArray = slope**2 / variance
        return means, precisions


class KeptLikelihoods:
    """Likelihoods of some cells, kept for several questions about a prior that all of them share.

    Here they are numbers between 0 and 1 and no logs: sums over the grid are then matrix products
    and need no powers. Where such a sum is too small (`_CLEAR_SUM`), a cell is asked by logs.
    """

    def __init__(self, likelihood: CellLikelihood, places: NDArray[np.int64]) -> None:
        self._likelihood, self._places = likelihood, places
        self._relative = np.empty((places.size, GRID.size))
        self.evidences = np.zeros(len(SPREADS))
        """Nats by which each of `SPREADS` explains the sums better than no change does."""
        priors = np.ascontiguousarray(_powers(LOG_NORMAL_PRIORS).T)
        for rows in _parts(places.size):
            logs = likelihood.log_likelihoods(places[rows])
            relative = self._relative[rows] = _powers(logs)
            sums = relative @ priors
            found, faint = np.log(sums), np.flatnonzero((sums < _CLEAR_SUM).any(axis=1))
            for number, log_prior in enumerate(LOG_NORMAL_PRIORS if faint.size else ()):
                found[faint, number] = _log_sums(logs[faint] + log_prior)
            self.evidences += (found - logs[:, _ZERO, None]).sum(axis=0)

    def learnt_prior(self, start: FloatArray) -> FloatArray:
        """Logs of a prior that starts as this one and takes the shape that the cells give it.

        It is learnt by smoothed EM, and with too few cells it stays as it is.
        """
        if self._places.size < _LEAST_FOR_SHAPE:
            return start
        log_prior = start
        for _ in range(_SHAPE_ROUNDS):
            edges = np.pad(self._posterior_sums(log_prior), 2, mode="edge")
            share = np.convolve(edges, _SMOOTHING, mode="valid")
            prior = (1 - _NORMAL_PART) * share / share.sum() + _NORMAL_PART * np.exp(start)
            log_prior = np.log(np.maximum(prior, _LEAST_PRIOR))
        return log_prior

    def _posterior_sums(self, log_prior: FloatArray) -> FloatArray:
        """[grid]: posterior probabilities of each change, added up over cells."""
        prior = _powers(log_prior)
        total: FloatArray = np.zeros(GRID.size)
        for rows in _parts(self._places.size):
            relative = self._relative[rows]
            sums = relative @ prior
            is_clear = sums >= _CLEAR_SUM
            total += prior * (np.where(is_clear, 1 / sums, 0.0) @ relative)
            if not is_clear.all():
                logs = self._likelihood.log_likelihoods(self._places[rows][~is_clear])
                total += np.exp(_normalised(logs + log_prior)).sum(axis=0)
        return total

    def posterior_log_odds(self, log_prior: FloatArray) -> FloatArray:
        """Changes of log odds that make each cell's probability its posterior mean."""
        prior = _powers(log_prior)
        changes = self._likelihood.mean_log_odds(self._relative, prior)
        faint = np.flatnonzero(self._relative @ prior < _CLEAR_SUM)
        for part in parts_of(faint):
            changes[part] = self._likelihood.posterior_log_odds(self._places[part], log_prior)
        return changes


def parts_of(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Splits places into parts that are small enough for an array of [places, grid]."""
    for rows in _parts(places.size):
        yield places[rows]


def _parts(num_cells: int) -> Iterator[slice]:
    """Slices of so many cells that are small enough for an array of [cells, grid]."""
    for start in range(0, num_cells, _CELLS_AT_A_TIME):
        yield slice(start, start + _CELLS_AT_A_TIME)


def _chosen(values: FloatArray | float, places: NDArray[np.int64]) -> FloatArray:
    """Values of some cells, of which all may have the same one."""
    known = np.asarray(values, np.float64)
    return known[places] if known.ndim else np.full(places.size, known)


def log_normal(variances: FloatArray, means: FloatArray | float = 0.0) -> FloatArray:
    """Logs of a normal prior for each cell as [cells, grid], each row up to a constant."""
    logs: FloatArray = GRID - np.broadcast_to(means, variances.shape)[:, None]
    np.square(logs, out=logs)
    logs *= (-0.5 / variances)[:, None]
    logs += _LOG_STEPS
    return logs


def _normalised(log_priors: FloatArray) -> FloatArray:
    """The same logs, less a constant for each row so that the probabilities add up to 1."""
    normalised: FloatArray = log_priors - _log_sums(log_priors)[:, None]
    return normalised


def _powers(logs: FloatArray) -> FloatArray:
    """exp(logs), but at least e^-340: processors are slow where floats all but vanish."""
    powers = np.maximum(logs, _LEAST_EXPONENT)
    return np.exp(powers, out=powers)


def _log_sums(logs: FloatArray) -> FloatArray:
    """log(sum(exp(logs))) of each row; terms that are far too small are left out."""
    most = logs.max(axis=1)
    sums: FloatArray = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return sums


# They depend on public grids alone, so that all tables share them.
LOG_NORMAL_PRIORS = _normalised(log_normal(SPREADS**2))
