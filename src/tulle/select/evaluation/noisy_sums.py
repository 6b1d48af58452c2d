"""From two noisy sums to an estimate with its interval.

The spread of the estimate is private like its value. It comes from the noisy sum of users'
squared totals T: the variance of a sum of independent users is at most

    sum of E[T^2] - (sum of E[T])^2 / number of users     (Cauchy and Schwarz),

so a user's decisions may depend on one another. Both sums are moved by what their noise may be,
to the side that widens the interval.
"""

import dataclasses
import math

from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.intervals import normal_quantile
from tulle.privacy.events import Composed
from tulle.privacy.release import Interval, Release
from tulle.select.evaluation.device_terms import TermRange
from tulle.select.evaluation.term_grid import square_step, term_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisySums:
    """What left the devices. All that follows is post-processing."""

    noisy_sum: int
    """Of the terms, in steps."""
    noisy_squares: int
    """Of users' squared totals, in steps."""
    sum_noise: DiscreteLaplaceConfig
    square_noise: DiscreteLaplaceConfig
    num_decisions: int
    num_users: int
    max_decisions_per_user: int
    limits: TermRange

    def estimate(self, confidence: float) -> Release:
        """The mean term, with an interval over the noise and the rounding to steps."""
        step = term_step(self.limits)
        value = self.limits.low + step * self.noisy_sum / self.num_decisions
        half_width = self._noise_half_width(confidence)
        return Release(
            value=value,
            noise_stddev=step * self.sum_noise.noise_stddev / self.num_decisions,
            interval=Interval(
                low=value - half_width, high=value + half_width, confidence=confidence
            ),
            event=Composed((self.sum_noise.event(), self.square_noise.event())),
        )

    def sampling_stddev(self, confidence: float) -> float:
        """What the standard deviation by draws, clicks and users is not above."""
        miss = (1 - confidence) / 4
        # One-sided: noise that makes the squares too small.
        square_error = self.square_noise.half_width(1 - 2 * miss)
        squares = (self.noisy_squares + square_error) * square_step(
            self.limits, self.max_decisions_per_user
        )
        mean_error = self._noise_half_width(1 - miss)
        least_mean = max(abs(self.estimate(confidence).value) - mean_error, 0.0)
        least_square = (least_mean * self.num_decisions) ** 2 / self.num_users
        return math.sqrt(max(squares - least_square, 0.0)) / self.num_decisions

    def interval(self, confidence: float) -> Interval:
        """Over noise and sampling: a quarter of the misses for each noise, half for sampling."""
        miss = 1 - confidence
        value = self.estimate(confidence).value
        half_width = self._noise_half_width(1 - miss / 4) + normal_quantile(
            1 - miss / 2
        ) * self.sampling_stddev(confidence)
        return Interval(low=value - half_width, high=value + half_width, confidence=confidence)

    def _noise_half_width(self, confidence: float) -> float:
        step = term_step(self.limits)
        return step * (self.sum_noise.half_width(confidence) / self.num_decisions + 0.5)
