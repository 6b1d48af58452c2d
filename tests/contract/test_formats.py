"""The contract of every layout and every form a file can have.

What was written comes back, in any block size, after any stop, or the reader says why not.
"""

import dataclasses
import re
from pathlib import Path

import polars as pl
import pytest

from contract.log_files import (
    FORMS,
    compressed,
    expected,
    make_rows,
    text_of,
    write_form,
    write_parquet,
)
from tulle.data.formats.public import LAYOUTS
from tulle.data.schema import Schema
from tulle.data.tables.layout import BadLines, Block, Layout, Position, layout_for
from tulle.data.tables.sources import read_blocks
from tulle.errors import DataError

_ROLES = Schema(label="y", public=("a",), sensitive=("b",), unit="u", ignored=("x",))
CASES = [
    *LAYOUTS.values(),
    layout_for(Path("any.csv"), _ROLES),
    layout_for(Path("any.tsv"), _ROLES),
]
each_layout = pytest.mark.parametrize("layout", CASES, ids=lambda layout: layout.name)
each_form = pytest.mark.parametrize("form", FORMS)

BAD_LINES = {
    "a value too few": (rb"^(.*)%s.*$", rb"\1"),
    "a value too many": (rb"^(.*)$", rb"\1%s1"),
    "256 values too many": (rb"^(.*)$", rb"\1" + 256 * rb"%s1"),
    "broken UTF-8": (rb"^(.*)$", b"\\1\xc3"),
    "a NUL byte": (rb"^(.*)$", b"\\1\0"),
    "a carriage return": (rb"^(.*)$", rb"\r\1"),
    "nothing": (rb"^.*$", b""),
    "too long": (rb"^(.*)$", rb"\1" + b"1" * (1 << 20)),
}


def made_bad(line: bytes, kind: str, separator: str) -> bytes:
    pattern, replacement = (part.replace(b"%s", separator.encode()) for part in BAD_LINES[kind])
    return re.sub(pattern, replacement, line, count=1)


def rows_of(blocks: list[Block]) -> list[tuple[object, ...]]:
    return [row for block in blocks for row in block.table.rows()]


def test_every_layout_of_the_package_is_in_the_list() -> None:
    folder = Path(__import__("tulle.data.formats.public", fromlist=["x"]).__file__).parent
    num_written = sum(path.read_text().count("= Layout(") for path in folder.glob("*.py"))
    # That of search by user is made of that of search.
    assert num_written == len(LAYOUTS) - 1
    assert set(LAYOUTS) == {
        "attribution",
        "browser-conversions",
        "browser-impressions",
        "display",
        "search",
        "search-by-user",
        "taobao",
    }


@each_layout
@each_form
@pytest.mark.parametrize("rows_per_block", [1, 7, 1000])
def test_what_was_written_comes_back(
    tmp_path: Path, layout: Layout, form: str, rows_per_block: int
) -> None:
    rows = make_rows(layout, 50)
    path = write_form(tmp_path, "log.csv", text_of(layout, rows), form)
    blocks = list(read_blocks([path], layout, rows_per_block=rows_per_block))
    assert rows_of(blocks) == expected(layout, rows, layout.schema.used)
    assert {len(block.table) for block in blocks[:-1]} <= {rows_per_block}
    for block in blocks:
        assert block.table.columns == list(layout.schema.used)
        assert set(block.table.dtypes) == {pl.String}
        assert block.num_bad_lines == 0


@each_layout
@pytest.mark.parametrize("rows_per_block", [1, 7, 1000])
def test_parquet_gives_the_same_rows(tmp_path: Path, layout: Layout, rows_per_block: int) -> None:
    rows = make_rows(layout, 50)
    path = write_parquet(tmp_path / "log.parquet", layout, rows)
    blocks = list(read_blocks([path], layout, rows_per_block=rows_per_block))
    assert rows_of(blocks) == expected(layout, rows, layout.schema.used)
    for block in blocks:
        rest = read_blocks([path], layout, rows_per_block=rows_per_block, start=block.next)
        assert rows_of(list(rest)) == rows_of(blocks)[block.next.row :]


@each_layout
@each_form
@pytest.mark.parametrize("rows_per_block", [1, 7, 1000])
def test_reading_goes_on_after_any_block(
    tmp_path: Path, layout: Layout, form: str, rows_per_block: int
) -> None:
    data = text_of(layout, make_rows(layout, 8 if rows_per_block > 1 else 3))
    paths = [
        write_form(tmp_path, "first.csv", data, form),
        write_form(tmp_path, "second.csv", data.removesuffix(b"\n"), form),
    ]
    blocks = list(read_blocks(paths, layout, rows_per_block=rows_per_block))
    for num_seen, block in enumerate(blocks, 1):
        stored = Position.from_dict(block.next.to_dict())
        rest = list(read_blocks(paths, layout, rows_per_block=rows_per_block, start=stored))
        assert [b.next for b in rest] == [b.next for b in blocks[num_seen:]]
        assert rows_of(rest) == rows_of(blocks[num_seen:])


