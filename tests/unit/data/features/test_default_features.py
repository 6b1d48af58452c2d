"""Kinds decide what becomes of a column about which nothing else was said."""

import numpy as np

from tulle.data.features.column_features import (
    BooleanFeature,
    BoundedFeature,
    DayOfWeekFeature,
    HashedFeature,
    HourFeature,
    LogFeature,
    QuantileFeature,
)
from tulle.data.features.default_features import default_features
from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Kind, Schema

SALT = bytes(16)


def test_kinds_and_roles_decide() -> None:
    schema = Schema(
        label="y",
        public=("site", "price", "mobile", "seen"),
        sensitive=("city", "income", "age", "height"),
        time="day",
        kinds={
            "price": "real",
            "mobile": "boolean",
            "seen": "timestamp",
            "day": "integer",
            "income": "real",
            "age": "integer",
            "height": "real",
        },
        bounds={"age": (18, 49), "height": (1.2, 2.2)},
    )
    made = default_features(schema, num_rows=2_000, salt=SALT)
    assert made.features == (
        HashedFeature(column="site", num_bins=1_000),
        QuantileFeature(column="price"),
        BooleanFeature(column="mobile"),
        HourFeature(column="seen"),
        DayOfWeekFeature(column="seen"),
        DayOfWeekFeature(column="day"),
        HashedFeature(column="city", num_bins=500),
        LogFeature(column="income", parts=4),
        BoundedFeature(column="age", low=18, high=49, num_bins=32),
        BoundedFeature(column="height", low=1.2, high=2.2),
    )


def test_known_layouts_bring_their_numbers_along() -> None:
    for name, numbers in {"display": 13, "search": 1, "taobao": 1}.items():
        schema = LAYOUTS[name].schema
        made = default_features(schema, num_rows=2_000, salt=SALT)
        is_number = [isinstance(f, QuantileFeature | LogFeature) for f in made.features]
        assert sum(is_number) == numbers, name
    assert {Kind(kind) for kind in LAYOUTS["display"].schema.kinds.values()} == {Kind.INTEGER}


def test_days_of_the_week_agree_for_seconds_and_days() -> None:
    import polars as pl

    from tulle.data.features.transforms import days_of_week, days_of_week_of_days

    days = pl.Series([0, 1, 4, -3, 20_000, None])
    seconds = days * 86_400 + 5_000
    assert np.array_equal(days_of_week(seconds), days_of_week_of_days(days))
    # 1970-01-01 was a Thursday, and 2024-10-04 is day 20,000, a Friday.
    assert days_of_week_of_days(days).tolist() == [3, 4, 0, 0, 4, 7]
