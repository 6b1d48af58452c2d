from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tulle.errors import DataError
from tulle.lab.browser_reports.attributed_log import LastTouchSettings, attribute_last_touch
from tulle.measure.ad_log import FrameTable, LogColumns
from tulle.measure.w3c.campaign import CampaignSettings, simulate_campaign
from tulle.measure.w3c.verbs import number_buckets, rmsre_of
from tulle.mechanisms.entropy import SeededNoise
from unit.lab.browser_reports.small_logs import random_tables

COLUMNS = LogColumns(advertiser="advertiser")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    impressions, conversions = random_tables(7)
    # One site has a campaign less.
    is_left = (pl.col("campaign") != "blue") | (pl.col("advertiser") == "shop1")
    # An order by time that no two impressions share, as both simulators break ties their own way.
    timed = impressions.filter(is_left).unique(["user", "timestamp"], maintain_order=True)
    timed.write_csv(tmp_path / "impressions.csv")
    conversions.write_parquet(tmp_path / "conversions.parquet")
    return tmp_path / "impressions.csv", tmp_path / "conversions.parquet"


def test_slices_are_numbered_within_each_site(files: tuple[Path, Path]) -> None:
    made = number_buckets(*files, columns=COLUMNS)
    assert made.buckets.rows() == [
        ("shop1", 0, "blue"),
        ("shop1", 1, "green"),
        ("shop1", 2, "red"),
        ("shop2", 0, "green"),
        ("shop2", 1, "red"),
    ]
    assert made.histogram_size == 3
    assert isinstance(made.log.impressions, FrameTable)
    rows = made.log.impressions.frame
    for row in rows.iter_rows(named=True):
        place = ("shop1", "shop2").index(row["advertiser"])
        names = (("blue", "green", "red"), ("green", "red"))[place]
        assert names[row[made.bucket_column]] == row["campaign"]


def test_without_budget_limits_the_truth_is_that_of_last_touch(files: tuple[Path, Path]) -> None:
    made = number_buckets(*files, columns=COLUMNS)
    settings = CampaignSettings(
        bucket=made.bucket_column, histogram_size=made.histogram_size, epsilon=1.0
    )
    result = simulate_campaign(made.log, settings, rng=SeededNoise(1))
    errors = made.errors(result, tau=5)
    log = attribute_last_touch(
        pl.scan_csv(files[0]),
        pl.scan_parquet(files[1]),
        LastTouchSettings(source_columns=("advertiser", "campaign")),
    )
    for row in errors.iter_rows(named=True):
        is_slice = (log.column("advertiser") == row["site"]) & (
            log.column("campaign") == row["slice"]
        )
        assert row["true"] == is_slice.sum()
        assert row["reported"] <= row["true"]
    assert errors["true"].sum() == len(log.ages)


def test_buckets_that_stand_for_nothing_are_not_in_the_error(files: tuple[Path, Path]) -> None:
    made = number_buckets(*files, columns=COLUMNS)
    settings = CampaignSettings(bucket=made.bucket_column, histogram_size=made.histogram_size)
    result = simulate_campaign(made.log, settings, rng=SeededNoise(1))
    errors = made.errors(result, tau=5)
    expected = result.relative_errors(tau=5).reshape(-1)[[0, 1, 2, 3, 4]]
    assert errors["relative_error"].to_list() == expected.tolist()
    assert rmsre_of(errors) == pytest.approx(float(np.sqrt(np.mean(expected**2))))
    assert rmsre_of(errors) != pytest.approx(result.rmsre(tau=5))


def test_without_an_advertiser_column_there_is_one_site(files: tuple[Path, Path]) -> None:
    made = number_buckets(*files, by=("campaign", "advertiser"), columns=LogColumns())
    settings = CampaignSettings(bucket=made.bucket_column, histogram_size=made.histogram_size)
    errors = made.errors(simulate_campaign(made.log, settings, rng=SeededNoise(1)), tau=5)
    assert errors["slice"].to_list() == [
        "blue / shop1",
        "green / shop1",
        "green / shop2",
        "red / shop1",
        "red / shop2",
    ]


def test_a_column_that_is_not_there_is_named(files: tuple[Path, Path]) -> None:
    with pytest.raises(DataError, match="no column 'geo'"):
        number_buckets(*files, by=("geo",), columns=COLUMNS)
