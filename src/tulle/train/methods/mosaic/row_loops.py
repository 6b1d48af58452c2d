"""Mosaic's loops over rows in numpy: the twins of the compiled ones in `cell_kernels`.

`loops_over_rows` of `cell_kernels` gives out one or the other. They have the same functions, refuse
the same, and all numbers that they return are the same to the last bit, so that a run does not
depend on which machine it is on, or on the number of its threads. What is summed here is raw: what
makes it private is said in `cell_sums` and `noise_shares`.

Rows are worked on in pieces, so that what is computed for them stays in the cache, and nothing of
the size of all rows is made beside the result.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.label_parts import rounding_weights
from tulle.train.methods.mosaic.row_numbers import (
    MAX_TERM,
    MOST_CHARGED,
    PART_BITS,
    SQUARE_BITS,
    WEIGHT_BITS,
    Cells,
    Costs,
    IntArray,
    Probabilities,
    RowRules,
    Weights,
    check_columns,
    check_lengths,
    wrong_number,
    wrong_place,
)

_UNPAYABLE = 2.0**31
"""What the weight of a row is cut at, and what is no number becomes: no row can pay so much."""
_LEAST_PIECE = 1 << 16
"""Rows that are worked on together, so that what is computed for them stays in the cache."""
ROWS_AT_A_TIME = 1 << 21
"""Rows that are added up as floats: 2^21 whole numbers of at most 2^32 stay within 2^53, below
which floats add whole numbers exactly. Pieces are added up as 64-bit integers."""


class NumpyLoops:
    """The loops, for rows in any number of pieces."""

    def cells(
        self, parts: Sequence[CellPart], columns: Sequence[NDArray[np.integer[Any]]]
    ) -> NDArray[np.int32]:
        """The place of each row's cell in the table; `columns` are the ids of each part, [rows]."""
        cells = np.zeros(check_columns(parts, columns), np.int32)
        for rows in pieces_of_rows(len(cells)):
            for part, ids in zip(parts, columns, strict=True):
                _check_places(ids[rows], len(part.lookup))
                cells[rows] *= np.int32(part.size)
                cells[rows] += part.lookup[ids[rows]]
        return cells

    def add_lookups(
        self, totals: NDArray[np.integer[Any]], numbers: NDArray[np.integer[Any]], cells: Cells
    ) -> None:
        """Adds the number of its cell to the total of each row, in place.

        Args:
          totals: [rows]: int32 or int64.
          numbers: [cells]: whole numbers of the same type.
          cells: [rows]: cell of each row.
        """
        check_lengths(totals, cells)
        for rows in pieces_of_rows(len(cells)):
            _check_places(cells[rows], len(numbers))
            totals[rows] += numbers[cells[rows]]

    def add_products(
        self, totals: IntArray, numbers: IntArray, cells: Cells, weights: Weights
    ) -> None:
        """Adds the number of its cell times the weight of the row to each total, in place.

        Args:
          totals: [rows].
          numbers: [cells].
          cells: [rows]: cell of each row.
          weights: Weights of the rows.
        """
        check_lengths(totals, cells, weights)
        for rows in pieces_of_rows(len(cells)):
            _check_places(cells[rows], len(numbers))
            totals[rows] += numbers[cells[rows]] * _checked_weights(weights, rows)

    def weights(
        self, wanted: IntArray, cells: Cells, totals: IntArray, limits: IntArray, costs: Costs
    ) -> IntArray:
        """Square roots of limit * wanted / total / cost, less 1, rounded down and at least 0.

        Args:
          wanted: [cells]: priority of each cell.
          cells: [rows]: cell of each row.
          totals: [rows]: sum of the priorities of all cells of the row.
          limits: [rows]: what each row may spend.
          costs: What a squared weight of 1 costs each row.
        """
        check_lengths(cells, totals, limits, costs)
        weights, priorities = np.empty(len(cells), np.int64), wanted.astype(np.float64)
        for rows in pieces_of_rows(len(cells)):
            _check_places(cells[rows], len(wanted))
            reals = priorities[cells[rows]]
            with np.errstate(all="ignore"):
                reals *= limits[rows]
                reals /= totals[rows]
                if costs is not None:
                    reals /= costs[rows]
                np.sqrt(reals, out=reals)
            np.fmin(reals, _UNPAYABLE, out=reals)
            # The fraction is cut off.
            weights[rows] = reals
            weights[rows] -= 1
            np.maximum(weights[rows], 0, out=weights[rows])
        return weights

    def pay(self, weights: IntArray, limits: IntArray, spent: IntArray, costs: Costs) -> bool:
        """Charges all rows for their weights, or none if that is too much for one of them.

        Args:
          weights: [rows]: weight of each row.
          limits: [rows]: what each row may spend, in squared steps.
          spent: [rows]: what it has spent, changed in place.
          costs: What a squared weight of 1 costs each row.

        Returns:
          False if a row could not pay.
        """
        check_lengths(weights, limits, spent, costs)
        pieces = list(pieces_of_rows(len(weights)))
        own_costs = [None if costs is None else costs[rows] for rows in pieces]
        for rows, its_costs in zip(pieces, own_costs, strict=True):
            if not _can_pay(weights[rows], limits[rows] - spent[rows], its_costs):
                return False
        # Only once all rows can pay: a refusal leaves no row charged for what was not released.
        for rows, its_costs in zip(pieces, own_costs, strict=True):
            charges = weights[rows] * weights[rows]
            spent[rows] += charges if its_costs is None else charges * its_costs
        return True

    def exact_sums(self, cells: Cells, terms: Weights, num_cells: int) -> IntArray:
        """The sum of the terms of each cell.

        Args:
          cells: [rows]: cell of each row.
          terms: Whole numbers, none beyond 2^32 in size; one for each row, or one for all.
          num_cells: Number of cells of the table.
        """
        check_lengths(cells, terms)
        sums = np.zeros(num_cells, np.int64)
        for rows in pieces_of_rows(len(cells), num_cells):
            own = np.broadcast_to(_of_rows(terms, rows), len(cells[rows]))
            _add_terms(sums, cells[rows], own)
        return sums

    def label_sums(
        self, cells: Cells, labels: NDArray[np.int32], weights: Weights, num_cells: int
    ) -> IntArray:
        """The sum of (weight * label) >> 30 of each cell.

        Args:
          cells: [rows]: cell of each row.
          labels: [rows]: labels in parts of 2^30.
          weights: Weights of the rows.
          num_cells: Number of cells of the table.
        """
        check_lengths(cells, labels, weights)
        sums = np.zeros(num_cells, np.int64)
        for rows in pieces_of_rows(len(cells), num_cells):
            terms = _checked_weights(weights, rows) * labels[rows].astype(np.int64)
            terms >>= PART_BITS
            _add_terms(sums, cells[rows], terms)
        return sums

    def row_sums(
        self,
        cells: Cells,
        labels: NDArray[np.int32],
        log_odds: NDArray[np.int32],
        weights: Weights,
        table: Probabilities,
        num_cells: int,
        rules: RowRules,
    ) -> IntArray:
        """Sums of residuals and of predictions of each cell, as [2, cells].

        Args:
          cells: [rows]: cell of each row.
          labels: [rows]: labels in parts of 2^30.
          log_odds: [rows]: predicted log odds, in steps.
          weights: Weights of the rows.
          table: All probabilities that a prediction can have.
          num_cells: Number of cells of the table.
          rules: How rows count.
        """
        offsets, caps = rules.offsets, rules.caps
        check_lengths(cells, labels, log_odds, weights, offsets, caps)
        sums = np.zeros((2, num_cells), np.int64)
        for rows in pieces_of_rows(len(cells), num_cells):
            own = _checked_weights(weights, rows)
            if rules.positives_only:
                own = own * (labels[rows] > 0)
            own = rounding_weights(own) if rules.are_values else own
            places = _places(log_odds, offsets, rows, table.most)
            if caps is None:
                capped, factors = table.capped[places], table.factors[places]
            else:
                probs = table.predicted[places].astype(np.int64)
                capped = np.minimum(probs, caps[rows])
                factors = (capped << PART_BITS) // probs
            predicted = own * capped.astype(np.int64)
            predicted >>= PART_BITS
            residuals = own * factors.astype(np.int64)
            residuals >>= PART_BITS
            residuals *= labels[rows]
            residuals >>= PART_BITS
            residuals -= predicted
            _add_terms(sums[0], cells[rows], residuals)
            _add_terms(sums[1], cells[rows], predicted)
        return sums

    def predicted(
        self,
        cells: Cells,
        log_odds: NDArray[np.int32],
        offsets: NDArray[np.int32] | None,
        weights: Weights,
        shifts: NDArray[np.int8],
        table: Probabilities,
    ) -> IntArray:
        """Sums of weighted predictions of each cell, and of them times weights, as [2, cells].

        Args:
          cells: [rows]: cell of each row.
          log_odds: [rows]: predicted log odds, in steps.
          offsets: [rows]: steps to add to them; None: none.
          weights: Weights of the rows.
          shifts: [cells]: bits by which weights are shifted down for the second sum, up if below 0.
          table: All probabilities that a prediction can have.
        """
        check_lengths(cells, log_odds, offsets, weights)
        down, up = np.maximum(shifts, 0).astype(np.int64), np.maximum(-shifts, 0).astype(np.int64)
        sums = np.zeros((2, len(shifts)), np.int64)
        for rows in pieces_of_rows(len(cells), len(shifts)):
            own, its_cells = _checked_weights(weights, rows), cells[rows]
            _check_places(its_cells, len(shifts))
            # Nothing here is hidden by noise, so products may be rounded to the nearest step.
            places = _places(log_odds, offsets, rows, table.most)
            weighted = own * table.predicted[places].astype(np.int64)
            weighted += 1 << (PART_BITS - 1)
            weighted >>= PART_BITS
            squares = (own >> down[its_cells]) << up[its_cells]
            np.minimum(squares, MAX_TERM >> 1, out=squares)
            squares *= weighted
            squares >>= SQUARE_BITS
            np.minimum(squares, MAX_TERM, out=squares)
            _add_terms(sums[0], its_cells, weighted)
            _add_terms(sums[1], its_cells, squares)
        return sums


