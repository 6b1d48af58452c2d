"""The figures of a set of predictions: ranking, likelihood, calibration, and money.

Each comes as one number, or with its standard error. The AUC alone misleads: it does not see
probabilities that are too high or too low, which a bidder pays for.

A smooth function of means has its error from one influence a row. Labels may be 0 and 1, or
unbiased estimates of them: what is affine in a label stays unbiased then (noisy_labels.py).

The relative log likelihood is 1 for a prophet, 0 for whoever predicts the mean label
everywhere, and below 0 for probabilities that are worse than that. Criteo reports it as
NLLH_CompVN.

The bidder values a label of 1, bids value times prediction in a second-price auction, and
pays the highest competing bid c where its own bid is above: it earns value * label - c.
The expectation over c has a closed form, so every row counts, won or lost (the offline
utility of Chapelle 2015, with a competition that needs no logged prices). Bidding the true
probability is best, so predictions that rank alike and are too high or too low earn less.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_finite, null_if_infinite

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


class CalibrationGroup(NamedTuple):
    """Rows with neighbouring predictions, and what became of them."""

    mean_prediction: float
    mean_label: float
    num_rows: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class QualityMetrics:
    """The quality of predictions on some rows. Exact numbers about raw labels."""

    auc_loss: float
    """1 - AUC: probability that a negative row is ranked above a positive one; ties count half."""
    auc_loss_standard_error: float
    """Standard error by DeLong et al. 1988; infinite if a class has one row only."""
    auc_loss_interval: tuple[float, float]
    """95% interval within [0, 1]. Without any wrongly ranked pair it is a point: too narrow."""
    log_loss: float
    """Mean of -log of the probability given to the true label, in nats."""
    log_loss_standard_error: float
    normalised_cross_entropy: float
    """Log loss over that of always predicting the mean label; below 1 is better than that."""
    relative_log_likelihood: float
    """1 minus the normalised cross entropy; 0 is no better than the mean label."""
    relative_log_likelihood_standard_error: float
    bidding_utility: float
    """Mean earnings of a row, if a label of 1 is worth 1 and competing bids are exponential
    with the mean label as their mean."""
    bidding_utility_standard_error: float
    bidding_over_constant: float
    """Factor on what bidding the mean label everywhere earns; 1 is no better than that."""
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

    @property
    def auc(self) -> float:
        """Probability that a positive row is ranked above a negative one; ties count half."""
        return 1 - self.auc_loss

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
      probabilities: The predicted probability of 1, one a row.

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
    """Percent by which the AUC loss is above that of a non-private baseline.

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


class CompetingBids(Protocol):
    """The law of the highest competing bid."""

    def win_prob(self, bids: FloatArray) -> FloatArray:
        """Probability that the competition bids less."""
        ...

    def expected_price(self, bids: FloatArray) -> FloatArray:
        """The mean of the competing bid where it is less and of 0 elsewhere."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialBids:
    """Many low competing bids and a few high ones."""

    mean: float

    def __post_init__(self) -> None:
        _check_positive("mean", self.mean)

    def win_prob(self, bids: FloatArray) -> FloatArray:
        """Probability that the competition bids less."""
        return np.asarray(-np.expm1(-bids / self.mean))

    def expected_price(self, bids: FloatArray) -> FloatArray:
        """The mean of the competing bid where it is less and of 0 elsewhere."""
        ratios = bids / self.mean
        return np.asarray(self.mean * (-np.expm1(-ratios) - ratios * np.exp(-ratios)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class UniformBids:
    """Competing bids from 0 to a highest one, all equally likely.

    Where that is above all bids, the utility is an affine function of the squared error.
    """

    highest: float

    def __post_init__(self) -> None:
        _check_positive("highest", self.highest)

    def win_prob(self, bids: FloatArray) -> FloatArray:
        """Probability that the competition bids less."""
        return np.minimum(bids, self.highest) / self.highest

    def expected_price(self, bids: FloatArray) -> FloatArray:
        """The mean of the competing bid where it is less and of 0 elsewhere."""
        return np.minimum(bids, self.highest) ** 2 / (2 * self.highest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiddingUtility:
    """Mean earnings of a row, and those of two other bidders on the same rows."""

    utility: Estimate
    """Mean earnings, in units of the values. The competition is taken as given."""
    of_constant: float
    """Mean earnings of a bidder who predicts the mean label everywhere."""
    of_oracle: float
    """Mean earnings of a bidder who knows the labels. Never negative."""

    @property
    def over_constant(self) -> float:
        """Factor on what the constant predictor earns; not a number where that earns nothing."""
        return self.utility.value / self.of_constant if self.of_constant > 0 else math.nan

    @property
    def share_of_oracle(self) -> float:
        """Share of what can be earned at all; not a number where that is nothing."""
        return self.utility.value / self.of_oracle if self.of_oracle > 0 else math.nan


def bidding_utility(
    labels: ArrayLike,
    probabilities: ArrayLike,
    values: ArrayLike | None = None,
    competing: CompetingBids | None = None,
) -> BiddingUtility:
    """What bidding by these predictions earns on these rows.

    Args:
      labels: 0 or 1, one a row, of both kinds.
      probabilities: The predicted probability of 1, one a row.
      values: What a label of 1 is worth, one a row; None for 1 everywhere.
      competing: Law of the highest competing bid. None: exponential, with a mean of what
        a row is worth on average, so that knowing no more than that wins most auctions.

    Privacy:
      Nothing is noised: an exact function of raw labels, for whoever may see them.
    """
    truth, predicted = check_predictions(labels, probabilities)
    rate = check_both_classes(truth)
    worths = _check_values(values, len(truth))
    if competing is None:
        competing = ExponentialBids(mean=_mean_worth(truth, worths))
    return BiddingUtility(
        utility=utility_of(truth, predicted.astype(np.float64), worths, competing),
        of_constant=utility_of(truth, np.full(len(truth), rate), worths, competing).value,
        of_oracle=utility_of(truth, truth, worths, competing).value,
    )


def utility_of(
    targets: FloatArray, predicted: FloatArray, values: FloatArray, competing: CompetingBids
) -> Estimate:
    """Mean earnings of a row; affine in the target, so unbiased targets give unbiased means.

    Args:
      targets: Labels, or unbiased estimates of them, one a row.
      predicted: The predicted probability of 1, one a row.
      values: What a label of 1 is worth, one a row.
      competing: Law of the highest competing bid.
    """
    bids = values * predicted
    earned = values * targets * competing.win_prob(bids) - competing.expected_price(bids)
    return estimate_of(float(earned.mean()), earned)


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


def _mean_worth(truth: FloatArray, worths: FloatArray) -> float:
    worth = float((truth * worths).mean())
    if worth == 0:
        raise DataError("all rows with label 1 have the value 0; give competing=… to bid at all.")
    return worth


def _check_values(values: ArrayLike | None, num_rows: int) -> FloatArray:
    if values is None:
        return np.ones(num_rows)
    worths = np.asarray(values)
    if worths.shape != (num_rows,) or worths.dtype.kind not in "biuf":
        raise DataError(
            f"values have the shape {worths.shape} and the type {worths.dtype}; give one number "
            "for each row."
        )
    if not (np.isfinite(worths).all() and (worths >= 0).all()):
        raise DataError("values must be finite and not negative; clip or drop other rows.")
    return worths.astype(np.float64)


def _check_positive(name: str, value: object) -> None:
    if not check_finite(name, value) > 0:
        raise ConfigError(f"{name}={value} must be > 0, e.g. the mean value of a row.")
