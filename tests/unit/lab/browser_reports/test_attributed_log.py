from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from tulle.errors import ConfigError, DataError
from tulle.lab.browser_reports.attributed_log import (
    LastTouchSettings,
    attribute_last_touch,
    distinct_slices,
    places_in,
)
from tulle.measure.ad_log import LogColumns
from tulle.measure.w3c.verbs import slice_names
from unit.lab.browser_reports.small_logs import SETTINGS, START, random_log, random_tables


def tables(shown: list[int], converted: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    owner = {"user": pl.lit(1), "advertiser": pl.lit("shop")}
    ad = {"interaction": pl.lit("view"), "campaign": pl.lit("red")}
    return (
        pl.DataFrame({"timestamp": [START + time for time in shown]}).with_columns(**owner, **ad),
        pl.DataFrame({"timestamp": [START + time for time in converted]}).with_columns(
            **owner, value=pl.lit(1.0)
        ),
    )


@pytest.mark.parametrize("seed", range(5))
def test_credit_goes_where_a_loop_over_all_pairs_puts_it(seed: int) -> None:
    impressions, conversions = random_tables(seed)
    expected, num_without = [], 0
    for conversion in conversions.iter_rows(named=True):
        best = None
        for shown in impressions.iter_rows(named=True):
            age = conversion["timestamp"] - shown["timestamp"]
            same = all(conversion[name] == shown[name] for name in ("user", "advertiser"))
            # At the same second the later row counts.
            if same and 0 <= age <= 500 and (best is None or age <= best[0]):
                best = (age, shown["campaign"], shown["interaction"])
        if best is None:
            num_without += 1
        else:
            expected.append((*best, conversion["conversion_type"], conversion["value"]))
    log = random_log(seed)
    assert log.kinds is not None
    found = zip(
        log.ages.tolist(),
        log.column("campaign").to_list(),
        log.kinds.gather(log.conversion_sources).to_list(),
        log.column("conversion_type").to_list(),
        log.column("value").to_list(),
        strict=True,
    )
    assert sorted(found) == sorted(expected)
    assert log.num_unattributed == num_without > 0


def test_the_lookback_ends_with_its_last_second() -> None:
    impressions, conversions = tables([1000], [999, 1000, 1010, 1011])
    settings = LastTouchSettings(lookback_seconds=10)
    log = attribute_last_touch(impressions.lazy(), conversions.lazy(), settings)
    assert log.ages.tolist() == [0, 10]
    assert log.num_unattributed == 2


def test_times_and_files_of_every_form_give_the_same(tmp_path: Path) -> None:
    impressions, conversions = random_tables(3)
    expected = random_log(3)
    for suffix, as_datetime in (("csv", False), ("parquet", False), ("parquet", True)):
        for name, table in (("i", impressions), ("c", conversions)):
            if as_datetime:
                table = table.with_columns(pl.from_epoch("timestamp").dt.replace_time_zone("UTC"))
            path = tmp_path / f"{name}.{suffix}"
            table.write_csv(path) if suffix == "csv" else table.write_parquet(path)
        log = attribute_last_touch(tmp_path / f"i.{suffix}", tmp_path / f"c.{suffix}", SETTINGS)
        assert log.ages.tolist() == expected.ages.tolist()
        assert log.conversion_sources.tolist() == expected.conversion_sources.tolist()
        texts = expected.conversions.cast(pl.String)
        assert log.conversions.cast(pl.String).equals(texts)


def test_without_an_advertiser_column_users_alone_are_matched() -> None:
    impressions, conversions = tables([0], [5])
    other = conversions.with_columns(advertiser=pl.lit("another shop"))
    alone = LastTouchSettings(columns=LogColumns())
    assert len(attribute_last_touch(impressions.lazy(), other.lazy(), alone).ages) == 1
    log = attribute_last_touch(impressions.lazy(), other.lazy(), LastTouchSettings())
    assert len(log.ages) == 0
    assert attribute_last_touch(impressions.lazy(), other.lazy(), alone).kinds is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.drop("user"), "no column 'user'"),
        (lambda table: table.clear(), "no rows"),
        (lambda table: table.with_columns(user=pl.lit(None)), "'user' has nulls"),
        (lambda table: table.with_columns(timestamp=pl.lit("noon")), "holds no time"),
        (lambda table: table.with_columns(timestamp=pl.lit(10**12)), "divide milliseconds"),
        (lambda table: table.with_columns(timestamp=pl.lit(20_467)), "may count days as well as"),
    ],
)
def test_a_log_that_cannot_be_attributed_is_refused(
    change: Callable[[pl.DataFrame], pl.DataFrame], said: str
) -> None:
    impressions, conversions = tables([1], [2])
    with pytest.raises(DataError, match=said):
        attribute_last_touch(
            impressions.lazy(),
            change(conversions).lazy(),
            LastTouchSettings(columns=SETTINGS.columns),
        )


def test_files_that_are_missing_or_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"i\.csv does not exist"):
        attribute_last_touch(tmp_path / "i.csv", tmp_path / "c.csv", SETTINGS)
    for name in ("i.parquet", "c.parquet"):
        (tmp_path / name).write_bytes(b"no table")
    with pytest.raises(DataError, match="is Parquet by its name and plain text by its content"):
        attribute_last_touch(tmp_path / "i.parquet", tmp_path / "c.parquet", SETTINGS)


def test_a_column_that_was_not_read_is_named() -> None:
    with pytest.raises(ConfigError, match="'geo' was not read"):
        random_log(0).column("geo")
    with pytest.raises(ConfigError, match="name it once"):
        LastTouchSettings(source_columns=("a",), conversion_columns=("a",))
    with pytest.raises(ConfigError, match="name it once"):
        LastTouchSettings(source_columns=("a", "a"))
    with pytest.raises(ConfigError, match="source_columns"):
        LastTouchSettings(source_columns=())


def test_raw_rows_do_not_show_when_a_log_is_printed() -> None:
    assert repr(random_log(1)) == "AttributedLog()"


def test_a_date_is_its_first_second() -> None:
    impressions, conversions = tables([0], [86_400])
    day = datetime(2026, 1, 14, tzinfo=UTC).date()
    dated = impressions.with_columns(timestamp=pl.lit(day))
    log = attribute_last_touch(dated.lazy(), conversions.lazy(), LastTouchSettings())
    assert log.ages.tolist() == [86_400]


ROWS = pl.DataFrame({"campaign": ["b", None, "a", "b"], "day": [2, 1, 1, 1], "other": [1, 2, 3, 4]})


def test_slices_are_the_combinations_that_occur_in_their_order() -> None:
    slices = distinct_slices(ROWS, ("campaign", "day"))
    assert slice_names(slices).to_list() == ["(missing) / 1", "a / 1", "b / 1", "b / 2"]
    assert places_in(ROWS, slices).tolist() == [3, 0, 1, 2]


def test_names_of_one_column_are_its_values() -> None:
    slices = distinct_slices(ROWS, ("day",))
    assert slice_names(slices).to_list() == ["1", "2"]
    assert places_in(ROWS, slices).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("by", [("campaign", "campaign"), ("campaign", "geo")])
def test_columns_that_make_no_slices_are_named(by: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=f"'{by[1]}' must be a column that was read, named once"):
        distinct_slices(ROWS, by)
