"""A log with columns of every kind and a model of Mosaic of it, for tests of what leaves tulle."""

import numpy as np
import polars as pl

import tulle
from tulle.data.schema import Kind, Schema
from tulle.train.classifier import Classifier
from tulle.train.methods.mosaic.trained_cells import TrainedCells

SCHEMA = Schema(
    label="sale",
    public=("campaign", "shop", "clicks", "price", "is_app"),
    sensitive=("age",),
    time="second",
    kinds={
        "clicks": Kind.INTEGER,
        "price": Kind.REAL,
        "second": Kind.TIMESTAMP,
        "is_app": Kind.BOOLEAN,
        "sale": Kind.INTEGER,
    },
)
COLUMNS = ("campaign", "shop", "clicks", "price", "is_app", "second", "age")


def make_log(num_rows: int, seed: int) -> pl.DataFrame:
    """Rows in which every column and one pair tell something; some values are missing."""
    rng = np.random.default_rng(seed)
    campaign, shop, age = (rng.integers(0, size, num_rows) for size in (7, 5, 4))
    clicks, price = rng.geometric(0.2, num_rows) - 1, rng.lognormal(2, 1.5, num_rows)
    second = rng.integers(1_600_000_000, 1_600_000_000 + 14 * 86_400, num_rows)
    hour, is_app = second // 3600 % 24, rng.random(num_rows) < 0.4
    log_odds = (
        -1.5
        + 0.9 * (campaign % 3)
        - 0.9 * (shop % 2)
        + 1.6 * ((campaign + shop) % 2)
        + 0.5 * np.log2(1 + clicks)
        - 0.3 * np.log2(1 + price)
        + 0.7 * is_app
        + 0.8 * (hour >= 12)
        + 0.9 * (age - 1.5)
    )
    sale = rng.random(num_rows) < 1 / (1 + np.exp(-log_odds))

    def with_gaps(values: pl.Series, part: float) -> pl.Series:
        return pl.select(pl.when(pl.Series(rng.random(num_rows) >= part)).then(values)).to_series()

    return pl.DataFrame(
        {
            "sale": sale.astype(np.int64),
            "campaign": with_gaps(pl.Series([f"café {value}" for value in campaign]), 0.05),
            "shop": [f"shop-{value:04d}" for value in shop],
            "clicks": with_gaps(pl.Series(clicks), 0.1),
            "price": with_gaps(pl.Series(price), 0.1),
            "is_app": with_gaps(pl.Series(is_app), 0.1),
            "second": second,
            "age": with_gaps(pl.Series([f"{value}0s" for value in age]), 0.05),
        }
    )


def new_rows(num_rows: int = 600, seed: int = 9) -> pl.DataFrame:
    """Rows without label that training has not seen; a part of the values are new, too."""
    rows = make_log(num_rows, seed).drop("sale").with_row_index("impression")
    is_new = pl.col("impression") % 9 == 0
    name = "never seen " + (pl.col("impression") % 5).cast(pl.String)
    return rows.with_columns(
        pl.when(is_new).then(name).otherwise("campaign").alias("campaign"),
        pl.when(is_new).then(-pl.col("price")).otherwise("price").alias("price"),
    )


def trained() -> Classifier:
    """A model with tables of one column and of several, of public and of sensitive ones."""
    found = Classifier(SCHEMA, epsilon=50.0, delta=1e-6, seed=1).fit(make_log(20_000, seed=1))
    model = found.model_
    assert isinstance(model, TrainedCells)
    columns = {len(table.parts) for table in model.model.tables}
    assert {1, 2} <= columns
    assert model.model.reads_sensitive
    return found


def loaded(folder: object) -> Classifier:
    found = tulle.load(str(folder))
    assert isinstance(found, Classifier)
    return found
