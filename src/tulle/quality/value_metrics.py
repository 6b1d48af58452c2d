"""The figures of predicted values, such as amounts or counts: error, calibration and money.

The squared error is that of the mean: it is least for the true expected value of each row. R2 is
1 for a prophet, 0 for whoever predicts the mean label everywhere, and below 0 for worse. The
absolute error is least for the median, which is 0 where most rows are: read it beside the others.

The bidder bids the predicted value in a second-price auction and pays the highest competing bid
where its own is above, see `tulle.quality.metrics`.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite
from tulle.quality.metrics import (
    CalibrationGroup,
    CompetingBids,
    Estimate,
    ExponentialBids,
    calibration,
    calibration_error,
    calibration_groups,
    estimate_of,
)

FloatArray = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueMetrics:
    """The quality of predicted values on some rows. Exact numbers about raw labels."""

    mean_squared_error: float
    """Mean of (label - prediction)^2."""
    mean_squared_error_standard_error: float
    mean_absolute_error: float
    """Mean of |label - prediction|. It favours predictions of the median, which may be 0."""
    r_squared: float
    """1 minus the squared error over that of predicting the mean label everywhere."""
    r_squared_standard_error: float
    bidding_utility: float
    """Mean earnings of a row, if competing bids are exponential with the mean label as mean."""
    bidding_utility_standard_error: float
    """Standard error, with the competition taken as given."""
    bidding_over_constant: float
    """Factor on what bidding the mean label everywhere earns; 1 is no better than that."""
    calibration: float
    """Mean prediction over mean label; above 1 the predictions are too high."""
    calibration_error: float
    """Mean distance of mean prediction and mean label over the deciles, weighted by rows."""
    deciles: tuple[CalibrationGroup, ...]
    """Ten groups of equal counts by prediction, lowest first; fewer if there are fewer rows."""
    num_rows: int

    def to_dict(self) -> dict[str, object]:
        """Plain data; an infinite standard error is null."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        errors = {name: null_if_infinite(value) for name, value in data.items() if "_error" in name}
        return data | errors | {"deciles": [group._asdict() for group in self.deciles]}


def evaluate_values(labels: ArrayLike, predictions: ArrayLike) -> ValueMetrics:
    """Compares predicted values with what happened.

    Args:
      labels: A value from 0 on, one a row. Clip them where the training did, to judge what was
        learnt, or leave them as they are, to judge also what the clip has cost.
      predictions: The predicted value, one a row.

    Privacy:
      Nothing is noised: the numbers are exact functions of raw labels. They do not touch the
      guarantee of a model if its training never saw these rows; publishing them releases
      something about the test rows.

    Raises:
      DataError: Shapes differ, a number is negative or not finite, or all labels are the same.
    """
    truth, predicted = _check(labels, predictions)
    errors = (truth - predicted) ** 2
    deviations = (truth - truth.mean()) ** 2
    error, variance = float(errors.mean()), float(deviations.mean())
    squared = estimate_of(error, errors)
    # By the derivatives of 1 - error / variance; the mean label moves the variance to second order.
    explained = estimate_of(
        1 - error / variance, deviations * error / variance**2 - errors / variance
    )
    utility, of_constant = earnings(truth, predicted), earnings(truth, np.full(1, truth.mean()))
    deciles = calibration_groups(truth, predicted)
    return ValueMetrics(
        mean_squared_error=error,
        mean_squared_error_standard_error=squared.standard_error,
        mean_absolute_error=float(np.abs(truth - predicted).mean()),
        r_squared=explained.value,
        r_squared_standard_error=explained.standard_error,
        bidding_utility=utility.value,
        bidding_utility_standard_error=utility.standard_error,
        bidding_over_constant=utility.value / of_constant.value,
        calibration=calibration(truth, predicted).value,
        calibration_error=calibration_error(deciles),
        deciles=deciles,
        num_rows=len(truth),
    )


def earnings(
    values: FloatArray, bids: FloatArray, competing: CompetingBids | None = None
) -> Estimate:
    """Mean earnings of a row of a bidder in second-price auctions.

    Args:
      values: What each row is worth to the bidder.
      bids: What it bids for each row, such as the predicted value.
      competing: Law of the highest competing bid; None: exponential with the mean value as mean.
    """
    law = ExponentialBids(mean=float(values.mean())) if competing is None else competing
    earned = values * law.win_prob(bids) - law.expected_price(bids)
    return estimate_of(float(earned.mean()), earned)


def _check(labels: ArrayLike, predictions: ArrayLike) -> tuple[FloatArray, FloatArray]:
    truth, predicted = np.asarray(labels), np.asarray(predictions)
    if truth.ndim != 1 or truth.shape != predicted.shape or not len(truth):
        raise DataError(
            f"labels have the shape {truth.shape} and predictions {predicted.shape}; both must be "
            "one number a row, of as many rows, and at least one."
        )
    for name, values in (("labels", truth), ("predictions", predicted)):
        if values.dtype.kind not in "biuf":
            raise DataError(f"{name} have the type {values.dtype}, must be numbers.")
        if not (np.isfinite(values).all() and (values >= 0).all()):
            raise DataError(f"{name} must be finite and not negative; mend or drop other rows.")
    truth = truth.astype(np.float64)
    if (truth == truth[0]).all():
        raise DataError(
            "all labels are the same, so that R2 is undefined; evaluate on rows that differ."
        )
    return truth, predicted.astype(np.float64)
