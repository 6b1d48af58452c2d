"""Which impressions may have a share in a conversion, and by which rule they share it."""

import dataclasses
from collections.abc import Mapping

from tulle.errors import ConfigError
from tulle.measure.attribution.rules import Rule
from tulle.privacy.fields import check_count

MAX_LOOKBACK_SECONDS = 400 * 86_400


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attribution:
    """Settings of attribution. Every field is public information.

    An impression matches a conversion of the same user (and advertiser, if the log has that
    column) if it is not later and at most the lookback before it: 0 <= age <= lookback.
    """

    rule: Rule
    lookback_seconds: int
    kind_lookback_seconds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Shorter lookbacks by kind, e.g. {"view": 86_400}; others have `lookback_seconds`."""
    max_touches: int | None = None
    """Only the last so many matching impressions of a conversion count. None for all."""
    max_conversions_per_user: int | None = None
    """Conversions of a user that are kept, chosen by keyed hash before attribution.

    For guarantees about one impression, where conversions stay as they are; a guarantee
    about users bounds them after attribution instead.
    """

    def __post_init__(self) -> None:
        lookbacks = {"lookback_seconds": self.lookback_seconds} | {
            f"kind_lookback_seconds[{kind!r}]": seconds
            for kind, seconds in self.kind_lookback_seconds.items()
        }
        for name, seconds in lookbacks.items():
            check_count(name, seconds)
            if seconds > MAX_LOOKBACK_SECONDS:
                raise ConfigError(f"{name}={seconds} must be at most 400 days; give seconds.")
            if seconds > self.lookback_seconds:
                raise ConfigError(
                    f"{name}={seconds} must be <= lookback_seconds={self.lookback_seconds}."
                )
        for name in ("max_touches", "max_conversions_per_user"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
