"""The bins that make K-ary randomized response lose least (Ghazi et al. 2023).

With k bins the expected loss is (sum of the bins' costs) / (e^epsilon + k - 1). A
ratio of two sums over the bins is least where the sum of cost - ratio reaches 0
(Dinkelbach 1967): for a fixed ratio the best bins, of any number, come from one
dynamic program over the ends of bins, and the ratio of these bins is the next one.
It falls in every step but the last, and about five steps are enough. So all numbers
of bins are searched at once, at a cost that does not grow with epsilon.

Starts of best bins do not move in one direction as the end moves, so faster schemes
that rely on it (SMAWK, divide and conquer) would miss the optimum.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tulle.errors import ConfigError
from tulle.labels.bins.bin_costs import SQUARED, BinCosts, BregmanLoss, FloatArray
from tulle.labels.label_grid import check_prior

IntArray = NDArray[np.int64]

MOST_LABELS = 20_000

_MAX_STEPS = 100
_ROUNDING = 1e-13


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Bins:
    """Bins of neighbouring labels. Public."""

    starts: IntArray
    """Place of the first label of each bin, ascending from 0."""
    values: FloatArray
    """What each bin reports: the value of least expected loss."""
    num_labels: int
    expected_loss: float
    """Loss between a report and its label, over the prior and the noise."""

    @property
    def num_bins(self) -> int:
        """How many bins there are."""
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
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"epsilon={epsilon} must be > 0 and finite, e.g. 1.0.")
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
