from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from tulle.data.schema import Schema
from tulle.data.tables.layout import Layout, Position
from tulle.data.tables.sources import read_blocks
from tulle.errors import DataError

LAYOUT = Layout(
    name="log",
    columns=("y", "a"),
    separator=",",
    has_header=True,
    missing=("", "-1", "NULL"),
    schema=Schema(label="y", public=("a",)),
)


def write(folder: Path, **columns: object) -> Path:
    path = folder / "log.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def read(path: Path, rows_per_block: int = 1000) -> pl.DataFrame:
    return pl.concat(b.table for b in read_blocks([path], LAYOUT, rows_per_block=rows_per_block))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3], pl.Int8),
        ([2**63, None, 3], pl.UInt64),
        ([1.5, None, 3.0], pl.Float32),
        ([True, None, False], pl.Boolean),
        ([datetime(2026, 1, 1), None, datetime(2026, 1, 2)], pl.Datetime("us")),
        (["x", None, "y"], pl.String),
    ],
)
def test_stored_types_stay(tmp_path: Path, values: list[object], kind: pl.DataType) -> None:
    path = write(tmp_path, y=[1, 2, 3], a=pl.Series(values, dtype=kind))
    assert read(path)["a"].to_list() == values
    assert read(path)["a"].dtype == kind


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["x", "-1"]), pl.Binary])
def test_text_of_any_kind_becomes_text(tmp_path: Path, kind: pl.DataType) -> None:
    values = ["x", "-1", None] if kind != pl.Binary else [b"x", b"-1", None]
    path = write(tmp_path, y=[1, 2, 3], a=pl.Series(values, dtype=kind))
    assert read(path)["a"].to_list() == ["x", None, None]
    assert read(path)["a"].dtype == pl.String


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int64, pl.Float32, pl.Float64])
def test_numbers_that_mean_missing_become_null(tmp_path: Path, kind: pl.DataType) -> None:
    path = write(tmp_path, y=[1, 2, 3], a=pl.Series([-1, 0, 1], dtype=kind))
    assert read(path)["a"].to_list() == [None, 0, 1]
    assert read(path)["a"].dtype == kind


def test_a_column_without_any_value_is_text(tmp_path: Path) -> None:
    path = write(tmp_path, y=[1, 2], a=pl.Series([None, None], dtype=pl.Null))
    assert read(path)["a"].to_list() == [None, None]


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, y=[1], a=pl.Series([b"\xff"], dtype=pl.Binary))
    with pytest.raises(DataError, match=r"log\.parquet has bytes that are not UTF-8"):
        read(path)


def test_nested_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, y=[1], a=[[1, 2]])
    with pytest.raises(DataError, match=r"column 'a' of type List.*unfold it"):
        read(path)


def test_a_missing_column_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, y=[1], aa=[1])
    with pytest.raises(DataError, match=r"log\.parquet has no column 'a'"):
        read(path)


def test_blocks_have_the_size_asked_for_across_fetches(tmp_path: Path) -> None:
    num_rows = (1 << 16) + 70_000
    path = write(tmp_path, y=[0] * num_rows, a=list(range(num_rows)))
    for rows_per_block in (50_000, 100_000):
        blocks = list(read_blocks([path], LAYOUT, rows_per_block=rows_per_block))
        assert max(len(block.table) for block in blocks) <= rows_per_block
        assert pl.concat(b.table for b in blocks)["a"].to_list() == list(range(num_rows))


def test_a_truncated_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, y=list(range(100)), a=list(range(100)))
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"log\.parquet is "):
            read(path)
    path.write_bytes(whole[: len(whole) // 2] + b"PAR1")
    with pytest.raises(DataError, match=r"log\.parquet is cut off or damaged"):
        read(path)


def test_a_file_shorter_than_before_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, y=[1], a=[1])
    with pytest.raises(DataError, match="shorter than when reading stopped"):
        list(read_blocks([path], LAYOUT, start=Position(0, row=2, byte=0, line=0)))
