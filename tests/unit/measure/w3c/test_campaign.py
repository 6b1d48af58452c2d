"""A simulated campaign is what browsers report, one by one, and errors are what they say."""

import dataclasses
import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from statistical.noise_checks import assert_discrete
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, FrameTable, LogColumns
from tulle.measure.w3c.attribution_state import BudgetRefusal, FixedDraws, microepsilons
from tulle.measure.w3c.browser import Browser
from tulle.measure.w3c.campaign import (
    AggregationConfig,
    CampaignResult,
    CampaignSettings,
    aggregate_reports,
    simulate_campaign,
    what_if,
)
from tulle.measure.w3c.options import ConversionOptions, ImpressionOptions, W3cLimits
from tulle.mechanisms.discrete_laplace import DiscreteLaplaceConfig
from tulle.mechanisms.entropy import NoiseSource, SeededNoise

DAY = 86_400
COLUMNS = LogColumns(
    advertiser="advertiser",
    publisher="publisher",
    value="value",
    priority="priority",
    kinds={"timestamp": "timestamp"},
)
LIMITS = W3cLimits(
    global_privacy_budget_per_epoch=1_700_000, impression_site_quota_per_epoch=1_200_000
)
SETTINGS = CampaignSettings(
    bucket="bucket",
    histogram_size=6,
    epsilon=0.8,
    max_value=7,
    credit=(3.0, 2.0, 2.0),
    lookback_days=9,
    limits=LIMITS,
)


class HalfWords:
    """A source whose every uniform number is 1/2, as FixedDraws has it."""

    is_secure = False
    description = "always one half"

    def words(self, num_words: int) -> np.ndarray:
        return np.full(num_words, 2**63, np.uint64)


@pytest.fixture(scope="module")
def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(5)
    num_impressions, num_conversions = 1500, 600
    impressions = pl.DataFrame(
        {
            "user": rng.integers(0, 60, num_impressions),
            "timestamp": rng.permutation(30 * DAY)[:num_impressions],
            "advertiser": rng.choice(["a.example", "b.example"], num_impressions),
            "publisher": rng.choice(["p.example", "q.example", "r.example"], num_impressions),
            "priority": rng.integers(0, 2, num_impressions),
            "bucket": rng.integers(0, 6, num_impressions),
        }
    )
    conversions = pl.DataFrame(
        {
            "user": rng.integers(0, 80, num_conversions),
            "timestamp": rng.permutation(30 * DAY)[:num_conversions],
            "advertiser": rng.choice(["a.example", "b.example"], num_conversions),
            "value": rng.integers(0, 10, num_conversions),
        }
    )
    return impressions, conversions


def log_of(impressions: Any, conversions: Any, columns: LogColumns = COLUMNS) -> AdLog:
    return AdLog(
        impressions=FrameTable(frame=impressions),
        conversions=FrameTable(frame=conversions),
        columns=columns,
    )


def browser_by_browser(
    impressions: pl.DataFrame, conversions: pl.DataFrame, settings: CampaignSettings
) -> dict[str, np.ndarray]:
    """Sums of reports, by the calls of pages in the order of time."""
    rows = [(row["timestamp"], False, row) for row in impressions.iter_rows(named=True)]
    rows += [(row["timestamp"], True, row) for row in conversions.iter_rows(named=True)]
    browsers: dict[int, Browser] = {}
    sums = {site: np.zeros(settings.histogram_size, int) for site in ("a.example", "b.example")}
    for now, is_conversion, row in sorted(rows, key=lambda row: row[:2]):
        browser = browsers.setdefault(row["user"], Browser(settings.limits, FixedDraws()))
        if not is_conversion:
            options = ImpressionOptions(
                histogram_index=row["bucket"],
                priority=row["priority"],
                conversion_sites=(row["advertiser"],),
            )
            browser.save_impression(row["publisher"], options, now=now)
        elif row["value"]:
            conversion = ConversionOptions(
                aggregation_service="https://aggregation.example",
                histogram_size=settings.histogram_size,
                epsilon=settings.epsilon,
                value=min(row["value"], settings.max_value),
                max_value=settings.max_value,
                credit=settings.credit,
                lookback_days=settings.lookback_days,
            )
            sums[row["advertiser"]] += browser.measure_conversion(
                row["advertiser"], conversion, now=now
            )
    return sums


