"""How many users hold each value, under any trust model, behind one interface; and by one party.

Every user holds one value and the number of users is public. What differs is who sees raw
values: one party (central), nobody (local), or nobody as long as a shuffler forgets who sent
what. All of them answer the same question under the same adjacency, so their errors compare.

The central model is here, which the others are compared with: one party counts exactly and adds
noise once. Its error does not grow with the number of users. A user who had held another
value moves two counts of a histogram by one, and one count by one.
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tulle.errors import ConfigError, DataError
from tulle.measure.expected_error import SharedNoise
from tulle.mechanisms.centred_noise import CentredNoise, check_confidence
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig, release_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.gaussian import GaussianConfig, release_gaussian
from tulle.mechanisms.noisy_reports import IntArray, check_held_values
from tulle.privacy.events import DiscreteLaplace, Event, Gaussian
from tulle.privacy.fields import Scalar, check_count, check_epsilon
from tulle.privacy.guarantee import Guarantee, Interval, Release
from tulle.privacy.plan import Assumption, Bound, ColumnRoles, Plan, Status
from tulle.privacy.units import Adjacency, Scope, TrustModel, Unit

MAX_USERS = 2**40
"""Most users that are counted, by far more than people: sums stay exact as 64-bit numbers."""


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
        check_epsilon(self.epsilon)
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
        """Conditions that the guarantee rests on."""
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
          confidence: Confidence of each interval, over the noise.

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdditiveCountsConfig(ValueCountsConfig):
    """Settings of counts with additive noise. Every field is public information."""

    @property
    def counts_per_user(self) -> int:
        """Counts that another value of one user changes: the only one, or two of a histogram."""
        return 1 if self.num_values == 2 else 2

    @property
    @abc.abstractmethod
    def total_noise(self) -> CentredNoise | SharedNoise:
        """The noise on one count, from all who add some."""

    def expected_stddev(self, frequency: float = 0.0) -> float:
        """Standard deviation of the noise on one count, the same for every frequency."""
        if not 0 <= frequency <= 1:
            raise ConfigError(f"frequency={frequency} must be in [0, 1].")
        return self.total_noise.noise_stddev

    def _release_checked(
        self, values: IntArray, rng: NoiseSource, confidence: float
    ) -> tuple[Release, ...]:
        noise_stddev, event = self.expected_stddev(), self.event()
        half_width = self.total_noise.half_width(confidence)
        return tuple(
            Release(
                value=count,
                noise_stddev=noise_stddev,
                interval=Interval(
                    low=count - half_width, high=count + half_width, confidence=confidence
                ),
                event=event,
            )
            for count in self._noisy_counts(values, rng)
        )

    @abc.abstractmethod
    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> Sequence[float]:
        """One for each of `released_values`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralLaplaceConfig(AdditiveCountsConfig):
    """Settings of central counts with discrete Laplace noise. Every field is public."""

    trust_model = TrustModel.CENTRAL
    mechanism = "One party counts raw values and adds discrete Laplace noise to every count."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.event()

    @property
    def total_noise(self) -> DiscreteLaplaceConfig:
        """The noise on each count."""
        return DiscreteLaplaceConfig.for_epsilon(
            self.epsilon,
            adjacency=Adjacency.REPLACE,
            replace_factor=self.counts_per_user,
        )

    def event(self) -> DiscreteLaplace:
        """What one release of all counts costs."""
        return self.total_noise.event()

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[int]:
        raw_counts = _released_counts(values, self)
        noisy_counts = release_discrete_laplace(raw_counts, self.total_noise, rng=rng)
        return [int(count) for count in noisy_counts]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CentralGaussianConfig(AdditiveCountsConfig):
    """Settings of central counts with Gaussian noise. Every field is public."""

    delta: float

    trust_model = TrustModel.CENTRAL
    mechanism = "One party counts raw values and adds Gaussian noise to every count."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_target_delta(self.delta)
        self.event()

    @property
    def target_delta(self) -> float:
        """The delta of the guarantee."""
        return self.delta

    @functools.cached_property
    def total_noise(self) -> GaussianConfig:
        """The noise on each count."""
        return GaussianConfig.for_epsilon(
            self.epsilon,
            self.delta,
            adjacency=Adjacency.REPLACE,
            replace_factor=math.sqrt(self.counts_per_user),
        )

    def event(self) -> Gaussian:
        """What one release of all counts costs."""
        return self.total_noise.event()

    def _noisy_counts(self, values: IntArray, rng: NoiseSource) -> list[float]:
        raw_counts = _released_counts(values, self)
        noisy_counts = release_gaussian(raw_counts, self.total_noise, rng=rng)
        return [float(count) for count in noisy_counts]


def plan_counts(
    config: ValueCountsConfig, *, name: str, value_column: str, user_column: str
) -> Plan:
    """Fixes trust model, event and guarantee before any value is read.

    Args:
      config: The mechanism with its settings.
      name: Name of the plan.
      value_column: What each user holds.
      user_column: Who holds it.
    """
    settings: dict[str, Scalar] = {
        field.name: getattr(config, field.name) for field in dataclasses.fields(config)
    }
    return Plan(
        name=name,
        mechanism=config.mechanism,
        settings=settings,
        event=config.event(),
        guarantee=config.guarantee,
        trust=config.trust_model,
        columns=ColumnRoles(label=None, sensitive=(value_column,), unit=user_column),
        bounds=(Bound(what="values per user", limit=1, where="one entry a user in release()"),),
        assumptions=config.assumptions,
    )


def _released_counts(values: IntArray, config: AdditiveCountsConfig) -> IntArray:
    raw_counts = np.bincount(values, minlength=config.num_values).astype(np.int64)
    return raw_counts[config.released_values.start :]
