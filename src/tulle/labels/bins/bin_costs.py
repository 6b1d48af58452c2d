"""What a bin of labels costs under K-ary randomized response, in constant time.

A loss that comes from a convex function phi (a Bregman divergence, phi(y) - phi(v) -
phi'(v) (y - v)) is least at the weighted mean, so a bin's best value and its cost
follow from sums of weights, weighted labels and weighted phi.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tulle.errors import ConfigError
from tulle.privacy.fields import check_text

FloatArray = NDArray[np.float64]

_MOST_EPSILON_IN_SEARCH = 30.0


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BregmanLoss:
    """A loss whose best constant is the mean. Public."""

    name: str
    phi: Callable[[FloatArray], FloatArray]
    """Strictly convex; maps an array to an array of the same shape."""
    least_label: float = -math.inf
    """phi is finite for labels from here on."""

    def __post_init__(self) -> None:
        check_text("name", self.name)

    def check_labels(self, values: FloatArray) -> None:
        """Refuses labels for which the loss has no meaning."""
        with np.errstate(all="ignore"):
            at_labels = np.asarray(self.phi(values))
        is_defined = at_labels.shape == values.shape and bool(np.all(np.isfinite(at_labels)))
        if values[0] < self.least_label or not is_defined:
            raise ConfigError(
                f"loss {self.name!r} is not defined for all labels from {values[0]:g} to "
                f"{values[-1]:g}; it needs labels >= {self.least_label:g} and a finite phi. "
                "Move the range or use SQUARED."
            )


def _square(values: FloatArray) -> FloatArray:
    return np.asarray(values * values)


def _entropy(values: FloatArray) -> FloatArray:
    """x log x - x, and 0 at 0."""
    safe = np.where(values > 0, values, 1.0)
    return np.asarray(values * np.log(safe) - values)


SQUARED = BregmanLoss(name="squared", phi=_square)
"""(v - y)^2."""
POISSON = BregmanLoss(name="poisson", phi=_entropy, least_label=0.0)
"""y log(y / v) - y + v, half the Poisson deviance."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BinCosts:
    """Costs of all bins of neighbouring labels, from prefix sums.

    A bin S with value v costs the loss of the whole population at v plus
    e^epsilon - 1 times that of the labels in S: every label reports the bin with the
    chance of a lie, and its own labels with e^epsilon times that.
    """

    loss: BregmanLoss
    extra: float
    """e^epsilon - 1."""
    slope: float
    intercept: float
    """phi less this line is used: it leaves the loss as it is and keeps sums small."""
    weight_sums: FloatArray
    label_sums: FloatArray
    phi_sums: FloatArray
    """Sums over the labels before each place, times `extra`."""
    mean: float
    mean_phi: float

    @classmethod
    def of_prior(
        cls, values: FloatArray, prior: FloatArray, epsilon: float, loss: BregmanLoss
    ) -> "BinCosts":
        """The costs for ascending labels and their weights."""
        loss.check_labels(values)
        # Above this epsilon the floats below lose digits; the bins stay nearly optimal.
        extra = math.expm1(min(epsilon, _MOST_EPSILON_IN_SEARCH))
        ends = loss.phi(values[[0, -1]])
        slope = float((ends[1] - ends[0]) / (values[-1] - values[0]))
        intercept = float(ends[0] - slope * values[0])
        phi = loss.phi(values) - slope * values - intercept
        return cls(
            loss=loss,
            extra=extra,
            slope=slope,
            intercept=intercept,
            weight_sums=extra * _sums_before(prior),
            label_sums=extra * _sums_before(prior * values),
            phi_sums=extra * _sums_before(prior * phi),
            mean=float(prior @ values),
            mean_phi=float(prior @ phi),
        )

    def bin_values(self, starts: slice, end: int) -> FloatArray:
        """Best value of the bins from each start up to, without, `end`."""
        weights = (self.weight_sums[end] + 1.0) - self.weight_sums[starts]
        labels = (self.label_sums[end] + self.mean) - self.label_sums[starts]
        return np.asarray(labels / weights)

    def of_bins(self, starts: slice, end: int) -> FloatArray:
        """Cost of the bins from each start up to, without, `end`."""
        weights = (self.weight_sums[end] + 1.0) - self.weight_sums[starts]
        labels = (self.label_sums[end] + self.mean) - self.label_sums[starts]
        phi = self.loss.phi(labels / weights) - self.intercept
        cost = (self.phi_sums[end] + self.mean_phi) - self.phi_sums[starts]
        return np.asarray(cost + self.slope * labels - weights * phi)


def _sums_before(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])
