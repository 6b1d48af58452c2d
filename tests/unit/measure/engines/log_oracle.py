"""What `slice_totals` must return, by loops over dicts and whole numbers."""

import datetime
import fractions
import hashlib
import math
from collections import defaultdict

from tulle.measure.ad_log import LogColumns, Side
from tulle.measure.attribution.rules import Attribution, ChannelWeights, PriorityTouch, TimeDecay
from tulle.measure.slice_jobs import NO_IMPRESSION, SliceJob, Subject
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import TimeWindows
from unit.measure.attribution.reference import Touch, credit_by_rule
from unit.measure.engines.small_logs import Row

MICROS = 1_000_000
Slice = tuple[str, ...]
Totals = dict[Slice, tuple[tuple[int, ...], int]]
"""Steps of each amount, and the number of units, by slice."""


def oracle_totals(
    impressions: list[Row],
    conversions: list[Row],
    columns: LogColumns,
    attribution: Attribution,
    job: SliceJob,
    *,
    unit: Unit,
    salt: bytes,
) -> Totals:
    rows = [
        (unit_of(unit, columns, row), slice_of(job, impression, conversion), steps)
        for row, impression, conversion, credit in _contributions(
            impressions, conversions, columns, attribution, job, unit=unit, salt=salt
        )
        if any(steps := steps_of(job, credit, conversion, is_rounded=job.bounds is not None))
    ]
    numbers = (
        {key: place for place, key in enumerate(job.keys.iter_rows())}
        if job.keys is not None and job.slices
        else None
    )
    if numbers is not None:
        rows = [row for row in rows if row[1] in numbers]
    if job.bounds is None:
        return _sums([(slice_key, steps) for _, slice_key, steps in rows])
    by_unit: dict[tuple[object, ...], dict[Slice, list[int]]] = defaultdict(dict)
    for owner, slice_key, steps in rows:
        old = by_unit[owner].get(slice_key, [0] * len(steps))
        by_unit[owner][slice_key] = [a + b for a, b in zip(old, steps, strict=True)]
    bounded = []
    for owner, slices in by_unit.items():
        bounded += bound_unit(job, owner, slices, numbers, salt)
    return _sums(bounded)


def bound_unit(job, owner, slices, numbers, salt):
    """Whole steps of one unit by slice, after all bounds."""
    cap = job.bounds.max_steps_per_slice(job.steps)
    capped = {key: scaled(steps, cap) for key, steps in slices.items()}

    def draw(key: Slice) -> str:
        parts = (key if numbers is None else (numbers[key],)) if job.slices else ()
        return md5(salt.hex(), *owner, *parts)

    kept = sorted(capped, key=draw)
    if job.bounds.max_slices_per_unit is not None and job.slices:
        kept = kept[: job.bounds.max_slices_per_unit]
    parts = [step for key in kept for step in capped[key]]
    if job.bounds.max_per_unit is not None:
        parts = scaled(parts, job.bounds.max_steps_per_unit(job.steps))
    width = len(job.amount_names)
    return [
        (key, tuple(parts[place * width : (place + 1) * width])) for place, key in enumerate(kept)
    ]


def scaled(parts: list[int], cap: int) -> list[int]:
    """Parts that add up to `cap`, in proportion, by rounding their running sums down."""
    total = sum(parts)
    if total <= cap:
        return list(parts)
    ends = [
        sum(parts[:number]) * fractions.Fraction(cap, total) for number in range(len(parts) + 1)
    ]
    return [math.floor(ends[i + 1]) - math.floor(ends[i]) for i in range(len(parts))]


def touches_of(
    conversion: Row,
    impressions: list[Row],
    columns: LogColumns,
    attribution: Attribution,
    *,
    windows: TimeWindows | None = None,
    tie_columns: tuple[str, ...] = (),
) -> list[Row]:
    """Impressions before a conversion, the oldest first."""

    def matches(row: Row) -> bool:
        lookback = attribution.kind_lookback_seconds.get(row["kind"], attribution.lookback_seconds)
        number = (lambda _: 0) if windows is None else windows.number
        return (
            row["user"] == conversion["user"]
            and (columns.advertiser is None or row["advertiser"] == conversion["advertiser"])
            and 0 <= conversion["timestamp"] - row["timestamp"] <= lookback
            and number(row["timestamp"] * MICROS) == number(conversion["timestamp"] * MICROS)
        )

    def order(row: Row) -> tuple[object, ...]:
        if columns.impression_id is not None:
            return (row["timestamp"], row["impression_id"])
        keys = ("user",) if columns.advertiser is None else ("user", "advertiser")
        parts = [*(row[key] for key in keys), row["timestamp"] * MICROS]
        parts += [row[name] * MICROS if name == "timestamp" else row[name] for name in tie_columns]
        return (row["timestamp"], md5("", *parts))

    found = sorted(filter(matches, impressions), key=order)
    return found if attribution.max_touches is None else found[-attribution.max_touches :]


def credit_of(rule, conversion: Row, touches: list[Row]) -> list[float]:
    """The reference's credit; weights are the nearest whole numbers, as in the engines."""
    ages = [conversion["timestamp"] - row["timestamp"] for row in touches]
    if isinstance(rule, (TimeDecay, ChannelWeights)) and touches:
        weights = _whole_weights(rule, ages, touches)
        return [weight / sum(weights) for weight in weights]
    return credit_by_rule(
        rule,
        [
            Touch(
                age_seconds=age,
                kind=row["kind"],
                priority=row["priority"],
                channel=row[rule.column] if isinstance(rule, ChannelWeights) else None,
            )
            for age, row in zip(ages, touches, strict=True)
        ],
    )


