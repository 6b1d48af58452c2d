"""Clicks that a small model learns well: columns of all kinds, a pair, and rare values alike."""

import functools

import numpy as np
import polars as pl

from tulle.train.classifier import Classifier

SCHEMA = {
    "label": "click",
    "public": ["site", "device", "price"],
    "sensitive": ["interest"],
    "time": "second",
    "kinds": {"price": "integer", "second": "timestamp"},
}


@functools.cache
def clicks(num_rows: int = 60_000, *, seed: int = 0) -> pl.DataFrame:
    """Clicks that depend on every column, and on site and device together."""
    rng = np.random.default_rng(seed)
    site, device = rng.integers(0, 12, num_rows), rng.integers(0, 3, num_rows)
    interest = rng.zipf(1.5, num_rows) % 2_000
    hour, price = rng.integers(0, 24, num_rows), rng.integers(0, 200, num_rows)
    together = np.random.default_rng(5).normal(0, 0.8, (12, 3))[site, device]
    odds = -3.4 + 0.15 * (site - 6) + 0.6 * (device == 1) + 0.4 * np.log1p(price) + together
    odds += np.where(interest > 40, 1.5, 0.1 * np.minimum(interest, 8))  # Rare ones are alike.
    clicked = rng.random(num_rows) < 1 / (1 + np.exp(-odds))
    return pl.DataFrame(
        {
            "click": clicked.astype(int),
            "site": [f"site {value}" for value in site],
            "device": [["phone", "desktop", "tablet"][value] for value in device],
            "price": [None if value == 0 else int(value) for value in price],
            "interest": [f"interest {value}" for value in interest],
            "second": 1_700_000_000 + 3600 * hour,
        }
    )


@functools.cache
def trained_on_clicks() -> Classifier:
    """A model with tables of single columns, of groups of values, and of a pair."""
    return Classifier(SCHEMA, epsilon=8, seed=1).fit(clicks())
