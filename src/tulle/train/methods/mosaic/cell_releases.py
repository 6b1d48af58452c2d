"""What a run of Mosaic releases: noisy levels, noisy counts, and noisy sums over cells.

`CellReleases` holds the raw rows and the noise budget, and gives out nothing but noisy numbers and
what is public. Everything that training decides, it decides by these (`cell_training`).

A run begins with public cells: as long as no sensitive column was used, cells, weights and
predictions are public, sums of labels are all that needs noise, and their sensitivity is 1. From
`begin_sensitive` on, whole rows are hidden, both sums of a cell need noise, and the sensitivity is
sqrt(2). There is no way back: predictions depend on sensitive columns from then on.

The rows of a unit together weigh at most what one row may weigh, and rows with sample weights below
1 weigh less (`row_parts`). Labels of 0 and 1 of a user are divided among the rows of the user where
that lets rows weigh more (`user_labels`).
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.errors import RunStateError
from tulle.train.examples import ExampleSet
from tulle.train.methods.mosaic.candidate_table import CandidateTable, TableIdentity
from tulle.train.methods.mosaic.cell_kernels import loops_over_rows
from tulle.train.methods.mosaic.cell_likelihood import NoisyCells
from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.cell_sums import (
    LABEL_SENSITIVITY,
    PROBABILITY_BITS,
    ROW_SENSITIVITY,
    PredictedRows,
    exact_sums,
    most_predicted,
)
from tulle.train.methods.mosaic.label_law import (
    LabelLaw,
    law_of_class,
    law_of_labels,
    law_of_values,
)
from tulle.train.methods.mosaic.noise_shares import NoiseShares
from tulle.train.methods.mosaic.row_numbers import Cells
from tulle.train.methods.mosaic.share_allocation import RowRound, mixed_weights, wishes_of_tables
from tulle.train.methods.mosaic.shrinkage import FittedTable
from tulle.train.methods.mosaic.unit_weights import UnitWeights
from tulle.train.methods.mosaic.user_labels import (
    OwnedRows,
    divided_labels,
    divides,
    repeat_prob,
    user_labels,
)

FloatArray = NDArray[np.float64]

_TINY = 1e-12
"""Positive number that stands in for 0 in denominators."""


class CellReleases:
    """The raw rows of a run, and a noise budget for them. Sensitive: never log or save it.

    Args:
      examples: All training rows.
      shares: What sums may spend: the whole noise budget of the run, or what one class has of it.
      weights: What rows weigh.
      counts: What counts of sensitive values may spend; None: the same budget.
      clip: Largest value that a label counts as; None for labels of 0 and 1.
      part: Fraction of rows with a label above 0, with noise, if those with the label 0 do not
        take part; None if all rows take part.
      num_classes: Number of classes that have sets of tables like this one; 2 if there is one set
        for both labels.
    """

    def __init__(
        self,
        examples: ExampleSet,
        shares: NoiseShares,
        weights: UnitWeights,
        *,
        counts: NoiseShares | None = None,
        clip: float | None = None,
        part: float | None = None,
        num_classes: int = 2,
    ) -> None:
        most = most_predicted(num_classes)
        self._rows = PredictedRows(examples, clip=clip, positives_only=part is not None, most=most)
        self._shares, self._clip, self._part = shares, clip, part
        self._counts = shares if counts is None else counts
        self._round: RowRound | None = None
        self._label_rounds: dict[TableIdentity, list[tuple[RowRound, FloatArray]]] = {}
        self._parts, self._level_parts = weights.parts, weights.level_parts
        self._table_parts = weights.parts
        self.level_share = weights.level_share
        self.reads_sensitive = False
        """True once a sensitive column was looked at, with noise."""
        self._is_class = num_classes > 2
        self.law = self._first_law()
        """Mean and dispersion of labels, with noise: the first release of all."""
        likely = np.ldexp(most, -PROBABILITY_BITS) / self.law.level
        self._likely_weight = float(min(1.0, likely)) if self._is_class else 1.0
        """Weight of a typical row once whole rows are hidden: below 1 where its class is likely."""
        if weights.users is not None and clip is None and not self._is_class:
            self._divide_labels(weights.users, weights.repeat_share)

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return self._rows.num_rows

    @property
    def left(self) -> float:
        """Share of the budget that has not been given out."""
        return self._shares.left

    @property
    def counts_apart(self) -> bool:
        """True if counts of sensitive values are paid from another budget than sums."""
        return self._counts is not self._shares

    @property
    def noise_variance(self) -> float:
        """Variance of the noise on sums that have the whole budget, as if rows weighed 1.

        It is scaled by the dispersion of labels, as the division of the budget needs it.
        """
        scale = self._table_parts.mean**2 * self.law.dispersion**2
        if self.reads_sensitive:
            scale *= self._likely_weight**2
        return self._shares.stddev(1.0, self._sensitivity) ** 2 / scale

    @property
    def labels_suffice(self) -> bool:
        """True as long as sums of labels are all that needs noise.

        Not so if a row takes part by its label: sums of predictions then depend on labels.
        """
        return not self.reads_sensitive and self._part is None

    def begin_sensitive(self) -> None:
        """Ends the part of the run in which labels alone are hidden."""
        # Before anything sensitive is read, so that nothing ever is at the sensitivity of labels.
        # Sums of labels alone are of no use any more.
        self.reads_sensitive = True
        self._shares.begin_rows()
        self._label_rounds.clear()

    def cells(self, parts: Sequence[CellPart]) -> Cells:
        """The cell of each row in a table of these parts. Sensitive if one of them is.

        Raises:
          RunStateError: A part is sensitive, and labels alone are hidden so far.
        """
        # Predictions are made of cells, and until `begin_sensitive` sums of them are exact: also a
        # table of an earlier model must not bring sensitive columns into them.
        if not self.reads_sensitive and any(part.role == "sensitive" for part in parts):
            raise RunStateError(
                "cells of sensitive columns are out of reach while the noise hides labels alone."
            )
        return self._rows.cells(parts)

    def add(self, steps: NDArray[np.int32] | int, cells: Cells | None = None) -> None:
        """Adds steps to the predicted log odds: of each cell, or one number for all rows."""
        self._rows.add(steps, cells)

    def forget(self, identity: TableIdentity) -> None:
        """Lets go of what rows weighed in earlier rounds of a table that is not measured again."""
        self._label_rounds.pop(identity, None)

    def public_columns(self, number: int) -> list[NDArray[np.integer[Any]]]:
        """The ids of all rows in each of the public columns, which are public."""
        return [self._rows.ids("public", column) for column in range(number)]

    def public_counts(self, column: int, num_ids: int) -> NDArray[np.int64]:
        """Exact number of rows that have each id of a public column, which is public."""
        return self._rows.raw_counts("public", column, num_ids)

    def noisy_counts(self, column: int, num_ids: int, share: float) -> tuple[FloatArray, float]:
        """Noisy numbers of rows that have each id of a sensitive column, and the noise's scale.

        Args:
          column: Place of the column among the sensitive features.
          num_ids: Number of ids of the feature.
          share: Share of the budget that this costs.

        Privacy:
          Unit: that of the run. L2 sensitivity: sqrt(2), as a unit that is replaced takes its
          weight, 1 in all, from some counts and adds it to others. Event: this share.
        """
        noisy = self._counts.release(
            lambda weight: self._rows.raw_counts(
                "sensitive", column, num_ids, self._parts.weights(weight)
            ),
            sensitivity=ROW_SENSITIVITY,
            share=share,
        )
        mean = self._parts.mean
        return noisy / mean, self._counts.stddev(share, ROW_SENSITIVITY) / mean

    def _first_law(self) -> LabelLaw:
        """Mean and dispersion of labels, with noise."""
        mean = self.noisy_rate(self.level_share)
        if self._is_class:
            return law_of_class(mean, self.first_level_stddev / self._level_parts.total)
        if self._clip is None:
            return law_of_labels(mean)
        squares = self._shares.release(
            lambda weight: self._rows.raw_square_sum(self._level_parts.weights(weight)),
            sensitivity=LABEL_SENSITIVITY,
            share=self.level_share,
        )
        total = self._level_parts.total
        stddev = self._shares.stddev(self.level_share, LABEL_SENSITIVITY) / total
        part = 1.0 if self._part is None else self._part
        return law_of_values(mean, float(squares[0]) / total, stddev, part)

    @property
    def first_level_stddev(self) -> float:
        """Standard deviation of the noise on the sum of labels behind the first rate."""
        return self._shares.stddev(self.level_share, LABEL_SENSITIVITY)

    def noisy_rate(self, share: float) -> float:
        """The overall rate of labels, with noise.

        Privacy:
          Unit: that of the run. L2 sensitivity: 1. Event: this share.
        """
        noisy = self._shares.release(
            lambda weight: self._rows.raw_label_sums(
                self._rows.one_cell, self._level_parts.weights(weight), 1, are_whole=True
            ),
            sensitivity=LABEL_SENSITIVITY,
            share=share,
        )
        return float(noisy[0]) / self._level_parts.total

    def first_level(self) -> tuple[float, float, float]:
        """The same as `noisy_level`, from the rate that was released first. Costs nothing.

        Raises:
          RunStateError: Predictions are no longer public.
        """
        if self.reads_sensitive:
            raise RunStateError("sums of predictions are exact only while these are public.")
        total, predicted = self._level_parts.total, self._public_predicted()
        stddev = self._shares.stddev(self.level_share, LABEL_SENSITIVITY) / self.law.part
        return self.law.level * total - predicted, predicted, stddev

    def _public_predicted(self) -> float:
        """Sum of predictions of all rows as they count in the level. Public until columns are."""
        parts, one = self._level_parts, 1 << self._shares.weight_bits
        weights, typical = parts.weights(np.int64(one)), np.array([one * parts.mean])
        sums, _ = self._rows.predicted(self._rows.one_cell, weights, typical, are_whole=True)
        return int(sums[0]) / one

    def noisy_level(self, share: float) -> tuple[float, float, float]:
        """Sum of labels less predictions of all rows, sum of predictions, and noise on the first.

        Predictions are exact as long as they are public.

        Privacy:
          Unit: that of the run. L2 sensitivity: 1 or sqrt(2). Event: this share.
        """
        cells, parts = self._rows.one_cell, self._level_parts
        stddev = self._shares.stddev(share, self._sensitivity)
        if not self.labels_suffice:
            noisy = self._shares.release(
                lambda weight: self._rows.raw_row_sums(
                    cells, parts.weights(weight), 1, are_whole=True
                ),
                sensitivity=self._sensitivity,
                share=share,
            )
            return float(noisy[0, 0]), float(noisy[1, 0]), stddev
        predicted = self._public_predicted()
        return self.noisy_rate(share) * parts.total - predicted, predicted, stddev

    def row_round(
        self,
        tables: Sequence[CandidateTable],
        given: Sequence[float],
        *,
        num_steps: int,
    ) -> RowRound:
        """Starts a round: tables that are measured on one share, which each row divides.

        The round before it is over: what its rows have not spent is lost.

        Args:
          tables: Tables of the round.
          given: Share of the budget that each table was given.
          num_steps: How often rows adapt the division of their share to the sizes of their cells.
        """
        if self._round is not None:
            self._round.close()
        wishes = wishes_of_tables(
            tables,
            given,
            noise_variance=self.noise_variance,
            rate=self.law.table_rate,
            num_steps=num_steps,
        )
        # Of all tables, before one is measured: a row divides one share among all of its cells.
        loops, totals = loops_over_rows(self.num_rows), np.zeros(self.num_rows, np.int64)
        for table in tables:
            loops.add_lookups(totals, wishes[table.identity].wanted, self.cells(table.parts))
        parts, share = self._table_parts, sum(given)
        shares = self._shares.for_rows(
            share,
            parts.limits if self.reads_sensitive else parts.public_limits,
            sensitivity=self._sensitivity,
        )
        typical = parts.mean * np.sqrt(share) / self._shares.step
        self._round = RowRound(wishes, totals, shares, float(typical))
        return self._round

    def noisy_labels(
        self,
        table: CandidateTable,
        fitted: FittedTable,
        cells: Cells,
        row_round: RowRound,
    ) -> NoisyCells:
        """Noisy sums of labels, averaged with earlier releases; predictions are public.

        Args:
          table: The table to measure.
          fitted: What is known of the table; the sums are added to it.
          cells: [rows]: cell of each row.
          row_round: The round that the table belongs to.

        Privacy:
          Unit: that of the run. L2 sensitivity: 1, over all tables of a round of share 1. Event:
          the share of the round. Relies on: cells, weights and predictions are public.
        """
        size, step = table.num_cells, self._shares.step
        costs = self._table_parts.costs(cells, size)
        weights = row_round.weights(table, cells, costs)
        released = row_round.release(
            lambda weights: self._rows.raw_label_sums(cells, weights, size),
            weights=weights,
            costs=costs,
        )
        # Cells are public here, and so is how much their rows weigh.
        counts = np.maximum(exact_sums(cells, np.int64(1), size), 1)
        means = step * exact_sums(cells, weights, size) / counts
        fitted.add_label_sums(step * released.astype(np.float64), means)
        # `add_label_sums` takes a mean over releases. The exact sum of predictions that is compared
        # with it must have each row at the same mean of its weights, which over the releases is
        # sum(means * weights) / sum(means^2).
        rounds = self._label_rounds.setdefault(table.identity, [])
        rounds.append((row_round, means))
        largest = np.maximum.reduce([its_means for _, its_means in rounds])
        if len(rounds) > 1:
            factors = [its_means / np.maximum(largest, _TINY) for _, its_means in rounds]
            earlier = (one.weights(table, cells, costs) for one, _ in rounds[:-1])
            own = itertools.chain(earlier, [weights])
            weights = mixed_weights(cells, zip(factors, own, strict=True))
        sums, squares = self._rows.predicted(cells, weights, largest / step)
        unit = step * largest / fitted.known_label_shares()
        predicted, squares = unit * sums, unit**2 * squares
        return NoisyCells(
            residuals=fitted.label_sums - predicted,
            predicted=predicted,
            residual_stddev=self._shares.stddev(1.0, LABEL_SENSITIVITY) * fitted.noise_factors(),
            predicted_stddev=0.0,
            row_weights=squares / np.maximum(predicted, _TINY),
            rate=self.law.rate,
            dispersion=self.law.dispersion,
        )

    def noisy_rows(self, table: CandidateTable, cells: Cells, row_round: RowRound) -> NoisyCells:
        """Noisy sums of residuals and of predictions.

        Args:
          table: The table to measure.
          cells: [rows]: cell of each row.
          row_round: The round that the table belongs to.

        Privacy:
          Unit: that of the run. L2 sensitivity: sqrt(2), over all tables of a round of share 1;
          1 as long as cells and predictions are public. Event: the share of the round.
        """
        step = self._shares.step
        # Rows of a unit in one public cell pay for one another, as for sums of labels.
        costs = None if self.reads_sensitive else self._table_parts.costs(cells, table.num_cells)
        residuals, predicted = step * row_round.release(
            lambda weights: self._rows.raw_row_sums(cells, weights, table.num_cells),
            weights=row_round.weights(table, cells, costs),
            costs=costs,
        )
        # Weights of rows hold the share, so the noise is that of the whole budget. The true mean
        # weight of a cell is sensitive here; a guess from noisy numbers stands in for it.
        stddev = self._shares.stddev(1.0, self._sensitivity)
        return NoisyCells(
            residuals=residuals,
            predicted=predicted,
            residual_stddev=stddev,
            predicted_stddev=stddev,
            row_weights=self._likely_weight * step * row_round.typical_steps(table),
            unevenness=self._table_parts.unevenness,
            rate=self.law.rate,
            dispersion=self.law.dispersion,
        )

    @property
    def _sensitivity(self) -> float:
        """L2 sensitivity of the next sums over cells, of all tables of a round of share 1."""
        return ROW_SENSITIVITY if self.reads_sensitive else LABEL_SENSITIVITY

    def _divide_labels(self, users: OwnedRows, share: float) -> None:
        """Divides labels among the rows of users with several, as a noisy release shows is best.

        Args:
          users: Whose each row is.
          share: Share of the budget for that release.

        Privacy:
          Unit: that of the run. L2 sensitivity: sqrt(2), for two sums over all rows, which each
          move by at most the weight of a unit. Event: this share.
        """
        parts, rate = self._parts, self.law.rate
        # Users repeat labels at least as often as others have them, or little less.
        if not divides(users.sizes, rate, rate).any():
            return
        divided = divided_labels(self._rows.labels, users.owners)
        noisy = self._shares.release(
            lambda weight: self._rows.raw_lost_sums(
                users.have_several, divided, parts.weights(weight)
            ),
            sensitivity=ROW_SENSITIVITY,
            share=share,
        )
        stddev = self._shares.stddev(share, ROW_SENSITIVITY)
        repeats = repeat_prob(float(noisy[0]), float(noisy[1]), stddev, users.sizes, rate=rate)
        counted = user_labels(self._rows.labels, users, parts, repeats=repeats, rate=rate)
        self._table_parts = counted.parts
        self._rows.divide(counted.divided)
