"""Labels and predictions that belong together, checked."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError

FloatArray = NDArray[np.float64]


def check_predictions(
    labels: ArrayLike, probabilities: ArrayLike
) -> tuple[FloatArray, NDArray[Any]]:
    """Labels as floats, and probabilities in the floating type they came in.

    Raises:
      DataError: Shapes differ, a label is not 0 or 1, or a probability is not in [0, 1].
    """
    truth, predicted = np.asarray(labels), np.asarray(probabilities)
    if truth.ndim != 1 or truth.shape != predicted.shape or not len(truth):
        raise DataError(
            f"labels have the shape {truth.shape} and probabilities {predicted.shape}; both must "
            "be one number a row, of as many rows, and at least one."
        )
    if not (truth.dtype.kind in "biuf" and np.isin(truth, (0, 1)).all()):
        raise DataError("labels must be the numbers 0 and 1; mend or drop other rows.")
    if predicted.dtype.kind not in "biuf":
        raise DataError(f"probabilities have the type {predicted.dtype}, must be numbers.")
    if not np.all((predicted >= 0) & (predicted <= 1)):
        raise DataError(
            "probabilities must lie in [0, 1] and not be NaN; pass the sigmoid of logits, and "
            "look at the training if the loss became NaN."
        )
    is_float = predicted.dtype.kind == "f"
    return truth.astype(np.float64), predicted if is_float else predicted.astype(np.float64)


def check_both_classes(truth: FloatArray) -> float:
    """The mean label, strictly between 0 and 1.

    Raises:
      DataError: All labels are the same.
    """
    base_rate = float(truth.mean())
    if base_rate in (0.0, 1.0):
        raise DataError(
            f"all labels are {int(truth[0])}: with one class only the AUC is undefined; evaluate "
            "on rows of both classes."
        )
    return base_rate
