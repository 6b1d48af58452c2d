"""The figures of a set of predictions: ranking, likelihood, calibration, and money.

Each comes as one number. The AUC alone misleads: it does not see probabilities that are
too high or too low, which a bidder pays for.
"""

import dataclasses

from numpy.typing import ArrayLike

from tulle.errors import DataError
from tulle.privacy.fields import null_if_infinite
from tulle.quality.bidding import bidding_utility
from tulle.quality.calibration import (
    CalibrationGroup,
    calibration,
    calibration_error,
    calibration_groups,
)
from tulle.quality.estimate import estimate_of
from tulle.quality.likelihood import constant_log_loss, log_losses, relative_log_likelihood_of
from tulle.quality.predictions import check_both_classes, check_predictions
from tulle.quality.ranking import auc_loss


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
    relative_log_likelihood: float
    """1 minus that; 0 is no better than the mean label."""
    relative_log_likelihood_standard_error: float
    bidding_utility: float
    """Mean earnings of a row, if a label of 1 is worth 1 and competing bids are exponential
    with the mean label as their mean."""
    bidding_utility_standard_error: float
    bidding_over_constant: float
    """Times what bidding the mean label everywhere earns; 1 is no better than that."""
    bidding_share_of_oracle: float
    """Share of what knowing the labels would earn."""
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
    truth, predicted = check_predictions(labels, probabilities)
    base_rate = check_both_classes(truth)
    ranking = auc_loss(predicted[truth == 1], predicted[truth == 0])
    low, high = ranking.interval
    losses = log_losses(truth, predicted)
    log_loss = estimate_of(float(losses.mean()), losses)
    likelihood = relative_log_likelihood_of(truth, predicted)
    money = bidding_utility(truth, predicted)
    deciles = calibration_groups(truth, predicted)
    return QualityMetrics(
        auc_loss=ranking.value,
        auc_loss_standard_error=ranking.standard_error,
        auc_loss_interval=(max(0.0, low), min(1.0, high)),
        log_loss=log_loss.value,
        log_loss_standard_error=log_loss.standard_error,
        normalised_cross_entropy=log_loss.value / constant_log_loss(base_rate),
        relative_log_likelihood=likelihood.value,
        relative_log_likelihood_standard_error=likelihood.standard_error,
        bidding_utility=money.utility.value,
        bidding_utility_standard_error=money.utility.standard_error,
        bidding_over_constant=money.over_constant,
        bidding_share_of_oracle=money.share_of_oracle,
        calibration=calibration(truth, predicted).value,
        calibration_error=calibration_error(deciles),
        deciles=deciles,
        num_rows=len(truth),
        num_positives=int(truth.sum()),
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
