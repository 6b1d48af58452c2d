"""Single figures of quality, each with its standard error: ranking, likelihood, calibration.

A smooth function of means has its error from one influence a row. Labels may be 0 and 1, or
unbiased estimates of them: what is affine in a label stays unbiased then (noisy_labels.py).

The relative log likelihood is 1 for a prophet, 0 for whoever predicts the mean label
everywhere, and below 0 for probabilities that are worse than that. Criteo reports it as
NLLH_CompVN. Unlike the AUC it sees predictions that are too high or too low.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite

FloatArray = NDArray[np.float64]
NORMAL_QUANTILE = 1.959963984540054
"""Quantile of the normal law at 0.975, for two-sided 95% intervals."""
_NUM_GROUPS = 10
"""Deciles, as reports of calibration have them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and how far the sampling of the rows may have moved it."""

    value: float
    standard_error: float
    """Infinite if the rows are too few to tell."""

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval, by the normal law."""
        reach = NORMAL_QUANTILE * self.standard_error
        return self.value - reach, self.value + reach

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite standard error is null."""
        return {"value": self.value, "standard_error": null_if_infinite(self.standard_error)}


def estimate_of(value: float, influences: NDArray[np.float64]) -> Estimate:
    """The standard error of a smooth function of means, from how each row moves it.

    Args:
      value: The function at the means.
      influences: The derivative of the function by the share of each row; a constant in
        all of them changes nothing. For a plain mean these are the rows themselves.
    """
    num_rows = len(influences)
    if num_rows < 2:
        return Estimate(value=value, standard_error=math.inf)
    return Estimate(value=value, standard_error=float(influences.std(ddof=1)) / math.sqrt(num_rows))


def auc_loss(positives: NDArray[Any], negatives: NDArray[Any]) -> Estimate:
    """1 - AUC and its standard error, which is infinite if a class has one row only.

    DeLong et al. 1988 in the form of Sun and Xu 2014, eq. 5-8: the structural
    components of all pairs come from mid-ranks within the classes and overall.

    Args:
      positives: Scores of the rows with label 1, at least one.
      negatives: Scores of the rows with label 0, at least one.
    """
    m, n = len(positives), len(negatives)
    ranks = _mid_ranks(np.concatenate([positives, negatives]))
    wins_of_positives = (ranks[:m] - _mid_ranks(positives)) / n
    losses_of_negatives = (ranks[m:] - _mid_ranks(negatives)) / m
    loss = float(losses_of_negatives.mean())
    if min(m, n) == 1:
        return Estimate(value=loss, standard_error=math.inf)
    variance = wins_of_positives.var(ddof=1) / m + losses_of_negatives.var(ddof=1) / n
    return Estimate(value=loss, standard_error=math.sqrt(variance))


def weight_below(scores: NDArray[Any], weights: FloatArray) -> FloatArray:
    """Weight of all rows with lower scores and half of that with equal ones, for each row."""
    _, group = np.unique(scores, return_inverse=True)
    totals = np.bincount(group, weights=weights)
    below: FloatArray = np.cumsum(totals) - totals / 2
    return below[group]


def relative_log_likelihood(labels: ArrayLike, probabilities: ArrayLike) -> Estimate:
    """1 - log loss / log loss of always predicting the mean label of these rows.

    Args:
      labels: 0 or 1, one a row, of both kinds.
      probabilities: The predicted probability of 1, one a row.

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


class CalibrationGroup(NamedTuple):
    """Rows with neighbouring predictions, and what became of them."""

    mean_prediction: float
    mean_label: float
    num_rows: int


def calibration(targets: FloatArray, predicted: NDArray[Any]) -> Estimate:
    """Mean prediction over mean label; above 1 the predictions are too high.

    Args:
      targets: Labels, or unbiased estimates of them. Their mean must not be 0.
      predicted: The predicted probability of 1, one a row.
    """
    probs = predicted.astype(np.float64)
    rate = float(targets.mean())
    ratio = float(probs.mean()) / rate
    return estimate_of(ratio, (probs - ratio * targets) / rate)


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


def _mid_ranks(values: NDArray[Any]) -> FloatArray:
    """Ranks from 1; equal values have the mean of their places."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    mid_ranks: FloatArray = np.cumsum(counts) - (counts - 1) / 2
    return mid_ranks[group]
