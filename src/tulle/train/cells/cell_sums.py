"""Sums of residuals and of predictions over the cells of a table, and their sensitivity.

Before a sensitive column was used, predictions depend on public columns alone: then one label
that changes moves one sum of labels by 1, and sums of predictions are public.

Afterwards a row adds (w (y - p), w p) to its cell, with w = min(1, c / p). For a label of 1 that
has norm at most 1, for a label of 0 at most c sqrt(2). Replacing the row moves it to another cell,
a distance of at most sqrt(2), or changes it in its cell: from (1, 0) to (-c, c) at worst, a
distance of sqrt((1 + c)^2 + c^2), which is sqrt(2) for c = (sqrt(3) - 1) / 2.
"""

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LABEL_SENSITIVITY = 1.0
ROW_SENSITIVITY = math.sqrt(2.0)
MOST_PREDICTED = (math.sqrt(3.0) - 1.0) / 2.0
"""c: rows that are predicted to have label 1 with more than this chance count less."""


def label_sums(cells: NDArray[np.int64], labels: FloatArray, num_cells: int) -> FloatArray:
    """Raw sums of the labels of each cell.

    Privacy:
      Unit: the label of one row, replaced; cells are public. L2 sensitivity: 1. Nothing is
      released here.
    """
    return sum_by_cell(cells, labels, num_cells)


def row_sums(
    cells: NDArray[np.int64], labels: FloatArray, predictions: FloatArray, num_cells: int
) -> FloatArray:
    """[2, cells]: raw residuals and raw predictions of each cell, of weighted rows.

    Privacy:
      Unit: one row, whose label, cell and prediction are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2), for labels of 0 or 1 and whatever is predicted.
      Nothing is released here.
    """
    # A prediction that is no chance would show through any noise.
    chances = np.clip(np.nan_to_num(predictions, nan=0.0), 0.0, 1.0)
    weights = row_weights(chances)
    weighted = weights * chances
    residuals = sum_by_cell(cells, weights * labels - weighted, num_cells)
    return np.stack([residuals, sum_by_cell(cells, weighted, num_cells)])


def row_weights(predictions: FloatArray) -> FloatArray:
    """w of the rows."""
    return np.minimum(1.0, MOST_PREDICTED / np.maximum(predictions, 1e-300))


def sum_by_cell(cells: NDArray[np.integer], values: FloatArray, num_cells: int = 0) -> FloatArray:
    """The sum of the values of each cell."""
    sums: FloatArray = np.bincount(cells, values, minlength=num_cells).astype(np.float64)
    return sums
