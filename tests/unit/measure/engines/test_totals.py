"""Totals of DuckDB against loops over dicts, for every rule, unit and kind of bound."""

import dataclasses

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError, DataError
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
    TimeDecay,
)
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.totals import slice_totals
from tulle.measure.slice_jobs import (
    FINE_STEPS,
    NO_IMPRESSION,
    Amount,
    Bounds,
    SliceJob,
    SliceTotals,
    Subject,
)
from tulle.privacy.units import Unit
from unit.measure.engines.log_oracle import Totals, oracle_totals
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    COLUMNS,
    DAY,
    HALF_DAY,
    IMPRESSION_DAY,
    ONE_CONVERSION,
    ONE_IMPRESSION,
    SALT,
    TYPE,
    Row,
    conversions,
    impressions,
    job_of,
    log_of,
)

LOOKBACK = 4 * HALF_DAY
RULES = [
    LastTouch(),
    FirstTouch(),
    Linear(),
    PositionBased(),
    PositionBased(first=0.7, last=0.1),
    TimeDecay(half_life_seconds=LOOKBACK),
    TimeDecay(half_life_seconds=HALF_DAY / 3),
    PriorityTouch(),
    LastN(),
    LastN(weights=(1.0,)),
    ChannelWeights(column="campaign", weights={"a": 3.0, "(null)": 0.5}, other_weight=0.25),
]
ATTRIBUTIONS = [
    Attribution(rule=LastTouch(), lookback_seconds=LOOKBACK),
    Attribution(rule=Linear(), lookback_seconds=LOOKBACK, kind_lookback_seconds={"view": HALF_DAY}),
    Attribution(rule=Linear(), lookback_seconds=LOOKBACK, max_touches=2),
]
BOUNDS = [
    Bounds(max_per_slice=1.0, max_slices_per_unit=1),
    Bounds(max_per_slice=1.5, max_slices_per_unit=2, max_per_unit=2.0),
    Bounds(max_per_slice=100.0, max_per_unit=1.25),
    Bounds(max_per_slice=100.0, max_per_unit=100.0),
]
COUNT = (Amount(name="n"),)
VALUES = (
    Amount(name="capped", share=0.5, column="value", clip=1.0),
    Amount(name="wide", share=0.25, column="value", clip=10.0),
)
ADVERTISERS = dataclasses.replace(COLUMNS, advertiser="advertiser")
WITH_IDS = dataclasses.replace(COLUMNS, impression_id="impression_id")
KEYS = pl.DataFrame({"campaign": ["zz", "b", "(null)", NO_IMPRESSION, "d|"]})


class WithoutAsofJoin(DuckDBEngine):
    has_asof_join = False


def totals_as_dict(result: SliceTotals) -> Totals:
    keys = list(result.slices.iter_rows()) if result.slices.width else [()]
    return {
        key: (tuple(steps.tolist()), int(units))
        for key, steps, units in zip(keys, result.raw_steps, result.raw_unit_counts, strict=True)
        if units
    }


def assert_as_oracle(
    engine: DuckDBEngine,
    impression_rows: list[Row],
    conversion_rows: list[Row],
    job: SliceJob,
    *,
    attribution: Attribution,
    unit: Unit,
    columns: LogColumns = COLUMNS,
) -> None:
    log = log_of(impression_rows, conversion_rows, columns)
    (result,) = slice_totals(engine, log, attribution, [job], unit=unit, salt=SALT)
    expected = oracle_totals(
        impression_rows, conversion_rows, columns, attribution, job, unit=unit, salt=SALT
    )
    assert totals_as_dict(result) == expected


@pytest.mark.parametrize("rule", RULES, ids=repr)
@settings(max_examples=12)
@given(impression_rows=impressions(), conversion_rows=conversions(), is_wide=st.booleans())
def test_every_rule_agrees_with_the_oracle(
    engine, rule, impression_rows, conversion_rows, is_wide
) -> None:
    bounds = BOUNDS[3] if is_wide else BOUNDS[1]
    job = job_of(CAMPAIGN, bounds=bounds, steps=FINE_STEPS, counts_unattributed=is_wide)
    attribution = Attribution(rule=rule, lookback_seconds=LOOKBACK)
    assert_as_oracle(
        engine, impression_rows, conversion_rows, job, attribution=attribution, unit=Unit.user()
    )


