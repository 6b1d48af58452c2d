from pathlib import Path

import polars as pl
import pytest

from tulle.errors import DataError
from tulle.measure.reports.log_files import load_columns, scan_table


def test_columns_are_read_once_each(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a": [1], "b": [2], "c": [3]})
    frame.write_csv(tmp_path / "log.csv")
    assert load_columns("rows", scan_table(tmp_path / "log.csv"), ["b", "a", "b"]).row(0) == (2, 1)


def test_a_column_that_is_misspelt_is_suggested() -> None:
    with pytest.raises(DataError, match=r"rows have no column 'campain' \(did you mean 'campaign'"):
        load_columns("rows", pl.LazyFrame({"campaign": [1]}), ["campain"])


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(DataError, match="no rows"):
        load_columns("rows", pl.LazyFrame({"a": []}), ["a"])


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.parquet").write_bytes(b"secret-cell,1")
    with pytest.raises(DataError, match="cannot be read") as caught:
        load_columns("rows", scan_table(tmp_path / "log.parquet"), ["a"])
    assert "secret" not in str(caught.value)
    with pytest.raises(DataError, match="not there"):
        scan_table(tmp_path / "other.parquet")