def true_credit(impressions: pl.DataFrame, conversions: pl.DataFrame) -> dict[str, np.ndarray]:
    """Credit by weights without budgets, from all pairs of rows."""
    shown = list(impressions.iter_rows(named=True))
    sums = {site: np.zeros(6) for site in ("a.example", "b.example")}
    for made in conversions.iter_rows(named=True):
        found = [
            (row["priority"], row["timestamp"], row["bucket"])
            for row in shown
            if row["user"] == made["user"]
            and row["advertiser"] == made["advertiser"]
            and 0 <= made["timestamp"] - row["timestamp"] <= 9 * DAY
        ]
        top = sorted(found, reverse=True)[:3]
        weights = SETTINGS.credit[: len(top)]
        for (_, _, bucket), weight in zip(top, weights, strict=True):
            sums[made["advertiser"]][bucket] += made["value"] * weight / sum(weights)
    return sums


@pytest.mark.parametrize("credit", [(1.0,), (3.0, 2.0, 2.0)])
def test_a_campaign_is_the_sum_of_what_browsers_report(
    tables: tuple[pl.DataFrame, pl.DataFrame], credit: tuple[float, ...]
) -> None:
    settings = dataclasses.replace(SETTINGS, credit=credit)
    result = simulate_campaign(log_of(*tables), settings, rng=HalfWords())
    expected = browser_by_browser(*tables, settings)
    assert result.sites == tuple(expected)
    assert result.raw_reported.tolist() == [sums.tolist() for sums in expected.values()]
    # Every kind of budget ran out, so that all of them are compared.
    assert all(result.counts.refusals[kind] > 0 for kind in BudgetRefusal)


