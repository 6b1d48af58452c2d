"""Shuffled counts, one message a user: randomized response that hides in the crowd.

A shuffler forgets who sent which report. What is left is their multiset, and one report in it is
hidden by all others. So each device may report with far less noise than epsilon would ask of it
alone: `local_epsilon` is the largest for which the shuffled reports meet (epsilon, delta).
"""

import dataclasses
import functools
import math

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.shuffle_blanket import blanket_delta
from tulle.errors import ConfigError
from tulle.measure.trust.response_counts import response_releases
from tulle.measure.trust.value_counts import ValueCountsConfig, check_target_delta
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray, count_reports, variance_per_report
from tulle.mechanisms.randomized_response import RandomizedResponseConfig, randomize
from tulle.privacy.conditions import Assumption, Status
from tulle.privacy.events import RandomizedResponse, Shuffled
from tulle.privacy.fields import check_count
from tulle.privacy.release import Release
from tulle.privacy.units import Adjacency, TrustModel

_PRECISION = 1e-6
_STEP_BACK = 1e-4
"""Relative step towards more noise, for what interpolation adds to the profile."""
_MAX_LOCAL_EPSILON = 40.0
"""Above it the sampler's 64-bit words, and not epsilon, set how often a report lies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledResponseConfig(ValueCountsConfig):
    """Settings of shuffled randomized response. Every field is public information."""

    delta: float
    min_honest_users: int
    """How many users must report by the protocol and keep their report to themselves; only
    their reports hide one another. Fewer cost accuracy."""

    trust_model = TrustModel.SHUFFLE
    mechanism = "Every device reports by randomized response, and a shuffler mixes the reports."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target_delta(self.delta)
        if check_count("min_honest_users", self.min_honest_users) > self.num_users:
            raise ConfigError(
                f"min_honest_users={self.min_honest_users} must be at most "
                f"num_users={self.num_users}; nobody hides among users who do not report."
            )

    @property
    def target_delta(self) -> float:
        """The delta of the guarantee."""
        return self.delta

    @property
    def local_epsilon(self) -> float:
        """Protection of one report before the shuffle; at least epsilon."""
        return largest_local_epsilon(
            self.epsilon, self.delta, num_reports=self.min_honest_users, num_values=self.num_values
        )

    @functools.cached_property
    def randomizer(self) -> RandomizedResponseConfig:
        """What runs on each device."""
        return RandomizedResponseConfig(epsilon=self.local_epsilon, num_values=self.num_values)

    def event(self) -> Shuffled:
        """What the mixed reports cost."""
        return _shuffled(self.local_epsilon, self.min_honest_users, self.num_values)

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on the count of a value of this frequency."""
        variance = variance_per_report(self.randomizer, frequency=frequency)
        return math.sqrt(self.num_users * variance)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """On what the guarantee rests."""
        return (
            *super().assumptions,
            Assumption(
                statement="a shuffler hides order, timing and origin of the reports",
                status=Status.ASSUMED,
            ),
            Assumption(
                statement=f"{self.min_honest_users} users report by the protocol and keep their "
                "reports to themselves",
                status=Status.ASSUMED,
            ),
        )

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        randomizer = self.randomizer
        # Counts forget the order of reports as a shuffler does.
        report_counts = count_reports(randomize(values, randomizer, rng=rng), randomizer)
        return response_releases(
            report_counts,
            randomizer,
            num_users=self.num_users,
            values=self.released_values,
            event=self.event(),
            confidence=confidence,
        )


@functools.lru_cache(maxsize=256)
def largest_local_epsilon(
    epsilon: float, delta: float, *, num_reports: int, num_values: int = 2
) -> float:
    """The largest epsilon of one report at which the shuffled reports are (epsilon, delta)-private.

    Args:
      epsilon: Of the shuffled reports; the answer is never below it.
      delta: Of the shuffled reports.
      num_reports: Reports of honest users that are shuffled together.
      num_values: Values that a report can have.
    """

    def is_bounded(local_epsilon: float) -> bool:
        proved_delta: float = blanket_delta(
            epsilon, local_epsilon=local_epsilon, num_values=num_values, num_reports=num_reports
        )
        return proved_delta <= delta

    def certified(local_epsilon: float) -> float:
        return pld_epsilon(
            _shuffled(local_epsilon, num_reports, num_values), delta, Adjacency.REPLACE
        )

    met, missed = epsilon, max(epsilon, _MAX_LOCAL_EPSILON)
    if is_bounded(missed):
        met = missed
    while missed - met > _PRECISION * missed:
        middle = (met + missed) / 2
        met, missed = (middle, missed) if is_bounded(middle) else (met, middle)
    # One point of the profile is fast; what is certified is the whole of it.
    met = max(epsilon, met * (1 - _STEP_BACK))
    while met > epsilon and certified(met) > epsilon:
        met = max(epsilon, met * (1 - _STEP_BACK))
    return met


def _shuffled(local_epsilon: float, num_reports: int, num_values: int) -> Shuffled:
    report = RandomizedResponse(epsilon=local_epsilon, num_values=num_values)
    return Shuffled(event=report, num_reports=num_reports)
