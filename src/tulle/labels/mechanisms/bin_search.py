"""The bins that make K-ary randomized response lose least (Ghazi et al. 2023).

With k bins the expected loss is (sum of the bins' costs) / (e^epsilon + k - 1). A ratio of two sums
over the bins is least where the sum of cost - ratio reaches 0 (Dinkelbach 1967): for a fixed ratio
the best bins, of any number, come from one dynamic program over the ends of bins, and the ratio of
these bins is the next one. It falls in every step but the last, and about five steps are enough. So
all numbers of bins are searched at once, at a cost that does not grow with epsilon. Starts of best
bins do not move in one direction as the end moves, so faster schemes that rely on it (SMAWK, divide
and conquer) would miss the optimum.

What a bin costs takes constant time. A loss that comes from a convex function phi (a Bregman
divergence, phi(y) - phi(v) - phi'(v) (y - v)) is least at the weighted mean, so a bin's best value
and its cost follow from sums of weights, weighted labels and weighted phi.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.labels.label_grid import check_prior
from tulle.privacy.fields import check_epsilon, check_text

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MOST_LABELS = 20_000
"""Most labels that are put into bins: the search takes up to half a minute for as many."""

_MOST_EPSILON_IN_SEARCH = 30.0
"""Largest epsilon of the search; above it every label has a bin, and floats would lose digits."""
_MAX_STEPS = 100
"""Steps of the ratio, of which about five are needed."""
_ROUNDING = 1e-13
"""Relative gain below which a step of the ratio is rounding."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BregmanLoss:
    """A loss whose best constant is the mean. Public."""

    name: str
    """What a record calls it."""
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
    probability of a lie, and its own labels with e^epsilon times that.
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
        """The costs for ascending labels and their weights.

        Args:
          values: The labels, ascending.
          prior: Weight of each label.
          epsilon: Largest log-likelihood ratio of a report.
          loss: What to lose least of.
        """
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


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Bins:
    """Bins of neighbouring labels. Public."""

    starts: IntArray
    """Place of the first label of each bin, ascending from 0."""
    values: FloatArray
    """What each bin reports: the value of least expected loss."""
    num_labels: int
    """Number of labels in all bins."""
    expected_loss: float
    """Loss between a report and its label, over the prior and the noise."""

    @property
    def num_bins(self) -> int:
        """Number of bins."""
        return int(self.starts.size)

    def bin_of_label(self) -> IntArray:
        """The bin of each label."""
        sizes = np.diff(self.starts, append=self.num_labels)
        return np.repeat(np.arange(self.num_bins), sizes)


def find_bins(
    prior: ArrayLike, values: ArrayLike, epsilon: float, loss: BregmanLoss = SQUARED
) -> Bins:
    """The bins of least expected loss under the prior.

    More than one bin always loses less than one, unless the prior has a single label:
    with all values at the mean any number of bins loses as much as one bin, and the
    mean is not the best value of a bin whose own mean is another.

    Args:
      prior: Weight of each label; public.
      values: The labels, ascending.
      epsilon: Largest log-likelihood ratio of a report.
      loss: What to lose least of.
    """
    labels = np.asarray(values, np.float64)
    check_epsilon(epsilon)
    if labels.ndim != 1 or not 2 <= labels.size <= MOST_LABELS:
        raise ConfigError(
            f"values has the shape {labels.shape}; bins need 2 to {MOST_LABELS} labels. Take a "
            "larger step."
        )
    if not np.all(np.diff(labels) > 0):
        raise ConfigError("values must be ascending, without repeats.")
    weights = check_prior(prior, labels.size)
    costs = BinCosts.of_prior(labels, weights, epsilon, loss)
    starts = np.zeros(1, np.int64)
    ratio = expected_loss(costs, starts)
    has_choice = np.count_nonzero(weights) > 1
    for _ in range(_MAX_STEPS if has_choice else 0):
        better = best_starts(costs, ratio)
        better_ratio = expected_loss(costs, better)
        if not better_ratio < ratio * (1 - _ROUNDING):
            break
        starts, ratio = better, better_ratio
    return Bins(
        starts=starts,
        values=_bin_values(costs, starts),
        num_labels=labels.size,
        expected_loss=ratio,
    )


def best_starts(costs: BinCosts, ratio: float) -> IntArray:
    """Starts of the bins with the least sum of cost - ratio."""
    num_labels = costs.weight_sums.size - 1
    least = np.zeros(num_labels + 1)
    start_of_last = np.zeros(num_labels + 1, np.int64)
    for end in range(1, num_labels + 1):
        totals = least[:end] + costs.of_bins(slice(0, end), end)
        start = int(totals.argmin())
        start_of_last[end] = start
        least[end] = totals[start] - ratio
    starts = [int(start_of_last[num_labels])]
    while starts[-1]:
        starts.append(int(start_of_last[starts[-1]]))
    return np.array(starts[::-1], np.int64)


def expected_loss(costs: BinCosts, starts: IntArray) -> float:
    """Loss of the bins with these starts: their costs over e^epsilon + number - 1."""
    ends = np.append(starts[1:], costs.weight_sums.size - 1)
    total = math.fsum(
        float(costs.of_bins(slice(start, start + 1), end)[0])
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )
    return total / (costs.extra + starts.size)


def _bin_values(costs: BinCosts, starts: IntArray) -> FloatArray:
    ends = np.append(starts[1:], costs.weight_sums.size - 1)
    return np.array(
        [
            float(costs.bin_values(slice(start, start + 1), end)[0])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
    )


def _sums_before(values: FloatArray) -> FloatArray:
    return np.concatenate([[0.0], np.cumsum(values)])
