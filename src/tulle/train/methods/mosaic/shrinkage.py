"""What noisy sums say about the cells of a table: posterior means of log odds.

Each cell has a noisy sum of predictions P and a noisy sum of residuals G. If the log odds of its
rows are off by b, then G has mean P * (p(b)/p - 1), with p(b) the chance p after a change of b.
How far the b of a table spread is learnt from all its cells together (empirical Bayes, by
marginal likelihood); where chance explains the sums as well, every b is 0.

Sums of a table that is known to tell something start from what is still unknown about each cell.

All of it is post-processing of noisy sums.
"""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

_FINE = 0.2
"""Up to such changes the grid is nearly even, in steps of 0.011; beyond, steps grow alike."""
_NUM_BELOW, _NUM_ABOVE = 64, 57
_GRID = _FINE * np.sinh(
    np.concatenate(
        [
            np.linspace(-np.arcsinh(3.5 / _FINE), 0, _NUM_BELOW, endpoint=False),
            np.linspace(0, np.arcsinh(2.5 / _FINE), _NUM_ABOVE),
        ]
    )
)
"""Changes of log odds. Rare labels can become much rarer, but not much more frequent."""
_ZERO = _NUM_BELOW
_LOG_STEPS = np.log(np.gradient(_GRID))
_SPREADS = np.array([0.03, 0.045, 0.065, 0.1, 0.15, 0.22, 0.32, 0.47, 0.7, 1.0, 1.5])

_LEAST_PREDICTED = 0.3
_LEAST_DEVIATIONS = 1.0
"""Cells whose noisy sum of predictions is not this many deviations above 0 are left alone."""
_SCALES = np.array([2.0, 1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.1, 0.05, 0.02])
_MOST_SCALED_FROM = 5_000
_LEAST_VARIANCE = 1e-6
_MOST_LEARNT_FROM = 20_000
"""Cells that the spread is learnt from, those with the largest sums: the others add little."""
_LEAST_FOR_SHAPE = 200
"""With fewer cells the prior stays normal."""
_SHAPE_ROUNDS = 10
_LEAST_PRIOR = 1e-12
_SMOOTHING = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
_NORMAL_PART = 0.02
_CELLS_AT_A_TIME = 1 << 15


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NoisyCells:
    """Sums of the cells of a table, with the noise on them."""

    residuals: FloatArray
    """Labels less predictions."""
    predicted: FloatArray
    residual_stddev: FloatArray | float
    """One for all cells, or one for each, like the next two."""
    predicted_stddev: FloatArray | float
    """0 if predictions are public."""
    row_weights: FloatArray | float = 1.0
    """Of a typical row in sums: labels of rows of weight a vary by a times what they sum to."""
    rate: float
    """Typical prediction, which says how log odds move chances."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CellChanges:
    """What a table changes."""

    log_odds: FloatArray
    """One for each cell."""
    spread: float
    """Standard deviation of the prior that was learnt; 0 if nothing changes."""


def posterior_changes(cells: NoisyCells, *, least_evidence: float) -> CellChanges:
    """The change of each cell's log odds.

    All are 0 if the best spread explains the sums by less than `least_evidence` nats better than
    none.
    """
    log_odds, live = np.zeros(len(cells.predicted)), _live_cells(cells)
    if live.size == 0:
        return CellChanges(log_odds=log_odds, spread=0.0)
    model = _Model(cells)
    largest = _largest(live, cells.predicted[live], _MOST_LEARNT_FROM)
    evidences = model.evidences(largest)
    best = int(evidences.argmax())
    if not evidences[best] >= least_evidence:
        return CellChanges(log_odds=log_odds, spread=0.0)
    log_prior = model.learnt_prior(largest, _LOG_NORMAL_PRIORS[best])
    for part in _parts(live):
        log_odds[part] = model.posterior_log_odds(part, log_prior)
    spread = math.sqrt(float(np.exp(log_prior) @ _GRID**2))
    return CellChanges(log_odds=log_odds, spread=spread)


def further_changes(cells: NoisyCells, variances: FloatArray) -> tuple[FloatArray, float]:
    """What new sums of a table change whose cells are known up to these variances.

    Other tables may have explained a part since then, so variances may have shrunk alike: by
    which factor is learnt, and returned beside the changes. It is 0 if the sums look as if nothing
    was left.
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
    if not evidences[best] > 0:
        return log_odds, 0.0
    scale = float(_SCALES[best])
    for part in _parts(live):
        log_odds[part] = model.posterior_log_odds(part, _log_normal(scale * variances[part]))
    return log_odds, scale


