"""Whether predictions are right on average, and within groups of similar predictions."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tulle.quality.estimate import Estimate, estimate_of
from tulle.quality.predictions import FloatArray

_NUM_GROUPS = 10


class CalibrationGroup(NamedTuple):
    """Rows with neighbouring predictions, and what became of them."""

    mean_prediction: float
    mean_label: float
    num_rows: int


def calibration(targets: FloatArray, predicted: NDArray[Any]) -> Estimate:
    """Mean prediction over mean label; above 1 the predictions are too high.

    Args:
      targets: Labels, or unbiased estimates of them. Their mean must not be 0.
      predicted: The predicted chance of 1, one a row.
    """
    chances = predicted.astype(np.float64)
    rate = float(targets.mean())
    ratio = float(chances.mean()) / rate
    return estimate_of(ratio, (chances - ratio * targets) / rate)


def calibration_groups(
    targets: FloatArray, predicted: NDArray[Any]
) -> tuple[CalibrationGroup, ...]:
    """Ten groups of equal counts by prediction, lowest first; fewer if there are fewer rows."""
    # Rows of equal prediction share their mean label: which of them falls into which group
    # would otherwise depend on the order of the rows.
    values, group, counts = np.unique(
        predicted.astype(np.float64), return_inverse=True, return_counts=True
    )
    mean_labels = np.bincount(group, weights=targets) / counts
    predictions, labels = np.repeat(values, counts), np.repeat(mean_labels, counts)
    parts = np.array_split(np.arange(len(targets)), _NUM_GROUPS)
    return tuple(
        CalibrationGroup(float(predictions[part].mean()), float(labels[part].mean()), len(part))
        for part in parts
        if len(part)
    )


def calibration_error(groups: tuple[CalibrationGroup, ...]) -> float:
    """Mean distance of mean prediction and mean label over the groups, weighted by rows."""
    total = sum(group.num_rows * abs(group.mean_prediction - group.mean_label) for group in groups)
    return total / sum(group.num_rows for group in groups)
