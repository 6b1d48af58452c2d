"""Sets of channels against loops over dicts; each unit is counted once."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.errors import ConfigError
from tulle.measure.attribution.rules import Attribution, Linear
from tulle.measure.engines.duckdb_engine import DuckDBEngine
from tulle.measure.engines.matching import channel_sets
from tulle.privacy.units import Unit
from unit.measure.engines.log_oracle import MICROS, md5, touches_of, unit_of
from unit.measure.engines.small_logs import (
    CAMPAIGN,
    COLUMNS,
    HALF_DAY,
    SALT,
    TYPE,
    conversions,
    impressions,
    log_of,
)

ATTRIBUTION = Attribution(rule=Linear(), lookback_seconds=2 * HALF_DAY)


def text(value: str | None) -> str:
    return "(null)" if value is None else value


def oracle_sets(rows, sales, unit: Unit) -> Counter:
    won: dict[object, dict[int, set[str]]] = {}
    for sale in sales:
        touches = touches_of(sale, rows, COLUMNS, ATTRIBUTION, windows=unit.windows)
        if touches:
            own = won.setdefault(unit_of(unit, COLUMNS, sale), {})
            own[sale["timestamp"]] = {text(row["campaign"]) for row in touches}
    cells: Counter = Counter()
    for owner, moments in won.items():
        chosen = min(moments, key=lambda time: md5(SALT.hex(), *owner, time * MICROS))
        cells[tuple(sorted(moments[chosen])), True] += 1
    for owner in {unit_of(unit, COLUMNS, row) for row in rows} - set(won):
        own = [row for row in rows if unit_of(unit, COLUMNS, row) == owner]
        start = max(row["timestamp"] for row in own) - ATTRIBUTION.lookback_seconds
        late = {text(row["campaign"]) for row in own if row["timestamp"] >= start}
        cells[tuple(sorted(late)), False] += 1
    return cells


@settings(max_examples=40)
@given(rows=impressions(), sales=conversions(), days=st.sampled_from([None, 1]))
def test_sets_of_channels_agree_with_the_oracle(engine, rows, sales, days) -> None:
    unit = Unit.user(days=days)
    frame = channel_sets(engine, log_of(rows, sales), ATTRIBUTION, CAMPAIGN, unit=unit, salt=SALT)
    found = {
        (tuple(row["channels"]), row["converted"]): row["num_units"]
        for row in frame.iter_rows(named=True)
    }
    assert found == oracle_sets(rows, sales, unit)
    assert sum(found.values()) == len({unit_of(unit, COLUMNS, row) for row in rows})


@settings(max_examples=15)
@given(rows=impressions(), sales=conversions())
def test_without_one_unit_one_count_falls_by_one(engine, rows, sales) -> None:
    frames = [
        channel_sets(
            engine,
            log_of(
                [row for row in rows if row["user"] != left_out],
                [row for row in sales if row["user"] != left_out],
            ),
            ATTRIBUTION,
            CAMPAIGN,
            unit=Unit.user(),
            salt=SALT,
        )
        for left_out in (None, 1)
    ]
    counts = [
        Counter({(tuple(names), converted): n for names, converted, n in frame.iter_rows()})
        for frame in frames
    ]
    has_unit = any(row["user"] == 1 for row in rows)
    assert sum((counts[0] - counts[1]).values()) == has_unit
    assert counts[1] - counts[0] == Counter()


def test_paths_need_a_channel_of_impressions_and_a_unit_of_rows(engine: DuckDBEngine) -> None:
    log = log_of([], [])
    with pytest.raises(ConfigError, match="impressions"):
        channel_sets(engine, log, ATTRIBUTION, TYPE, unit=Unit.user(), salt=SALT)
    with pytest.raises(ConfigError, match="unit=impression"):
        channel_sets(engine, log, ATTRIBUTION, CAMPAIGN, unit=Unit.impression(), salt=SALT)