@pytest.mark.parametrize("kinds", [("click", "view"), (), ("other",)], ids=repr)
@settings(max_examples=12)
@given(impression_rows=impressions(), conversion_rows=conversions())
def test_importance_by_kind_alone_agrees_with_the_oracle(
    engine, kinds, impression_rows, conversion_rows
) -> None:
    assert_as_oracle(
        engine,
        [row | {"priority": 0} for row in impression_rows],
        conversion_rows,
        job_of(CAMPAIGN, bounds=BOUNDS[3]),
        attribution=Attribution(rule=PriorityTouch(kinds=kinds), lookback_seconds=LOOKBACK),
        unit=Unit.user(),
        columns=dataclasses.replace(COLUMNS, priority=None),
    )


@pytest.mark.parametrize("attribution", ATTRIBUTIONS, ids=["asof", "kind lookback", "max touches"])
@pytest.mark.parametrize(
    ("unit", "columns"),
    [
        (Unit.user(), COLUMNS),
        (Unit.user(days=1), WITH_IDS),
        (Unit.user_advertiser(), ADVERTISERS),
        (Unit.user_advertiser(days=2), ADVERTISERS),
        (Unit.conversion(), ADVERTISERS),
    ],
    ids=["user", "user per day", "user x advertiser", "pair per 2 days", "conversion"],
)
@settings(max_examples=6)
@given(data=st.data(), impression_rows=impressions(), conversion_rows=conversions())
def test_every_unit_agrees_with_the_oracle(
    engine, attribution, unit, columns, data, impression_rows, conversion_rows
) -> None:
    is_one_row = unit.owner.is_one_row
    job = job_of(
        *data.draw(st.sampled_from([(), (CAMPAIGN,), (CAMPAIGN, TYPE, DAY), (IMPRESSION_DAY,)])),
        amounts=data.draw(st.sampled_from([COUNT, VALUES])),
        bounds=None if is_one_row else data.draw(st.sampled_from(BOUNDS)),
        steps=FINE_STEPS,
        has_rest=data.draw(st.booleans()),
        counts_unattributed=data.draw(st.booleans()),
    )
    assert_as_oracle(
        engine,
        impression_rows,
        conversion_rows,
        job,
        attribution=attribution,
        unit=unit,
        columns=columns,
    )


@pytest.mark.parametrize(
    "unit", [Unit.user(), Unit.user_publisher(), Unit.impression(), Unit.example()], ids=str
)
@settings(max_examples=8)
@given(data=st.data(), impression_rows=impressions())
def test_counts_of_impressions_agree_with_the_oracle(engine, unit, data, impression_rows) -> None:
    job = job_of(
        *data.draw(st.sampled_from([(), (CAMPAIGN,), (CAMPAIGN, IMPRESSION_DAY)])),
        bounds=None if unit.owner.is_one_row else data.draw(st.sampled_from(BOUNDS)),
        subject=Subject.IMPRESSIONS,
        only_kinds=data.draw(st.sampled_from([(), ("click",), ("click", "other")])),
    )
    assert_as_oracle(engine, impression_rows, [], job, attribution=ATTRIBUTIONS[0], unit=unit)


@settings(max_examples=25)
@given(data=st.data(), impression_rows=impressions(), conversion_rows=conversions())
def test_the_impression_unit_keeps_few_conversions_of_a_user(
    engine, data, impression_rows, conversion_rows
) -> None:
    attribution = Attribution(
        rule=data.draw(st.sampled_from(RULES)),
        lookback_seconds=LOOKBACK,
        max_conversions_per_user=data.draw(st.integers(1, 2)),
    )
    job = job_of(*data.draw(st.sampled_from([(CAMPAIGN,), (CAMPAIGN, TYPE)])), steps=FINE_STEPS)
    assert_as_oracle(
        engine,
        impression_rows,
        conversion_rows,
        job,
        attribution=attribution,
        unit=Unit.impression(),
    )


