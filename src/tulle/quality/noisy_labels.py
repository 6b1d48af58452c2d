"""The quality of predictions where only randomized reports of the labels are known.

Log loss, mean label, earnings and the pairs of the AUC are affine in each label, so an
unbiased target in its place gives an unbiased sum. Ratios of such sums get their errors by
the delta method. All of it is post-processing of the reports and costs no privacy.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.quality.metrics import (
    Estimate,
    ExponentialBids,
    FloatArray,
    calibration,
    check_predictions,
    estimate_of,
    log_losses,
    relative_log_likelihood_of,
    utility_of,
    weight_below,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyLabelMetrics:
    """Estimates about the true labels. An error counts the noise and the sampling of the rows.

    Where the noise is large, an estimate may lie outside the range of what it estimates.
    """

    mean_label: Estimate
    auc_loss: Estimate
    log_loss: Estimate
    relative_log_likelihood: Estimate
    """1 - log loss / log loss of always predicting the mean label."""
    calibration: Estimate
    """Mean prediction over mean label."""
    bidding_utility: Estimate
    """Mean earnings of a row that is worth 1, against exponential competing bids with the
    estimated mean label as their mean."""
    num_rows: int

    def to_dict(self) -> dict[str, object]:
        """Plain data, each estimate with its standard error."""
        estimates: dict[str, object] = {
            field.name: getattr(self, field.name).to_dict()
            for field in dataclasses.fields(self)
            if field.name != "num_rows"
        }
        return estimates | {"num_rows": self.num_rows}


def evaluate_on_reports(
    reports: ArrayLike, channel: BinaryChannel, probabilities: ArrayLike
) -> NoisyLabelMetrics:
    """Estimates how good predictions are from randomized labels.

    Args:
      reports: 0 or 1, one a row, as they were released.
      channel: How reports come from labels: one pair of probabilities, or one a row.
      probabilities: The predicted probability of a true label of 1, one a row. They must not
        depend on these reports: rows that a model was trained on flatter it.

    Privacy:
      Post-processing of the reports: no cost.

    Raises:
      DataError: Shapes differ, values are out of range, or the noise leaves no estimate of
        the mean label between 0 and 1.
    """
    values, predicted = check_predictions(reports, probabilities)
    if channel.gain.ndim and len(channel.gain) != len(values):
        raise DataError(
            f"the channel has {len(channel.gain)} rows where there are {len(values)} reports; "
            "give the probabilities of these rows."
        )
    targets = channel.debiased_targets(values)
    rate = float(targets.mean())
    if not 0 < rate < 1:
        raise DataError(
            "the mean label, estimated from the reports, is not between 0 and 1: there are too "
            "few rows for so much noise. Evaluate on more rows or at a larger epsilon."
        )
    probs = predicted.astype(np.float64)
    losses = log_losses(targets, predicted)
    ones = np.ones(len(values))
    return NoisyLabelMetrics(
        mean_label=estimate_of(rate, targets),
        auc_loss=_auc_loss(targets, predicted),
        log_loss=estimate_of(float(losses.mean()), losses),
        relative_log_likelihood=relative_log_likelihood_of(targets, predicted),
        calibration=calibration(targets, predicted),
        bidding_utility=utility_of(targets, probs, ones, ExponentialBids(mean=rate)),
        num_rows=len(values),
    )


def auc_of_labels(report_auc: float, report_rate: float, channel: BinaryChannel) -> float:
    """The AUC for true labels from the AUC for reports, where one channel holds for all rows.

    With base rate p, report rate r = q0 + g p and gain g, a share a = q1 p / r of reports 1
    and b = (1 - q1) p / (1 - r) of reports 0 are of positive rows. Two rows of one class are
    ranked at random, so AUC_reports - 1/2 = (a - b) (AUC - 1/2), a - b = g p (1-p) / (r (1-r)).

    Args:
      report_auc: AUC of the predictions with the reports taken for labels.
      report_rate: Share of reports that are 1.
      channel: One pair of probabilities.
    """
    if channel.gain.ndim:
        raise ConfigError(
            "the channel differs from row to row, and reports then tell the rows apart too; "
            "use evaluate_on_reports()."
        )
    rate = float((report_rate - channel.prob_if_negative) / channel.gain)
    if not (0 < rate < 1 and 0 < report_rate < 1):
        raise DataError(
            f"report_rate={report_rate} is none that this channel gives for labels of both "
            "kinds; use more rows."
        )
    share = float(channel.gain) * rate * (1 - rate) / (report_rate * (1 - report_rate))
    return 0.5 + (report_auc - 0.5) / share


def _auc_loss(targets: FloatArray, scores: NDArray[Any]) -> Estimate:
    """Pairs weighted by target and 1 - target, over their total weight; no row with itself.

    The error is that of the linear part (Hajek): the rest falls by another root of the rows.
    """
    others = 1 - targets
    all_targets, all_others = float(targets.sum()), float(others.sum())
    # A negative row loses to the positives below it, a positive one to the negatives above it.
    below = weight_below(scores, targets)
    above = all_others - weight_below(scores, others)
    with_itself = float((targets * others).sum())
    pairs = all_targets * all_others - with_itself
    if pairs <= 0:
        raise DataError("there are too few rows for an AUC under so much noise; use more rows.")
    # A row ties with itself, so half of its own weight was counted.
    loss = (float((others * below).sum()) - with_itself / 2) / pairs
    moved = targets * above + others * below
    weight = targets * all_others + others * all_targets
    return estimate_of(loss, len(targets) * (moved - loss * weight) / pairs)
