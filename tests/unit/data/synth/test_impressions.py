import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tulle.data.formats.public import CONVERSIONS, IMPRESSIONS
from tulle.data.synth import impressions
from tulle.data.synth.impressions import (
    ImpressionBlock,
    ImpressionConfig,
    advertiser_of,
    generate_impression_blocks,
)
from tulle.data.synth.writing import write_impression_logs
from tulle.errors import ConfigError

CONFIG = ImpressionConfig(num_users=60_000, num_advertisers=5, campaigns_per_advertiser=4)


def blocks_of(config: ImpressionConfig, seed: int = 2, **more: int) -> list[ImpressionBlock]:
    return list(generate_impression_blocks(config, seed=seed, **more))


def totals(name: str, weights: Callable[[ImpressionBlock], np.ndarray]) -> np.ndarray:
    """Sums of weights by campaign: of impressions, or of the conversions that they caused."""
    counts = np.zeros(CONFIG.num_campaigns + 1)
    for block in blocks_of(CONFIG):
        campaigns = block.campaign if name == "campaign" else causing_campaign(block)
        counts += np.bincount(campaigns, weights(block), minlength=len(counts))
    return counts[1:]


def causing_campaign(block: ImpressionBlock) -> np.ndarray:
    """The campaign of the impression that caused each conversion, or 0."""
    places = np.maximum(block.cause - block.impression_id[0], 0)
    return np.where(block.cause >= 0, block.campaign[places], 0)


class CampaignTruth:
    """Expected numbers of each campaign from 1 on, over the whole log, from the rates alone."""

    def __init__(self, config: ImpressionConfig) -> None:
        campaigns = np.arange(1, config.num_campaigns + 1)
        rates = impressions._Rates(config)
        share = config.campaign_law.prob(campaigns)
        self.impressions = config.num_users * config.mean_impressions * share
        self.clicks = self.impressions * rates.click[campaigns]
        after_view = (self.impressions - self.clicks) * rates.after_view[campaigns]
        caused = self.clicks * rates.after_click[campaigns] + after_view
        # What happens after the end of the log is not in it.
        left = (np.arange(20_000) + 0.5) / 20_000 * config.num_days
        delay = stats.lognorm(config.delay_stddev, scale=config.median_delay_days)
        self.conversions = caused * np.mean(delay.cdf(left))
        # Values are log-normal with this median by advertiser and a spread of 0.8.
        medians = rates.value[advertiser_of(config, campaigns)]
        self.value = self.conversions * medians * np.exp(0.5 * 0.8**2)


def test_the_log_shows_on_average_what_its_rates_say() -> None:
    truth = CampaignTruth(CONFIG)
    shown = totals("campaign", lambda block: np.ones(len(block.campaign)))
    clicks = totals("campaign", lambda block: block.clicked.astype(float))
    caused = totals("cause", lambda block: np.ones(len(block.cause)))
    # Users' activity varies: their number of impressions has a variance of about 8 + 8² * 3.2.
    widening = 1 + CONFIG.mean_impressions * (np.exp(CONFIG.activity_stddev**2) - 1)
    for found, expected in (
        (shown, truth.impressions),
        (clicks, truth.clicks),
        (caused, truth.conversions),
    ):
        share = expected / truth.impressions.sum()
        error = np.sqrt(expected * (1 + share * widening))
        assert np.abs((found - expected) / error).max() < 6.5


def test_the_check_of_conversions_can_fail() -> None:
    caused = totals("cause", lambda block: np.ones(len(block.cause)))
    wrong = CampaignTruth(dataclasses.replace(CONFIG, median_delay_days=6.0)).conversions
    assert abs(caused.sum() - wrong.sum()) > 6.5 * wrong.sum() ** 0.5


def test_the_value_of_a_campaign_is_as_stated() -> None:
    truth = CampaignTruth(CONFIG)
    value = totals("cause", lambda block: block.conversion_value)
    # A log-normal of spread 0.8 has a second moment of 1.9 squared means.
    error = value / truth.conversions**0.5 * 1.9**0.5
    assert np.abs((value - truth.value) / error).max() < 6.5


def test_causes_come_before_their_conversions_and_belong_to_the_same_user() -> None:
    for block in blocks_of(CONFIG):
        caused = block.cause >= 0
        place = block.cause[caused] - block.impression_id[0]
        assert np.all(block.impression_user[place] == block.conversion_user[caused])
        assert np.all(block.impression_time[place] <= block.conversion_time[caused])
        advertisers = advertiser_of(CONFIG, block.campaign[place])
        assert np.all(advertisers == block.conversion_advertiser[caused])


def test_events_lie_within_the_log() -> None:
    config = dataclasses.replace(CONFIG, first_second=5000)
    for block in blocks_of(config):
        for times in (block.impression_time, block.conversion_time):
            assert times.min() >= 5000
            assert times.max() < 5000 + 30 * 86_400
            assert np.all(np.diff(times) >= 0)


def test_a_few_users_see_many_ads() -> None:
    rows = np.concatenate([block.impression_user for block in blocks_of(CONFIG)])
    counts = np.sort(np.bincount(rows, minlength=60_001)[1:])[::-1]
    assert counts.mean() == pytest.approx(8, rel=0.05)
    assert counts[:600].sum() > 0.08 * counts.sum()


def test_the_log_depends_on_the_seed_alone() -> None:
    first, second, other = blocks_of(CONFIG, num_threads=1), blocks_of(CONFIG), blocks_of(CONFIG, 3)
    for a, b in zip(first, second, strict=True):
        for field in dataclasses.fields(ImpressionBlock):
            np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))
    assert len(first[0].campaign) != len(other[0].campaign)


@pytest.mark.parametrize("suffix", [".csv", ".csv.zst", ".parquet"])
def test_written_logs_hold_the_events(suffix: str, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, num_users=9000)
    paths = tmp_path / f"impressions{suffix}", tmp_path / f"conversions{suffix}"
    write_impression_logs(config, *paths, seed=2)
    read = pl.read_parquet if suffix == ".parquet" else pl.read_csv
    shown, converted = read(paths[0]), read(paths[1])
    assert tuple(shown.columns) == (*IMPRESSIONS.columns, "geo", "age_group", "price")
    assert tuple(converted.columns) == CONVERSIONS.columns
    blocks = blocks_of(config)
    campaigns = np.concatenate([block.campaign for block in blocks])
    assert shown["campaign"].to_list() == [f"campaign-{number}" for number in campaigns]
    clicked = np.concatenate([block.clicked for block in blocks])
    assert shown["interaction"].to_list() == np.where(clicked, "click", "view").tolist()
    values = np.concatenate([block.conversion_value for block in blocks])
    np.testing.assert_allclose(converted["value"].to_numpy(), values, atol=0.00501)
    assert converted["conversion_id"].is_unique().all()
    assert shown["impression_id"].is_unique().all()


@pytest.mark.parametrize(
    ("field", "value"), [("num_users", 0), ("click_prob", 0.5), ("delay_stddev", -1.0)]
)
def test_settings_that_cannot_be_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(CONFIG, **{field: value})