@settings(max_examples=25)
@given(
    impression_rows=impressions(),
    conversion_rows=conversions(),
    bounds=st.sampled_from(BOUNDS),
    counts_unattributed=st.booleans(),
)
def test_wanted_slices_come_in_their_order_and_others_do_not_use_up_bounds(
    engine, impression_rows, conversion_rows, bounds, counts_unattributed
) -> None:
    job = job_of(CAMPAIGN, bounds=bounds, keys=KEYS, counts_unattributed=counts_unattributed)
    log = log_of(impression_rows, conversion_rows)
    (result,) = slice_totals(engine, log, ATTRIBUTIONS[0], [job], unit=Unit.user(), salt=SALT)
    assert_as_oracle(
        engine,
        impression_rows,
        conversion_rows,
        job,
        attribution=ATTRIBUTIONS[0],
        unit=Unit.user(),
    )
    assert result.slices.equals(KEYS)
    assert result.raw_steps.shape == (KEYS.height, 1)


@pytest.mark.parametrize("columns", [COLUMNS, ADVERTISERS, WITH_IDS], ids=["md5", "pairs", "ids"])
@settings(max_examples=15)
@given(
    impression_rows=impressions(), conversion_rows=conversions(), days=st.sampled_from([None, 1])
)
def test_the_join_with_the_latest_row_equals_numbering_all_rows(
    columns, impression_rows, conversion_rows, days
) -> None:
    log = log_of(impression_rows, conversion_rows, columns)
    job = job_of(CAMPAIGN, TYPE, bounds=BOUNDS[3], counts_unattributed=True)
    results = []
    for kind in (DuckDBEngine, WithoutAsofJoin):
        with kind(num_threads=1) as engine:
            (result,) = slice_totals(
                engine, log, ATTRIBUTIONS[0], [job], unit=Unit.user(days=days), salt=SALT
            )
        results.append(totals_as_dict(result))
    assert results[0] == results[1]


def test_the_order_of_rows_in_a_file_does_not_matter(engine: DuckDBEngine) -> None:
    rows = [ONE_IMPRESSION | {"campaign": campaign} for campaign in "abcdefgh"]
    job = job_of(CAMPAIGN, bounds=BOUNDS[3])
    winners = set()
    for order in (rows, rows[::-1], rows[3:] + rows[:3]):
        log = log_of(order, [ONE_CONVERSION])
        (result,) = slice_totals(engine, log, ATTRIBUTIONS[0], [job], unit=Unit.user(), salt=SALT)
        winners.add(result.slices.item())
    assert len(winners) == 1


def test_several_jobs_give_the_same_as_one_by_one(engine: DuckDBEngine) -> None:
    rows = [ONE_IMPRESSION | {"campaign": c, "impression_id": i} for i, c in enumerate("ab")]
    log = log_of(rows, [ONE_CONVERSION], WITH_IDS)
    jobs = [
        job_of(CAMPAIGN, bounds=BOUNDS[0]),
        job_of(TYPE, bounds=BOUNDS[1], amounts=VALUES, steps=FINE_STEPS),
        job_of(CAMPAIGN, bounds=BOUNDS[0], subject=Subject.IMPRESSIONS),
    ]
    settings_ = {"unit": Unit.user(), "salt": SALT}
    together = slice_totals(engine, log, ATTRIBUTIONS[0], jobs, **settings_)
    for job, result in zip(jobs, together, strict=True):
        (alone,) = slice_totals(engine, log, ATTRIBUTIONS[0], [job], **settings_)
        assert totals_as_dict(alone) == totals_as_dict(result) != {}


CAPPED = dataclasses.replace(ATTRIBUTIONS[0], max_conversions_per_user=3)


