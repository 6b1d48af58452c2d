"""How far one unit can move the totals of a job, in whole steps.

Users (with or without advertiser, publisher or window) are bounded after attribution, so
their bounds are the sensitivity, whatever the rule. For one conversion it is one whole
credit. One impression moves credit between the impressions of every conversion that it
matches, so it takes the factor of the rule and a limit on conversions.

The factor of a rule: a conversion's credit is a vector over slices, and the factor is the largest
L1 distance between the vectors with and without one impression. Slices that fall together only
bring them closer, so each impression may be taken as a slice of its own. Where both vectors add up
to 1, the distance is twice what the winners gain, and so is at most 2. The first impression of a
conversion brings 1, or moves 1 out of the slice of conversions without impression, which is 2.
"""

import math

from tulle.errors import ConfigError
from tulle.measure.ad_log import LogColumns
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
from tulle.measure.slice_jobs import Bounds, SliceJob, Subject
from tulle.privacy.units import Owner, Unit

MOST = 2.0
"""The largest L1 distance of two credit vectors: each adds up to at most 1."""
_ROUNDING = 1e-9
"""What shares that should add up to 1 may be above it by float rounding."""


def sensitivity_steps(
    job: SliceJob, *, unit: Unit, attribution: Attribution | None, columns: LogColumns
) -> int:
    """The largest L1 change of a job's totals by adding or removing one unit, in steps.

    Args:
      job: What is added up, and its bounds.
      unit: Who is protected.
      attribution: How conversions are credited. A job of impressions does not use it.
      columns: What the log says.

    Privacy:
      Sound for totals that an engine made with the same settings: bounds per unit after
      attribution, or, where each row is a unit, every amount of every credited pair rounded
      down to whole steps, and the rest what they leave of the rounded credit. Combinations
      for which no bound holds are refused.
    """
    check_unit(job, unit=unit, attribution=attribution, columns=columns)
    if job.bounds is not None:
        return job.bounds.max_steps_per_unit(job.steps)
    used = _used_attribution(job, attribution)
    if used is None or unit.owner is not Owner.IMPRESSION:
        return job.steps  # the row moves nothing but what it brings itself
    return _num_conversions(used) * _steps_per_conversion(job, used)


def l2_sensitivity_steps(
    job: SliceJob, *, unit: Unit, attribution: Attribution | None, columns: LogColumns
) -> float:
    """The largest L2 change of a job's totals, over all slices and amounts, in steps.

    Args:
      job: What is added up, and its bounds.
      unit: Who is protected.
      attribution: How conversions are credited. A job of impressions does not use it.
      columns: What the log says.

    Privacy:
      As `sensitivity_steps`.
    """
    check_unit(job, unit=unit, attribution=attribution, columns=columns)
    if job.bounds is not None:
        return _bounded_l2_steps(job.bounds, job.steps)
    used = _used_attribution(job, attribution)
    if used is None or unit.owner is not Owner.IMPRESSION:
        return float(job.steps)
    # Of one conversion, what is gained and what is lost are each at most `steps`, and both
    # together the L1 change: the squares add up to most if one of them is in one place.
    lost = _steps_per_conversion(job, used) - job.steps
    each = _root_rounded_up(job.steps**2 + lost**2)
    # The conversions of a user may all be in the same slices.
    return _num_conversions(used) * each


