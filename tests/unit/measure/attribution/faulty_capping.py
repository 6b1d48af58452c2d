"""Deliberately wrong ways to limit what one unit adds. Each moves further than it claims."""

import collections

from tulle.measure.ad_log import Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.slice_jobs import SliceJob
from tulle.privacy.units import Unit
from unit.measure.attribution.tiny_logs import (
    Log,
    Row,
    Totals,
    bounded_totals,
    credited_rows,
    exact_totals,
    in_order,
    kept_conversions,
    keyed_hash,
    may_match,
    pairs_of_conversion,
)


def impressions_sampled_before_attribution(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Keeps max_touches random impressions of a user, not the last ones of a conversion.

    One more impression may push out another, that had all the credit of a conversion.
    """
    by_user: dict[str, list[Row]] = collections.defaultdict(list)
    for row in log:
        if row.side is Side.IMPRESSION:
            by_user[row.user].append(row)
    kept = {
        row.row_id
        for rows in by_user.values()
        for row in sorted(rows, key=lambda row: keyed_hash(row.row_id))[: attribution.max_touches]
    }
    sampled = tuple(row for row in log if row.side is Side.CONVERSION or row.row_id in kept)
    return exact_totals(sampled, job, unit, attribution)


def pairs_sampled_before_attribution(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Keeps as many random pairs of a user as conversions are allowed, then shares credit."""
    impressions = in_order(row for row in log if row.side is Side.IMPRESSION)
    pairs: dict[str, list[tuple[Row, Row]]] = collections.defaultdict(list)
    for conversion in (row for row in log if row.side is Side.CONVERSION):
        for row in impressions:
            age = conversion.time - row.time
            if may_match(row, conversion, unit) and 0 <= age <= attribution.lookback_seconds:
                pairs[row.user].append((row, conversion))
    touches: dict[Row, list[Row]] = collections.defaultdict(list)
    for of_user in pairs.values():
        of_user.sort(key=lambda pair: keyed_hash(pair[0].row_id, pair[1].row_id))
        for row, conversion in of_user[: attribution.max_conversions_per_user]:
            touches[conversion].append(row)
    rows = [
        pair
        for conversion, mine in touches.items()
        for pair in pairs_of_conversion(conversion, in_order(iter(mine)), job, attribution)
    ]
    return bounded_totals(rows, job, unit)


def conversions_capped_after_matching(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Keeps a user's conversions among those that have an impression.

    One more impression brings in another conversion, and a conversion without it goes.
    """
    impressions = [row for row in log if row.side is Side.IMPRESSION]
    matched = tuple(
        row
        for row in log
        if row.side is Side.IMPRESSION
        or any(
            may_match(other, row, unit)
            and 0 <= row.time - other.time <= attribution.lookback_seconds
            for other in impressions
        )
    )
    return exact_totals(matched, job, unit, attribution)


def any_number_of_conversions(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Forgets max_conversions_per_user."""
    uncapped = Attribution(
        rule=attribution.rule,
        lookback_seconds=attribution.lookback_seconds,
        max_touches=attribution.max_touches,
    )
    return exact_totals(log, job, unit, uncapped)


def credit_across_windows(log: Log, job: SliceJob, unit: Unit, attribution: Attribution) -> Totals:
    """Bounds each window, but credits impressions of an earlier one."""
    rows = credited_rows(log, job, Unit(unit.owner), attribution)
    return bounded_totals(rows, job, unit)


def conversions_capped_over_all_advertisers(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Bounds user x advertiser, but chooses conversions over all advertisers of a user."""
    capped = Attribution(
        rule=attribution.rule,
        lookback_seconds=attribution.lookback_seconds,
        max_conversions_per_user=1,
    )
    return exact_totals(log, job, unit, capped)


def credit_bounded_by_publisher(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> Totals:
    """Bounds user x publisher, though credit moves from one publisher to another."""
    impressions = in_order(row for row in log if row.side is Side.IMPRESSION)
    rows = []
    for conversion in kept_conversions(log, attribution):
        mine = [row for row in impressions if may_match(row, conversion, unit)]
        pairs = pairs_of_conversion(conversion, mine, job, attribution)
        if len(pairs) == len(mine):
            rows += [(row, key, share) for row, (_, key, share) in zip(mine, pairs, strict=True)]
    return bounded_totals(rows, job, unit)
