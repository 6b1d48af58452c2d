"""Logs of a few users, made at random, for the tests of reports."""

import numpy as np
import polars as pl

from tulle.lab.browser_reports.attributed_log import (
    AttributedLog,
    LastTouchSettings,
    attribute_last_touch,
)

START = 1_768_348_800  # 2026-01-14
SETTINGS = LastTouchSettings(
    lookback_seconds=500,
    source_columns=("campaign",),
    conversion_columns=("conversion_type", "value"),
)


def random_tables(
    seed: int, *, num_impressions: int = 200, num_conversions: int = 120
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    impressions = pl.DataFrame(
        {
            "timestamp": START + rng.integers(0, 2000, num_impressions),
            "user": rng.integers(0, 12, num_impressions),
            "advertiser": rng.choice(["shop1", "shop2"], num_impressions),
            "campaign": rng.choice(["red", "green", "blue"], num_impressions),
            "interaction": rng.choice(["click", "view"], num_impressions),
        }
    )
    conversions = pl.DataFrame(
        {
            "timestamp": START + rng.integers(0, 2600, num_conversions),
            "user": rng.integers(0, 14, num_conversions),
            "advertiser": rng.choice(["shop1", "shop2"], num_conversions),
            "conversion_type": rng.choice(["a", "b", "c"], num_conversions),
            "value": np.round(rng.exponential(30.0, num_conversions), 2),
        }
    )
    return impressions, conversions


def random_log(seed: int) -> AttributedLog:
    impressions, conversions = random_tables(seed)
    return attribute_last_touch(impressions.lazy(), conversions.lazy(), SETTINGS)


def log_of_silent_slices(num_slices: int) -> AttributedLog:
    """One source a slice, and none has a conversion."""
    return AttributedLog(
        sources=pl.DataFrame({"campaign": np.arange(num_slices)}),
        kinds=None,
        conversion_sources=np.zeros(0, np.int64),
        ages=np.zeros(0, np.int64),
        conversions=pl.DataFrame(schema={"value": pl.Float64}),
        num_unattributed=0,
    )
