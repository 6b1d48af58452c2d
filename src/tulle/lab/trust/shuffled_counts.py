"""Shuffled counts: a shuffler forgets who sent which message, and no party sees a raw value.

One message a user: randomized response that hides in the crowd. What the shuffler leaves is the
multiset of reports, and one report in it is hidden by all others. So each device may report with
far less noise than epsilon would ask of it alone: `local_epsilon` is the largest for which the
shuffled reports meet (epsilon, delta).

Many messages a user: central accuracy without a central party. Each count is a split-and-mix sum
of zeros and ones, one instance for each value of a histogram. The users' shares of noise add up to
the discrete Laplace noise that a trusted party would have added. A user who had held another value
changes two of the sums.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tulle.accounting.accountant import pld_epsilon
from tulle.accounting.shuffling import profile_delta, response_blanket
from tulle.errors import ConfigError
from tulle.lab.trust.central_counts import (
    AdditiveCountsConfig,
    ValueCountsConfig,
    check_target_delta,
)
from tulle.lab.trust.local_counts import ReportedCountsConfig
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.noisy_reports import IntArray
from tulle.mechanisms.randomized_response import (
    RandomizedResponseConfig,
    release_randomized_response,
)
from tulle.mechanisms.split_and_mix import (
    SplitAndMixConfig,
    decode_sum,
    encode_values,
    shuffle_messages,
)
from tulle.privacy.events import Composed, RandomizedResponse, Repeated, Shuffled
from tulle.privacy.fields import check_count
from tulle.privacy.plan import Assumption, Status
from tulle.privacy.units import Adjacency, TrustModel

_PRECISION = 1e-6
"""Relative precision of the local epsilon that bisection finds."""
_STEP_BACK = 1e-4
"""Relative step towards more noise, for what interpolation adds to the profile."""
_MAX_LOCAL_EPSILON = 40.0
"""Largest epsilon of a report; above it the sampler's 64-bit words set how often a report lies."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShuffledResponseConfig(ReportedCountsConfig):
    """Settings of shuffled randomized response. Every field is public information."""

    delta: float
    min_honest_users: int
    """How many users must report by the protocol and keep their report to themselves; only
    their reports hide one another. Fewer cost accuracy."""

    trust_model = TrustModel.SHUFFLE
    mechanism = "Every device reports by randomized response, and a shuffler mixes the reports."
    # Counts forget the order of reports as a shuffler does.
    _randomize = staticmethod(release_randomized_response)

    def __post_init__(self) -> None:
        # Not that of reports: their event follows from a search, which needs checked settings.
        ValueCountsConfig.__post_init__(self)
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

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions that the guarantee rests on."""
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


@functools.lru_cache(maxsize=256)
def largest_local_epsilon(
    epsilon: float, delta: float, *, num_reports: int, num_values: int = 2
) -> float:
    """The largest epsilon of one report at which the shuffled reports are (epsilon, delta)-private.

    Args:
      epsilon: Epsilon of the shuffled reports; the answer is never below it.
      delta: Delta of the shuffled reports.
      num_reports: Reports of honest users that are shuffled together.
      num_values: Values that a report can have.
    """

    def is_bounded(local_epsilon: float) -> bool:
        return (
            profile_delta(response_blanket(local_epsilon, num_values, num_reports), epsilon)
            <= delta
        )

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixedCountsConfig(AdditiveCountsConfig):
    """Settings of split-and-mix counts. Every field is public information."""

    delta: float
    """What the messages may tell beyond their noisy sums."""
    min_honest_users: int
    """How many users must follow the protocol; their noise alone suffices. Fewer cost accuracy:
    the variance is num_users / min_honest_users times that of a trusted party."""

    trust_model = TrustModel.SHUFFLE
    mechanism = (
        "Every device splits its noised value into random messages, and a shuffler mixes them."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target_delta(self.delta)
        self.event()

    @property
    def target_delta(self) -> float:
        """The delta of the guarantee."""
        return self.delta

    @functools.cached_property
    def instance(self) -> SplitAndMixConfig:
        """One sum of zeros and ones."""
        return SplitAndMixConfig(
            epsilon=self.epsilon / self.counts_per_user,
            max_value=1,
            num_users=self.num_users,
            min_honest_users=self.min_honest_users,
            security_delta=self.delta / self.counts_per_user,
        )

    @property
    def total_noise(self) -> SharedNoise:
        """The noise of all users on one count."""
        return SharedNoise(
            scale=self.instance.noise_scale, shape=self.num_users / self.min_honest_users
        )

    @property
    def messages_per_user(self) -> int:
        """Messages that each user sends over all sums."""
        return len(self.released_values) * self.instance.messages_per_user

    def event(self) -> Composed | Repeated:
        """What the mixed messages of all sums cost."""
        once, count = self.instance.event(), self.counts_per_user
        return once if count == 1 else Repeated(event=once, count=count)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Conditions that the guarantee rests on."""
        return (
            *super().assumptions,
            Assumption(
                statement="a shuffler hides order, timing and origin of the messages of each sum",
                status=Status.ASSUMED,
            ),
            Assumption(
                statement=f"{self.min_honest_users} users follow the protocol and keep their "
                "messages to themselves",
                status=Status.ASSUMED,
            ),
        )

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[int]:
        return [self._noisy_count(values == value, rng) for value in self.released_values]

    def _noisy_count(self, is_held: NDArray[np.bool_], rng: NoiseSource) -> int:
        messages = encode_values(is_held, self.instance, rng=rng)
        return decode_sum(shuffle_messages(messages), self.instance)


def _shuffled(local_epsilon: float, num_reports: int, num_values: int) -> Shuffled:
    report = RandomizedResponse(epsilon=local_epsilon, num_values=num_values)
    return Shuffled(event=report, num_reports=num_reports)
