"""The figures of predicted probabilities of several classes: log loss, accuracy, AUC, calibration.

The log loss is least for the true probabilities of each row. The accuracy counts rows whose
likeliest class is the right one: where one class is frequent, it is high for whoever predicts that
class always, so that it is told beside the frequency of the most frequent class.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite
from tulle.quality.metrics import auc_loss, calibration, estimate_of

FloatArray = NDArray[np.float64]

_TINY = 1e-12
"""Least probability of the right class in a log loss, so that it stays finite."""
_SUM_TOLERANCE = 1e-6
"""How far the probabilities of a row may be from 1 in sum: what 32-bit floats round."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassFigures:
    """How well one class is predicted, against all others together."""

    name: str
    rate: float
    """Fraction of the rows that are of the class."""
    mean_prediction: float
    """Mean probability of the class."""
    calibration: float | None
    """Mean prediction over rate; None if no row is of the class."""
    auc: float | None
    """Probability that a row of the class is ranked above another; None without rows of both."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassMetrics:
    """The quality of predicted classes on some rows. Exact numbers about raw labels."""

    log_loss: float
    """Mean of -log(probability of the right class), in nats."""
    log_loss_standard_error: float
    normalised_cross_entropy: float
    """Log loss over that of predicting how frequent each class is on these rows."""
    accuracy: float
    """Fraction of the rows whose likeliest class is the right one."""
    accuracy_standard_error: float
    most_frequent: float
    """Fraction of the rows of the most frequent class: the accuracy of predicting it always."""
    auc: float
    """Mean of the AUC of each class against all others, over classes that occur."""
    calibration_error: float
    """Mean distance of mean prediction and rate over the classes, weighted by rate."""
    classes: tuple[ClassFigures, ...]
    """Each class, in the order of the columns of the probabilities."""
    num_rows: int

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite standard error is null."""
        data = dataclasses.asdict(self)
        errors = {name: null_if_infinite(data[name]) for name in data if name.endswith("_error")}
        return data | errors | {"classes": [dataclasses.asdict(one) for one in self.classes]}


def evaluate_classes(
    labels: ArrayLike, probabilities: ArrayLike, *, classes: Sequence[str] | None = None
) -> ClassMetrics:
    """Compares predicted probabilities of classes with what happened.

    Args:
      labels: Number of the class of each row, from 0.
      probabilities: [rows, classes]: the predicted probabilities, which add up to 1.
      classes: Names of the classes; None: their numbers.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels. They do not touch the
      guarantee of a model if its training never saw these rows; publishing them releases
      something about the test rows.

    Raises:
      DataError: Shapes differ, a label is no class, probabilities are not in [0, 1] or do not add
        up to 1, or all labels are the same.
    """
    truth, predicted = _check(labels, probabilities)
    names = tuple(map(str, range(predicted.shape[1]))) if classes is None else tuple(classes)
    if len(names) != predicted.shape[1]:
        raise DataError(
            f"there are {len(names)} names of classes and {predicted.shape[1]} columns of "
            "probabilities; give one name for each."
        )
    losses = -np.log(np.maximum(predicted[np.arange(len(truth)), truth], _TINY))
    hits = (predicted.argmax(axis=1) == truth).astype(np.float64)
    rates = np.bincount(truth, minlength=len(names)) / len(truth)
    log_loss = estimate_of(float(losses.mean()), losses)
    accuracy = estimate_of(float(hits.mean()), hits)
    constant = -math.fsum(rate * math.log(rate) for rate in rates if rate > 0)
    figures = tuple(
        _figures(name, truth == number, predicted[:, number]) for number, name in enumerate(names)
    )
    aucs = [one.auc for one in figures if one.auc is not None]
    distances = np.abs(rates - predicted.mean(axis=0))
    return ClassMetrics(
        log_loss=log_loss.value,
        log_loss_standard_error=log_loss.standard_error,
        normalised_cross_entropy=log_loss.value / constant,
        accuracy=accuracy.value,
        accuracy_standard_error=accuracy.standard_error,
        most_frequent=float(rates.max()),
        auc=math.fsum(aucs) / len(aucs),
        calibration_error=float(rates @ distances),
        classes=figures,
        num_rows=len(truth),
    )


def _figures(name: str, is_class: NDArray[np.bool_], predicted: FloatArray) -> ClassFigures:
    rate = float(is_class.mean())
    has_both = 0 < rate < 1
    return ClassFigures(
        name=name,
        rate=rate,
        mean_prediction=float(predicted.mean()),
        calibration=calibration(is_class.astype(np.float64), predicted).value if rate else None,
        auc=1 - auc_loss(predicted[is_class], predicted[~is_class]).value if has_both else None,
    )


def _check(labels: ArrayLike, probabilities: ArrayLike) -> tuple[NDArray[np.int64], FloatArray]:
    truth, predicted = np.asarray(labels), np.asarray(probabilities)
    if predicted.ndim != 2 or predicted.shape[1] < 2 or truth.shape != predicted.shape[:1]:
        raise DataError(
            f"labels have the shape {truth.shape} and probabilities {predicted.shape}; give one "
            "label a row and one column of probabilities for each class."
        )
    if not len(truth):
        raise DataError("there are no rows to evaluate on; give at least one.")
    if predicted.dtype.kind != "f" or truth.dtype.kind not in "biuf":
        raise DataError(
            f"labels have the type {truth.dtype} and probabilities {predicted.dtype}; give numbers "
            "of classes, and floats."
        )
    if not np.isin(truth, range(predicted.shape[1])).all():
        raise DataError("a label is no number of a class, from 0; mend or drop such rows.")
    is_valid = (predicted >= 0) & (predicted <= 1)
    sums = predicted.sum(axis=1, dtype=np.float64)
    if not (is_valid.all() and (np.abs(sums - 1) <= _SUM_TOLERANCE).all()):
        raise DataError("probabilities must be in [0, 1] and add up to 1 in each row; no logits.")
    truth = truth.astype(np.int64)
    if (truth == truth[0]).all():
        raise DataError(
            "all labels are of one class, so that no AUC is defined; evaluate on rows of several."
        )
    return truth, predicted.astype(np.float64)
