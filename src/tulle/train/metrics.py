"""How good predictions are: ranking, log loss and calibration, each as one number.

The AUC comes with DeLong's standard error, so that a difference between two
methods can be told from the luck of the test rows.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite

_NUM_GROUPS = 10
_NORMAL_QUANTILE = 1.959963984540054
"""Of 0.975: two-sided 95% intervals."""

_Floats = NDArray[np.float64]


class CalibrationGroup(NamedTuple):
    """Rows with neighbouring predictions, and what became of them."""

    mean_prediction: float
    mean_label: float
    num_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityMetrics:
    """The quality of predictions on some rows. Exact numbers about raw labels."""

    auc_loss: float
    """1 - AUC: the chance that a negative row is ranked above a positive one; ties count half."""
    auc_loss_standard_error: float
    """DeLong's; infinite if a class has one row only."""
    auc_loss_interval: tuple[float, float]
    """95%, within [0, 1]. Without any wrongly ranked pair it is a point and says too little."""
    log_loss: float
    """Mean of -log of the probability given to the true label, in nats."""
    log_loss_standard_error: float
    normalised_cross_entropy: float
    """Log loss over that of always predicting the mean label; below 1 is better than that."""
    calibration: float
    """Mean prediction over mean label; above 1 the predictions are too high."""
    calibration_error: float
    """Mean distance of mean prediction and mean label over the deciles, weighted by rows."""
    deciles: tuple[CalibrationGroup, ...]
    """Ten groups of equal counts by prediction, lowest first; fewer if there are fewer rows."""
    num_rows: int
    num_positives: int

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite standard error is null."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return data | {
            "auc_loss_standard_error": null_if_infinite(self.auc_loss_standard_error),
            "auc_loss_interval": list(self.auc_loss_interval),
            "deciles": [group._asdict() for group in self.deciles],
        }


def evaluate_predictions(labels: ArrayLike, probabilities: ArrayLike) -> QualityMetrics:
    """Compares predicted probabilities with what happened.

    A probability closer to 0 or 1 than the rounding of its type (1.2e-7 for 32-bit
    floats) counts as that close in the log loss, which stays finite.

    Args:
      labels: 0 or 1, one a row.
      probabilities: The predicted chance of 1, one a row.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels. They do not
      touch the guarantee of a model if its training never saw these rows or choices
      made by them; publishing them releases something about the test rows.

    Raises:
      DataError: Shapes differ, a label is not 0 or 1, a probability is not in [0, 1],
        or all labels are the same.
    """
    truth, predicted = _checked(labels, probabilities)
    num_positives = int(truth.sum())
    num_rows = len(truth)
    if num_positives in (0, num_rows):
        raise DataError(
            f"all labels are {int(truth[0])}: with one class only the AUC is undefined; evaluate "
            "on rows of both classes."
        )
    auc_loss, auc_error = _delong(predicted[truth == 1], predicted[truth == 0])
    losses = _log_losses(truth, predicted)
    log_loss = float(losses.mean())
    base_rate = num_positives / num_rows
    base_loss = -base_rate * math.log(base_rate) - (1 - base_rate) * math.log1p(-base_rate)
    deciles = _calibration_groups(truth, predicted)
    return QualityMetrics(
        auc_loss=auc_loss,
        auc_loss_standard_error=auc_error,
        auc_loss_interval=(
            max(0.0, auc_loss - _NORMAL_QUANTILE * auc_error),
            min(1.0, auc_loss + _NORMAL_QUANTILE * auc_error),
        ),
        log_loss=log_loss,
        log_loss_standard_error=float(losses.std(ddof=1)) / math.sqrt(num_rows),
        normalised_cross_entropy=log_loss / base_loss,
        calibration=float(predicted.mean(dtype=np.float64)) / base_rate,
        calibration_error=sum(
            group.num_rows * abs(group.mean_prediction - group.mean_label) for group in deciles
        )
        / num_rows,
        deciles=deciles,
        num_rows=num_rows,
        num_positives=num_positives,
    )


def relative_auc_loss(metrics: QualityMetrics, baseline: QualityMetrics) -> float:
    """By how many percent the AUC loss is above that of a non-private baseline.

    100 * ((1 - AUC) - (1 - AUC_np)) / (1 - AUC_np), as the semi-sensitive papers have it.
    Both must be of the same test rows.
    """
    if (metrics.num_rows, metrics.num_positives) != (baseline.num_rows, baseline.num_positives):
        raise DataError(
            "the metrics and the baseline are of different test rows; evaluate both on the same."
        )
    if baseline.auc_loss == 0:
        raise DataError(
            "the baseline has auc_loss=0 and nothing is relative to it; compare auc_loss itself."
        )
    return 100 * (metrics.auc_loss - baseline.auc_loss) / baseline.auc_loss


def _checked(labels: ArrayLike, probabilities: ArrayLike) -> tuple[_Floats, NDArray[Any]]:
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


def _delong(positives: NDArray[Any], negatives: NDArray[Any]) -> tuple[float, float]:
    """1 - AUC and its standard error.

    DeLong et al. 1988 in the form of Sun and Xu 2014, eq. 5-8: the structural
    components of all pairs come from mid-ranks within the classes and overall.
    """
    m, n = len(positives), len(negatives)
    ranks = _mid_ranks(np.concatenate([positives, negatives]))
    wins_of_positives = (ranks[:m] - _mid_ranks(positives)) / n
    losses_of_negatives = (ranks[m:] - _mid_ranks(negatives)) / m
    auc_loss = float(losses_of_negatives.mean())
    if min(m, n) == 1:
        return auc_loss, math.inf
    variance = wins_of_positives.var(ddof=1) / m + losses_of_negatives.var(ddof=1) / n
    return auc_loss, math.sqrt(variance)


def _mid_ranks(values: NDArray[Any]) -> _Floats:
    """Ranks from 1; equal values have the mean of their places."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    mid_ranks: _Floats = np.cumsum(counts) - (counts - 1) / 2
    return mid_ranks[group]


def _log_losses(truth: _Floats, predicted: NDArray[Any]) -> _Floats:
    least = float(np.finfo(predicted.dtype).eps)
    kept = np.clip(predicted.astype(np.float64), least, 1 - least)
    losses: _Floats = -np.where(truth == 1, np.log(kept), np.log1p(-kept))
    return losses


def _calibration_groups(truth: _Floats, predicted: NDArray[Any]) -> tuple[CalibrationGroup, ...]:
    # Rows of equal prediction share their mean label: which of them falls into which group
    # would otherwise depend on the order of the rows.
    values, group, counts = np.unique(
        predicted.astype(np.float64), return_inverse=True, return_counts=True
    )
    mean_labels = np.bincount(group, weights=truth) / counts
    predictions, labels = np.repeat(values, counts), np.repeat(mean_labels, counts)
    parts = np.array_split(np.arange(len(truth)), _NUM_GROUPS)
    return tuple(
        CalibrationGroup(float(predictions[part].mean()), float(labels[part].mean()), len(part))
        for part in parts
        if len(part)
    )
