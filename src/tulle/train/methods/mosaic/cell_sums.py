"""Weighted sums of residuals and of predictions over the cells of a table, and their sensitivity.

Before a sensitive column was used, predictions depend on public columns alone: then one label
that changes moves one sum of labels by the weight of its row, and sums of predictions are public.

Afterwards a row of weight a adds a (w (y - p), w p) to its cell, with w = min(1, c / p). A row with
label 1 has a norm of at most a there, one with label 0 of at most a c sqrt(2), and the product of
two such vectors of different labels is at least -a a' c. Say the squares of the weights of a row
in all tables of a round add up to at most 1, and so do those of the row that takes its place.
Then over all tables together they are at most sqrt(2) apart: with equal labels since products are
not negative, with different ones since 1 + 2 c^2 + 2 c = 2 for c = (sqrt(3) - 1) / 2.
"""

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LABEL_SENSITIVITY = 1.0
ROW_SENSITIVITY = math.sqrt(2.0)
MOST_PREDICTED = (math.sqrt(3.0) - 1.0) / 2.0
"""c: rows that are predicted to have label 1 with more than this chance count less."""


def label_sums(
    cells: NDArray[np.int64], labels: FloatArray, weights: FloatArray, num_cells: int
) -> FloatArray:
    """Raw sums of the labels of each cell, of weighted rows.

    Privacy:
      Unit: the label of one row, replaced; cells and weights are public. L2 sensitivity: the
      weight of the row. Nothing is released here.
    """
    return sum_by_cell(cells, weights * labels, num_cells)


def row_sums(
    cells: NDArray[np.int64],
    labels: FloatArray,
    predictions: FloatArray,
    weights: FloatArray,
    num_cells: int,
) -> FloatArray:
    """[2, cells]: raw residuals and raw predictions of each cell, of weighted rows.

    Privacy:
      Unit: one row, whose label, cell, prediction and weight are replaced. L2 sensitivity of both
      rows of numbers together: sqrt(2) times the larger weight, for labels of 0 or 1 and
      whatever is predicted. Over several tables: sqrt(2), if squares of the weights of each row
      add up to at most 1. Nothing is released here.
    """
    # A prediction that is no chance would show through any noise.
    chances = np.clip(np.nan_to_num(predictions, nan=0.0), 0.0, 1.0)
    likely = weights * likely_row_weights(chances)
    weighted = likely * chances
    residuals = sum_by_cell(cells, likely * labels - weighted, num_cells)
    return np.stack([residuals, sum_by_cell(cells, weighted, num_cells)])


def likely_row_weights(predictions: FloatArray) -> FloatArray:
    """w of the rows."""
    return np.minimum(1.0, MOST_PREDICTED / np.maximum(predictions, 1e-300))


def sum_by_cell(cells: NDArray[np.integer], values: FloatArray, num_cells: int = 0) -> FloatArray:
    """The sum of the values of each cell."""
    sums: FloatArray = np.bincount(cells, values, minlength=num_cells).astype(np.float64)
    return sums
