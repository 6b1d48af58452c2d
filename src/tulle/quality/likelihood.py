"""How likely predictions make what happened: log loss, alone and against a constant.

The relative log likelihood is 1 for a prophet, 0 for whoever predicts the mean label
everywhere, and below 0 for probabilities that are worse than that. Criteo reports it as
NLLH_CompVN. Unlike the AUC it sees predictions that are too high or too low.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.quality.estimate import Estimate, estimate_of
from tulle.quality.predictions import FloatArray, check_both_classes, check_predictions


def relative_log_likelihood(labels: ArrayLike, probabilities: ArrayLike) -> Estimate:
    """1 - log loss / log loss of always predicting the mean label of these rows.

    Args:
      labels: 0 or 1, one a row, of both kinds.
      probabilities: The predicted chance of 1, one a row.

    Privacy:
      Nothing is noised: an exact function of raw labels, for whoever may see them.
    """
    truth, predicted = check_predictions(labels, probabilities)
    check_both_classes(truth)
    return relative_log_likelihood_of(truth, predicted)


def relative_log_likelihood_of(targets: FloatArray, predicted: NDArray[Any]) -> Estimate:
    """The same for targets of any size, as unbiased estimates of labels have them.

    Both the log loss and the entropy depend on the rows; the error counts both.
    """
    losses = log_losses(targets, predicted)
    rate, log_loss = float(targets.mean()), float(losses.mean())
    entropy = constant_log_loss(rate)
    # Derivatives of 1 - L / H(rate) by the mean loss and by the rate.
    slope = log_loss / entropy**2 * math.log((1 - rate) / rate)
    return estimate_of(1 - log_loss / entropy, slope * targets - losses / entropy)


def log_losses(targets: FloatArray, predicted: NDArray[Any]) -> FloatArray:
    """-log of the probability of the label, one a row; affine in the target.

    A probability closer to 0 or 1 than the rounding of its type counts as that close.
    """
    least = float(np.finfo(predicted.dtype).eps)
    kept = np.clip(predicted.astype(np.float64), least, 1 - least)
    losses: FloatArray = -(targets * np.log(kept) + (1 - targets) * np.log1p(-kept))
    return losses


def constant_log_loss(rate: float) -> float:
    """Log loss of always predicting the mean label, where that is `rate`."""
    return -rate * math.log(rate) - (1 - rate) * math.log1p(-rate)