def test_the_truth_is_credit_without_budgets(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    result = simulate_campaign(log_of(*tables), SETTINGS, rng=SeededNoise(1))
    expected = np.array(list(true_credit(*tables).values()))
    np.testing.assert_allclose(result.raw_true, expected, rtol=1e-12)
    assert result.counts.attributable_value == pytest.approx(expected.sum())


def test_lost_shares_add_up(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    result = simulate_campaign(log_of(*tables), SETTINGS, rng=SeededNoise(1))
    kept = (1 - result.share_lost_to_max_value) * (1 - result.share_lost_to_budget)
    assert result.raw_reported.sum() == pytest.approx(kept * result.raw_true.sum())
    counts = result.counts
    assert counts.num_conversions == tables[1].filter(pl.col("value") > 0).height
    assert 0 < counts.num_empty < counts.num_attributable < counts.num_conversions
    assert counts.num_short > 0


def test_large_budgets_lose_nothing(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    limits = W3cLimits(
        per_site_privacy_budget=4_000_000_000,
        global_privacy_budget_per_epoch=4_000_000_000,
        impression_site_quota_per_epoch=4_000_000_000,
    )
    settings = dataclasses.replace(SETTINGS, limits=limits, max_value=9)
    result = simulate_campaign(log_of(*tables), settings, rng=SeededNoise(1))
    assert result.share_lost_to_budget == result.share_lost_to_max_value == 0
    assert set(result.counts.refusals.values()) == {0}
    # Only the rounding of credit is left: less than one for each touch.
    assert np.abs(result.raw_reported - result.raw_true).max() < 60


def one_bucket(**changes: Any) -> CampaignResult:
    log = log_of(
        pl.DataFrame({"user": [1], "timestamp": [0], "bucket": [1]}),
        pl.DataFrame({"user": [1, 1, 2], "timestamp": [5, 6, 7]}),
        LogColumns(kinds=COLUMNS.kinds),
    )
    settings = CampaignSettings(bucket="bucket", histogram_size=2, **changes)
    return simulate_campaign(log, settings, rng=SeededNoise(1))


def test_errors_are_bias_and_noise_over_the_truth() -> None:
    result = one_bucket(epsilon=1.0)
    assert result.raw_true.tolist() == [[0, 2]]
    assert result.raw_reported.tolist() == [[0, 1]]
    p = math.exp(-1 / 2)
    variance = 2 * p / (1 - p) ** 2
    assert result.noise_stddev == pytest.approx(math.sqrt(variance))
    expected = [math.sqrt(variance) / 1.5, math.sqrt(1 + variance) / 2]
    assert result.relative_errors(tau=1.5)[0] == pytest.approx(expected)
    assert result.rmsre(tau=1.5) == pytest.approx(math.sqrt(np.mean(np.square(expected))))
    assert result.to_dict(tau=1.5)["share_lost_to_budget"] == 0.5


def test_less_epsilon_for_each_conversion_loses_fewer_of_them() -> None:
    assert one_bucket(epsilon=0.5).share_lost_to_budget == 0
    assert one_bucket(epsilon=0.5).noise_stddev > one_bucket(epsilon=1.0).noise_stddev


def test_an_impression_counts_from_its_own_second_to_the_last_of_the_lookback() -> None:
    log = log_of(
        pl.DataFrame({"user": [1], "timestamp": [DAY], "bucket": [0]}),
        pl.DataFrame({"user": [1] * 4, "timestamp": [DAY - 1, DAY, 2 * DAY, 2 * DAY + 1]}),
        LogColumns(kinds=COLUMNS.kinds),
    )
    settings = CampaignSettings(bucket="bucket", histogram_size=1, epsilon=0.1, lookback_days=1)
    result = simulate_campaign(log, settings, rng=SeededNoise(1))
    assert result.raw_reported.tolist() == [[2]]


def test_what_if_scales_all_budgets(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    results = what_if(
        log_of(*tables), SETTINGS, epsilons=[0.4, 0.8], site_budgets=[1.0, 2.0], rng=HalfWords()
    )
    assert [(r.site_budget, r.epsilon) for r in results] == [
        (1.0, 0.4),
        (1.0, 0.8),
        (2.0, 0.4),
        (2.0, 0.8),
    ]
    plain = simulate_campaign(log_of(*tables), SETTINGS, rng=HalfWords())
    assert np.array_equal(results[1].raw_reported, plain.raw_reported)
    # Twice the budgets and twice the epsilon: the same conversions fit.
    assert np.array_equal(results[3].raw_reported, results[0].raw_reported)


def test_the_same_seed_gives_the_same_campaign(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    runs = [simulate_campaign(log_of(*tables), SETTINGS, rng=SeededNoise(4)) for _ in range(2)]
    assert np.array_equal(runs[0].raw_reported, runs[1].raw_reported)


def test_files_frames_and_dates_give_the_same(
    tables: tuple[pl.DataFrame, pl.DataFrame], tmp_path: Path
) -> None:
    impressions, conversions = tables
    plain = simulate_campaign(log_of(*tables), SETTINGS, rng=SeededNoise(1))
    impressions.write_parquet(tmp_path / "impressions.parquet")
    conversions.write_csv(tmp_path / "conversions.csv")
    dated = conversions.with_columns(pl.from_epoch("timestamp", time_unit="s"))
    assert dated["timestamp"][0] > datetime.datetime(1970, 1, 1)
    for log in (
        AdLog(
            impressions=FileTable(paths=(tmp_path / "impressions.parquet",)),
            conversions=FileTable(paths=(tmp_path / "conversions.csv",)),
            columns=COLUMNS,
        ),
        log_of(pd.DataFrame(impressions.to_dict(as_series=False)), dated.lazy()),
    ):
        result = simulate_campaign(log, SETTINGS, rng=SeededNoise(1))
        assert np.array_equal(result.raw_reported, plain.raw_reported)


def test_a_log_without_conversions_reports_nothing(
    tables: tuple[pl.DataFrame, pl.DataFrame],
) -> None:
    result = simulate_campaign(log_of(tables[0], tables[1].clear()), SETTINGS, rng=SeededNoise(1))
    assert (result.raw_reported.shape, result.rmsre(tau=5.0)) == ((0, 6), 0.0)
    assert result.share_lost_to_budget == result.share_lost_to_max_value == 0


@pytest.mark.parametrize(
    ("side", "column", "values", "message"),
    [
        (0, "bucket", 6, "from 0 to 5"),
        (0, "bucket", 0.5, "'bucket' holds no whole number"),
        (1, "value", -1, "'value'"),
        (1, "timestamp", None, "'timestamp' is missing"),
        (1, "timestamp", "monday", "'timestamp' holds no time"),
        (0, "user", None, "'user' has nulls"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(
    tables: tuple[pl.DataFrame, pl.DataFrame], side: int, column: str, values: Any, message: str
) -> None:
    changed = list(tables)
    changed[side] = changed[side].with_columns(pl.lit(values).alias(column))
    with pytest.raises(DataError, match=message):
        simulate_campaign(log_of(*changed), SETTINGS, rng=SeededNoise(1))


def test_a_log_that_cannot_be_read_is_refused(tables: tuple[pl.DataFrame, pl.DataFrame]) -> None:
    impressions, conversions = tables
    with pytest.raises(DataError, match="no column 'buckt'"):
        simulate_campaign(
            log_of(*tables), dataclasses.replace(SETTINGS, bucket="buckt"), rng=SeededNoise(1)
        )
    without = AdLog(impressions=FrameTable(frame=impressions), conversions=None)
    with pytest.raises(ConfigError, match="conversions=None"):
        simulate_campaign(without, SETTINGS, rng=SeededNoise(1))
    database = AdLog(
        impressions=DatabaseTable(table="shown"),
        conversions=FrameTable(frame=conversions),
        columns=COLUMNS,
    )
    with pytest.raises(ConfigError, match="Parquet"):
        simulate_campaign(database, SETTINGS, rng=SeededNoise(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0"),
        ({"max_value": 0}, "max_value=0"),
        ({"histogram_size": 5000}, "histogram_size=5000"),
        ({"credit": ()}, "credit"),
        ({"limits": W3cLimits(aggregation_services={})}, "aggregation_services"),
    ],
)
def test_settings_that_a_browser_refuses_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_a_threshold_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="tau=0"):
        one_bucket().rmsre(tau=0)


@pytest.mark.parametrize(("epsilon", "max_value"), [(1.0, 1), (0.5, 8)])
def test_noise_has_the_scale_of_twice_the_largest_value(epsilon: float, max_value: int) -> None:
    config = AggregationConfig(epsilon=epsilon, max_value=max_value)

    def release(rng: NoiseSource, size: int) -> np.ndarray:
        return aggregate_reports(np.zeros((2, size), int), config, rng=rng)

    # Accepts this scale and refuses one that is 5% off.
    assert_discrete(
        release,
        lambda scale: DiscreteLaplaceConfig(scale=scale).pmf,
        scale=2 * max_value / epsilon,
    )


def test_the_noise_covers_what_a_browser_charges() -> None:
    config = AggregationConfig(epsilon=0.3, max_value=7)
    for value in range(1, 8):
        charged = microepsilons(2 * value, max_value=7, epsilon=0.3) / 1e6
        assert charged >= 2 * value / config.noise.scale - 1e-12
    assert config.noise.max_contribution / config.noise.scale == pytest.approx(0.3)


def test_reports_are_added_up() -> None:
    reports = np.array([[1, 0, 2], [0, 3, 0]])
    noisy = aggregate_reports(
        reports, AggregationConfig(epsilon=400.0, max_value=3), rng=SeededNoise(1)
    )
    assert noisy.tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    "reports", [[[2, 2]], [[-1, 1]], [1, 2], [[0.5, 0.5]]], ids=["sum", "sign", "shape", "type"]
)
def test_a_report_that_noise_does_not_cover_is_refused(reports: list[object]) -> None:
    with pytest.raises(DataError):
        aggregate_reports(reports, AggregationConfig(epsilon=1.0, max_value=3), rng=SeededNoise(1))


@pytest.mark.parametrize(("epsilon", "max_value"), [(0.0, 1), (5000.0, 1), (1.0, 0)])
def test_settings_outside_the_limits_are_refused(epsilon: float, max_value: int) -> None:
    with pytest.raises(ConfigError):
        AggregationConfig(epsilon=epsilon, max_value=max_value)
