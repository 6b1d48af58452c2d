"""What predictions are worth to a bidder.

The bidder values a label of 1, bids value times prediction in a second-price auction, and
pays the highest competing bid c where its own bid is above: it earns value * label - c.
The expectation over c has a closed form, so every row counts, won or lost (the offline
utility of Chapelle 2015, with a competition that needs no logged prices). Bidding the true
chance is best, so predictions that rank alike and are too high or too low earn less.
"""

import dataclasses
import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_finite
from tulle.quality.estimate import Estimate, estimate_of
from tulle.quality.predictions import FloatArray, check_both_classes, check_predictions


class CompetingBids(Protocol):
    """The law of the highest competing bid."""

    def win_prob(self, bids: FloatArray) -> FloatArray:
        """The chance that the competition bids less."""
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
        """The chance that the competition bids less."""
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
        """The chance that the competition bids less."""
        return np.minimum(bids, self.highest) / self.highest

    def expected_price(self, bids: FloatArray) -> FloatArray:
        """The mean of the competing bid where it is less and of 0 elsewhere."""
        return np.minimum(bids, self.highest) ** 2 / (2 * self.highest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiddingUtility:
    """Mean earnings of a row, and those of two other bidders on the same rows."""

    utility: Estimate
    """In units of the values. The competition is taken as given."""
    of_constant: float
    """Of a bidder who predicts the mean label everywhere."""
    of_oracle: float
    """Of one who knows the labels. Never negative."""

    @property
    def over_constant(self) -> float:
        """Times what the constant predictor earns; not a number where that earns nothing."""
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
      probabilities: The predicted chance of 1, one a row.
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
    """Mean earnings of a row; affine in the target, so unbiased targets give unbiased means."""
    bids = values * predicted
    earned = values * targets * competing.win_prob(bids) - competing.expected_price(bids)
    return estimate_of(float(earned.mean()), earned)


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