def check_unit(
    job: SliceJob, *, unit: Unit, attribution: Attribution | None, columns: LogColumns
) -> None:
    """Refuses what no sensitivity holds for, and says why.

    Args:
      job: What is added up, and its bounds.
      unit: Who is protected.
      attribution: How conversions are credited.
      columns: What the log says.
    """
    used = _used_attribution(job, attribution)
    if unit.owner is Owner.EXAMPLE and used is not None:
        raise ConfigError(
            f"unit={str(unit)!r} is a row of one table, and attribution has two; use user, "
            "user x advertiser, impression or conversion."
        )
    if unit.owner.is_one_row:
        _check_row_unit(job, unit, used)
    else:
        _check_owner_unit(job, unit, used, columns)


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
      max_touches: Only that many of the last impressions share; None for all.
      lookback_seconds: The oldest that an impression may be; None for any age.
    """
    if counts_unattributed or max_touches == 1:
        # With one impression a conversion every rule is last touch.
        return MOST
    return max(1.0, _factor_of_several(rule, max_touches, lookback_seconds))


def _used_attribution(job: SliceJob, attribution: Attribution | None) -> Attribution | None:
    """What the totals of the job depend on; None if it counts impressions."""
    if job.subject is Subject.IMPRESSIONS:
        return None
    if attribution is None:
        raise ConfigError(f"job {job.name!r} adds up conversions; it needs an attribution.")
    return attribution


def _check_owner_unit(
    job: SliceJob, unit: Unit, attribution: Attribution | None, columns: LogColumns
) -> None:
    if job.bounds is None:
        raise ConfigError(
            f"job {job.name!r} has no bounds; a unit {str(unit)!r} may have any number of rows. "
            "Set max_per_slice and max_slices_per_unit or max_per_unit."
        )
    for key in ("advertiser", "publisher"):
        if key in unit.owner.keys and getattr(columns, key) is None:
            raise ConfigError(f"unit={str(unit)!r} needs the log's {key} column; name it.")
    if attribution is None:
        return
    if unit.owner is Owner.USER_PUBLISHER:
        raise ConfigError(
            f"unit={str(unit)!r} cannot be bounded for conversions: a conversion belongs to no "
            "publisher, and the credit of one publisher depends on the impressions of others. "
            "Use the unit user, or count impressions."
        )
    if attribution.max_conversions_per_user is not None:
        raise ConfigError(
            f"max_conversions_per_user={attribution.max_conversions_per_user} is chosen before "
            f"attribution and over all units of a user, so it does not bound a unit "
            f"{str(unit)!r}; leave it out: bounds come after attribution."
        )


def _check_row_unit(job: SliceJob, unit: Unit, attribution: Attribution | None) -> None:
    if unit.windows is not None:
        raise ConfigError(
            f"unit={str(unit)!r}: one row is in one window anyway; use {unit.owner.value!r}."
        )
    if job.bounds is not None:
        raise ConfigError(
            f"job {job.name!r} has bounds, which hold for the rows of a user; with the unit "
            f"{str(unit)!r} the attribution rule bounds it. Leave them out."
        )
    if sum(amount.share for amount in job.amounts) > 1 + _ROUNDING:
        raise ConfigError(f"shares of the amounts of job {job.name!r} must add up to <= 1.")
    if attribution is None and unit.owner is Owner.CONVERSION:
        raise ConfigError(
            f"job {job.name!r} counts impressions, which the unit 'conversion' does not protect; "
            "use the unit impression or user."
        )
    if attribution is None:
        return
    if unit.owner is Owner.IMPRESSION:
        _num_conversions(attribution)
    elif attribution.max_conversions_per_user is not None:
        raise ConfigError(
            f"max_conversions_per_user={attribution.max_conversions_per_user}: where one "
            "conversion goes another comes in, which is twice the change that the unit "
            "'conversion' has without it; leave it out."
        )


def _num_conversions(attribution: Attribution) -> int:
    if attribution.max_conversions_per_user is None:
        raise ConfigError(
            "one impression may have a share in any number of conversions; set "
            "max_conversions_per_user for the unit 'impression'."
        )
    return attribution.max_conversions_per_user


def _steps_per_conversion(job: SliceJob, attribution: Attribution) -> int:
    """The largest L1 change of one conversion's whole steps by one impression.

    Rounding down moves two numbers apart by less than 1 more. The rest is the difference of
    the rounded credit and the J rounded amounts, which is J + 1 roundings. An impression that
    comes or goes is 0 on one side and brings no more than its credit, so only those that
    stay move by so much. One step more for each is room for engines, whose weights are whole
    numbers too. Each side adds up to `steps` at most, hence 2 * steps at most.
    """
    most = 2 * job.steps
    num_sharing = _max_sharing(attribution)
    if num_sharing is None:
        return most
    factor = impression_factor(
        attribution.rule,
        counts_unattributed=job.counts_unattributed,
        max_touches=attribution.max_touches,
        lookback_seconds=attribution.lookback_seconds,
    )
    num_amounts = len(job.amounts)
    num_roundings = 2 * num_amounts + 1 if job.has_rest else num_amounts
    slack = num_sharing * (num_roundings + 1)
    return min(most, math.ceil(factor * job.steps) + slack)


def _max_sharing(attribution: Attribution) -> int | None:
    """The most impressions that share one conversion; None for any number."""
    limits = [attribution.max_touches]
    if isinstance(attribution.rule, LastN):
        limits.append(len(attribution.rule.weights))
    return min((limit for limit in limits if limit is not None), default=None)


def _bounded_l2_steps(bounds: Bounds, steps: int) -> float:
    """Most squares: as many slices at their bound as the unit may fill, each in one amount."""
    per_slice = bounds.max_steps_per_slice(steps)
    num_full, left = divmod(bounds.max_steps_per_unit(steps), per_slice)
    return _root_rounded_up(num_full * per_slice**2 + left**2)


def _root_rounded_up(square: int) -> float:
    root = math.isqrt(square)
    # The conversion to a float and the root round by 2^-53 each; the factor is above both.
    return float(root) if root**2 == square else math.sqrt(square) * (1 + 2.0**-50)


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
        return 0.0  # an impression of any age may weigh as little as it likes
    return float(2.0 ** (-lookback_seconds / rule.half_life_seconds))


def _last_n_factor(weights: tuple[float, ...]) -> float:
    """The largest move over all numbers of impressions before and all places of the new one.

    From as many impressions as weights on, the oldest falls out and nothing else is new.
    """
    moves = []
    for num_before in range(1, len(weights) + 1):
        before = [weight / sum(weights[:num_before]) for weight in weights[:num_before]]
        after = [weight / sum(weights[: num_before + 1]) for weight in weights[: num_before + 1]]
        # The new impression is the one after `place` later ones.
        for place in range(min(num_before + 1, len(weights))):
            old = [*before[:place], 0.0, *before[place:]]
            new = [*after, *[0.0] * (len(old) - len(after))]
            moves.append(sum(abs(a - b) for a, b in zip(old, new, strict=True)))
    return max(moves)


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
