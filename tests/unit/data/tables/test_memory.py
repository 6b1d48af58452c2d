import datetime as dt
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tulle.data.tables.memory import as_polars
from tulle.errors import DataError


def values_of(column: object) -> list[object]:
    """The values of one pandas column after the conversion."""
    return as_polars(pd.DataFrame({"x": column}))["x"].to_list()


def test_a_polars_table_keeps_its_values_and_types() -> None:
    table = pl.DataFrame({"a": [1, None], "b": ["x", None], "c": [0.5, None]})
    assert as_polars(table).equals(table)


def test_an_arrow_table_keeps_its_values_and_types() -> None:
    table = pa.table({"a": [1, None], "b": ["x", None], "c": [True, None]})
    expected = pl.DataFrame({"a": [1, None], "b": ["x", None], "c": [True, None]})
    assert as_polars(table).equals(expected)
    assert as_polars(table.to_batches()[0]).equals(expected)
    assert as_polars(pa.RecordBatchReader.from_batches(table.schema, table.to_batches())).equals(
        expected
    )


@pytest.mark.parametrize(
    "column",
    [
        np.array([1, 2, 3], np.int8),
        np.array([1, 2, 2**64 - 1], np.uint64),
        np.array([0.1, 2.5, 3.0], np.float32),
        np.array([True, False, True]),
        ["a", "bb", "ä"],
        [dt.datetime(2024, 1, 2, 3, 4, 5), dt.datetime(1969, 1, 1), dt.datetime(1970, 1, 1)],
    ],
)
def test_pandas_columns_keep_their_values(column: object) -> None:
    assert values_of(column) == list(np.asarray(column).tolist())


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1.5, np.nan], [1.5, None]),
        (["a", None], ["a", None]),
        (np.array(["a", np.nan], object), ["a", None]),
        (np.array([7, None], object), [7, None]),
        (np.array([True, None], object), [True, None]),
        (pd.array([2**62 + 1, None], dtype="Int64"), [2**62 + 1, None]),
        (pd.array([1.5, None], dtype="Float64"), [1.5, None]),
        (pd.array([True, None], dtype="boolean"), [True, None]),
        (pd.array(["a", None], dtype="string"), ["a", None]),
        (pd.array([5, None], dtype="int32[pyarrow]"), [5, None]),
        (pd.array(["a", None], dtype=pd.ArrowDtype(pa.string())), ["a", None]),
        (pd.Categorical(["b", None, "a", "b"]), ["b", None, "a", "b"]),
        (pd.Categorical([5, None, 3]), [5, None, 3]),
        (pd.arrays.SparseArray([1.5, np.nan]), [1.5, None]),
        (pd.to_datetime(["2024-01-02", None]), [dt.datetime(2024, 1, 2), None]),
        (np.array([dt.date(2024, 1, 2), None], object), [dt.date(2024, 1, 2), None]),
        ([None, None], [None, None]),
        (["a", ""], ["a", None]),
    ],
)
def test_what_is_missing_in_pandas_is_null(column: object, expected: list[object]) -> None:
    assert values_of(column) == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_pandas_are_utc_whatever_their_unit_and_zone(unit: str) -> None:
    times = pd.to_datetime(["2024-07-01 12:00:00", None]).as_unit(unit)
    assert values_of(times) == [dt.datetime(2024, 7, 1, 12), None]
    assert values_of(times.tz_localize("Asia/Tokyo")) == [dt.datetime(2024, 7, 1, 3), None]


def test_arrow_times_in_pandas_are_utc() -> None:
    times = pd.to_datetime(["2024-07-01 12:00:00", None]).tz_localize("Asia/Tokyo")
    arrow = pd.Series(times).astype(pd.ArrowDtype(pa.timestamp("us", "Asia/Tokyo")))
    assert values_of(arrow) == [dt.datetime(2024, 7, 1, 3), None]


def test_text_of_any_kind_is_text_and_empty_text_is_missing() -> None:
    arrow = pa.table(
        {
            "coded": pa.array(["a", "", None]).dictionary_encode(),
            "bytes": pa.array([b"a", b"", None]),
            "large": pa.array(["a", "", None], pa.large_string()),
            "view": pa.array(["a", "", None], pa.string_view()),
            "nothing": pa.nulls(3),
        }
    )
    made = as_polars(arrow)
    assert set(made.schema.values()) == {pl.String()}
    for name in ("coded", "bytes", "large", "view"):
        assert made[name].to_list() == ["a", None, None]
    enum = pl.DataFrame({"x": pl.Series(["a", ""], dtype=pl.Enum(["a", ""]))})
    assert as_polars(enum)["x"].to_list() == ["a", None]


