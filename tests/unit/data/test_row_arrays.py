import dataclasses
from datetime import UTC, date, datetime

import numpy as np
import polars as pl
import pytest

from tulle.data.row_arrays import RowArrays, check_units, drop_rows_without_unit
from tulle.data.schema import Kind, Schema
from tulle.data.tables.kinds import label_numbers
from tulle.errors import DataError

SCHEMA = Schema(label="label", public=("x",), unit="unit", time="time", kinds={"time": "timestamp"})
SALT = b"0123456789abcdef"


def arrays(schema: Schema = SCHEMA, **columns: list[object]) -> dict[str, np.ndarray]:
    num_rows = len(next(iter(columns.values())))
    table = pl.DataFrame(
        {"label": [0] * num_rows, "unit": ["u"] * num_rows, "time": [0] * num_rows} | columns,
        strict=False,
    )
    made = RowArrays(schema=schema, num_classes=2, salt=SALT).make(table, lambda i: f"row {i}")
    return dict(made)


def of_kind(column: str, kind: Kind) -> Schema:
    return dataclasses.replace(SCHEMA, kinds=dict(SCHEMA.kinds) | {column: kind})


def test_only_what_the_schema_has_is_made() -> None:
    schema = Schema(label=None, sensitive=("x",))
    assert arrays(schema, label=[5]) == {}
    assert set(arrays(label=[1])) == {"labels", "units", "times", "days"}


@pytest.mark.parametrize(
    "values",
    [
        [0, 1],
        ["0", "1"],
        [False, True],
        [0.0, 1.0],
        ["0", "1.0"],
        ["false", "true"],
        ["No", "YES"],
        ["no", "1"],
        ["F", "t"],
    ],
)
def test_labels_may_be_numbers_text_or_truth_values(values: list[object]) -> None:
    made = arrays(label=values)["labels"]
    assert made.tolist() == [0, 1]
    assert made.dtype == np.float32


@pytest.mark.parametrize("dtype", [pl.Categorical, pl.Enum(["yes", "no"])])
def test_labels_that_are_stored_as_categories_go_by_their_texts(dtype: pl.DataType) -> None:
    assert label_numbers(pl.Series(["no", "yes", None], dtype=dtype)).to_list() == [0, 1, None]


@pytest.mark.parametrize("value", [None, 2, -1, 0.5, float("nan"), float("inf"), "one", ""])
def test_a_label_that_is_no_class_is_refused(value: object) -> None:
    with pytest.raises(DataError, match=r"column 'label' .* in row 1;"):
        arrays(label=[0, value] if not isinstance(value, str) else ["0", value])


def test_units_are_the_same_from_text_and_numbers() -> None:
    from_text = arrays(unit=["12", "7", "12"])["units"]
    from_numbers = arrays(unit=[12, 7, 12])["units"]
    assert from_text.dtype == np.int64
    assert from_text[0] == from_text[2] != from_text[1]
    np.testing.assert_array_equal(from_text, from_numbers)


def test_units_of_text_are_stable() -> None:
    # Part of the format: a new value here breaks datasets that were written before.
    assert arrays(unit=["user-0001"])["units"].tolist() == [-6032874628572396577]


def test_integer_units_are_kept() -> None:
    made = arrays(of_kind("unit", Kind.INTEGER), unit=["-5", "9007199254740993"])["units"]
    assert made.tolist() == [-5, 9007199254740993]


def test_units_stored_as_floats_are_whole_numbers_or_refused() -> None:
    # A column of ids with a gap is often stored as floats: in one file a user is 12, in the
    # next 12.0, and as text he would be two units.
    made = arrays(of_kind("unit", Kind.INTEGER), unit=[12.0, 7.0])["units"]
    assert made.tolist() == [12, 7]
    real = of_kind("unit", Kind.REAL)
    assert arrays(real, unit=[12.0])["units"] == arrays(real, unit=[12])["units"]
    with pytest.raises(DataError, match=r"column 'unit' .* type Float64.* integer"):
        arrays(unit=[12.0, 7.0])