def pieces_of_rows(num_rows: int, num_cells: int = 0) -> Iterator[slice]:
    """Pieces of the rows that are small enough for the cache and no smaller than the table.

    Args:
      num_rows: Number of all rows.
      num_cells: Number of cells that are added up after each piece.
    """
    size = min(max(_LEAST_PIECE, num_cells), ROWS_AT_A_TIME)
    for start in range(0, num_rows, size):
        yield slice(start, start + size)


def _add_terms(sums: IntArray, cells: Cells, terms: IntArray) -> None:
    """Adds the exact sum of the terms of each cell, whatever the order of the rows."""
    _check_places(cells, len(sums))
    if terms.min(initial=0) < -MAX_TERM or terms.max(initial=0) > MAX_TERM:
        raise wrong_number()
    sums += np.bincount(cells, terms, minlength=len(sums)).astype(np.int64)


def _can_pay(weights: IntArray, left: IntArray, costs: Costs) -> bool:
    # Weights are compared first, as squares of larger ones might not fit 64 bits.
    if weights.min() < 0 or weights.max() > MOST_CHARGED:
        return False
    if costs is None:
        return not (weights * weights > left).any()
    # The quotient is compared, as a product might not fit 64 bits either.
    return costs.min() >= 1 and not (weights * weights > left // costs).any()


def _check_places(places: NDArray[np.integer[Any]], length: int) -> None:
    if len(places) and not 0 <= places.min() <= places.max() < length:
        raise wrong_place()


def _checked_weights(weights: Weights, rows: slice) -> Weights:
    """The weights of some rows, which must be from 0 to less than 2^32."""
    own = _of_rows(weights, rows)
    if not 0 <= np.min(own, initial=0) <= np.max(own, initial=0) < 1 << WEIGHT_BITS:
        raise wrong_number()
    return own


def _of_rows(weights: Weights, rows: slice) -> Weights:
    """The weights of some rows."""
    return weights[rows] if isinstance(weights, np.ndarray) else weights


def _places(
    log_odds: NDArray[np.int32], offsets: NDArray[np.int32] | None, rows: slice, most: int
) -> NDArray[np.int32]:
    """Places of the log odds of some rows in the table of probabilities."""
    steps = log_odds[rows] if offsets is None else log_odds[rows] + offsets[rows]
    places: NDArray[np.int32] = np.clip(steps, -most, most)
    places += np.int32(most)
    return places
