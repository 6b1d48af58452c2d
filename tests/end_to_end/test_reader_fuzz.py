"""Readers against broken files: an error that tulle raises on purpose, or exactly the good rows.

The good rows are found a second time by a slow reader that goes character by character.
"""

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tulle.data.formats.public import DISPLAY
from tulle.data.schema import Schema, read_schema
from tulle.data.tables.layout import BadLines, Layout
from tulle.data.tables.sources import read_blocks
from tulle.errors import TulleError

_SCHEMA = Schema(label="y", public=("a",), sensitive=("b",))
QUOTED = Layout(
    name="quoted", columns=("y", "a", "b"), separator=",", has_header=False, quote='"',
    schema=_SCHEMA,
)  # fmt: skip
TABBED = Layout(
    name="tabbed", columns=("y", "a", "b"), separator="\t", has_header=False, schema=_SCHEMA
)
GOOD = {
    "quoted": b'1,x,\n"2","a,b","say ""hi"""\r\n3,\xc3\xa9,\xef\xbb\xbf4\n,,\n5,6,7\n',
    "tabbed": b'1\tx\t\n"2"\ta,b\t\r\n3\t\xc3\xa9\t\xef\xbb\xbf4\n\t\t\n5\t6\t7\n',
}
each_layout = pytest.mark.parametrize("layout", [QUOTED, TABBED], ids=lambda layout: layout.name)
fuzzed = settings(
    max_examples=80,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
# Bytes that mean something to a reader come more often than by chance.
noise = st.lists(
    st.sampled_from([b",", b"\t", b"\n", b"\r", b"\r\n", b'"', b'""', b"\0", b"\xff", b"\xc3\xa9"])
    | st.binary(min_size=1, max_size=3),
    max_size=40,
).map(b"".join)
edits = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 2), noise), min_size=1, max_size=4
)

Row = tuple[str | None, ...]


def good_rows(data: bytes, layout: Layout) -> list[Row]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = [good_row(line.removesuffix(b"\r"), layout) for line in lines]
    return [row for row in rows if row is not None]


def good_row(line: bytes, layout: Layout) -> Row | None:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    values = split_slowly(text, layout.separator, layout.quote)
    if not text or "\0" in text or "\r" in text or values is None or len(values) != 3:
        return None
    return tuple(value or None for value in values)


def split_slowly(text: str, separator: str, quote: str | None) -> list[str] | None:
    if quote is None:
        return text.split(separator)
    values, at = [], 0
    while True:
        value = ""
        if text[at : at + 1] == quote:
            at += 1
            while text[at : at + 2] == quote * 2 or text[at : at + 1] not in (quote, ""):
                step = 2 if text[at] == quote else 1
                value += text[at]
                at += step
            if text[at : at + 1] != quote:
                return None
            at += 1
        else:
            while text[at : at + 1] not in (separator, quote, ""):
                value += text[at]
                at += 1
        values.append(value)
        if at == len(text):
            return values
        if text[at] != separator:
            return None
        at += 1


def check_reading(path: Path, layout: Layout, data: bytes, rows_per_block: int) -> None:
    good = good_rows(data, layout)
    blocks = list(
        read_blocks([path], layout, rows_per_block=rows_per_block, bad_lines=BadLines.SKIP)
    )
    assert [row for block in blocks for row in block.table.rows()] == good
    text = data.removeprefix(b"\xef\xbb\xbf")
    num_lines = text.count(b"\n") + (not text.endswith(b"\n") and text != b"")
    num_bad_lines = sum(block.num_bad_lines for block in blocks)
    assert num_bad_lines + len(good) == num_lines == (blocks[-1].next.row if blocks else 0)
    try:
        refused = list(read_blocks([path], layout, rows_per_block=rows_per_block))
    except TulleError:
        assert num_bad_lines > 0
    else:
        assert num_bad_lines == 0
        assert [row for block in refused for row in block.table.rows()] == good


