"""The credit of one conversion, worked out in plain Python.

Slow and obviously right: what every engine is held against, and how one conversion is
explained to a reader. Engines follow the same order of impressions: by time, the oldest
first, and by a hash where times are equal.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from tulle.errors import DataError
from tulle.measure.attribution.rules import (
    Attribution,
    ChannelWeights,
    FirstTouch,
    LastN,
    LastTouch,
    Linear,
    PositionBased,
    PriorityTouch,
    Rule,
    TimeDecay,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Touch:
    """One impression as a conversion sees it. Sensitive."""

    age_seconds: float
    """Time from the impression to the conversion; negative if the impression is later."""
    kind: str | None = None
    priority: float = 0.0
    channel: str | None = None
    """Its value of the column that `ChannelWeights` names."""


def credit_by_rule(rule: Rule, touches: Sequence[Touch]) -> list[float]:
    """The credit of each impression of one conversion, all of which match it.

    Args:
      rule: How the credit is shared.
      touches: In the order of time, the oldest first.

    Privacy:
      None: exact credit of one person's conversion. Not to be published.
    """
    _check_order(touches)
    if not touches:
        return []
    shares = _shares(rule, touches)
    total = sum(shares)
    return [share / total for share in shares]


def credits_of_conversion(attribution: Attribution, touches: Sequence[Touch]) -> list[float]:
    """The credit of each impression of one user (and advertiser), 0 if it does not match.

    Args:
      attribution: Lookbacks, the most impressions that share, and the rule.
      touches: In the order of time, the oldest first; ages may be negative.

    Privacy:
      As `credit_by_rule`.
    """
    _check_order(touches)
    places = [place for place, touch in enumerate(touches) if _matches(attribution, touch)]
    if attribution.max_touches is not None:
        places = places[-attribution.max_touches :]
    matching = [touches[place] for place in places]
    credit_at = dict(zip(places, credit_by_rule(attribution.rule, matching), strict=True))
    return [credit_at.get(place, 0.0) for place in range(len(touches))]


def _matches(attribution: Attribution, touch: Touch) -> bool:
    lookback = attribution.lookback_seconds
    if touch.kind is not None:
        lookback = attribution.kind_lookback_seconds.get(touch.kind, lookback)
    return 0 <= touch.age_seconds <= lookback


def _shares(rule: Rule, touches: Sequence[Touch]) -> list[float]:
    """Shares >= 0 of at least one impression, not all of them 0; they need not add up to 1."""
    num_touches = len(touches)
    match rule:
        case LastTouch():
            return _all_to(num_touches - 1, num_touches)
        case FirstTouch():
            return _all_to(0, num_touches)
        case PriorityTouch():
            return _all_to(_most_important(rule, touches), num_touches)
        case Linear():
            return [1.0] * num_touches
        case PositionBased():
            return _position_shares(rule, num_touches)
        case TimeDecay():
            # From the youngest on, so that not all shares round to 0.
            youngest = touches[-1].age_seconds
            ages = [touch.age_seconds - youngest for touch in touches]
            return [2.0 ** (-age / rule.half_life_seconds) for age in ages]
        case LastN():
            used = rule.weights[:num_touches][::-1]
            return [0.0] * (num_touches - len(used)) + list(used)
        case ChannelWeights():
            return [_channel_weight(rule, touch) for touch in touches]


def _all_to(place: int, num_touches: int) -> list[float]:
    return [float(other == place) for other in range(num_touches)]


def _most_important(rule: PriorityTouch, touches: Sequence[Touch]) -> int:
    def importance(place: int) -> tuple[int, float, int]:
        touch = touches[place]
        is_listed = touch.kind in rule.kinds
        rank = rule.kinds.index(touch.kind or "") if is_listed else len(rule.kinds)
        return -rank, touch.priority, place

    return max(range(len(touches)), key=importance)


def _channel_weight(rule: ChannelWeights, touch: Touch) -> float:
    if touch.channel is None:
        return rule.other_weight
    return rule.weights.get(touch.channel, rule.other_weight)


def _position_shares(rule: PositionBased, num_touches: int) -> list[float]:
    if num_touches == 1:
        return [1.0]
    if num_touches == 2:
        return [rule.first, rule.last]
    between = (1 - rule.first - rule.last) / (num_touches - 2)
    return [rule.first, *[between] * (num_touches - 2), rule.last]


def _check_order(touches: Sequence[Touch]) -> None:
    ages = [touch.age_seconds for touch in touches]
    if any(older < younger for older, younger in itertools.pairwise(ages)):
        raise DataError("touches must be in the order of time, the oldest first; sort them by age.")
