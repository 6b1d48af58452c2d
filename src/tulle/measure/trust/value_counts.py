"""How many users hold each value, under any trust model, behind one interface.

Every user holds one value and the number of users is public. What differs is who sees raw
values: one party (central), nobody (local), or nobody as long as a shuffler forgets who sent
what. All of them answer the same question under the same adjacency, so their errors compare.
"""

import abc
import dataclasses
import math
from typing import ClassVar

from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.frequency import IntArray, check_held_values
from tulle.mechanisms.intervals import check_confidence
from tulle.privacy.conditions import Assumption, Status
from tulle.privacy.events import Event
from tulle.privacy.fields import check_count, check_finite
from tulle.privacy.guarantee import Guarantee
from tulle.privacy.release import Release
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit

MAX_USERS = 2**40


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValueCountsConfig(abc.ABC):
    """Settings of noisy counts of one value a user. Every field is public information."""

    epsilon: float
    num_users: int
    """How many users hold a value; public, the same for neighbouring data."""
    num_values: int = 2
    """Values that a user may hold. With two, one number is released: who holds value 1."""

    trust_model: ClassVar[TrustModel]
    mechanism: ClassVar[str]
    """What runs where, as one plain sentence."""

    def __post_init__(self) -> None:
        if check_finite("epsilon", self.epsilon) <= 0:
            raise ConfigError(f"epsilon={self.epsilon} must be > 0 and finite, e.g. 1.0.")
        check_count("num_values", self.num_values, least=2)
        if check_count("num_users", self.num_users) > MAX_USERS:
            raise ConfigError(f"num_users={self.num_users} must be at most 2^40.")

    @property
    def target_delta(self) -> float:
        """The delta of the guarantee; 0 for pure mechanisms."""
        return 0.0

    @property
    def released_values(self) -> range:
        """The values whose counts are released, in order."""
        return range(1, 2) if self.num_values == 2 else range(self.num_values)

    @property
    def guarantee(self) -> Guarantee:
        """What the release promises: one user may have held any other value."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=self.target_delta,
            unit=Unit.user(),
            adjacency=Adjacency.REPLACE,
            scope=Scope.SENSITIVE_COLUMNS,
        )

    @abc.abstractmethod
    def event(self) -> Event:
        """What one release of all counts costs."""

    @abc.abstractmethod
    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count.

        Args:
          frequency: Share of the users that hold the value; additive noise does not care.
        """

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """On what the guarantee rests."""
        return (
            Assumption(
                statement="the number of users is public and each user has one value",
                status=Status.CHECKED,
                evidence="release() refuses another number of values",
            ),
        )

    def release(
        self, raw_values: ArrayLike, *, rng: NoiseSource, confidence: float = 0.95
    ) -> tuple[Release, ...]:
        """Noisy counts with their intervals, one for each of `released_values`.

        Args:
          raw_values: What each user holds, from 0 to num_values - 1, one entry a user.
          rng: Source of the noise. Sensitive: never log or save its state.
          confidence: Of each interval, over the noise.

        Privacy:
          Unit: user, replace. Event: `event()`, for all counts together.
          Relies on: one entry a user, one release; whoever asks again pays again. In the local
          and the shuffle model this function stands for devices and shuffler: it must run there.
        """
        check_confidence(confidence)
        values = check_held_values(raw_values, self.num_values).reshape(-1)
        if values.size != self.num_users:
            raise DataError(
                f"raw_values has {values.size} entries, num_users={self.num_users}; the number "
                "of users is public and fixed beforehand. Give one value a user."
            )
        return self._release_checked(values, rng, confidence)

    @abc.abstractmethod
    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        """Releases values that are known to fit the settings."""


def check_target_delta(delta: float) -> None:
    """Refuses a delta that a mechanism which needs one cannot be fitted to."""
    if not (math.isfinite(delta) and 1e-20 <= delta < 1):
        raise ConfigError(f"delta={delta} must be in [1e-20, 1); choose e.g. 1e-9.")
