"""Logs of a few rows, their neighbours, and bounded totals worked out by loops."""

import collections
import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tulle.measure.ad_log import LogColumns, Side
from tulle.measure.attribution.rules import Attribution
from tulle.measure.slice_jobs import NO_IMPRESSION, Amount, Bounds, SliceColumn, SliceJob, Subject
from tulle.privacy.units import Owner, Unit
from tulle.privacy.windows import MICROS
from unit.measure.attribution.reference import Touch, credits_of_conversion

COLUMNS = LogColumns(advertiser="advertiser", publisher="publisher", kind="kind", value="value")
CAMPAIGN = SliceColumn(name="campaign", side=Side.IMPRESSION, column="campaign")
COUNTRY = SliceColumn(name="country", side=Side.CONVERSION, column="country")
COUNT = (Amount(name="conversions"),)
COUNT_AND_VALUE = (
    Amount(name="conversions", share=0.5),
    Amount(name="value", share=0.5, column="value", clip=2.0),
)
WINDOW = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """An impression or a conversion; each has the columns of both."""

    side: Side
    row_id: int
    user: str
    time: int
    advertiser: str
    publisher: str = "news"
    campaign: str = ""
    country: str = ""
    kind: str = "view"
    value: float = 1.0


Log = tuple[Row, ...]
Totals = Mapping[tuple[object, ...], int]
TotalsOf = Callable[[Log, SliceJob, Unit, Attribution], Totals]


def random_log(seed: int, *, num_users: int = 2) -> Log:
    """Up to ten rows that share users, times and slices."""
    rng = np.random.default_rng(seed)

    def one_of(choices: Sequence[Any]) -> Any:
        return choices[rng.integers(len(choices))]

    return tuple(
        Row(
            side=one_of([Side.IMPRESSION, Side.CONVERSION]),
            row_id=row_id,
            user=one_of("ab"[:num_users]),
            time=int(rng.integers(30)),
            advertiser=one_of(["shop", "shop", "bank"]),
            publisher=one_of(["news", "video"]),
            campaign=one_of("xyz"),
            country=one_of(["fr", "de"]),
            kind=one_of(["click", "view"]),
            value=one_of([0.0, 0.5, 1.0, 3.0]),
        )
        for row_id in range(rng.integers(1, 11))
    )


def slice_job(
    *,
    steps: int,
    bounds: Bounds | None,
    amounts: tuple[Amount, ...] = COUNT,
    slices: tuple[SliceColumn, ...] = (CAMPAIGN,),
    counts_unattributed: bool = False,
    has_rest: bool = False,
    subject: Subject = Subject.CONVERSIONS,
) -> SliceJob:
    return SliceJob(
        name="report",
        subject=subject,
        slices=slices,
        amounts=amounts,
        has_rest=has_rest,
        bounds=bounds,
        steps=steps,
        keys=None,
        counts_unattributed=counts_unattributed,
    )


def without_one_unit(log: Log, unit: Unit) -> Iterator[Log]:
    """The log without the rows of one unit, for each unit in it."""
    for key in sorted({unit_of(row, unit) for row in log if is_protected(row, unit)}):
        yield tuple(
            row for row in log if not (is_protected(row, unit) and unit_of(row, unit) == key)
        )


def is_protected(row: Row, unit: Unit) -> bool:
    if unit.owner is Owner.IMPRESSION:
        return row.side is Side.IMPRESSION
    if unit.owner is Owner.CONVERSION:
        return row.side is Side.CONVERSION
    # A conversion is on no publisher's pages.
    return unit.owner is not Owner.USER_PUBLISHER or row.side is Side.IMPRESSION


def unit_of(row: Row, unit: Unit) -> tuple[str, ...]:
    if unit.owner.is_one_row:
        return (str(row.row_id),)
    window = "" if unit.windows is None else str(unit.windows.number(row.time * MICROS))
    return (*(getattr(row, key) for key in sorted(unit.owner.keys)), window)


def exact_totals(log: Log, job: SliceJob, unit: Unit, attribution: Attribution) -> Totals:
    """What an engine computes: attribution, then bounds."""
    return bounded_totals(credited_rows(log, job, unit, attribution), job, unit)


def credited_rows(
    log: Log, job: SliceJob, unit: Unit, attribution: Attribution
) -> list[tuple[Row, tuple[str, ...], float]]:
    """(row that owns the credit, slice, credit) of each pair."""
    impressions = in_order(row for row in log if row.side is Side.IMPRESSION)
    if job.subject is Subject.IMPRESSIONS:
        return [(row, slice_of(job, row, row), 1.0) for row in impressions]
    conversions = kept_conversions(log, attribution)
    rows = []
    for conversion in conversions:
        mine = [row for row in impressions if may_match(row, conversion, unit)]
        rows += pairs_of_conversion(conversion, mine, job, attribution)
    return rows


