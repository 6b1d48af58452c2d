from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tulle.data.synth.table_files import TableForm, write_table
from tulle.errors import ConfigError

FORM = TableForm(columns=("name", "count"), names=frozenset({"name"}))


def broken() -> Iterator[bytes]:
    yield b"a,1\n"
    raise RuntimeError("the power is gone")


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.csv.zst", "t.parquet"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")
    with pytest.raises((RuntimeError, pl.exceptions.ComputeError), match="the power is gone"):
        write_table(path, FORM, broken())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_header_comes_first_and_only_once(tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", FORM, [b"a,1\n", b"b,2\n"])
    assert (tmp_path / "t.csv").read_text() == "name,count\na,1\nb,2\n"


def test_a_parquet_file_has_types_and_nulls(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", FORM, [b"a,1\n,\n", b"7,2\n"])
    table = pl.read_parquet(tmp_path / "t.parquet")
    assert table.rows() == [("a", 1), (None, None), ("7", 2)]


def test_the_same_log_gives_the_same_compressed_bytes(tmp_path: Path) -> None:
    for name in ("a.csv.gz", "b.csv.gz"):
        write_table(tmp_path / name, FORM, [b"a,1\n"])
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        write_table(tmp_path / "no" / "t.csv", FORM, [])
    with pytest.raises(ConfigError, match="is a folder"):
        write_table(tmp_path, FORM, [])
