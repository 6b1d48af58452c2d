"""What noisy sums say about the cells of a table: posterior means of log odds.

Each cell has a noisy sum of predictions P and a noisy sum of residuals (labels less predictions) G.
If the log odds of its rows are off by b, then G has mean P * (p(b)/p - 1), with p the typical
prediction and p(b) the probability p after a change of b. The prior of b is learnt from all cells
of the table together: empirical Bayes, with the spread of a normal prior found by marginal
likelihood and its shape refined by EM. Where noise explains the sums as well as a spread does,
every b is 0. Likelihoods are computed on a fixed grid of b (`cell_likelihood`).

Where values of a column lie in order, neighbouring cells may tell about each other
(`ordered_cells`). That is believed if it explains the sums better.

A table that is known to tell something is fitted again from what is still unknown about each of
its cells: `further_changes` starts from a normal prior with its own variance for each cell.
`FittedTable` keeps what the sums of one table have shown so far.

All of it is post-processing of noisy sums, so nothing here can cost privacy.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_likelihood import (
    GRID,
    LOG_NORMAL_PRIORS,
    SCALES,
    CellLikelihood,
    KeptLikelihoods,
    NoisyCells,
    log_normal,
    parts_of,
)
from tulle.train.methods.mosaic.cell_sums import LOG_ODDS_BITS
from tulle.train.methods.mosaic.ordered_cells import OrderedAxis, fitted_walk
from tulle.train.methods.mosaic.weight_errors import WeightErrors

FloatArray = NDArray[np.float64]


_LEAST_PREDICTED = 0.3
"""Number of predicted labels, for rows of weight 1, below which a cell is left alone: it has too
few rows to tell anything."""
_LEAST_DEVIATIONS = 1.0
"""Cells whose noisy sum of predictions is not this many deviations above 0 are left alone."""
_MOST_SCALED_FROM = 5_000
"""Largest number of cells that this factor is learnt from, those that tell most about it. Each
cell has a prior of its own, so more of them would take much time and memory."""
_SCALE_SPREAD = 1.0
"""Standard deviation of the logarithm of that factor where an earlier model has set the variances:
they are thought to be right to a factor of e or so."""
_LEAST_VARIANCE = 1e-6
"""Variance of log odds below which a cell counts as known and is left alone."""
_MOST_LEARNT_FROM = 20_000
"""Largest number of cells that the spread is learnt from, those with the largest sums: the others
add little."""
_CLEAR_DEVIATIONS = 3.0
"""Standard deviations of noise above which a cell's sum of predictions is trusted to tell how many
rows the cell has."""
_MOST_EXPONENT = 700.0
"""Largest exponent of which a float holds the power: evidence this far below is none."""
_MOST_LEVEL_CHANGE = 1.0
"""Largest change of all log odds by the last correction of the level."""


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
    start: tuple[NDArray[np.int32], FloatArray] | None = None
    """Weights and variances that an earlier model has left; None: nothing was known."""

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

    @classmethod
    def started(cls, weights: NDArray[np.int32], variances: FloatArray) -> "FittedTable":
        """A table of which an earlier model knew something.

        Args:
          weights: [cells]: its weights, in steps of log odds.
          variances: [cells]: variance of what is unknown about each.
        """
        made = cls.empty(len(weights))
        made.start = (weights, variances)
        made.forget()
        return made

    def joined(self, other: "FittedTable") -> "FittedTable":
        """The sum of two tables of an earlier model that have the same cells now."""
        return FittedTable.started(
            self.weights + other.weights, np.maximum(self.variances, other.variances)
        )

    def forget(self) -> None:
        """Goes back to what an earlier model has left, before any sum of this run."""
        if self.start is not None:
            self.weights, self.variances = self.start
            self.errors = WeightErrors.empty(len(self.weights))
            self.errors.prior_variance = self.variances

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
        prior_variance = variances if is_first else None
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
class CellChanges:
    """Changes of log odds that the sums of a table suggest."""

    log_odds: FloatArray
    """Change of the log odds of each cell."""
    spread: float
    """Standard deviation of the prior that was learnt; 0 if nothing changes."""
    variances: FloatArray | float
    """Variance of the prior of each cell, before its own sums were seen; one number for all cells
    if neighbours told nothing."""


def posterior_changes(
    cells: NoisyCells,
    least_evidence: float,
    axes: Sequence[OrderedAxis] = (),
    *,
    even_evidence: float = -math.inf,
) -> CellChanges:
    """The change of each cell's log odds, for a table of which nothing is known.

    Args:
      cells: Noisy sums of the table.
      least_evidence: Nats by which the best prior must explain the sums better than no change
        does. With less, all changes are 0.
      axes: Columns of the table whose values lie in order, so that neighbours may be alike.
      even_evidence: Nats at which cells are as likely to differ as not. All changes are multiplied
        by the probability that they do.
    """
    log_odds, live = np.zeros(len(cells.predicted)), _live_cells(cells)
    if live.size == 0:
        return CellChanges(log_odds=log_odds, spread=0.0, variances=0.0)
    model = CellLikelihood(cells)
    largest = _largest(live, cells.predicted[live], _MOST_LEARNT_FROM)
    kept = KeptLikelihoods(model, largest)
    best = int(kept.evidences.argmax())
    walk = fitted_walk(model, live, axes, len(log_odds))
    evidence = kept.evidences[best] + (0.0 if walk is None else walk.advantage)
    # Written so that evidence that is not a number changes nothing.
    if not evidence >= least_evidence:
        return CellChanges(log_odds=log_odds, spread=0.0, variances=0.0)
    log_prior = kept.learnt_prior(LOG_NORMAL_PRIORS[best])
    log_odds[largest] = kept.posterior_log_odds(log_prior)
    for part in parts_of(np.setdiff1d(live, largest, assume_unique=True)):
        log_odds[part] = model.posterior_log_odds(part, log_prior)
    spread = math.sqrt(float(np.exp(log_prior) @ GRID**2))
    # That the cells do not differ at all is as likely as that they do at `even_evidence`.
    likely = 1 / (1 + math.exp(min(even_evidence - evidence, _MOST_EXPONENT)))
    if walk is None:
        return CellChanges(log_odds=likely * log_odds, spread=spread, variances=spread**2)
    variances = np.full(len(log_odds), spread**2)
    spread = walk.change(model, live, log_odds, variances)
    log_odds *= likely
    return CellChanges(log_odds=log_odds, spread=spread, variances=variances)


def further_changes(
    cells: NoisyCells, variances: FloatArray, *, is_expected: bool = False
) -> tuple[FloatArray, float]:
    """Changes by new sums of a table whose cells are known up to these variances.

    Other tables may have explained a part since then, so that all variances may have shrunk by a
    common factor. It is learnt from the sums.

    Args:
      cells: Noisy sums of the table, with present predictions.
      variances: [cells]: variance of what is unknown about the log odds of each cell.
      is_expected: True if the variances are those of an earlier model: sums of new rows that tell
        next to nothing then leave them as they are, and many such sums add up.

    Returns:
      The change of each cell's log odds, and the factor of the variances. The factor is 0 if the
      sums look as if nothing was left.
    """
    log_odds, live = np.zeros(len(cells.predicted)), _live_cells(cells)
    live = live[variances[live] > _LEAST_VARIANCE]
    if live.size == 0:
        return log_odds, 0.0
    model = CellLikelihood(cells)
    telling = cells.predicted[live] ** 2 * variances[live]
    largest = _largest(live, telling, _MOST_SCALED_FROM)
    evidences = model.scale_evidences(largest, variances[largest])
    if is_expected:
        evidences = evidences - 0.5 * np.square(np.log(SCALES) / _SCALE_SPREAD)
    best = int(evidences.argmax())
    # As above: evidence that is not a number changes nothing.
    if not (evidences[best] > 0 or (is_expected and np.isfinite(evidences[best]))):
        return log_odds, 0.0
    scale = float(SCALES[best])
    for part in parts_of(live):
        log_odds[part] = model.posterior_log_odds(part, log_normal(scale * variances[part]))
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


def thought_gain(predicted: FloatArray, log_odds: NDArray[np.floating[Any]]) -> float:
    """Nats of log loss that changes of log odds are thought to gain, to second order."""
    return 0.5 * float(np.maximum(predicted, 0) @ log_odds**2)


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


def level_change(
    residual: float, stddev: float, slope: float, first_stddev: float | None = None
) -> float:
    """Change of all log odds that corrects the level, shrunk by positive-part James-Stein.

    Args:
      residual: Noisy sum of labels less predictions of all rows.
      stddev: Standard deviation of the noise on it.
      slope: Change of the sum of predictions for each unit of log odds.
      first_stddev: Standard deviation of the noise on the first such sum, if predictions are all
        made of that one: both are then averaged by their precision. None if tables were added.
    """
    change, error = residual / slope, stddev / slope
    if first_stddev is not None:
        kept = first_stddev**2 / (first_stddev**2 + stddev**2)
    else:
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
