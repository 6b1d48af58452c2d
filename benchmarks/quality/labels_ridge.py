"""Linear models with a ridge for many columns of labels at once, by conjugate gradients."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

FloatArray = NDArray[np.float64]

RIDGES = tuple(10.0**power for power in (5, 4.5, 4, 3.5, 3, 2.5, 2, 1.5, 1, 0.5))
"""Largest first: a fit starts from the one before it."""
_HELD_BACK = 5
_TOLERANCE = 1e-3
_MAX_STEPS = 200


def choose_ridges(rows: csr_array, labels: FloatArray) -> FloatArray:
    """For each column of labels the ridge with the least error on rows that are held back.

    Args:
      rows: Features; the first column is a constant.
      labels: [rows, releases]: noisy ones, so that nothing else is looked at.
    """
    held = np.arange(rows.shape[0]) % _HELD_BACK == 0
    kept_rows, held_rows = rows[~held], rows[held]
    weights = None
    errors = []
    for ridge in RIDGES:
        weights = fit_ridge(kept_rows, labels[~held], ridge, weights)
        errors.append(np.mean((held_rows @ weights - labels[held]) ** 2, axis=0))
        print(f"ridge {ridge:g}", flush=True)
    return np.array(RIDGES)[np.argmin(errors, axis=0)]


def fit_ridge(
    rows: csr_array, labels: FloatArray, ridge: float, start: FloatArray | None = None
) -> FloatArray:
    """Weights with the least squared error plus ridge, which spares the constant."""
    ridges = np.full((rows.shape[1], 1), ridge)
    ridges[0] = 1e-6
    columns = csr_array(rows.T)
    target = columns @ labels
    scale = columns.sum(axis=1)[:, None] + ridges
    if start is None:
        start = np.zeros_like(target)
        start[0] = labels.mean(axis=0)
    weights = start.copy()
    residual = target - columns @ (rows @ weights) - ridges * weights
    enough = _TOLERANCE**2 * np.sum(target**2 / scale, axis=0) * 1e-4
    direction = scaled = residual / scale
    size = np.sum(residual * scaled, axis=0)
    for _ in range(_MAX_STEPS):
        if np.all(size <= enough):
            break
        image = columns @ (rows @ direction) + ridges * direction
        length = size / np.maximum(np.sum(direction * image, axis=0), 1e-300)
        weights += length * direction
        residual = residual - length * image
        scaled = residual / scale
        before, size = size, np.sum(residual * scaled, axis=0)
        direction = scaled + size / np.maximum(before, 1e-300) * direction
    return weights
