"""One unit's rows move totals by no more than the bounds say, and wrong bounding is caught."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.measure.attribution.rules import Attribution, LastTouch, Linear, PositionBased, TimeDecay
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.engine import Step
from tulle.measure.engines.totals import Bounding, slice_totals
from tulle.measure.slice_jobs import FINE_STEPS, Bounds, SliceJob, SliceTotals
from tulle.privacy.units import Unit
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    DAY,
    HALF_VALUE,
    ONE_IMPRESSION,
    SALT,
    TYPE,
    Row,
    conversions,
    impressions,
    job_of,
    log_of,
)

LOOKBACK = 200_000
Cells = dict[tuple[str, ...], list[int]]


def cells_of(result: SliceTotals) -> Cells:
    steps = result.raw_steps.tolist()
    return dict(zip(result.slices.iter_rows(), steps, strict=True))


def assert_change_is_bounded(job: SliceJob, with_unit: Cells, without_unit: Cells) -> None:
    """That two results can be those of neighbours."""
    bounds = job.bounds
    assert bounds is not None
    zeros = [0] * len(job.amount_names)
    changes = [
        sum(
            abs(a - b)
            for a, b in zip(with_unit.get(key, zeros), without_unit.get(key, zeros), strict=True)
        )
        for key in {*with_unit, *without_unit}
    ]
    assert sum(changes) <= bounds.max_steps_per_unit(job.steps)
    assert max(changes, default=0) <= bounds.max_steps_per_slice(job.steps)
    if bounds.max_slices_per_unit is not None:
        assert sum(change > 0 for change in changes) <= bounds.max_slices_per_unit


def assert_removal_is_bounded(
    engine: DuckDBEngine, rows: list[Row], sales: list[Row], job: SliceJob, rule: object
) -> None:
    attribution = Attribution(rule=rule, lookback_seconds=LOOKBACK)
    results = []
    for left_out in (None, 1):
        log = log_of(
            [row for row in rows if row["user"] != left_out],
            [row for row in sales if row["user"] != left_out],
        )
        (result,) = slice_totals(engine, log, attribution, [job], unit=Unit.user(), salt=SALT)
        results.append(cells_of(result))
    assert_change_is_bounded(job, *results)


@settings(max_examples=60)
@given(
    rows=impressions(max_size=20),
    sales=conversions(max_size=10),
    rule=st.sampled_from([LastTouch(), Linear(), PositionBased(), TimeDecay()]),
    max_per_slice=st.sampled_from([0.3, 1.0, 2.5]),
    max_slices=st.sampled_from([None, 1, 2, 3]),
    max_per_unit=st.sampled_from([0.7, 1.0, 3.0]),
    steps=st.sampled_from([1, 3, FINE_STEPS]),
    has_rest=st.booleans(),
)
def test_one_users_rows_move_totals_by_no_more_than_the_bounds(
    engine, rows, sales, rule, max_per_slice, max_slices, max_per_unit, steps, has_rest
) -> None:
    bounds = Bounds(
        max_per_slice=max_per_slice, max_slices_per_unit=max_slices, max_per_unit=max_per_unit
    )
    job = job_of(
        CAMPAIGN, TYPE, DAY, amounts=HALF_VALUE, bounds=bounds, steps=steps, has_rest=has_rest
    )
    assert_removal_is_bounded(engine, rows, sales, job, rule)


@settings(max_examples=30)
@given(rows=impressions(max_size=20), sales=conversions(max_size=10), cap=st.integers(1, 4))
def test_a_unit_above_its_bound_adds_exactly_the_bound(engine, rows, sales, cap) -> None:
    own = [row for row in sales if row["user"] == 1]
    log = log_of([row for row in rows if row["user"] == 1] or rows[:1], own or sales[:1])
    attribution = Attribution(rule=LastTouch(), lookback_seconds=LOOKBACK)
    wide, tight = (
        job_of(CAMPAIGN, TYPE, bounds=Bounds(max_per_slice=100.0, max_per_unit=limit))
        for limit in (1000.0, float(cap))
    )
    free, bounded = slice_totals(
        engine, log, attribution, [wide, tight], unit=Unit.user(), salt=SALT
    )
    total = int(free.raw_steps.sum())
    assert int(bounded.raw_steps.sum()) == min(total, cap) if own else True


HEAVY_ROWS = [
    ONE_IMPRESSION | {"campaign": campaign, "impression_id": number}
    for number, campaign in enumerate("abcdef")
] + [ONE_IMPRESSION | {"user": 2, "impression_id": 9}]
HEAVY_SALES = [
    {
        "user": 1 + (number == 9),
        "timestamp": number,
        "advertiser": "A",
        "type": "xy"[number % 2],
        "value": 50.0,
        "conversion_id": number,
    }
    for number in range(10)
]
HEAVY_JOB = job_of(
    CAMPAIGN,
    bounds=Bounds(max_per_slice=1.0, max_slices_per_unit=2, max_per_unit=1.5),
    steps=FINE_STEPS,
)


def without_choice(self: Bounding, source: str, max_slices: int) -> list[Step]:
    del max_slices
    return [Step(f"{self.prefix}_chosen", f"SELECT * FROM {source}")]  # noqa: S608


def without_scaling(self: Bounding, source: str, cap: int) -> list[Step]:
    del cap
    return [Step(f"{self.prefix}_scaled", f"SELECT * FROM {source}")]  # noqa: S608


def without_cap(self: Bounding, cap: int) -> Step:
    del cap
    return Step(f"{self.prefix}_capped", f"SELECT * FROM {self.prefix}_units")  # noqa: S608


def capped_by_row(self: Bounding) -> Step:
    # The bound of a slice on each row, as if a unit had one.
    (name,) = self.amounts
    cap = self.bounds.max_steps_per_slice(self.steps_per_contribution)
    keys = ", ".join((*self.units, *self.slices))
    return Step(
        f"{self.prefix}_units",
        f"SELECT {keys}, SUM(LEAST({name}, {cap}) * num) AS {name} "  # noqa: S608
        f"FROM {self.prefix}_rows GROUP BY {keys}",
    )


def test_the_heavy_user_is_bounded(engine: DuckDBEngine) -> None:
    assert_removal_is_bounded(engine, HEAVY_ROWS, HEAVY_SALES, HEAVY_JOB, Linear())


@pytest.mark.parametrize(
    "faults",
    [
        {"_chosen": without_choice},
        {"_scaled": without_scaling},
        {"_capped": without_cap, "_scaled": without_scaling},
        {"_added_up": capped_by_row, "_capped": without_cap, "_scaled": without_scaling},
    ],
    ids=["no limit of slices", "no bound of a unit", "no bound of a slice", "bound of a row"],
)
def test_wrong_bounding_is_caught(engine, monkeypatch, faults) -> None:
    for name, fault in faults.items():
        monkeypatch.setattr(Bounding, name, fault)
    with pytest.raises(AssertionError):
        assert_removal_is_bounded(engine, HEAVY_ROWS, HEAVY_SALES, HEAVY_JOB, Linear())


def test_capping_conversions_before_attribution_does_not_bound_slices(engine) -> None:
    # Two conversions are kept of the user, but each is shared by six campaigns.
    attribution = Attribution(rule=Linear(), lookback_seconds=LOOKBACK, max_conversions_per_user=2)
    job = job_of(CAMPAIGN, steps=FINE_STEPS)
    results = []
    for left_out in (None, 1):
        log = log_of(
            [row for row in HEAVY_ROWS if row["user"] != left_out],
            [row for row in HEAVY_SALES if row["user"] != left_out],
        )
        (result,) = slice_totals(engine, log, attribution, [job], unit=Unit.impression(), salt=SALT)
        results.append(cells_of(result))
    with pytest.raises(AssertionError):
        assert_change_is_bounded(HEAVY_JOB, *results)
