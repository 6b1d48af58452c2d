"""The shape of a synthetic log: what its columns look like and what drives its label.

The logit of a row's label is a constant, plus the trend of its time, plus one effect
for each feature's value. Features carry public or sensitive signal. Within each of the
two groups a feature's `signal` is its share of the group's variance.
"""

import dataclasses
import enum

from tulle.data.synth.zipf import ZipfLaw
from tulle.errors import ConfigError


class SynthKind(enum.Enum):
    """How a code becomes a value, and how its effect depends on it."""

    CATEGORY = "category"
    """A name; each frequent value has its own effect."""
    COUNT = "count"
    """The integer code - 1; the effect is a smooth curve of its logarithm."""


USER = "user"
"""What a feature names in `given_by` when each user has one value of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthFeature:
    """One column of features. Every field is public information."""

    name: str
    law: ZipfLaw
    signal: float = 1.0
    """Share of the variance of its group's part of the logit, relative to the others."""
    sensitive: bool = False
    kind: SynthKind = SynthKind.CATEGORY
    given_by: str | None = None
    """Column whose value fixes this one's (an ad's brand, a user's age), or None."""

    def __post_init__(self) -> None:
        if not self.signal >= 0:
            raise ConfigError(f"signal={self.signal} of {self.name!r} must be >= 0.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserLaw:
    """How rows spread over users; the number of users grows with the log."""

    users_per_row: float
    """Users there are to draw from, for each row of the log."""
    exponent: float
    shift: float
    """Added to a user's rank, as a share of the number of users."""

    def law(self, num_rows: int) -> ZipfLaw:
        """The users of a log of this length."""
        num_users = max(1, round(num_rows * self.users_per_row))
        return ZipfLaw(num_values=num_users, exponent=self.exponent, shift=self.shift * num_users)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeLaw:
    """Law of the times of rows, and of how the label's logit moves with time."""

    num_days: int
    first_second: int = 0
    """Timestamp of the first row."""
    daily_swing: float = 0.5
    """Volume goes from 1 - swing at night to 1 + swing in the day."""
    label_drift: float = 0.0
    """Change of the logit from the first day to the last."""
    weekly_swing: float = 0.0
    """Amplitude of the logit over a week."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_days <= 3650:
            raise ConfigError(f"num_days={self.num_days} must be between 1 and 3650.")
        if not 0 <= self.daily_swing < 1:
            raise ConfigError(f"daily_swing={self.daily_swing} must be >= 0 and < 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthShape:
    """Everything that fixes a synthetic log but its length and its seed."""

    name: str
    features: tuple[SynthFeature, ...]
    label_rate: float
    public_stddev: float
    """Standard deviation of the logit's part from public features."""
    sensitive_stddev: float
    """Standard deviation of the logit's part from sensitive features."""
    time: TimeLaw
    users: UserLaw | None = None
    typical_rows: int = 1_000_000
    """Length of the public log of this shape."""

    def __post_init__(self) -> None:
        if not 0 < self.label_rate < 1:
            raise ConfigError(f"label_rate={self.label_rate} must be between 0 and 1.")
        for field in ("public_stddev", "sensitive_stddev"):
            if not 0 <= getattr(self, field) <= 8:
                raise ConfigError(f"{field}={getattr(self, field)} must be between 0 and 8.")
        known = {USER} if self.users else set()
        for feature in self.features:
            if feature.name in known:
                raise ConfigError(f"feature {feature.name!r} occurs twice; rename one.")
            if feature.given_by is not None and feature.given_by not in known:
                raise ConfigError(
                    f"given_by={feature.given_by!r} of {feature.name!r} must be an earlier "
                    f"feature{' or ' + repr(USER) if self.users else ''}."
                )
            known.add(feature.name)
        self._check_tied_roles()

    def _check_tied_roles(self) -> None:
        sensitive = {feature.name: feature.sensitive for feature in self.features}
        for feature in self.features:
            if sensitive.get(feature.given_by or "", feature.sensitive) != feature.sensitive:
                raise ConfigError(
                    f"sensitive={feature.sensitive} of {feature.name!r} must be as that of "
                    f"{feature.given_by!r}, which gives its value."
                )

    def group(self, *, sensitive: bool) -> tuple[SynthFeature, ...]:
        """The sensitive or the public features."""
        return tuple(f for f in self.features if f.sensitive == sensitive)

    def stddev_of(self, feature: SynthFeature) -> float:
        """Standard deviation that one feature's effect has over the rows."""
        group = self.group(sensitive=feature.sensitive)
        total = sum(f.signal for f in group)
        stddev = self.sensitive_stddev if feature.sensitive else self.public_stddev
        return stddev * (feature.signal / total) ** 0.5 if total > 0 else 0.0