def steps_of(
    job: SliceJob, credit: float, conversion: Row | None, *, is_rounded: bool
) -> tuple[int, ...]:
    half = 0.5 if is_rounded else 0.0
    steps = []
    for amount in job.amounts:
        part = credit if amount.share == 1 else credit * amount.share
        if amount.column is not None:
            part = part * (min(conversion[amount.column], amount.clip) / amount.clip)
        steps.append(math.floor(part * job.steps + half))
    if job.has_rest:
        steps.append(max(0, math.floor(credit * job.steps + half) - sum(steps)))
    return tuple(steps)


def unit_of(unit: Unit, columns: LogColumns, row: Row) -> tuple[object, ...]:
    owner = {
        Owner.USER: ("user",),
        Owner.USER_ADVERTISER: ("user", columns.advertiser),
        Owner.USER_PUBLISHER: ("user", columns.publisher),
    }.get(unit.owner, ())
    key: tuple[object, ...] = tuple(row[name] for name in owner)
    if unit.windows is not None:
        key = (*key, window_key(unit.windows, row["timestamp"] * MICROS))
    return key


def window_key(windows: TimeWindows, micros: int) -> int:
    """What engines call a window, as random choices are keyed with it."""
    number = windows.number(micros)
    if windows.seconds is None:
        return number + 1970 * 12 + 1
    if windows.is_plain:
        return number * windows.seconds * MICROS
    shift = 2 * windows.seconds - windows.origin % windows.seconds
    return (number * windows.seconds + windows.origin + shift) * MICROS


def slice_of(job: SliceJob, impression: Row | None, conversion: Row | None) -> Slice:
    texts = []
    for column in job.slices:
        row = impression if column.side is Side.IMPRESSION else conversion
        if row is None:
            texts.append(NO_IMPRESSION)
        elif column.is_day:
            moment = datetime.datetime.fromtimestamp(row[column.column], datetime.UTC)
            texts.append(moment.date().isoformat())
        else:
            value = row[column.column]
            texts.append("(null)" if value is None else str(value))
    return tuple(texts)


def md5(salt_hex: str, *parts: object) -> str:
    text = "".join("-" if part is None else f"{len(str(part))}:{part}" for part in parts)
    return hashlib.md5((salt_hex + text).encode()).hexdigest()  # noqa: S324


def _contributions(impressions, conversions, columns, attribution, job, *, unit, salt):
    if job.subject is Subject.IMPRESSIONS:
        for row in impressions:
            if not job.only_kinds or row["kind"] in job.only_kinds:
                yield row, row, None, 1.0
        return
    for conversion in _kept_conversions(conversions, columns, attribution, job, salt):
        touches = touches_of(
            conversion,
            impressions,
            columns,
            attribution,
            windows=unit.windows,
            tie_columns=_tie_columns(columns, attribution, job),
        )
        if not touches and job.counts_unattributed:
            yield conversion, None, conversion, 1.0
        for row, credit in zip(
            touches, credit_of(attribution.rule, conversion, touches), strict=True
        ):
            yield conversion, row, conversion, credit


def _kept_conversions(conversions, columns, attribution, job, salt):
    limit = attribution.max_conversions_per_user
    if limit is None:
        return conversions
    names = ["user"] if columns.advertiser is None else ["user", "advertiser"]
    details = [column.column for column in job.slices if column.side is Side.CONVERSION]
    details += [amount.column for amount in job.amounts if amount.column is not None]

    def draw(row: Row) -> str:
        parts = [row["timestamp"] * MICROS]
        parts += [row[name] * MICROS if name == "timestamp" else row[name] for name in details]
        return md5(salt.hex(), *(row[name] for name in names), *parts)

    kept = []
    for user in {row["user"] for row in conversions}:
        own = sorted((row for row in conversions if row["user"] == user), key=draw)
        kept += own[:limit]
    return kept


def _tie_columns(columns, attribution, job):
    rule = attribution.rule
    has_priority = isinstance(rule, PriorityTouch)
    names = ["kind"] if has_priority or attribution.kind_lookback_seconds else []
    names += ["priority"] if has_priority and columns.priority else []
    names += [rule.column] if isinstance(rule, ChannelWeights) else []
    names += [column.column for column in job.slices if column.side is Side.IMPRESSION]
    return tuple(names)


def _whole_weights(rule, ages: list[int], touches: list[Row]) -> list[int]:
    scale = 1 << 40
    if isinstance(rule, TimeDecay):
        newest = min(ages) if rule.half_life_seconds * 8 < 10 * 43_200 else 0
        return [int(2.0 ** (-(age - newest) / rule.half_life_seconds) * scale) for age in ages]
    largest = max(*rule.weights.values(), rule.other_weight)
    return [
        max(
            1, round(rule.weights.get(_text(row[rule.column]), rule.other_weight) / largest * scale)
        )
        for row in touches
    ]


def _text(value: object) -> str:
    return "(null)" if value is None else str(value)


def _sums(rows) -> Totals:
    totals: dict[Slice, list[int]] = {}
    units: dict[Slice, int] = defaultdict(int)
    for key, steps in rows:
        if sum(steps) > 0:
            old = totals.get(key, [0] * len(steps))
            totals[key] = [a + b for a, b in zip(old, steps, strict=True)]
            units[key] += 1
    return {key: (tuple(steps), units[key]) for key, steps in totals.items()}
