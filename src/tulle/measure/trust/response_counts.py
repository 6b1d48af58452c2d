"""Counts with intervals from randomized reports.

The number of reports that support a value is a sum of two binomial numbers: of users who hold
it and of users who do not. Its variance depends on the count that is sought, so an interval holds
all counts that explain the reports, as Wilson's does for a proportion.
"""

import math

import numpy as np

from tulle.mechanisms.frequency import FrequencyConfig, IntArray, debias_counts, variance_per_report
from tulle.mechanisms.intervals import normal_quantile
from tulle.privacy.events import Event
from tulle.privacy.release import Interval, Release


def response_releases(
    report_counts: IntArray,
    randomizer: FrequencyConfig,
    *,
    num_users: int,
    values: range,
    event: Event,
    confidence: float,
) -> tuple[Release, ...]:
    """Unbiased counts from how many reports support each value.

    Args:
      report_counts: For each value, how many reports support it. Already protected.
      randomizer: The settings that the reports were made with.
      num_users: How many reports there are.
      values: The values to release.
      event: What the reports cost.
      confidence: Of each interval.
    """
    estimates = debias_counts(report_counts, num_users, randomizer)
    variances = _Variances(randomizer, num_users)
    return tuple(
        Release(
            value=float(estimates[value]),
            noise_stddev=math.sqrt(variances.at(float(np.clip(estimates[value], 0, num_users)))),
            interval=variances.interval(float(estimates[value]), confidence),
            event=event,
        )
        for value in values
    )


class _Variances:
    """Variance of an estimate as a linear function of the count it estimates."""

    def __init__(self, randomizer: FrequencyConfig, num_users: int) -> None:
        self._of_holder = variance_per_report(randomizer, frequency=1.0)
        self._of_other = variance_per_report(randomizer, frequency=0.0)
        self._num_users = num_users
        probs = randomizer.support_probs
        self._count_per_report = 1 / float(probs.if_held - probs.if_not_held)

    def at(self, count: float) -> float:
        """The variance if `count` users hold the value."""
        return count * self._of_holder + (self._num_users - count) * self._of_other

    def interval(self, estimate: float, confidence: float) -> Interval:
        """All counts c with |estimate - c| <= reach + quantile sqrt(variance at c)."""
        quantile = normal_quantile(confidence)
        # Half a report because reports are whole, and Cornish and Fisher's (z^2 - 1) / 6 times
        # the skewness, which for a sum of coins is at most one over its standard deviation.
        reach = (0.5 + max(0.0, quantile**2 - 1) / 6) * self._count_per_report
        return Interval(
            low=self._end(estimate - reach, -quantile),
            high=self._end(estimate + reach, quantile),
            confidence=confidence,
        )

    def _end(self, start: float, quantile: float) -> float:
        """The count c furthest from `start` with |c - start| <= |quantile| sqrt(variance at c).

        Counts beyond 0 or num_users do not exist; they get the variance at that edge.
        """
        shift = quantile**2 * (self._of_holder - self._of_other) / 2
        square = quantile**2 * self.at(start) + shift**2
        root = start + shift + math.copysign(math.sqrt(max(0.0, square)), quantile)
        if square >= 0 and 0 <= root <= self._num_users and (root - start) * quantile >= 0:
            return root
        lies_low = start < 0 or (quantile < 0 and start <= self._num_users)
        edge = 0 if lies_low else self._num_users
        return start + quantile * math.sqrt(self.at(edge))
