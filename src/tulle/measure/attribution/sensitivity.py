"""How far one unit can move the totals of a job, in whole steps.

Users (with or without advertiser, publisher or window) are bounded after attribution, so
their bounds are the sensitivity, whatever the rule. For one conversion it is one whole
credit. One impression moves credit between the impressions of every conversion that it
matches, so it takes the factor of the rule and a limit on conversions.
"""

import math

from tulle.errors import ConfigError
from tulle.measure.ad_log import LogColumns
from tulle.measure.attribution.attribution import Attribution
from tulle.measure.attribution.impression_factor import impression_factor
from tulle.measure.attribution.rules import LastN
from tulle.measure.slice_jobs import Bounds, SliceJob, Subject
from tulle.privacy.units import Owner, Unit

_ROUNDING = 1e-9


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
    used = _shared_attribution(job, unit, attribution)
    if used is None:
        return job.steps
    return _num_conversions(used) * _steps_per_conversion(job, used)


def l2_sensitivity_steps(
    job: SliceJob, *, unit: Unit, attribution: Attribution | None, columns: LogColumns
) -> float:
    """The largest L2 change of a job's totals, over all slices and amounts, in steps.

    Arguments as for `sensitivity_steps`.

    Privacy:
      As `sensitivity_steps`.
    """
    check_unit(job, unit=unit, attribution=attribution, columns=columns)
    if job.bounds is not None:
        return _bounded_l2_steps(job.bounds, job.steps)
    used = _shared_attribution(job, unit, attribution)
    if used is None:
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
    """Refuses what no sensitivity holds for, and says why."""
    if unit.owner is Owner.EXAMPLE:
        raise ConfigError(
            f"unit={str(unit)!r} has no meaning in an ad log; use user, user x advertiser, "
            "impression or conversion."
        )
    used = _used_attribution(job, attribution)
    if unit.owner.is_one_row:
        _check_row_unit(job, unit, used)
    else:
        _check_owner_unit(job, unit, used, columns)


def _used_attribution(job: SliceJob, attribution: Attribution | None) -> Attribution | None:
    """What the totals of the job depend on; None if it counts impressions."""
    if job.subject is Subject.IMPRESSIONS:
        return None
    if attribution is None:
        raise ConfigError(f"job {job.name!r} adds up conversions; it needs an attribution.")
    return attribution


def _shared_attribution(
    job: SliceJob, unit: Unit, attribution: Attribution | None
) -> Attribution | None:
    """What decides how far one row of the unit moves the totals; None if by itself alone."""
    used = _used_attribution(job, attribution)
    return used if unit.owner is Owner.IMPRESSION else None


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
    if unit.window_seconds is not None:
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
    return float(root) if root**2 == square else math.sqrt(square) * (1 + 2.0**-50)
