"""Lines that are split where they stand have the values that the careful way finds."""

import csv
import io
from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tulle.data.tables.archives import MAX_LINE_BYTES, Lines
from tulle.data.tables.layout import QUOTE, TextForm
from tulle.data.tables.split_lines import SplitLines, TextColumn, split_in_place
from tulle.data.tables.text import parse_lines

PLACES = {"c": 2, "a": 0, "b": 1}
ODD = ["", "05", "5.0", " 5 ", "é", "null", "'", "x" * 127, "x" * 129, "é" * 70, "y" * 5000]


def form_of(
    separator: str = ",", quote: str | None = QUOTE, missing: Sequence[str] = ("",)
) -> TextForm:
    return TextForm(
        columns=("a", "b", "c"),
        separator=separator,
        has_header=True,
        missing=tuple(missing),
        quote=quote,
    )


def lines_of(text: str | bytes) -> Lines:
    data = text.encode() if isinstance(text, str) else text
    return Lines(data, data.count(b"\n"), first_line=1)


def split(text: str | bytes, form: TextForm | None = None) -> SplitLines | None:
    return split_in_place(lines_of(text), form or form_of(), 3, PLACES)


def check_as_careful(text: str, form: TextForm | None = None) -> bool:
    """Whether lines are split in place; then the values are those of the careful way."""
    found = split(text, form)
    careful = parse_lines(lines_of(text), form or form_of(), 3, PLACES)
    if found is None:
        return False
    assert not careful.bad
    assert len(found) == len(careful.table)
    assert found.select(PLACES).equals(careful.table)
    for name in PLACES:
        values = found.column(name)
        for start, size, value in zip(
            values.starts, values.sizes, careful.table[name], strict=True
        ):
            assert size == (-1 if value is None else len(value.encode()))
            assert values.text[start : start + max(size, 0)].decode() == (value or "")
    return True


@settings(max_examples=300)
@given(text=st.text(alphabet='a1é,;" \r\n', max_size=60))
def test_whatever_is_split_in_place_is_split_as_with_care(text: str) -> None:
    check_as_careful(text + "\n")
    check_as_careful(text + "\n", form_of(";", None))
    check_as_careful(f"a,b,c\n1,{text},3\n")


@settings(max_examples=100)
@given(
    rows=st.lists(st.tuples(*[st.sampled_from([*ODD, "a,b", ",", "\u2028"])] * 3), min_size=1),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_writers_write_is_split_in_place(
    rows: list[tuple[str, str, str]], quoting: int, end: str
) -> None:
    file = io.StringIO()
    csv.writer(file, quoting=quoting, lineterminator=end).writerows(rows)  # type: ignore[arg-type]
    assert check_as_careful(file.getvalue())


def test_quotes_are_text_where_the_form_has_none() -> None:
    assert check_as_careful('"a\t"b"\t"\n', form_of("\t", None))


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n",
        "1,2,3,4\n",
        "1,2\n3,4,5,6\n",
        '1,"2\n3",4,5,6,7\n',
        "\n",
        "1,2,3\n\n",
        "1,2,3\r4\n",
        "1,2,\0\n",
        b"1,2,\xff\n",
        '1,2,"3""\n',
        '1,2,"3"""\n',
        '1,"2"2,3\n',
        '1,2"2",3\n',
        f"1,2,{'x' * MAX_LINE_BYTES}\n",
    ],
)
def test_lines_that_need_a_closer_look_are_not_split_in_place(text: str | bytes) -> None:
    assert split("1,2,3\n") is not None
    assert split(text) is None


def test_empty_lines_of_one_column_are_not_split_in_place() -> None:
    assert split_in_place(lines_of("1\n2\n"), form_of(), 1, {"a": 0}) is not None
    assert split_in_place(lines_of("1\n\n"), form_of(), 1, {"a": 0}) is None


@pytest.mark.parametrize("missing", [(), ("-1",), ("", "-1")])
def test_other_marks_of_missing_values_are_left_to_the_careful_way(missing: tuple[str]) -> None:
    assert split("1,-1,\n", form_of(missing=missing)) is None


@given(numbers=st.lists(st.none() | st.integers(0, 10**15 - 1), min_size=1), width=st.integers(1))
def test_plain_digits_are_read_as_whole_numbers(numbers: list[int | None], width: int) -> None:
    texts = [None if one is None else str(one).zfill(width % 16) for one in numbers]
    found = TextColumn.of(pl.Series(texts, dtype=pl.String)).whole_numbers("n")
    assert found is not None
    assert (found.name, found.dtype, found.to_list()) == ("n", pl.Int64, numbers)


@pytest.mark.parametrize("place", [0, 7, 8, 14])
def test_anything_but_digits_is_no_plain_number(place: int) -> None:
    digits = "123456789012345"
    for character in [*map(chr, range(ord("0"))), *map(chr, range(ord("9") + 1, 128)), "é"]:
        text = digits[:place] + character + digits[place + len(character.encode()) :]
        assert TextColumn.of(pl.Series(["1", text])).whole_numbers("n") is None, character
    assert TextColumn.of(pl.Series([digits + "6"])).whole_numbers("n") is None


def test_whole_numbers_are_given_as_such_only_if_all_are() -> None:
    found = split("1,05,7\n2,,x\n")
    assert found is not None
    table = found.select(["b", "c", "a"], whole=["b", "c"])
    assert table.to_dict(as_series=False) == {"b": [5, None], "c": ["7", "x"], "a": ["1", "2"]}


def test_a_series_and_its_text_have_the_same_values() -> None:
    values = pl.Series("v", [*ODD[1:], None, "last"])
    assert TextColumn.of(values).series("v").equals(values, null_equal=True)
    assert TextColumn.of(values.clear()).sizes.dtype == np.int64
