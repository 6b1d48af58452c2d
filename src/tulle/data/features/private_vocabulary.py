"""Which values of sensitive columns are frequent, by noisy counts.

Rows are counted, not units: a unit with R rows in C columns adds up to R to one
count in each column, so its L2 contribution is R sqrt(C) and its L1 C R. (It
would be sqrt(C R) only if all its rows had different values.) All columns are
one joint release.

Where the values are public and only their counts are not, every known value
gets noise. So does every bucket that private quantiles are found by (`number_bins`): buckets are
fixed, and in each column a row is in one of them. Where the values are not public, a value that
one unit alone has must not show: such a unit has at most C R values, each with at most R rows, and
the threshold is so high that noise lifts any of them over it with probability at most delta. The
argument for the events is that of `mechanisms.key_thresholds`, with R for 1.
"""

import dataclasses
import math
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tulle.data.features.feature_plan import FeaturePlan
from tulle.errors import ConfigError
from tulle.mechanisms.discrete_laplace import sample_discrete_laplace
from tulle.mechanisms.entropy import NoiseSource
from tulle.mechanisms.exact import check_scale
from tulle.mechanisms.gaussian import sample_rounded_normal
from tulle.mechanisms.key_thresholds import GaussianKeyThresholdConfig, LaplaceKeyThresholdConfig
from tulle.privacy.events import Composed, DiscreteLaplace, EpsilonDelta, Event, Gaussian
from tulle.privacy.fields import check_count, check_epsilon
from tulle.privacy.units import Owner, Unit


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateVocabularyConfig:
    """Noise on the counts of sensitive values. Every field is public information."""

    unit: Unit
    """Unit of privacy, whose rows are protected together."""
    noise_multiplier: float | None = None
    """Gaussian noise: its standard deviation over the L2 contribution of one unit."""
    epsilon: float | None = None
    """Discrete Laplace noise: what all counts of one unit cost together under add-or-remove;
    twice that under replace. Give this or noise_multiplier."""
    delta: float = 0.0
    """Probability that a value which one unit alone has is kept, over all its values. What the
    noise costs comes on top. Needed unless the values are known, which is said of a plan with
    private quantiles alone by known_values={}."""
    max_rows_per_unit: int = 1
    """Most rows of one unit. The rows must have been bounded before they are counted."""
    known_values: Mapping[str, tuple[str, ...]] | None = None
    """Values that everybody knows to exist, for each sensitive vocabulary column; others
    are not counted. None: which values exist is protected too."""
    at: datetime | None = None
    """Time that the data are from; needed where a charged budget renews."""
    until: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise ConfigError(f"unit={self.unit!r} must be a Unit, e.g. Unit.example().")
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise ConfigError(
                f"noise_multiplier={self.noise_multiplier} and epsilon={self.epsilon}: give "
                "exactly one, the first for Gaussian and the second for discrete Laplace noise."
            )
        # That a rare value exists at all betrays its only owner; no noise on counts can hide that.
        if (self.known_values is None) == (self.delta == 0):
            raise ConfigError(
                f"delta={self.delta} must be > 0 without known_values, because a value can betray "
                "the only unit that has it, and 0 with them. Choose e.g. delta=1e-7."
            )
        if self.unit.owner is Owner.EXAMPLE and self.max_rows_per_unit != 1:
            raise ConfigError(
                f"max_rows_per_unit={self.max_rows_per_unit} must be 1 for unit 'example', "
                "which is one row; choose another unit, e.g. Unit.user()."
            )
        if self.known_values is not None:
            for column, values in self.known_values.items():
                if isinstance(values, str) or not all(isinstance(value, str) for value in values):
                    raise ConfigError(
                        f"known_values of column {column!r} must be a tuple of texts, "
                        "e.g. ('phone', 'tablet')."
                    )
            known = {column: tuple(values) for column, values in self.known_values.items()}
            object.__setattr__(self, "known_values", MappingProxyType(known))
        self.noise(1)

    def noise(self, num_columns: int) -> "RowCountNoise":
        """The noise on the counts of that many columns."""
        return RowCountNoise(
            noise_multiplier=self.noise_multiplier,
            epsilon=self.epsilon,
            delta=self.delta,
            num_columns=num_columns,
            max_rows_per_unit=self.max_rows_per_unit,
        )

    def event(self, plan: FeaturePlan) -> Event:
        """What the vocabularies of a plan cost."""
        return self.noise(_num_columns(plan)).event()

    def thresholds(self, plan: FeaturePlan) -> dict[str, int]:
        """Least noisy count with which a value is kept, by sensitive vocabulary column."""
        features = plan.vocabularies("sensitive")
        if self.known_values is not None:
            return {feature.column: feature.min_count for feature in features}
        # A user's own min_count may raise the threshold, never lower it: delta rests on it.
        least = self.noise(_num_columns(plan)).threshold
        return {feature.column: max(least, feature.min_count) for feature in features}

    def check_plan(self, plan: FeaturePlan) -> None:
        """Refuses a plan to which these settings do not belong."""
        if self.unit.owner is not Owner.EXAMPLE and plan.schema.unit is None:
            raise ConfigError(
                f"unit='{self.unit}' needs a unit column, and the schema has unit=None: without "
                "one nobody can bound the rows of a unit. Name it, or use Unit.example()."
            )
        if self.known_values is None:
            return
        columns = {feature.column for feature in plan.vocabularies("sensitive")}
        if columns != self.known_values.keys():
            wrong = sorted(columns ^ self.known_values.keys())[0]
            side = "lacks" if wrong in columns else "names"
            raise ConfigError(
                f"known_values {side} column {wrong!r}; give the values of each sensitive "
                "vocabulary column and of no other, or known_values=None."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowCountNoise:
    """Noise on rows per value in several columns at once, and its threshold."""

    noise_multiplier: float | None
    epsilon: float | None
    delta: float
    num_columns: int
    max_rows_per_unit: int

    def __post_init__(self) -> None:
        check_count("num_columns", self.num_columns)
        check_count("max_rows_per_unit", self.max_rows_per_unit)
        if self.epsilon is not None:
            check_epsilon(self.epsilon)
        self._noise_event()
        check_scale("noise on each count", self.noise_scale)
        if self.delta != 0:
            self._key_thresholds()

    @property
    def noise_scale(self) -> float:
        """Scale of Laplace or standard deviation of Gaussian noise on each count, rounded up."""
        if self.epsilon is not None:
            return math.nextafter(self._max_values / self.epsilon, math.inf)
        return (
            self._gaussian_multiplier
            * self.max_rows_per_unit
            * math.sqrt(self.num_columns)
            * (1 + 2.0**-50)
        )

    @property
    def noise_stddev(self) -> float:
        """Standard deviation of the noise on each count, about."""
        return self.noise_scale * (1.0 if self.epsilon is None else math.sqrt(2))

    @property
    def threshold(self) -> int:
        """Least noisy count with which a value that is not public may be kept."""
        # The threshold for counts of units, raised from a lone count of 1 to one of R.
        return self._key_thresholds().threshold + self.max_rows_per_unit - 1

    def sample_noise(self, num_keys: int, *, rng: NoiseSource) -> NDArray[np.int64]:
        """Noise for each value."""
        if self.epsilon is not None:
            return sample_discrete_laplace(self.noise_scale, num_keys, rng=rng)
        return sample_rounded_normal(self.noise_scale, num_keys, rng=rng)

    def event(self) -> Composed:
        """What one release costs."""
        noise = self._noise_event()
        if self.delta == 0:
            return Composed((noise,))
        return Composed((noise, EpsilonDelta(epsilon=0.0, delta=self.delta)))

    @property
    def _max_values(self) -> int:
        return self.num_columns * self.max_rows_per_unit

    @property
    def _gaussian_multiplier(self) -> float:
        if self.noise_multiplier is None:
            raise ConfigError("noise_multiplier=None: this noise is discrete Laplace.")
        return self.noise_multiplier

    def _noise_event(self) -> Event:
        if self.epsilon is not None:
            return DiscreteLaplace(scale=self.noise_scale, max_contribution=self._max_values)
        # Counts are not negative: replacing a unit moves them by sqrt(2) as much in L2.
        return Gaussian(noise_multiplier=self._gaussian_multiplier, replace_factor=math.sqrt(2))

    def _key_thresholds(self) -> LaplaceKeyThresholdConfig | GaussianKeyThresholdConfig:
        """Settings with the same noise, for C R values that a unit is counted in once each."""
        if self.epsilon is not None:
            return LaplaceKeyThresholdConfig(
                epsilon=self.epsilon, delta=self.delta, max_keys_per_unit=self._max_values
            )
        return GaussianKeyThresholdConfig(
            # There the noise is the multiplier times this root, so it comes out as drawn here.
            noise_multiplier=self.noise_scale / math.sqrt(self._max_values),
            delta=self.delta,
            max_keys_per_unit=self._max_values,
        )


def _num_columns(plan: FeaturePlan) -> int:
    num_columns = len(plan.paid_columns())
    if num_columns == 0:
        raise ConfigError(
            "the plan has no vocabulary and no private quantiles of a sensitive column; nothing "
            "is counted privately, so pass private=None."
        )
    return num_columns