@each_layout
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last_end", [True, False])
def test_line_ends_and_a_byte_order_mark_do_not_matter(
    tmp_path: Path, layout: Layout, line_end: str, mark: bytes, last_end: bool
) -> None:
    rows = make_rows(layout, 5)
    data = mark + text_of(layout, rows, line_end=line_end)
    path = tmp_path / "log.csv"
    path.write_bytes(data if last_end else data.removesuffix(line_end.encode()))
    blocks = list(read_blocks([path], layout, rows_per_block=2))
    assert rows_of(blocks) == expected(layout, rows, layout.schema.used)
    assert blocks[-1].next.byte == path.stat().st_size
    rest = read_blocks([path], layout, start=blocks[0].next)
    assert rows_of(list(rest)) == expected(layout, rows[2:], layout.schema.used)


@each_layout
@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_at_any_place_is_refused_by_number_or_skipped(
    tmp_path: Path, layout: Layout, kind: str
) -> None:
    rows = make_rows(layout, 4)
    path = tmp_path / "log.csv"
    good = text_of(layout, rows).splitlines()
    for place in range(layout.has_header, len(good)):
        lines = list(good)
        lines[place] = made_bad(lines[place], kind, layout.separator)
        path.write_bytes(b"\n".join(lines) + b"\n")
        for rows_per_block in (1, 3, 100):
            with pytest.raises(
                DataError, match=rf"^log\.csv line {place + 1} .*bad_lines=BadLines.SKIP"
            ):
                list(read_blocks([path], layout, rows_per_block=rows_per_block))
            blocks = list(
                read_blocks([path], layout, rows_per_block=rows_per_block, bad_lines=BadLines.SKIP)
            )
            kept = [row for at, row in enumerate(rows) if at + layout.has_header != place]
            assert rows_of(blocks) == expected(layout, kept, layout.schema.used)
            assert sum(block.num_bad_lines for block in blocks) == 1
            assert blocks[-1].next.row == len(rows)
            assert blocks[-1].next.line == len(lines)


@pytest.mark.parametrize("layout", [c for c in CASES if c.quote], ids=lambda layout: layout.name)
@pytest.mark.parametrize("line", ['"{}', '{}"', '"{}"1', '1"{}"', '"{}""'])
def test_a_quote_out_of_place_makes_a_line_bad(tmp_path: Path, layout: Layout, line: str) -> None:
    rows = make_rows(layout, 3)
    lines = text_of(layout, rows).splitlines()
    plain = layout.separator.join(["1"] * (len(layout.columns) - 1))
    lines[2] = (line.format("1") + layout.separator + plain).encode()
    path = tmp_path / "log.csv"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"log\.csv line 3 has a quote"):
        list(read_blocks([path], layout))
    blocks = list(read_blocks([path], layout, bad_lines=BadLines.SKIP))
    assert rows_of(blocks) == expected(layout, [rows[0], rows[2]], layout.schema.used)


@each_layout
@pytest.mark.parametrize("form", ["gzip", "zstd"])
@pytest.mark.parametrize("bad_lines", BadLines)
def test_a_truncated_archive_is_always_an_error(
    tmp_path: Path, layout: Layout, form: str, bad_lines: BadLines
) -> None:
    whole = compressed(text_of(layout, make_rows(layout, 30)), form)
    path = write_form(tmp_path, "log.csv", b"", form)
    for size in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"log\.csv\.(gz|zst) .*(cut off|header)"):
            list(read_blocks([path], layout, bad_lines=bad_lines))


@each_layout
@each_form
def test_archives_may_be_glued_together(tmp_path: Path, layout: Layout, form: str) -> None:
    layout = dataclasses.replace(layout, has_header=False)
    rows = make_rows(layout, 9)
    parts = [text_of(layout, rows[:4]), text_of(layout, rows[4:])]
    path = write_form(tmp_path, "log.csv", b"", form)
    path.write_bytes(b"".join(compressed(part, form) for part in parts))
    blocks = list(read_blocks([path], layout, rows_per_block=3))
    assert rows_of(blocks) == expected(layout, rows, layout.schema.used)


@each_layout
def test_columns_come_in_the_order_asked_for(tmp_path: Path, layout: Layout) -> None:
    rows = make_rows(layout, 6)
    path = write_form(tmp_path, "log.csv", text_of(layout, rows), "plain")
    columns = layout.schema.used[::-2]
    (block,) = read_blocks([path], layout, columns=columns)
    assert block.table.columns == list(columns)
    assert block.table.rows() == expected(layout, rows, columns)
