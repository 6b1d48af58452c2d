"""What noisy sums say about the cells of a table: posterior means of log odds.

Each cell has a noisy sum of predictions P and a noisy sum of residuals (labels less predictions) G.
If the log odds of its rows are off by b, then G has mean P * (p(b)/p - 1), with p the typical
prediction and p(b) the probability p after a change of b. The prior of b is learnt from all cells
of the table together: empirical Bayes, with the spread of a normal prior found by marginal
likelihood and its shape refined by EM. Where noise explains the sums as well as a spread does,
every b is 0.

Likelihoods are computed on a fixed grid of b, because labels are rare: p(b) is far from linear
in b, and a normal approximation would be wrong for cells of few labels.

A table that is known to tell something is fitted again from what is still unknown about each of
its cells: `further_changes` starts from a normal prior with its own variance for each cell.
`FittedTable` keeps what the sums of one table have shown so far.

All of it is post-processing of noisy sums, so nothing here can cost privacy.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS
from tulle.train.methods.mosaic.weight_errors import WeightErrors

FloatArray = NDArray[np.float64]

_FINE = 0.2
"""Change of log odds up to which the grid is nearly even, in steps of 0.011; beyond it, steps grow
in proportion to the change."""
_NUM_BELOW, _NUM_ABOVE = 64, 57
"""Number of grid points below 0, and of those from 0 on."""
_GRID = _FINE * np.sinh(
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
_LOG_STEPS = np.log(np.gradient(_GRID))
"""Logs of the distances of grid points, which make a density a probability at each point."""
_SPREADS = np.array([0.03, 0.045, 0.065, 0.1, 0.15, 0.22, 0.32, 0.47, 0.7, 1.0, 1.5])
"""Standard deviations that a normal prior may have; the one with the most evidence is taken."""

_LEAST_PREDICTED = 0.3
"""Number of predicted labels, for rows of weight 1, below which a cell is left alone: it has too
few rows to tell anything."""
_LEAST_DEVIATIONS = 1.0
"""Cells whose noisy sum of predictions is not this many deviations above 0 are left alone."""
_SCALES = np.array([2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.1, 0.05, 0.02])
"""Factors of the variances of all cells that `further_changes` chooses from."""
_MOST_SCALED_FROM = 5_000
"""Largest number of cells that this factor is learnt from, those that tell most about it. Each
cell has a prior of its own, so more of them would take much time and memory."""
_LEAST_VARIANCE = 1e-6
"""Variance of log odds below which a cell counts as known and is left alone."""
_MOST_LEARNT_FROM = 20_000
"""Largest number of cells that the spread is learnt from, those with the largest sums: the others
add little."""
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
_CLEAR_DEVIATIONS = 3.0
"""Standard deviations of noise above which a cell's sum of predictions is trusted to tell how many
rows the cell has."""
_MOST_LEVEL_CHANGE = 1.0
"""Largest change of all log odds by the last correction of the level."""
_CELLS_AT_A_TIME = 1 << 15
"""Cells that are handled together: a [cells, grid] array of float64 then takes 32 MB."""


_LEAST_SHARE = 1e-15
"""Share that stands in for 0 where a cell has no rows, so that nothing is divided by 0. The sum of
such a cell then has noise so large that shrinkage ignores it."""


@dataclasses.dataclass(eq=False, repr=False)
class FittedTable:
    """What is known about the cells of one table. All of it is post-processing of noisy sums."""

    weights: NDArray[np.int32]
    """Change of log odds that the model adds for each cell, in steps (`cell_sums`)."""
    variances: FloatArray
    """Posterior variance of the log odds of each cell: what is still unknown about it."""
    label_sums: FloatArray
    """Noisy sums of labels: the mean of all releases, as if rows had a weight of 1."""
    label_shares: FloatArray
    """Share of the noise budget that rows of each cell spent on these sums."""
    errors: WeightErrors
    """How far the weights may be from the truth."""

    @classmethod
    def empty(cls, num_cells: int) -> "FittedTable":
        """A table of which nothing is known yet."""
        variances, label_sums, label_shares = np.zeros((3, num_cells))
        return cls(
            weights=np.zeros(num_cells, np.int32),
            variances=variances,
            label_sums=label_sums,
            label_shares=label_shares,
            errors=WeightErrors.empty(num_cells),
        )

    @property
    def log_odds(self) -> NDArray[np.float32]:
        """The weights in units of log odds."""
        # Exact: steps are small whole numbers, and the size of a step is a power of two.
        return np.ldexp(self.weights.astype(np.float32), -LOG_ODDS_BITS)

    def note_fit(
        self, cells: "NoisyCells", variances: FloatArray | float, *, is_first: bool
    ) -> None:
        """Remembers what a fit of the weights leaves unknown.

        Args:
          cells: The sums that were fitted.
          variances: Variance of the log odds before: one for all cells, or one for each.
          is_first: Whether weights were learnt from nothing, as all sums so far are in these.
        """
        self.variances = unknown_variances(variances, cells)
        taken = 1 - self.variances / np.maximum(variances, _LEAST_SHARE)
        live = np.zeros(len(taken), np.bool_)
        live[_live_cells(cells)] = True
        prior_variance = float(np.mean(variances)) if is_first else None
        self.errors.note(cells, np.where(live, taken, 0.0), prior_variance=prior_variance)

    def add_label_sums(self, noisy_sums: FloatArray, mean_weights: FloatArray) -> None:
        """Averages in one more release of sums of the same cells, by inverse noise variance.

        Args:
          noisy_sums: [cells]: noisy sums of labels, in which each row had its weight.
          mean_weights: [cells]: mean weight of the rows of each cell in that release.
        """
        # A release with weight a shows a * sum + noise, so noisy / a estimates the sum with noise
        # variance proportional to 1 / a^2. The inverse-variance mean weighs it by a^2, which makes
        # a^2 * noisy / a = a * noisy the term below, and the squares add up like shares.
        total = self.label_shares * self.label_sums + mean_weights * noisy_sums
        self.label_shares = self.label_shares + mean_weights**2
        self.label_sums = total / self.known_label_shares()

    def known_label_shares(self) -> FloatArray:
        """The shares, with a tiny positive number for cells that no row is in."""
        return np.maximum(self.label_shares, _LEAST_SHARE)

    def noise_factors(self) -> FloatArray:
        """Factor by which the noise on each mean exceeds the noise of the whole budget."""
        factors: FloatArray = 1 / np.sqrt(self.known_label_shares())
        return factors


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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellChanges:
    """Changes of log odds that the sums of a table suggest."""

    log_odds: FloatArray
    """Change of the log odds of each cell."""
    spread: float
    """Standard deviation of the prior that was learnt; 0 if nothing changes."""


def posterior_changes(cells: NoisyCells, *, least_evidence: float) -> CellChanges:
    """The change of each cell's log odds, for a table of which nothing is known.

    Args:
      cells: Noisy sums of the table.
      least_evidence: Nats by which the best spread must explain the sums better than no spread
        does. With less, all changes are 0.
    """
    log_odds, live = np.zeros(len(cells.predicted)), _live_cells(cells)
    if live.size == 0:
        return CellChanges(log_odds=log_odds, spread=0.0)
    model = _Model(cells)
    largest = _largest(live, cells.predicted[live], _MOST_LEARNT_FROM)
    evidences = model.evidences(largest)
    best = int(evidences.argmax())
    # Written so that evidence that is not a number changes nothing.
    if not evidences[best] >= least_evidence:
        return CellChanges(log_odds=log_odds, spread=0.0)
    log_prior = model.learnt_prior(largest, _LOG_NORMAL_PRIORS[best])
    for part in _parts(live):
        log_odds[part] = model.posterior_log_odds(part, log_prior)
    spread = math.sqrt(float(np.exp(log_prior) @ _GRID**2))
    return CellChanges(log_odds=log_odds, spread=spread)


def further_changes(cells: NoisyCells, variances: FloatArray) -> tuple[FloatArray, float]:
    """Changes by new sums of a table whose cells are known up to these variances.

    Other tables may have explained a part since then, so that all variances may have shrunk by a
    common factor. It is learnt from the sums.

    Args:
      cells: Noisy sums of the table, with present predictions.
      variances: [cells]: variance of what is unknown about the log odds of each cell.

    Returns:
      The change of each cell's log odds, and the factor of the variances. The factor is 0 if the
      sums look as if nothing was left.
    """
    log_odds, live = np.zeros(len(cells.predicted)), _live_cells(cells)
    live = live[variances[live] > _LEAST_VARIANCE]
    if live.size == 0:
        return log_odds, 0.0
    model = _Model(cells)
    telling = cells.predicted[live] ** 2 * variances[live]
    largest = _largest(live, telling, _MOST_SCALED_FROM)
    evidences = model.scale_evidences(largest, variances[largest])
    best = int(evidences.argmax())
    # As above: evidence that is not a number changes nothing.
    if not evidences[best] > 0:
        return log_odds, 0.0
    scale = float(_SCALES[best])
    for part in _parts(live):
        log_odds[part] = model.posterior_log_odds(part, _log_normal(scale * variances[part]))
    return log_odds, scale


def unknown_variances(variances: FloatArray | float, cells: NoisyCells) -> FloatArray:
    """Variances of cells that had these variances, after their sums were seen.

    Args:
      variances: Variance of the log odds before: one for all cells, or one for each.
      cells: The sums that were seen.
    """
    # Normal approximation: prior variance times the part of the sum's variance that is noise.
    slope = np.maximum(cells.predicted, 0.0) * (1 - cells.rate)
    signal = slope**2 * variances
    sampling = cells.unevenness * cells.dispersion * cells.row_weights * slope
    noise = sampling + np.square(cells.residual_stddev)
    remaining: FloatArray = variances * noise / (signal + noise)
    return remaining


def unweighted_variance(noisy: NoisyCells) -> FloatArray:
    """Variance of the noise on each cell, as if its rows had a weight of 1.

    For labels that vary less than labels of 0 and 1 it is that of noise as much larger, see
    `label_law`.
    """
    return np.square(noisy.residual_stddev / (noisy.row_weights * noisy.dispersion))


def likely_rows(noisy: NoisyCells, guessed: FloatArray) -> FloatArray:
    """Number of rows of each cell: by its noisy sum if that is clear, else at most the guess.

    Args:
      noisy: Noisy sums of the cells.
      guessed: [cells]: number of rows of each cell as it was guessed before.
    """
    # The largest of many noisy sums over empty cells would pass for cells full of rows, hence the
    # limit.
    found = np.maximum(noisy.predicted, 0) / noisy.row_weights / noisy.rate
    is_clear = noisy.predicted > _CLEAR_DEVIATIONS * noisy.predicted_stddev
    return np.where(is_clear, found, np.minimum(found, guessed))


def level_change(residual: float, stddev: float, slope: float) -> float:
    """Change of all log odds that corrects the level, shrunk by positive-part James-Stein.

    Args:
      residual: Noisy sum of labels less predictions of all rows.
      stddev: Standard deviation of the noise on it.
      slope: Change of the sum of predictions for each unit of log odds.
    """
    change, error = residual / slope, stddev / slope
    kept = max(0.0, 1 - (error / change) ** 2) if change else 0.0
    return max(-_MOST_LEVEL_CHANGE, min(_MOST_LEVEL_CHANGE, kept * change))


def _live_cells(cells: NoisyCells) -> NDArray[np.int64]:
    """Places of cells whose sum of predictions stands out of the noise."""
    least = np.maximum(
        _LEAST_PREDICTED * cells.dispersion * np.minimum(cells.row_weights, 1.0),
        _LEAST_DEVIATIONS * np.asarray(cells.predicted_stddev),
    )
    return np.flatnonzero(cells.predicted > least)


def _largest(places: NDArray[np.int64], sizes: FloatArray, number: int) -> NDArray[np.int64]:
    """The places with the largest sizes, at most `number` of them, in no order."""
    if places.size <= number:
        return places
    return places[np.argpartition(-sizes, number)[:number]]


def _parts(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Splits places into parts that are small enough for an array of [places, grid]."""
    for start in range(0, places.size, _CELLS_AT_A_TIME):
        yield places[start : start + _CELLS_AT_A_TIME]


