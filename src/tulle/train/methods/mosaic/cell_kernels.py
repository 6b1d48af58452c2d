"""Mosaic's loops over rows in C, on all cores, for machines that have a compiler.

Without one everything works, slower: each loop has a twin in numpy with the same results
(`row_loops`). The code is compiled when a run has so many rows that it is worth it (`compiled_code`
says how).

What C is handed is checked before: types, lengths and contiguous memory here and in `row_threads`,
and every number that a place in memory follows from in the loops themselves.
"""

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tulle.compiled_code import address, compiled_library
from tulle.errors import DataError
from tulle.train.methods.mosaic.cell_model import CellPart
from tulle.train.methods.mosaic.row_loops import NumpyLoops
from tulle.train.methods.mosaic.row_numbers import (
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
from tulle.train.methods.mosaic.row_threads import called, changed, given, num_threads, strided

_SOURCE = Path(__file__).with_name("cell_kernels.c")
# Whole numbers wrap around as numpy's do: otherwise C leaves open what happens.
_WAYS = (("-march=native", "-fwrapv"), ("-fwrapv",))
_LEAST_ROWS = 1 << 16
"""Rows of a run from which on compiling takes less time than it saves."""
_BEYOND_TABLE = 1
"""What a loop returns if a cell or an id is none of its table; otherwise a number is too large."""
_ID_BYTES = (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.int32))
"""Types of ids that the loops read as they are."""

_POINTER, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
# Of all arguments but the last two, the range of rows.
_ARGUMENTS: dict[str, Sequence[Any]] = {
    "find_cells": (_POINTER, _POINTER, _COUNT),
    "add_lookups_32": (_POINTER, _POINTER, _COUNT, _POINTER),
    "add_lookups_64": (_POINTER, _POINTER, _COUNT, _POINTER),
    "add_products": (_POINTER, _POINTER, _COUNT, _POINTER, _POINTER, _COUNT),
    "find_weights": (_POINTER, _POINTER, _COUNT, *[_POINTER] * 3, _COUNT, _POINTER),
    "can_pay": (_POINTER, _POINTER, _COUNT, _POINTER, _POINTER),
    "charge": (_POINTER, _POINTER, _POINTER),
    "sum_terms": (_POINTER, _COUNT, _POINTER, _POINTER, _COUNT),
    "sum_labels": (_POINTER, _COUNT, *[_POINTER] * 3, _COUNT),
    "sum_rows": (
        *(_POINTER, _COUNT, *[_POINTER] * 5, _COUNT),
        *(*[_POINTER] * 3, _NUMBER, _POINTER, _NUMBER, _NUMBER),
    ),
    "sum_predicted": (
        *(_POINTER, _COUNT, *[_POINTER] * 4, _COUNT),
        *(_POINTER, _POINTER, _NUMBER),
    ),
}