def edited(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, num_removed, added in changes:
        at = place % (len(data) + 1)
        data = data[:at] + added + data[at + num_removed :]
    return data


@each_layout
@given(data=noise | st.binary(max_size=200), rows_per_block=st.integers(1, 5))
@example(data=b"\xef\xbb\xbf", rows_per_block=1)
@example(data=b"\xef\xbb\xbf\xef\xbb\xbf1,2,3\n", rows_per_block=1)
@example(data=b"\n\n", rows_per_block=2)
@fuzzed
def test_random_bytes_give_exactly_their_good_lines(
    tmp_path: Path, layout: Layout, data: bytes, rows_per_block: int
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(data)
    try:
        read_blocks([path], layout)
    except TulleError:
        assert data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"))
        return
    check_reading(path, layout, data, rows_per_block)


@each_layout
@given(changes=edits, rows_per_block=st.integers(1, 5))
@fuzzed
def test_a_good_file_with_random_changes_gives_exactly_its_good_lines(
    tmp_path: Path, layout: Layout, changes: list[tuple[int, int, bytes]], rows_per_block: int
) -> None:
    data = edited(GOOD[layout.name], changes)
    if data.startswith((b"\x1f\x8b", b"\x28\xb5\x2f\xfd")):
        return
    for name, compress in (("log.csv", bytes), ("log.csv.gz", gzip.compress)):
        path = tmp_path / name
        path.write_bytes(compress(data))
        check_reading(path, layout, data, rows_per_block)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@given(changes=edits)
@fuzzed
def test_a_changed_archive_gives_the_whole_file_or_an_error(
    tmp_path: Path, compress: Callable[[bytes], bytes], changes: list[tuple[int, int, bytes]]
) -> None:
    whole = compress(GOOD["tabbed"])
    path = tmp_path / ("log.tsv.gz" if compress is gzip.compress else "log.tsv.zst")
    path.write_bytes(edited(whole, changes))
    try:
        blocks = list(read_blocks([path], TABBED, bad_lines=BadLines.SKIP))
    except TulleError:
        return
    rows = [row for block in blocks for row in block.table.rows()]
    # gzip has a checksum; of the zstd format used here only the structure is checked.
    if compress is gzip.compress:
        assert set(rows) <= set(good_rows(GOOD["tabbed"], TABBED))
    assert all(len(row) == 3 for row in rows)


@given(changes=edits)
@fuzzed
def test_a_changed_schema_file_is_read_or_refused(
    tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    good = b'label = "y"\npublic = ["a", "b"]\nunit = "u"\n[kinds]\na = "real"\n'
    path = tmp_path / "schema.toml"
    path.write_bytes(edited(good, changes))
    try:
        schema = read_schema(path)
    except TulleError:
        return
    assert schema.label is not None


def test_the_slow_reader_agrees_with_what_was_meant() -> None:
    assert good_rows(GOOD["quoted"], QUOTED) == [
        ("1", "x", None),
        ("2", "a,b", 'say "hi"'),
        ("3", "é", "\ufeff4"),
        (None, None, None),
        ("5", "6", "7"),
    ]
    assert good_rows(b'1,2\n1,"2,3\n1,2"3,4\n1,"2"3,4\n', QUOTED) == []


@pytest.mark.parametrize("name", ["log.tsv.gz", "log.tsv.zst"])
def test_a_large_archive_is_not_loaded_whole(tmp_path: Path, name: str) -> None:
    line = b"\t".join([b"1", *[b"12"] * 13, *[b"68fd1e64"] * 26]) + b"\n"
    part = line * 10_000
    num_parts = 200_000_000 // len(part)
    path = tmp_path / name
    compressed = gzip.compress(part, 1) if name.endswith("gz") else zstandard.compress(part)
    path.write_bytes(compressed * num_parts)
    tracemalloc.start()
    try:
        num_rows = largest = 0
        for block in read_blocks([path], DISPLAY, rows_per_block=20_000, columns=["label"]):
            num_rows += len(block.table)
            largest = max(largest, block.table.estimated_size())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert num_rows == 10_000 * num_parts
    assert peak < 40_000_000
    assert largest < 20_000_000


def test_rows_of_a_changed_parquet_file_are_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    columns = {"y": ["1", "0"] * 20, "a": ["x"] * 40, "b": [str(n) for n in range(40)]}
    pl.DataFrame(columns).write_parquet(path)
    whole = path.read_bytes()
    for size in range(4, len(whole), 5):
        path.write_bytes(whole[:size] + b"PAR1")
        with pytest.raises(TulleError):
            list(read_blocks([path], TABBED))
