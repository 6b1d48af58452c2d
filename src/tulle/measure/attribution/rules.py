"""Attribution: which impressions may have a share in a conversion, and by which rule they share it.

Impressions of a conversion are ordered by time; the latest is the last. Where a rule needs
an order among impressions of one time, it is that of a hash, the same on every engine.
Credits of a conversion are >= 0 and add up to 1, or to 0 if it has no impression at all.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

from tulle.errors import ConfigError
from tulle.privacy.fields import check_count

MAX_LOOKBACK_SECONDS = 400 * 86_400
"""Longest lookback, a year and some: longer ones are mistaken units, such as milliseconds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastTouch:
    """All credit to the last impression."""

    name: ClassVar[str] = "last-touch"
    has_whole_credit: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class FirstTouch:
    """All credit to the first impression."""

    name: ClassVar[str] = "first-touch"
    has_whole_credit: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linear:
    """Equal credit to all impressions."""

    name: ClassVar[str] = "linear"
    has_whole_credit: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositionBased:
    """Fixed shares to the first and the last impression, the rest equally to those between.

    One impression gets all; of two, each gets its share of what first and last have together.
    """

    name: ClassVar[str] = "position"
    has_whole_credit: ClassVar[bool] = False
    first: float = 0.4
    last: float = 0.4

    def __post_init__(self) -> None:
        is_share = self.first >= 0 and self.last >= 0 and 0 < self.first + self.last <= 1
        if not is_share:
            raise ConfigError(
                f"first={self.first} and last={self.last} must be >= 0 and together in (0, 1], "
                "e.g. 0.4 and 0.4."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimeDecay:
    """Credit that halves with every `half_life_seconds` between impression and conversion."""

    name: ClassVar[str] = "time-decay"
    has_whole_credit: ClassVar[bool] = False
    half_life_seconds: float = 7 * 86_400.0

    def __post_init__(self) -> None:
        if not 0 < self.half_life_seconds < math.inf:
            raise ConfigError(
                f"half_life_seconds={self.half_life_seconds} must be > 0 and finite, e.g. 604800."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PriorityTouch:
    """All credit to the last of the most important impressions.

    Importance is that of the kind, in the order of `kinds` (others come after them), and
    among equal kinds the number in the log's priority column, if it has one.
    """

    name: ClassVar[str] = "priority"
    has_whole_credit: ClassVar[bool] = True
    kinds: tuple[str, ...] = ("click", "view")

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if len(set(self.kinds)) < len(self.kinds):
            raise ConfigError(f"kinds={list(self.kinds)} must be distinct.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LastN:
    """Credit to the last impressions in proportion to `weights`, the latest first.

    Where there are fewer impressions than weights, the weights that are used share all.
    """

    name: ClassVar[str] = "last-n"
    has_whole_credit: ClassVar[bool] = False
    weights: tuple[float, ...] = (2.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(float(weight) for weight in self.weights))
        if not self.weights or not all(0 < weight < math.inf for weight in self.weights):
            raise ConfigError(f"weights={list(self.weights)} must be > 0, e.g. [2, 1, 1].")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelWeights:
    """Credit in proportion to a weight of each impression's channel.

    A channel is a value of one column of the impressions (a publisher, a kind). Weights come
    from a model (`data_driven`). They must not follow from the log that is measured, unless
    they were released from it: then they are paid for.
    """

    name: ClassVar[str] = "channel-weights"
    has_whole_credit: ClassVar[bool] = False
    column: str
    weights: Mapping[str, float]
    """Weights by channel, > 0; channels that are not in it have `other_weight`."""
    other_weight: float = 1e-3

    def __post_init__(self) -> None:
        every = [*self.weights.values(), self.other_weight]
        if not self.weights or not all(0 < weight < math.inf for weight in every):
            raise ConfigError("weights of channels must be > 0 and finite; raise zeros a little.")


Rule = (
    LastTouch
    | FirstTouch
    | Linear
    | PositionBased
    | TimeDecay
    | PriorityTouch
    | LastN
    | ChannelWeights
)


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
    """Most matching impressions of a conversion that count, the last ones. None for all."""
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
