"""How the noisy sums of one table change its weights, in each of the four situations of a run.

While labels alone are hidden, all noisy sums of labels of a table can be compared with the present
predictions, which are public: the weights are learnt anew from all of them. Once whole rows are
hidden, old residuals cannot be compared with new predictions, so new sums improve the weights that
are there. In either case an earlier model may have left weights to start from.

All of it is post-processing of noisy sums.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.candidate_table import CandidateTable
from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.cell_sums import log_odds_steps
from tulle.train.methods.mosaic.label_law import LabelLaw
from tulle.train.methods.mosaic.method import CellSettings
from tulle.train.methods.mosaic.shrinkage import (
    CellChanges,
    FittedTable,
    further_changes,
    likely_rows,
    posterior_changes,
    thought_gain,
    unweighted_variance,
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TableFits:
    """Fits tables by their noisy sums, and notes what that says of each."""

    settings: CellSettings
    law: LabelLaw
    """Mean and dispersion of labels."""

    def fit(
        self, table: CandidateTable, fitted: FittedTable, noisy: NoisyCells, *, labels_suffice: bool
    ) -> None:
        """Changes the weights of a table as its sums suggest.

        Args:
          table: The table.
          fitted: Its weights, and what is known of them; changed in place.
          noisy: Its noisy sums. While labels suffice, predictions are those without the weights
            that this run has given the table so far.
          labels_suffice: Whether sums of labels are all that needs noise.
        """
        if labels_suffice and fitted.start is not None:
            self._fit_labels_further(table, fitted, noisy)
        elif labels_suffice:
            self._fit_labels(table, fitted, noisy)
        elif table.has_more_to_tell:
            self._fit_further(table, fitted, noisy)
        else:
            self._fit_rows(table, fitted, noisy)

    def _fit_labels(self, table: CandidateTable, fitted: FittedTable, noisy: NoisyCells) -> None:
        """Fits a table by all its sums of labels so far, as if they were released at once."""
        changes = self._changes(noisy, table)
        fitted.weights = log_odds_steps(changes.log_odds)
        fitted.note_fit(noisy, changes.variances, is_first=True)
        variance = np.square(noisy.residual_stddev / self.law.dispersion)
        rows = noisy.predicted / self.law.rate
        table.note_spread(
            changes.spread, variance, self.law.table_rate, rows=rows, variances=changes.variances
        )
        table.realised_gain = thought_gain(noisy.predicted, changes.log_odds)

    def _fit_labels_further(
        self, table: CandidateTable, fitted: FittedTable, noisy: NoisyCells
    ) -> None:
        """Fits a table that an earlier model knew by all its sums of labels of this run."""
        # The fit starts from the weights and variances that the earlier model has left.
        weights, variances = fitted.start or (fitted.weights, fitted.variances)
        log_odds, scale = further_changes(noisy, variances, is_expected=True)
        fitted.forget()
        if scale > 0:
            fitted.note_fit(noisy, scale * variances, is_first=True)
            fitted.weights = weights + log_odds_steps(log_odds)
        noise = np.square(noisy.residual_stddev / self.law.dispersion)
        table.note_again(scale, noise, self.law.table_rate, variances=variances)
        table.realised_gain = thought_gain(noisy.predicted, fitted.log_odds)

    def _fit_rows(self, table: CandidateTable, fitted: FittedTable, noisy: NoisyCells) -> None:
        """Fits a table of which nothing is known, by noisy residuals and predictions."""
        changes = self._changes(noisy, table)
        if changes.spread > 0:
            fitted.note_fit(noisy, changes.variances, is_first=True)
        # Tables count all rows, of which a part may take part in the sums.
        part = self.law.part
        rows = likely_rows(noisy, part * table.cells.rows) / part
        variance, rate = unweighted_variance(noisy), self.law.table_rate
        table.note_spread(changes.spread, variance, rate, rows=rows, variances=changes.variances)
        self._add(table, fitted, changes.log_odds)

    def _fit_further(self, table: CandidateTable, fitted: FittedTable, noisy: NoisyCells) -> None:
        """Improves a table that is known to tell something, by what more sums show."""
        # What the earlier sums have shown is in the weights and variances, from which it starts.
        expected = fitted.start is not None
        log_odds, scale = further_changes(noisy, fitted.variances, is_expected=expected)
        # Sums that look as if nothing was left do not say that the weights are exact: what was
        # unknown before them stays in the model as its deviations.
        if scale > 0:
            fitted.note_fit(noisy, scale * fitted.variances, is_first=False)
        table.note_again(scale, unweighted_variance(noisy), self.law.table_rate)
        self._add(table, fitted, log_odds)

    def _changes(self, noisy: NoisyCells, table: CandidateTable) -> CellChanges:
        """What sums of a table of which nothing is known say about its cells."""
        settings = self.settings
        return posterior_changes(
            noisy, settings.least_evidence, table.axes, even_evidence=settings.even_evidence
        )

    def _add(
        self, table: CandidateTable, fitted: FittedTable, log_odds: NDArray[np.float64]
    ) -> None:
        """Adds changes of log odds, one for each cell, to the weights of a table."""
        if log_odds.any():
            fitted.weights = fitted.weights + log_odds_steps(log_odds)
            predicted = self.law.part * self.law.rate * table.cells.rows
            table.realised_gain += thought_gain(predicted, log_odds)