@pytest.mark.parametrize("kind", [Kind.CATEGORICAL, Kind.INTEGER])
def test_a_missing_unit_is_refused(kind: Kind) -> None:
    with pytest.raises(DataError, match="column 'unit' has nulls, the first in row 1; every row"):
        arrays(of_kind("unit", kind), unit=[1, None])


def test_seconds_give_times_and_days() -> None:
    made = arrays(time=["0", "86399", "86400", "-1"])
    assert made["times"].tolist() == [0, 86399, 86400, -1]
    assert made["days"].tolist() == [0, 0, 1, -1]
    assert made["days"].dtype == np.int32


def test_dates_and_times_count_from_1970() -> None:
    moment = datetime(1970, 1, 3, 1, tzinfo=UTC)
    assert arrays(time=[moment])["times"].tolist() == [2 * 86_400 + 3600]
    assert arrays(time=[date(1970, 1, 3)])["days"].tolist() == [2]


def test_an_integer_time_is_a_number_of_days() -> None:
    made = arrays(of_kind("time", Kind.INTEGER), time=[0, 91])
    assert made["days"].tolist() == [0, 91]
    assert "times" not in made


def test_a_time_that_is_neither_is_refused() -> None:
    with pytest.raises(DataError, match="column 'time' of role time is categorical"):
        arrays(of_kind("time", Kind.CATEGORICAL), time=["noon"])
    with pytest.raises(DataError, match="in row 0; such times look like seconds"):
        arrays(of_kind("time", Kind.INTEGER), time=[2**31])
    with pytest.raises(DataError, match="column 'time' has nulls, the first in row 0"):
        arrays(time=[None, 3])


@pytest.mark.parametrize("day", [0, 91, "20454", -3, 100_000.0])
def test_small_numbers_are_no_seconds_unless_the_schema_says_so(day: object) -> None:
    unsaid = dataclasses.replace(SCHEMA, kinds={})
    with pytest.raises(DataError, match=r"'time' of role time .* days .* in row 1; say which"):
        arrays(unsaid, time=[type(day)(1_768_348_800), day])
    assert arrays(unsaid, time=[1_768_348_800])["days"].tolist() == [20_467]
    assert arrays(unsaid, time=["1970-01-02"])["days"].tolist() == [1]
    assert arrays(time=[day])["times"].tolist() == [int(float(str(day)))]


BY_USER = Schema(label="y", unit="user_id")
BY_ROW = Schema(label="y")


@pytest.mark.parametrize("users", [["a", None, "b"], [1, None, 2], [1.0, float("nan"), 2.0]])
def test_a_row_without_a_unit_is_refused_or_dropped(users: list[object]) -> None:
    table = pl.DataFrame({"user_id": users, "y": [1, 2, 3]}, strict=False)
    with pytest.raises(DataError) as caught:
        check_units(table, BY_USER)
    assert str(caught.value) == (
        "column 'user_id' has nulls or empty text; every row needs a unit. Drop such "
        "rows first, or prepare the data with drop_rows_without_unit=True."
    )
    kept = drop_rows_without_unit(table, BY_USER)
    check_units(kept, BY_USER)
    assert kept["y"].to_list() == [1, 3]


def test_rows_with_units_stay_as_they_are() -> None:
    table = pl.DataFrame({"user_id": ["a", "b"], "y": [None, 2]})
    check_units(table, BY_USER)
    assert drop_rows_without_unit(table, BY_USER).equals(table)


def test_without_a_unit_column_each_row_is_its_own_unit() -> None:
    table = pl.DataFrame({"user_id": ["a", None]})
    check_units(table, BY_ROW)
    assert drop_rows_without_unit(table, BY_ROW).equals(table)


def test_a_table_without_the_unit_column_is_refused() -> None:
    for function in (check_units, drop_rows_without_unit):
        with pytest.raises(DataError, match="'user_id' of role unit is not in the table"):
            function(pl.DataFrame({"y": [1]}), BY_USER)