def pairs_of_conversion(
    conversion: Row, impressions: list[Row], job: SliceJob, attribution: Attribution
) -> list[tuple[Row, tuple[str, ...], float]]:
    touches = [
        Touch(age_seconds=conversion.time - row.time, kind=row.kind, channel=row.publisher)
        for row in impressions
    ]
    shares = credits_of_conversion(attribution, touches)
    if not any(shares):
        none = [(conversion, slice_of(job, None, conversion), 1.0)]
        return none if job.counts_unattributed else []
    return [
        (conversion, slice_of(job, row, conversion), share)
        for row, share in zip(impressions, shares, strict=True)
    ]


def bounded_totals(
    rows: list[tuple[Row, tuple[str, ...], float]], job: SliceJob, unit: Unit
) -> Totals:
    totals: dict[tuple[object, ...], int] = collections.defaultdict(int)
    if job.bounds is None:
        for row, slice_key, credit in rows:
            for name, steps in steps_of(job, row, credit, rounded=math.floor).items():
                totals[(*slice_key, name)] += steps
        return totals
    cells: dict[tuple[str, ...], dict[tuple[str, ...], collections.Counter[str]]] = {}
    for row, slice_key, credit in rows:
        of_unit = cells.setdefault(unit_of(row, unit), {})
        steps = steps_of(job, row, credit, rounded=round)
        of_unit.setdefault(slice_key, collections.Counter()).update(steps)
    for key, of_unit in cells.items():
        for cell, steps in bounded_unit(key, of_unit, job).items():
            totals[cell] += steps
    return totals


def bounded_unit(
    key: tuple[str, ...],
    cells: Mapping[tuple[str, ...], Mapping[str, int]],
    job: SliceJob,
) -> dict[tuple[object, ...], int]:
    assert job.bounds is not None
    per_slice = job.bounds.max_steps_per_slice(job.steps)
    clipped = {slice_key: scaled_down(steps, per_slice) for slice_key, steps in cells.items()}
    filled = [slice_key for slice_key, steps in clipped.items() if any(steps.values())]
    kept = sorted(filled, key=lambda slice_key: keyed_hash(key, slice_key))
    kept = kept[: job.bounds.max_slices_per_unit]
    flat = {(*s, name): steps for s in kept for name, steps in clipped[s].items()}
    return scaled_down(flat, job.bounds.max_steps_per_unit(job.steps))


def scaled_down(steps: Mapping[object, int], most: int) -> dict[object, int]:
    total = sum(steps.values())
    if total <= most:
        return dict(steps)
    return {name: math.floor(Fraction(count * most, total)) for name, count in steps.items()}


def steps_of(
    job: SliceJob, row: Row, credit: float, *, rounded: Callable[[float], int]
) -> dict[str, int]:
    steps = {}
    for amount in job.amounts:
        part = 1.0 if amount.column is None else min(row.value, amount.clip) / amount.clip
        steps[amount.name] = rounded(credit * amount.share * part * job.steps)
    if job.has_rest:
        steps["rest"] = max(0, rounded(credit * job.steps) - sum(steps.values()))
    return steps


def may_match(impression: Row, conversion: Row, unit: Unit) -> bool:
    same_window = unit.windows is None or (
        unit.windows.number(impression.time * MICROS)
        == unit.windows.number(conversion.time * MICROS)
    )
    same_pair = (impression.user, impression.advertiser) == (conversion.user, conversion.advertiser)
    return same_pair and same_window


def kept_conversions(log: Log, attribution: Attribution) -> list[Row]:
    by_user: dict[str, list[Row]] = collections.defaultdict(list)
    for row in log:
        if row.side is Side.CONVERSION:
            by_user[row.user].append(row)
    ordered = (sorted(rows, key=lambda row: keyed_hash(row.row_id)) for rows in by_user.values())
    return [row for rows in ordered for row in rows[: attribution.max_conversions_per_user]]


def in_order(rows: Iterator[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row.time, row.row_id))


def slice_of(job: SliceJob, impression: Row | None, conversion: Row) -> tuple[str, ...]:
    rows = {Side.IMPRESSION: impression, Side.CONVERSION: conversion}
    return tuple(
        NO_IMPRESSION if rows[column.side] is None else getattr(rows[column.side], column.column)
        for column in job.slices
    )


def keyed_hash(*parts: object) -> str:
    return hashlib.md5(repr(("salt", *parts)).encode()).hexdigest()  # noqa: S324


def changes(totals: Totals, others: Totals) -> list[int]:
    """The difference of every total."""
    cells = set(itertools.chain(totals, others))
    return [totals.get(cell, 0) - others.get(cell, 0) for cell in cells]
