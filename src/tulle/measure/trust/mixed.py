"""Mixed counts, many messages a user: central accuracy without a central party.

Each count is a split-and-mix sum of zeros and ones, one instance for each value of a histogram.
The users' shares of noise add up to the discrete Laplace noise that a trusted party would have
added. A user who had held another value changes two of the sums.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tulle.measure.trust.laplace_sums import laplace_sum_half_width
from tulle.measure.trust.value_counts import (
    ValueCountsConfig,
    check_frequency,
    check_target_delta,
)
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray
from tulle.mechanisms.split_and_mix import (
    SplitAndMixConfig,
    decode_sum,
    encode_values,
    shuffle_messages,
)
from tulle.privacy.conditions import Assumption, Status
from tulle.privacy.events import Composed, Repeated
from tulle.privacy.release import Interval, Release
from tulle.privacy.units import TrustModel


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixedCountsConfig(ValueCountsConfig):
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

    @property
    def sums_per_user(self) -> int:
        """Sums that another value of one user changes: the count, or two of a histogram."""
        return 1 if self.num_values == 2 else 2

    @functools.cached_property
    def instance(self) -> SplitAndMixConfig:
        """One sum of zeros and ones."""
        return SplitAndMixConfig(
            epsilon=self.epsilon / self.sums_per_user,
            max_value=1,
            num_users=self.num_users,
            min_honest_users=self.min_honest_users,
            security_delta=self.delta / self.sums_per_user,
        )

    @property
    def messages_per_user(self) -> int:
        """Messages that each user sends over all sums."""
        return len(self.released_values) * self.instance.messages_per_user

    def event(self) -> Composed | Repeated:
        """What the mixed messages of all sums cost."""
        once = self.instance.event()
        return once if self.sums_per_user == 1 else Repeated(event=once, count=self.sums_per_user)

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count, the same for every frequency."""
        check_frequency(frequency)
        return self.instance.noise_stddev

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """On what the guarantee rests."""
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

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        shape = self.num_users / self.min_honest_users
        half_width = laplace_sum_half_width(self.instance.noise_scale, shape, confidence)
        noisy_counts = [self._noisy_count(values == value, rng) for value in self.released_values]
        return tuple(
            Release(
                value=count,
                noise_stddev=self.expected_stddev(),
                interval=Interval(
                    low=count - half_width, high=count + half_width, confidence=confidence
                ),
                event=self.event(),
            )
            for count in noisy_counts
        )

    def _noisy_count(self, is_held: NDArray[np.bool_], rng: NoiseSource) -> int:
        messages = encode_values(is_held, self.instance, rng=rng)
        return decode_sum(shuffle_messages(messages), self.instance)