def _column(values: FloatArray | float, places: NDArray[np.int64]) -> FloatArray:
    """Values of some cells as [cells, 1], or the one value that all cells have as [1, 1]."""
    chosen = np.asarray(values, np.float64)
    return chosen[places, None] if chosen.ndim else chosen.reshape(1, 1)


def _log_normal(variances: FloatArray) -> FloatArray:
    """Logs of a normal prior for each cell, as [cells, grid]."""
    logs: FloatArray = _LOG_STEPS - 0.5 * _GRID**2 / variances[:, None]
    logs -= _log_sums(logs)[:, None]
    return logs


def _log_sums(logs: FloatArray) -> FloatArray:
    """log(sum(exp(logs))) of each row; terms that are far too small are left out."""
    most = logs.max(axis=1)
    sums: FloatArray = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return sums


# They depend on public grids alone, so that all tables share them.
_LOG_NORMAL_PRIORS = _log_normal(_SPREADS**2)


class _Model:
    """Likelihoods of the sums of cells for every change on the grid.

    They are kept as logs: in a cell with many rows, all changes but one may have a likelihood that
    is below the smallest float.
    """

    def __init__(self, cells: NoisyCells) -> None:
        self._cells = cells
        rate = cells.rate
        odds = rate / (1 - rate) * np.exp(_GRID)
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
        """Nats by which each of `_SPREADS` explains the sums better than no change does."""
        total = np.zeros(len(_SPREADS))
        for part in _parts(places):
            logs = self.log_likelihoods(part)
            total += [
                float((_log_sums(logs + log_prior) - logs[:, _ZERO]).sum())
                for log_prior in _LOG_NORMAL_PRIORS
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
                float((_log_sums(logs + _log_normal(scale * variances)) - logs[:, _ZERO]).sum())
                for scale in _SCALES
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