def unknown_variances(variances: FloatArray | float, cells: NoisyCells) -> FloatArray:
    """What remains unknown of cells that had these variances, after their sums were seen."""
    slope = np.maximum(cells.predicted, 0.0) * (1 - cells.rate)
    signal = slope**2 * variances
    noise = cells.row_weights * slope + np.square(cells.residual_stddev)
    remaining: FloatArray = variances * noise / (signal + noise)
    return remaining


def _live_cells(cells: NoisyCells) -> NDArray[np.int64]:
    """Places of cells that stand out of the noise."""
    least = np.maximum(
        _LEAST_PREDICTED * np.minimum(cells.row_weights, 1.0),
        _LEAST_DEVIATIONS * np.asarray(cells.predicted_stddev),
    )
    return np.flatnonzero(cells.predicted > least)


def _largest(places: NDArray[np.int64], sizes: FloatArray, number: int) -> NDArray[np.int64]:
    """Places of the largest sizes."""
    if places.size <= number:
        return places
    return places[np.argpartition(-sizes, number)[:number]]


def _parts(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Few enough at a time to have a row of the grid for each."""
    for start in range(0, places.size, _CELLS_AT_A_TIME):
        yield places[start : start + _CELLS_AT_A_TIME]


def _column(values: FloatArray | float, places: NDArray[np.int64]) -> FloatArray:
    """[cells, 1] or [1, 1]: values of some cells, or the one that all have."""
    chosen = np.asarray(values, np.float64)
    return chosen[places, None] if chosen.ndim else chosen.reshape(1, 1)


def _log_normal(variances: FloatArray) -> FloatArray:
    """[cells, grid]: logs of a normal prior for each cell."""
    logs: FloatArray = _LOG_STEPS - 0.5 * _GRID**2 / variances[:, None]
    logs -= _log_sums(logs)[:, None]
    return logs


def _log_sums(logs: FloatArray) -> FloatArray:
    """log(sum(exp(logs))) of each row; terms that are far too small are left out."""
    most = logs.max(axis=1)
    sums: FloatArray = most + np.log(np.exp(logs - most[:, None]).sum(axis=1))
    return sums


_LOG_NORMAL_PRIORS = _log_normal(_SPREADS**2)


class _Model:
    """Likelihoods of the sums of cells for every change on the grid, as logs.

    In a cell with many rows, all changes but one may be less likely by more than floats can tell.
    """

    def __init__(self, cells: NoisyCells) -> None:
        self._cells = cells
        rate = cells.rate
        odds = rate / (1 - rate) * np.exp(_GRID)
        self._changed = odds / (1 + odds)
        self._growth = self._changed / rate - 1
        self._variance = self._changed * (1 - self._changed) / rate
        self._base_log_odds = math.log(rate / (1 - rate))

    def log_likelihoods(self, places: NDArray[np.int64]) -> FloatArray:
        """[cells, grid], each row up to a constant."""
        cells = self._cells
        residuals, predicted = cells.residuals[places], cells.predicted[places]
        # P itself is noisy, and its error is multiplied by the growth.
        noise = _column(cells.residual_stddev, places) ** 2
        noise = noise + (self._growth * _column(cells.predicted_stddev, places)) ** 2
        variance = predicted[:, None] * _column(cells.row_weights, places) * self._variance + noise
        distance = residuals[:, None] - np.outer(predicted, self._growth)
        logs: FloatArray = -0.5 * (np.log(variance) + distance**2 / variance)
        return logs

    def evidences(self, places: NDArray[np.int64]) -> FloatArray:
        """For each spread, nats by which it explains the sums better than no change."""
        total = np.zeros(len(_SPREADS))
        for part in _parts(places):
            logs = self.log_likelihoods(part)
            total += [
                float((_log_sums(logs + log_prior) - logs[:, _ZERO]).sum())
                for log_prior in _LOG_NORMAL_PRIORS
            ]
        return total

    def scale_evidences(self, places: NDArray[np.int64], variances: FloatArray) -> FloatArray:
        """For each factor of the variances, nats by which it explains more than no change."""
        logs = self.log_likelihoods(places)
        return np.array(
            [
                float((_log_sums(logs + _log_normal(scale * variances)) - logs[:, _ZERO]).sum())
                for scale in _SCALES
            ]
        )

    def learnt_prior(self, places: NDArray[np.int64], start: FloatArray) -> FloatArray:
        """Logs of the normal prior, with the shape that many cells give it (smoothed EM)."""
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
        """The change that makes the chance its posterior mean; one prior, or one for each."""
        joint = self.log_likelihoods(places) + log_prior
        joint -= joint.max(axis=1, keepdims=True)
        weights = np.exp(joint, out=joint)
        chances = weights @ self._changed / weights.sum(axis=1)
        change: FloatArray = np.log(chances / (1 - chances)) - self._base_log_odds
        return change