@pytest.mark.parametrize(
    ("attribution", "job", "unit", "message"),
    [
        (ATTRIBUTIONS[0], job_of(CAMPAIGN), Unit.user(), "no bounds"),
        (
            ATTRIBUTIONS[0],
            job_of(CAMPAIGN, bounds=BOUNDS[0]),
            Unit.conversion(),
            "has bounds",
        ),
        (ATTRIBUTIONS[0], job_of(CAMPAIGN), Unit.impression(), "max_conversions_per_user"),
        (CAPPED, job_of(CAMPAIGN, bounds=BOUNDS[0]), Unit.user(), "does not bound a unit"),
        (ATTRIBUTIONS[0], job_of(bounds=BOUNDS[0]), Unit.user_advertiser(), "advertiser"),
        (ATTRIBUTIONS[0], job_of(bounds=BOUNDS[0]), Unit.user_publisher(), "no publisher"),
        (ATTRIBUTIONS[0], job_of(bounds=BOUNDS[0]), Unit.example(), "row of one table"),
        (ATTRIBUTIONS[0], job_of(subject=Subject.IMPRESSIONS), Unit.conversion(), "protect"),
        (None, job_of(bounds=BOUNDS[0]), Unit.user(), "attribution"),
        (
            ATTRIBUTIONS[0],
            job_of(TYPE, bounds=BOUNDS[0], subject=Subject.IMPRESSIONS),
            Unit.user(),
            "of conversions",
        ),
        (
            ATTRIBUTIONS[0],
            job_of(bounds=BOUNDS[0], amounts=(Amount(name="a"), Amount(name="b"))),
            Unit.user(),
            "add up",
        ),
        (
            ATTRIBUTIONS[0],
            job_of(CAMPAIGN, bounds=BOUNDS[0], keys=pl.DataFrame({"campaign": ["a", "a"]})),
            Unit.user(),
            "distinct",
        ),
        (
            ATTRIBUTIONS[0],
            job_of(CAMPAIGN, bounds=BOUNDS[0], keys=pl.DataFrame({"other": ["a"]})),
            Unit.user(),
            "same order",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_could_not_be_bounded_is_refused(engine, attribution, job, unit, message) -> None:
    log = log_of([ONE_IMPRESSION], [ONE_CONVERSION])
    with pytest.raises(ConfigError, match=message):
        slice_totals(engine, log, attribution, [job], unit=unit, salt=SALT)


def test_steps_that_could_overflow_are_refused(engine: DuckDBEngine) -> None:
    log = log_of([ONE_IMPRESSION], [ONE_CONVERSION])
    job = job_of(bounds=BOUNDS[0], steps=1 << 62)
    with pytest.raises(DataError, match="2\\^62"):
        slice_totals(engine, log, ATTRIBUTIONS[0], [job], unit=Unit.user(), salt=SALT)


def test_rows_without_a_user_are_in_no_total(engine: DuckDBEngine) -> None:
    rows = [ONE_IMPRESSION, ONE_IMPRESSION | {"user": None}]
    log = log_of(rows, [ONE_CONVERSION, ONE_CONVERSION | {"user": None}])
    jobs = [
        job_of(bounds=BOUNDS[3], counts_unattributed=True),
        job_of(bounds=BOUNDS[3], subject=Subject.IMPRESSIONS),
    ]
    results = slice_totals(engine, log, ATTRIBUTIONS[0], jobs, unit=Unit.user(), salt=SALT)
    assert [result.raw_steps.tolist() for result in results] == [[[1]], [[1]]]


def test_a_log_without_matches_has_no_slices_but_all_keys(engine: DuckDBEngine) -> None:
    log = log_of([ONE_IMPRESSION], [ONE_CONVERSION | {"user": 2}])
    jobs = [
        job_of(CAMPAIGN, bounds=BOUNDS[0]),
        job_of(CAMPAIGN, bounds=BOUNDS[0], keys=KEYS),
        job_of(bounds=BOUNDS[0]),
    ]
    free, keyed, total = slice_totals(
        engine, log, ATTRIBUTIONS[0], jobs, unit=Unit.user(), salt=SALT
    )
    assert free.slices.shape == (0, 1)
    assert free.raw_steps.shape == (0, 1)
    assert keyed.raw_steps.tolist() == [[0]] * KEYS.height
    assert total.raw_steps.tolist() == [[0]]


def test_what_is_sensitive_is_not_printed(engine: DuckDBEngine) -> None:
    log = log_of([ONE_IMPRESSION], [ONE_CONVERSION])
    (result,) = slice_totals(
        engine,
        log,
        ATTRIBUTIONS[0],
        [job_of(CAMPAIGN, bounds=BOUNDS[0])],
        unit=Unit.user(),
        salt=SALT,
    )
    assert repr(result) == "SliceTotals()"