def test_nan_is_null_in_every_table() -> None:
    assert as_polars(pl.DataFrame({"x": [1.0, float("nan")]}))["x"].to_list() == [1, None]
    assert as_polars(pa.table({"x": [1.0, float("nan")]}))["x"].to_list() == [1, None]


def test_only_the_columns_asked_for_are_looked_at() -> None:
    frame = pd.DataFrame({"a": [1, 2], 7: [1, 2], "odd": [[1], [2]], "mixed": [1, "x"]})
    assert as_polars(frame, columns={"a", "not there"}).to_dict(as_series=False) == {"a": [1, 2]}
    arrow = pa.table({"a": [1], "odd": [[1]]})
    assert as_polars(arrow, columns=["a"]).columns == ["a"]
    assert as_polars(pl.DataFrame({"a": [1], "odd": [[1]]}), columns=["a"]).columns == ["a"]


def test_the_index_and_the_order_of_a_pandas_table_do_not_matter() -> None:
    frame = pd.DataFrame({"x": [3, 1, 2], "c": pd.Categorical(["b", "a", "b"])}, index=[9, 9, 0])
    assert as_polars(frame)["x"].to_list() == [3, 1, 2]
    assert as_polars(frame.iloc[::-1])["c"].to_list() == ["b", "a", "b"]
    assert as_polars(frame.iloc[1:])["c"].to_list() == ["a", "b"]
    assert as_polars(frame.iloc[:0])["c"].to_list() == []


@pytest.mark.parametrize(
    "column",
    [
        np.array([1, "secret"], object),
        np.array([object(), object()]),
        np.array([1j, 2j]),
        pd.array(["2020-01"], dtype="period[M]"),
        np.array([[1], [2, 3]], object),
        np.array([1.0], np.longdouble),
    ],
)
def test_a_pandas_column_without_plain_values_is_refused_without_quoting_it(
    column: object,
) -> None:
    with pytest.raises(DataError, match="column 'x'") as caught:
        values_of(column)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_nested_columns_and_broken_text_are_refused() -> None:
    with pytest.raises(DataError, match="column 'x' has the type List"):
        as_polars(pl.DataFrame({"x": [[1]]}))
    with pytest.raises(DataError, match="column 'x' has bytes that are not UTF-8"):
        as_polars(pa.table({"x": [b"\xff"]}))


def test_names_must_be_text_and_distinct() -> None:
    with pytest.raises(DataError, match="column name of type int"):
        as_polars(pd.DataFrame({0: [1]}))
    with pytest.raises(DataError, match="column 'a' twice"):
        as_polars(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(DataError, match="column name twice"):
        as_polars(pa.table([[1], [2]], names=["a", "a"]))


@pytest.mark.parametrize(
    "table",
    [
        {"a": [1]},
        [[1]],
        np.zeros((2, 2)),
        None,
        "table.csv",
        pl.Series([1]),
        pd.Series([1]),
        pa.chunked_array([[1]]),
    ],
)
def test_anything_else_is_refused(table: object) -> None:
    with pytest.raises(DataError, match=f"of type {type(table).__name__} .*; pass a"):
        as_polars(table)


def test_a_lazy_table_is_collected_with_its_columns_alone() -> None:
    broken = pl.col("a").map_batches(lambda _: pytest.fail("was read"), return_dtype=pl.Int64)
    lazy = pl.LazyFrame({"a": [1, 2]}).with_columns(b=broken)
    assert as_polars(lazy, columns={"a"}).to_dict(as_series=False) == {"a": [1, 2]}


def test_a_lazy_table_that_cannot_be_collected_is_refused_without_its_values() -> None:
    lazy = pl.LazyFrame({"a": ["secret"]}).with_columns(pl.col("a").cast(pl.Int64))
    with pytest.raises(DataError, match=r"collect\(\)") as caught:
        as_polars(lazy)
    assert "secret" not in str(caught.value)


def test_a_relation_of_duckdb_is_a_table() -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        relation = connection.sql("SELECT 1::BIGINT AS a, 'x' AS b UNION ALL SELECT NULL, ''")
        assert as_polars(relation).to_dict(as_series=False) == {"a": [1, None], "b": ["x", None]}


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
from tulle.data.tables.memory import as_polars
frame = pd.DataFrame({"s": ["a", None], "i": pd.array([1, None], dtype="Int64"),
                      "c": pd.Categorical(["x", None]), "t": pd.to_datetime(["2024-01-01", None])})
made = as_polars(frame)
print(made.select("s", "i", "c").rows(), made["t"].dt.epoch("s").to_list())
"""


def test_pandas_tables_need_no_pyarrow() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ("[('a', 1, 'x'), (None, None, None)] [1704067200, None]")
