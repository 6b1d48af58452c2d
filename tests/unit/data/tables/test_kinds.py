"""A value is the same whether it came as text or as a number."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from tulle.data.schema import Kind, Schema
from tulle.data.tables.kinds import as_flags, as_numbers, as_text, typed_columns
from tulle.errors import DataError

INF = float("inf")
SAME_TEXTS = [
    (Kind.CATEGORICAL, ["5", "-7", None], [5, -7, None], pl.Int16),
    (Kind.CATEGORICAL, ["0.5", "3.5", "5", None], [0.5, 3.5, 5.0, float("nan")], pl.Float64),
    (Kind.CATEGORICAL, ["3.1", "16777216", "-3"], [3.1, 16777216.0, -3.0], pl.Float32),
    (Kind.CATEGORICAL, ["0", "inf", "1e+22", "-inf"], [-0.0, INF, 1e22, -INF], pl.Float64),
    (Kind.CATEGORICAL, ["true", None], [True, None], pl.Boolean),
    (Kind.INTEGER, ["5", "05", "+5", None], [5, 5, 5, None], pl.UInt8),
    (Kind.INTEGER, ["5", None, "-9223372036854775808"], [5, None, -(2**63)], pl.Int64),
    (Kind.INTEGER, ["5", None, None], [5.0, None, float("nan")], pl.Float64),
    (
        Kind.INTEGER,
        ["-5", None, "9007199254740993"],
        [Decimal("-5.0"), None, Decimal("9007199254740993.0")],
        pl.Decimal(20, 1),
    ),
    (Kind.REAL, ["0.50", "1e3", "5", None, "-0.0"], [0.5, 1000.0, 5.0, None, 0.0], pl.Float64),
    (Kind.REAL, ["0.1", "1e-07", "123456.7"], [0.1, 1e-7, 123456.7], pl.Float32),
    (Kind.REAL, ["5", "-3"], [5, -3], pl.Int32),
    (Kind.TIMESTAMP, ["86400", "86400.9", "-0.5", None], [86400, 86400, -1, None], pl.Int64),
]


@pytest.mark.parametrize(("kind", "texts", "numbers", "dtype"), SAME_TEXTS)
def test_text_files_and_parquet_give_the_same_text(
    kind: Kind, texts: list[str | None], numbers: list[object], dtype: pl.DataType
) -> None:
    from_text = as_text(pl.Series("a", texts, dtype=pl.String), kind)
    from_numbers = as_text(pl.Series("a", numbers, dtype=dtype), kind)
    assert from_text.to_list() == from_numbers.to_list()
    assert from_text.dtype == from_numbers.dtype == pl.String


def test_categories_are_text_as_it_stands() -> None:
    texts = ["5", "05", " 5", "5.0", "", None]
    assert as_text(pl.Series("a", texts), Kind.CATEGORICAL).to_list() == texts
    coded = pl.Series("a", ["x", "y", None], dtype=pl.Categorical)
    assert as_text(coded, Kind.CATEGORICAL).to_list() == ["x", "y", None]


WHOLE = [0, 3, -7, 10**6, 2**24, 2**53 - 1, -(2**53), 2**62]


@pytest.mark.parametrize("dtype", [pl.Int64, pl.Float64])
def test_a_whole_number_is_one_category_in_every_type(dtype: type[pl.DataType]) -> None:
    numbers = pl.Series("a", [*WHOLE, None]).cast(dtype)
    expected = [*(str(value) for value in WHOLE), None]
    assert as_text(numbers, Kind.CATEGORICAL).to_list() == expected


def test_the_text_of_a_category_does_not_depend_on_its_neighbours() -> None:
    together = pl.Series("a", [3.0, 3.5, None, -0.0, 1e300])
    one_by_one = [as_text(together[i : i + 1], Kind.CATEGORICAL)[0] for i in range(5)]
    assert as_text(together, Kind.CATEGORICAL).to_list() == one_by_one
    assert one_by_one == ["3", "3.5", None, "0", "1e+300"]


def test_floats_are_written_as_python_writes_them() -> None:
    floats = [5.0, 1e16, 1e22, 1e-7, 123456789.123, -0.0, float("inf")]
    expected = ["5.0", "1e+16", "1e+22", "1e-07", "123456789.123", "0.0", "inf"]
    assert as_text(pl.Series("a", floats), Kind.REAL).to_list() == expected


def test_times_of_every_type_are_seconds_since_1970() -> None:
    moment = datetime(1970, 1, 2, 3, 0, 0, 999_000)
    for series in (
        pl.Series("t", [moment, None], dtype=pl.Datetime("us")),
        pl.Series("t", [moment, None], dtype=pl.Datetime("ms", "UTC")),
        pl.Series("t", ["97200", None]),
        pl.Series("t", [97200.999, None]),
    ):
        assert as_numbers(series, Kind.TIMESTAMP).to_list() == [97200, None]
    assert as_numbers(pl.Series([date(1970, 1, 2)]), Kind.TIMESTAMP).to_list() == [86400]
    before = pl.Series([datetime(1969, 12, 31, 23, 59, 59, 500_000)])
    assert as_numbers(before, Kind.TIMESTAMP).to_list() == [-1]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_column_without_any_value_is_missing_throughout(kind: Kind) -> None:
    for dtype in (pl.Null, pl.String, pl.Float64):
        assert as_text(pl.Series("a", [None, None], dtype=dtype), kind).to_list() == [None, None]
        assert as_text(pl.Series("a", [], dtype=dtype), kind).to_list() == []


WRONG = [
    (Kind.INTEGER, pl.Series("age", ["5", "secret", "secret", None])),
    (Kind.INTEGER, pl.Series("age", ["5", ""])),
    (Kind.INTEGER, pl.Series("age", ["9223372036854775808"])),
    (Kind.INTEGER, pl.Series("age", [2**63], dtype=pl.UInt64)),
    (Kind.INTEGER, pl.Series("age", [1.0, 2.5])),
    (Kind.INTEGER, pl.Series("age", [1.0, float("inf")])),
    (Kind.INTEGER, pl.Series("age", [Decimal("1.0"), Decimal("2.5")])),
    (Kind.REAL, pl.Series("age", ["0.5", "1,5"])),
    (Kind.TIMESTAMP, pl.Series("age", ["5", "2026-02-30"])),
    (Kind.TIMESTAMP, pl.Series("age", ["2026-01-14T24:00"])),
    (Kind.TIMESTAMP, pl.Series("age", ["noon"])),
    (Kind.TIMESTAMP, pl.Series("age", [True])),
    (Kind.BOOLEAN, pl.Series("age", ["true", "secret"])),
    (Kind.BOOLEAN, pl.Series("age", [0, 5])),
    (Kind.BOOLEAN, pl.Series("age", [0.5])),
    (Kind.BOOLEAN, pl.Series("age", [date(1970, 1, 2)])),
    (Kind.TIMESTAMP, pl.Series("age", [1e30])),
    (Kind.INTEGER, pl.Series("age", [True, False])),
    (Kind.CATEGORICAL, pl.Series("age", [[1], [2]])),
    (Kind.CATEGORICAL, pl.Series("age", [b"ab"])),
]


@pytest.mark.parametrize(("kind", "values"), WRONG)
def test_a_value_of_another_kind_is_refused_by_column_only(kind: Kind, values: pl.Series) -> None:
    with pytest.raises(DataError, match="'age'") as caught:
        as_text(values, kind)
    message = str(caught.value)
    assert "schema" in message
    assert "secret" not in message
    assert not {"1", "2", "3", "4"} & set(message.replace("2^63", "").replace("64", ""))


ISO_TIMES = {
    "2026-01-14": 1_768_348_800,
    "2026-01-14 10:00": 1_768_384_800,
    "2026-01-14T10:00:07": 1_768_384_807,
    "2026-01-14T10:00:07Z": 1_768_384_807,
    "2026-01-14T10:00:07.999Z": 1_768_384_807,
    "2026-01-14 10:00:00+02": 1_768_377_600,
    "2026-01-14 10:00:00+0200": 1_768_377_600,
    "2026-01-14T10:00:00.5+05:30": 1_768_365_000,
    "2026-01-14T10:00-08:30": 1_768_415_400,
    "1969-12-31T23:59:59.5Z": -1,
    "0999-03-01": -30_636_662_400,
}


def test_times_of_iso_text_are_seconds_in_utc_each_by_itself() -> None:
    together = pl.Series("t", [*ISO_TIMES, None, "97200.9"])
    assert as_numbers(together, Kind.TIMESTAMP).to_list() == [*ISO_TIMES.values(), None, 97200]
    for text, seconds in ISO_TIMES.items():
        assert as_numbers(pl.Series("t", [text]), Kind.TIMESTAMP).to_list() == [seconds]
        moment = datetime.fromisoformat(text)
        utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        assert math.floor(utc.timestamp()) == seconds


def test_truth_values_of_every_form_are_one() -> None:
    for series in (
        pl.Series("b", [True, False, None]),
        pl.Series("b", [1, 0, None]),
        pl.Series("b", [1.0, 0.0, float("nan")]),
        pl.Series("b", ["1", "0", None]),
        pl.Series("b", ["TRUE", "False", None]),
        pl.Series("b", ["yes", "No", None]),
        pl.Series("b", ["t", "F", None], dtype=pl.Categorical),
        pl.Series("b", ["1.0", "0.0", None]),
    ):
        assert as_flags(series).to_list() == [True, False, None]
        assert as_text(series, Kind.BOOLEAN).to_list() == ["true", "false", None]
        assert as_numbers(series, Kind.BOOLEAN).to_list() == [1, 0, None]


def test_whole_numbers_that_a_gap_made_floats_are_whole_in_text_too() -> None:
    assert as_numbers(pl.Series(["5.0", "-7", "08.00"]), Kind.INTEGER).to_list() == [5, -7, 8]


def test_a_refusal_names_the_row_where_the_reader_knows_it() -> None:
    schema = Schema(label="y", public=("age", "city"), kinds={"age": "integer"})
    table = pl.DataFrame({"age": ["5", "secret"], "city": ["x", "y"]})
    with pytest.raises(DataError, match=r"^column 'age' holds no whole number .* in log, row 2; "):
        typed_columns(table, schema, lambda index: f"log, row {index + 1}")
    typed = typed_columns(table.head(1), schema, str)
    assert typed.to_dict(as_series=False) == {"age": [5], "city": ["x"]}


def test_short_floats_keep_their_text_when_they_are_typed() -> None:
    schema = Schema(label="y", public=("x",), kinds={"x": "real"})
    table = pl.DataFrame({"x": pl.Series([0.1], dtype=pl.Float32)})
    typed = typed_columns(table, schema, str)["x"]
    assert as_text(typed, Kind.REAL).to_list() == ["0.1"]


def test_categories_have_no_numbers() -> None:
    with pytest.raises(DataError, match="categorical"):
        as_numbers(pl.Series("a", ["5"]), Kind.CATEGORICAL)
