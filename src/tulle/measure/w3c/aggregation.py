"""The aggregation service: adds reports up and puts noise on the sum.

The noise is discrete Laplace, because sums are whole numbers. Its scale 2 * max_value / epsilon
is the one that browsers charge their budgets for.
"""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import DataError
from tulle.measure.w3c.limits import MAX_EPSILON, range_error
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource, release_rng
from tulle.mechanisms.exact import IntArray
from tulle.privacy.fields import check_count, check_finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregationConfig:
    """What all conversions of one aggregate have in common. Public."""

    epsilon: float
    max_value: int

    def __post_init__(self) -> None:
        check_count("max_value", self.max_value)
        if not 0 < check_finite("epsilon", self.epsilon) <= MAX_EPSILON:
            raise range_error(f"epsilon={self.epsilon} must be in (0, {MAX_EPSILON}].")

    @property
    def noise(self) -> DiscreteLaplaceConfig:
        """Noise on each bucket; a report may move a sum by twice its value."""
        return DiscreteLaplaceConfig(
            scale=2 * self.max_value / self.epsilon, max_contribution=2 * self.max_value
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each bucket."""
        return self.noise.noise_stddev


def aggregate_reports(
    raw_reports: ArrayLike, config: AggregationConfig, *, rng: NoiseSource | None = None
) -> IntArray:
    """The noisy sum of histograms.

    Args:
      raw_reports: One histogram in each row.
      config: Settings that all of them were measured with.
      rng: Source of the noise; None: the operating system's. Sensitive: never log or save its
        state.

    Privacy:
      Unit: the impressions that one browser saved in one epoch, seen by one conversion site,
      add-remove. L1 sensitivity: 2 * max_value for each report. Event: one DiscreteLaplace
      for each report of a unit. Relies on: browsers, which stop reports of a unit when their
      epsilons add up to its budget, and on each report being aggregated once.
    """
    rng = rng or release_rng()
    reports = np.asarray(raw_reports)
    if reports.ndim != 2 or reports.dtype.kind not in "iu":
        raise DataError(
            f"reports have shape {reports.shape} and type {reports.dtype}; "
            "give whole numbers, one histogram in each row."
        )
    if reports.size and (reports.min() < 0 or reports.sum(axis=1).max() > config.max_value):
        raise DataError(
            "a report has a negative bucket or adds up to more than "
            f"max_value={config.max_value}; leave it out, noise does not cover it."
        )
    return release_discrete_laplace(reports.sum(axis=0), config.noise, rng=rng)
