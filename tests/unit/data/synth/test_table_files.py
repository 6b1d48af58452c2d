from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tulle.data.synth.table_files import (
    TableForm,
    blank_where,
    choose_text,
    constant_text,
    decimal_text,
    hex_text,
    integer_text,
    join_lines,
    write_table,
)
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


INTEGERS = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20)


def lines(*columns: np.ndarray) -> list[str]:
    return join_lines(list(columns), ",").decode().splitlines()


@given(INTEGERS)
def test_integers_are_written_as_python_writes_them(numbers: list[int]) -> None:
    assert lines(integer_text(np.array(numbers))) == [str(number) for number in numbers]


@given(INTEGERS)
def test_fixed_point_numbers_keep_all_their_places(numbers: list[int]) -> None:
    sizes = np.abs(np.array(numbers))
    expected = [f"{size // 10**6}.{size % 10**6:06d}" for size in sizes.tolist()]
    assert lines(decimal_text(sizes, 6)) == expected


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
def test_words_are_eight_hexadecimal_digits(numbers: list[int]) -> None:
    words = np.array(numbers, dtype=np.uint32)
    assert lines(hex_text(words)) == [f"{number:08x}" for number in numbers]
    assert lines(hex_text(words, upper=True)) == [f"{number:08X}" for number in numbers]


def test_fields_of_any_width_are_put_side_by_side() -> None:
    numbers = np.array([5, 123_456, -7])
    chosen = choose_text(numbers > 0, integer_text(numbers), constant_text("none at all", 3))
    blanked = blank_where(numbers < 6, integer_text(numbers))
    assert lines(chosen, blanked) == ["5,", "123456,123456", "none at all,"]
