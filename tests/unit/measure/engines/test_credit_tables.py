"""Credit by every rule at once, against the plain reference of one conversion."""

import dataclasses
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings

from tulle.errors import ConfigError
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
from tulle.measure.engines.credit_tables import credit_rows, credit_totals
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from unit.measure.attribution.reference import Touch, credit_by_rule
from unit.measure.engines.log_oracle import slice_of, touches_of
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    COLUMNS,
    HALF_DAY,
    ONE_CONVERSION,
    ONE_IMPRESSION,
    TYPE,
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
    TimeDecay(half_life_seconds=LOOKBACK / 3),
    TimeDecay(half_life_seconds=HALF_DAY / 3),
    PriorityTouch(),
    LastN(),
    ChannelWeights(column="kind", weights={"click": 3.0}, other_weight=0.5),
]
ATTRIBUTIONS = [Attribution(rule=rule, lookback_seconds=LOOKBACK) for rule in RULES]
WITH_IDS = dataclasses.replace(
    COLUMNS, impression_id="impression_id", conversion_id="conversion_id"
)
NAMES = [
    "last-touch",
    "first-touch",
    "linear",
    "position",
    "time-decay",
    "time-decay 2",
    "priority",
    "last-n",
    "channel-weights",
]


def reference_credit(rule, conversion, rows) -> dict[int, float]:
    touches = touches_of(conversion, rows, WITH_IDS, ATTRIBUTIONS[0])
    credit = credit_by_rule(
        rule,
        [
            Touch(
                age_seconds=conversion["timestamp"] - row["timestamp"],
                kind=row["kind"],
                priority=row["priority"],
                channel=row["kind"],
            )
            for row in touches
        ],
    )
    return {row["impression_id"]: part for row, part in zip(touches, credit, strict=True)}


@settings(max_examples=40)
@given(rows=impressions(), sales=conversions())
def test_every_credit_is_that_of_the_reference(engine, rows, sales) -> None:
    frame = credit_rows(engine, log_of(rows, sales, WITH_IDS), ATTRIBUTIONS)
    for name, rule in zip(NAMES, RULES, strict=True):
        found = defaultdict(dict)
        for row in frame.iter_rows(named=True):
            found[row["conversion_id"]][row["impression_id"]] = row[name]
        for sale in sales:
            expected = reference_credit(rule, sale, rows)
            own = found[sale["conversion_id"]]
            for number, part in expected.items():
                assert own.get(number, 0.0) == pytest.approx(part, abs=1e-9)
            assert sum(own.values()) == pytest.approx(1.0 if expected else 0.0, abs=1e-12)


@settings(max_examples=20)
@given(rows=impressions(), sales=conversions())
def test_totals_add_the_rows_up(engine, rows, sales) -> None:
    log = log_of(rows, sales, WITH_IDS)
    for slices in ([CAMPAIGN], [CAMPAIGN, TYPE], []):
        job = job_of(*slices)
        expected: dict[tuple[str, ...], float] = defaultdict(float)
        by_id = {row["impression_id"]: row for row in rows}
        for sale in sales:
            parts = reference_credit(RULES[4], sale, rows)
            for number, part in parts.items():
                expected[slice_of(job, by_id[number], sale)] += part
        frame = credit_totals(engine, log, ATTRIBUTIONS, slices)
        found = {row[: len(slices)]: row[len(slices) + 4] for row in frame.iter_rows()}
        if not slices:
            expected[()] += 0.0
        assert found == pytest.approx(dict(expected), abs=1e-9)
        assert frame.columns == [*(column.name for column in slices), *NAMES]


def test_credit_is_written_to_parquet(engine: DuckDBEngine, tmp_path: Path) -> None:
    impression = ONE_IMPRESSION | {"impression_id": 7}
    conversion = ONE_CONVERSION | {"timestamp": 90, "conversion_id": 8}
    log = log_of([impression], [conversion], WITH_IDS)
    credit_rows(engine, log, ATTRIBUTIONS[:2], tmp_path / "credit.parquet")
    frame = pl.read_parquet(tmp_path / "credit.parquet")
    assert frame["age_seconds"].to_list() == [90.0]
    assert frame.select("conversion_id", "impression_id", "last-touch").row(0) == (8, 7, 1.0)
    assert frame["conversion_time"][0].isoformat() == "1970-01-01T00:01:30"


def test_rules_with_other_lookbacks_are_not_computed_at_once(engine: DuckDBEngine) -> None:
    others = [ATTRIBUTIONS[0], Attribution(rule=Linear(), lookback_seconds=5)]
    with pytest.raises(ConfigError, match="same lookbacks"):
        credit_rows(engine, log_of([], []), others)


def test_credit_needs_conversions_and_rules(engine: DuckDBEngine) -> None:
    log = dataclasses.replace(log_of([], []), conversions=None)
    with pytest.raises(ConfigError, match="conversions"):
        credit_rows(engine, log, ATTRIBUTIONS)
    with pytest.raises(ConfigError, match="at least one"):
        credit_rows(engine, log, [])