class CompiledLoops:
    """The loops of `NumpyLoops` in C; arguments and results are those of the twins."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, types in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = [*types, _COUNT, _COUNT], ctypes.c_int

    def cells(
        self, parts: Sequence[CellPart], columns: Sequence[NDArray[np.integer[Any]]]
    ) -> NDArray[np.int32]:
        """The place of each row's cell in the table; see `NumpyLoops.cells`."""
        cells = np.empty(check_columns(parts, columns), np.int32)
        kept, described = [], []
        for part, ids in zip(parts, columns, strict=True):
            own = given(ids, ids.dtype if ids.dtype in _ID_BYTES else np.dtype(np.int32))
            lookup = given(part.lookup, np.dtype(np.int32))
            kept += [own, lookup]
            its_addresses = address(own), own.itemsize, address(lookup)
            described.append([*its_addresses, len(lookup), part.size])
        self._run("find_cells", len(cells), cells, np.array(described, np.int64), len(parts))
        return cells

    def add_lookups(
        self, totals: NDArray[np.integer[Any]], numbers: NDArray[np.integer[Any]], cells: Cells
    ) -> None:
        """Adds the number of its cell to the total of each row; see `NumpyLoops.add_lookups`.

        Args:
          totals: [rows], changed in place.
          numbers: [cells].
          cells: [rows]: cell of each row.
        """
        check_lengths(totals, cells)
        name = "add_lookups_32" if totals.dtype == np.int32 else "add_lookups_64"
        dtype = np.dtype(np.int32 if totals.dtype == np.int32 else np.int64)
        numbers, cells = given(numbers, dtype), given(cells, np.dtype(np.int32))
        self._run(name, len(cells), changed(totals, dtype), numbers, len(numbers), cells)

    def add_products(
        self, totals: IntArray, numbers: IntArray, cells: Cells, weights: Weights
    ) -> None:
        """Adds the number of its cell times the weight of the row to each total.

        Args:
          totals: [rows], changed in place.
          numbers: [cells].
          cells: [rows]: cell of each row.
          weights: Weights of the rows.
        """
        check_lengths(totals, cells, weights)
        self._run(
            "add_products",
            len(cells),
            changed(totals, np.dtype(np.int64)),
            given(numbers, np.dtype(np.int64)),
            len(numbers),
            given(cells, np.dtype(np.int32)),
            *strided(weights),
        )

    def weights(
        self, wanted: IntArray, cells: Cells, totals: IntArray, limits: IntArray, costs: Costs
    ) -> IntArray:
        """The weight that each row can pay; see `NumpyLoops.weights`.

        Args:
          wanted: [cells]: priority of each cell.
          cells: [rows]: cell of each row.
          totals: [rows]: sum of the priorities of all cells of the row.
          limits: [rows]: what each row may spend.
          costs: What a squared weight of 1 costs each row.
        """
        check_lengths(cells, totals, limits, costs)
        weights = np.empty(len(cells), np.int64)
        self._run(
            "find_weights",
            len(cells),
            weights,
            given(wanted, np.dtype(np.int64)),
            len(wanted),
            given(cells, np.dtype(np.int32)),
            given(totals, np.dtype(np.int64)),
            *strided(limits),
            None if costs is None else given(costs, np.dtype(np.int64)),
        )
        return weights

    def pay(self, weights: IntArray, limits: IntArray, spent: IntArray, costs: Costs) -> bool:
        """Charges all rows for their weights, or none; see `NumpyLoops.pay`.

        Args:
          weights: [rows]: weight of each row.
          limits: [rows]: what each row may spend, in squared steps.
          spent: [rows]: what it has spent, changed in place.
          costs: What a squared weight of 1 costs each row.
        """
        check_lengths(weights, limits, spent, costs)
        weights, spent = given(weights, np.dtype(np.int64)), changed(spent, np.dtype(np.int64))
        costs = None if costs is None else given(costs, np.dtype(np.int64))
        num_rows = len(weights)
        if called(self._library.can_pay, num_rows, weights, *strided(limits), spent, costs):
            return False
        # Only once all rows can pay: a refusal leaves no row charged for what was not released.
        self._run("charge", num_rows, spent, weights, costs)
        return True

    def exact_sums(self, cells: Cells, terms: Weights, num_cells: int) -> IntArray:
        """The sum of the terms of each cell.

        Args:
          cells: [rows]: cell of each row.
          terms: Whole numbers, none beyond 2^32 in size; one for each row, or one for all.
          num_cells: Number of cells of the table.
        """
        check_lengths(cells, terms)
        return self._sums("sum_terms", 1, num_cells, cells, *strided(terms)).ravel()

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
        labels = given(labels, np.dtype(np.int32))
        return self._sums("sum_labels", 1, num_cells, cells, labels, *strided(weights)).ravel()

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
        """Sums of residuals and of predictions of each cell; see `NumpyLoops.row_sums`.

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
        return self._sums(
            "sum_rows",
            2,
            num_cells,
            cells,
            given(labels, np.dtype(np.int32)),
            given(log_odds, np.dtype(np.int32)),
            None if offsets is None else given(offsets, np.dtype(np.int32)),
            *strided(weights),
            *_columns_of(table),
            table.most,
            None if caps is None else given(caps, np.dtype(np.int32)),
            rules.are_values,
            rules.positives_only,
        )

    def predicted(
        self,
        cells: Cells,
        log_odds: NDArray[np.int32],
        offsets: NDArray[np.int32] | None,
        weights: Weights,
        shifts: NDArray[np.int8],
        table: Probabilities,
    ) -> IntArray:
        """Sums of weighted predictions and of them times weights; see `NumpyLoops.predicted`.

        Args:
          cells: [rows]: cell of each row.
          log_odds: [rows]: predicted log odds, in steps.
          offsets: [rows]: steps to add to them; None: none.
          weights: Weights of the rows.
          shifts: [cells]: bits by which weights are shifted down for the second sum, up if below 0.
          table: All probabilities that a prediction can have.
        """
        check_lengths(cells, log_odds, offsets, weights)
        return self._sums(
            "sum_predicted",
            2,
            len(shifts),
            cells,
            given(log_odds, np.dtype(np.int32)),
            None if offsets is None else given(offsets, np.dtype(np.int32)),
            *strided(weights),
            given(shifts, np.dtype(np.int8)),
            _columns_of(table)[0],
            table.most,
        )

    def _sums(
        self, name: str, num_sums: int, num_cells: int, cells: Cells, *arguments: Any
    ) -> IntArray:
        """Sums of a loop over each cell, as [sums, cells].

        Args:
          name: Loop that adds to sums.
          num_sums: Number of sums of each cell.
          num_cells: Number of cells of the table.
          cells: [rows]: cell of each row.
          arguments: What the loop takes after the cells.
        """
        cells = given(cells, np.dtype(np.int32))
        # Sums of a thread take no more memory and time than its rows do.
        most = max(1, len(cells) // max(num_cells, 1))
        sums = np.zeros((min(num_threads(len(cells)), most), num_cells, num_sums), np.int64)
        self._run(name, len(cells), sums, num_cells, cells, *arguments)
        total: IntArray = sums[0]
        for others in sums[1:]:
            total += others
        return total.T

    def _run(self, name: str, num_rows: int, first: NDArray[Any], *arguments: Any) -> None:
        """Runs a loop that must not find anything wrong; see `called`.

        Args:
          name: The loop.
          num_rows: Number of rows.
          first: First argument.
          arguments: All others.
        """
        found = called(getattr(self._library, name), num_rows, first, *arguments)
        if found:
            raise wrong_place() if found == _BEYOND_TABLE else wrong_number()


@functools.cache
def compiled_loops() -> CompiledLoops | None:
    """The compiled loops of this process; None where no compiler makes them."""
    library = compiled_library(_SOURCE, _WAYS)
    return None if library is None else CompiledLoops(library)


def loops_over_rows(num_rows: int) -> NumpyLoops | CompiledLoops:
    """The loops for so many rows: those that take less time."""
    compiled = compiled_loops() if num_rows >= _LEAST_ROWS else None
    return NumpyLoops() if compiled is None else compiled


def _columns_of(table: Probabilities) -> list[NDArray[Any]]:
    """The columns of the table of probabilities, all of which have one number for each place."""
    columns = [given(one, np.dtype(np.int32)) for one in table[:3]]
    if any(len(one) != 2 * table.most + 1 for one in columns):
        raise DataError("a table of probabilities must have one for each step of log odds.")
    return columns
