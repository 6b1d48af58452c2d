"""Mixed counts, many messages a user: central accuracy without a central party.

Each count is a split-and-mix sum of zeros and ones, one instance for each value of a histogram.
The users' shares of noise add up to the discrete Laplace noise that a trusted party would have
added. A user who had held another value changes two of the sums.
"""

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from tulle.measure.noise_sums import SharedNoise
from tulle.measure.trust.additive_counts import AdditiveCountsConfig
from tulle.measure.trust.value_counts import check_target_delta
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
from tulle.privacy.units import TrustModel


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

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[int]:
        return [self._noisy_count(values == value, rng) for value in self.released_values]

    def _noisy_count(self, is_held: NDArray[np.bool_], rng: NoiseSource) -> int:
        messages = encode_values(is_held, self.instance, rng=rng)
        return decode_sum(shuffle_messages(messages), self.instance)
