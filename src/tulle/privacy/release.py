"""A number that leaves tulle, with its noise, its interval and its cost."""

import dataclasses

from tulle.errors import ConfigError
from tulle.privacy.events import Event
from tulle.privacy.fields import check_prob


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A range that contains the raw number with the stated confidence."""

    low: float
    high: float
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ConfigError(f"interval low={self.low} must be <= high={self.high}.")
        check_prob("confidence", self.confidence, example=0.95)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """One noisy number. The confidence is over the noise only, not over sampling of people."""

    value: float
    noise_stddev: float
    interval: Interval
    event: Event
    """What this number cost; numbers of one joint release share one event."""

    def __post_init__(self) -> None:
        if not self.noise_stddev > 0:
            raise ConfigError(
                f"noise_stddev={self.noise_stddev} must be > 0; "
                "a number without noise is not a Release."
            )

    def __str__(self) -> str:
        low, high = self.interval.low, self.interval.high
        return (
            f"{self.value:g} (noise stddev {self.noise_stddev:.4g}, "
            f"{self.interval.confidence:.0%} interval {low:.6g} to {high:.6g})"
        )
