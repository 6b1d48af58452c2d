"""How far one impression can move the credit of one conversion, by rule.

A conversion's credit is a vector over slices. The factor is the largest L1 distance
between the vectors with and without one impression. Slices that fall together only bring
them closer, so each impression may be taken as a slice of its own.

Where both vectors add up to 1, the distance is twice what the winners gain, and so is
at most 2. The first impression of a conversion brings 1, or moves 1 out of the slice of
conversions without impression, which is 2.
"""

from tulle.measure.attribution.rules import (
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

MOST = 2.0
"""The largest distance of two credit vectors."""


def impression_factor(
    rule: Rule,
    *,
    counts_unattributed: bool,
    max_touches: int | None,
    lookback_seconds: int | None = None,
) -> float:
    """The largest L1 change of one conversion's credit by adding or removing one impression.

    Args:
      rule: How credit is shared.
      counts_unattributed: Whether conversions without impression are a slice.
      max_touches: Only the last so many impressions share; None for all.
      lookback_seconds: The oldest that an impression may be; None for any age.
    """
    if counts_unattributed or max_touches == 1:
        # With one impression a conversion every rule is last touch.
        return MOST
    return max(1.0, _factor_of_several(rule, max_touches, lookback_seconds))


def _factor_of_several(rule: Rule, max_touches: int | None, lookback_seconds: int | None) -> float:
    """The factor where there is an impression before and after, and room for two or more."""
    match rule:
        case LastTouch() | FirstTouch() | PriorityTouch():
            # A new last (first, most important) impression takes everything.
            return MOST
        case Linear():
            # n becomes n + 1: the new one gains 1 / (n + 1), at most 1/2. If the oldest of
            # max_touches >= 2 is pushed out, it gains 1 / max_touches.
            return 1.0
        case PositionBased():
            return _position_factor(rule, max_touches)
        case TimeDecay():
            return _weight_factor(_oldest_weight(rule, lookback_seconds), 1.0)
        case LastN():
            return _last_n_factor(rule.weights[:max_touches])
        case ChannelWeights():
            every = [*rule.weights.values(), rule.other_weight]
            return _weight_factor(min(every), max(every))


def _weight_factor(least: float, most: float) -> float:
    """Credit in proportion to weights in [least, most], of two impressions or more.

    Added to a weight S >= least, a new weight w <= most gains w / (w + S), and nobody else
    gains. If the oldest (weight r) is pushed out by w, with S >= least for those that stay:
    either only the new one gains, w / (w + S), or only the oldest loses, r / (r + S).
    """
    return MOST * most / (most + least)


def _oldest_weight(rule: TimeDecay, lookback_seconds: int | None) -> float:
    if lookback_seconds is None:
        return 0.0
    return float(2.0 ** (-lookback_seconds / rule.half_life_seconds))


def _last_n_factor(weights: tuple[float, ...]) -> float:
    """Over all numbers of impressions before, and all places of the new one.

    From as many impressions as weights on, the oldest falls out and nothing else is new.
    """
    moves = [
        _last_n_move(weights, num_before, place)
        for num_before in range(1, len(weights) + 1)
        for place in range(min(num_before + 1, len(weights)))
    ]
    return max(moves)


def _last_n_move(weights: tuple[float, ...], num_before: int, place: int) -> float:
    """The distance if the new impression is the one after `place` later ones."""
    before = _normalised(weights[:num_before])
    after = _normalised(weights[: num_before + 1])
    old = [*before[:place], 0.0, *before[place:]]
    new = [*after, *[0.0] * (len(old) - len(after))]
    return sum(abs(a - b) for a, b in zip(old, new, strict=True))


def _normalised(weights: tuple[float, ...]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights]


def _position_factor(rule: PositionBased, max_touches: int | None) -> float:
    """Twice the largest gain, case by case.

    With f, l for first and last, m for those between, a = f / (f + l) and b = l / (f + l):

    - 1 -> 2: the new one gains a or b.
    - 2 -> 3: as last, it gains l, and the old last, now between, m - b if that is > 0; as
      first f and m - a; between m.
    - n -> n + 1, n >= 3: as last it gains l and the old last m / (n - 1) - l if > 0: together
      max(l, m / (n - 1)), most for n = 3; as first likewise; between m / (n - 1).
    - M stay M, the oldest falls out: see `_position_push`.
    """
    first, last = rule.first, rule.last
    between = max(0.0, 1 - first - last)
    first_of_two, last_of_two = first / (first + last), last / (first + last)
    gains = [first_of_two, last_of_two]
    if max_touches is None or max_touches >= 3:
        gains += [last + max(0.0, between - last_of_two), first + max(0.0, between - first_of_two)]
        gains += [between]
    if max_touches is None or max_touches >= 4:
        gains += [first, last, between / 2]
    if max_touches is not None and max_touches >= 3:
        gains += [_position_push(first, last, between / (max_touches - 2))]
    return MOST * max(gains)


def _position_push(first: float, last: float, each_between: float) -> float:
    """The largest gain if the first of M >= 3 impressions is pushed out.

    The old second becomes the first and gains f - m'; if the new one is the last, it gains l
    and the old last m' - l; if it is between, it gains m'; if it is the first, f.
    """
    by_second = max(0.0, first - each_between)
    as_last = last + by_second + max(0.0, each_between - last)
    as_between = each_between + by_second
    return max(as_last, as_between, first)
