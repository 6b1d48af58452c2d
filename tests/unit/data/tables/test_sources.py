import dataclasses
import gzip
from pathlib import Path
from typing import cast

import polars as pl
import pytest
import zstandard

from tulle.data.schema import Schema
from tulle.data.tables.layout import BadLines, Layout, Position, layout_for
from tulle.data.tables.sources import (
    LogFiles,
    placed_blocks,
    placed_unsplit_blocks,
    read_blocks,
)
from tulle.data.tables.split_lines import SplitLines
from tulle.data.tables.text import LineBlock
from tulle.errors import ConfigError, DataError

SCHEMA = Schema(label="y", public=("a",), sensitive=("b",), ignored=("x",))
CSV = layout_for(Path("log.csv"), SCHEMA)
HEADLESS = Layout(
    name="headless", columns=("y", "a", "b", "x"), separator="\t", has_header=False, schema=SCHEMA
)


def write(folder: Path, text: str | bytes, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(path: Path, layout: Layout = CSV) -> list[tuple[object, ...]]:
    return [row for block in read_blocks([path], layout) for row in block.table.rows()]


def test_a_header_may_have_any_order_and_more_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "more, b ,a,y\n0,1,2,3\n")
    assert rows(path) == [("3", "2", "1")]


def test_lines_that_are_not_split_yet_are_the_same_rows_of_the_same_files(tmp_path: Path) -> None:
    text = "y,a,b\n" + "".join(f'{row},"{row % 3}",\n' for row in range(50)) + '1,"2""",3\n'
    paths = [write(tmp_path, text), write(tmp_path, text, "log2.csv")]
    paths.append(write(tmp_path, gzip.compress(text.encode()), "log.csv.gz"))
    log = LogFiles(paths=tuple(paths), layout=CSV, rows_per_block=20)
    expected = list(placed_blocks(log))
    found = [(cast(LineBlock, block), start) for block, start in placed_unsplit_blocks(log)]
    assert [start for _, start in found] == [start for _, start in expected]
    assert [block.next for block, _ in found] == [block.next for block, _ in expected]
    for (block, _), (careful, _) in zip(found, expected, strict=True):
        assert block.rows().select(CSV.schema.used).equals(careful.table)
    kinds = [type(block.rows()) for block, _ in found[:3]]
    assert kinds == [SplitLines, SplitLines, pl.DataFrame]  # the last has a quote inside a value


def test_a_bad_line_is_refused_when_its_block_is_split(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b\n" + 30 * "1,2,3\n" + "1,2\n")
    log = LogFiles(paths=(path,), layout=CSV, rows_per_block=20)
    first, second = (cast(LineBlock, block) for block, _ in placed_unsplit_blocks(log))
    assert len(first.rows()) == 20
    with pytest.raises(DataError, match=r"log.csv line 32 has 2 columns in place of 3"):
        second.rows()
    skipping = dataclasses.replace(log, bad_lines=BadLines.SKIP)
    _, second = (cast(LineBlock, block) for block, _ in placed_unsplit_blocks(skipping))
    assert len(second.rows()) == 10


def test_quoted_names_and_values_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, '"y","a","b"\n1,"x,""y""",\n"",",",""""\n')
    assert rows(path) == [("1", 'x,"y"', None), (None, ",", '"')]


def test_a_header_without_a_needed_column_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,bb\n1,2,3\n")
    with pytest.raises(DataError, match=r"log\.csv has no column 'b'.*present are a, bb, y"):
        rows(path)


def test_a_column_twice_in_the_header_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b,a\n1,2,3,4\n")
    with pytest.raises(DataError, match="column 'a' more than once"):
        rows(path)


def test_a_missing_header_is_refused_without_showing_the_first_row(tmp_path: Path) -> None:
    path = write(tmp_path, "secret,secret,3\n1,2,3\n")
    with pytest.raises(DataError, match="first line must be a header") as caught:
        rows(path)
    assert "secret" not in str(caught.value)


def test_a_header_with_no_needed_column_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "click,user,campaign\n1,2,3\n")
    with pytest.raises(DataError, match=r"no column 'clik' \(did you mean 'click'\?\)") as caught:
        rows(path, layout_for(path, Schema(label="clik")))
    assert "campaign" not in str(caught.value)
    with pytest.raises(DataError, match=r"none of the columns clik \(did .*'click'\?\), ad; its"):
        rows(path, layout_for(path, Schema(label="clik", public=("ad",))))


@pytest.mark.parametrize("row", ["user7,shoes,hats", "users,17,hats", "users,,hats", "uber,a,b"])
def test_a_row_in_place_of_a_header_is_never_suggested(tmp_path: Path, row: str) -> None:
    schema = Schema(label="user", public=("campaign",))
    path = write(tmp_path, f"{row}\n")
    with pytest.raises(DataError, match="first line must be a header") as caught:
        rows(path, layout_for(path, schema))
    assert row.partition(",")[0] not in str(caught.value)


@pytest.mark.parametrize("header", [b"y,a,\xff", b'y,a,"b', b"", b"\0"])
def test_a_broken_header_is_refused_even_if_bad_lines_are_skipped(
    tmp_path: Path, header: bytes
) -> None:
    path = write(tmp_path, header + b"\n1,2,3\n")
    with pytest.raises(DataError, match=r"log\.csv line 1, the header, (is|has)"):
        list(read_blocks([path], CSV, bad_lines=BadLines.SKIP))


def test_an_empty_file_has_no_header_and_without_one_no_rows(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv is empty; it must start with a header"):
        rows(write(tmp_path, ""))
    assert rows(write(tmp_path, "", "log.txt"), HEADLESS) == []
    assert rows(write(tmp_path, "y,a,b\n")) == []


def test_messages_never_show_what_a_line_holds(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b\n1,2,3\nsecret,secret\n")
    with pytest.raises(DataError, match="line 3 has 2 columns in place of 3") as caught:
        rows(path)
    assert "secret" not in str(caught.value)


def test_the_first_bad_line_is_named_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    path = write(tmp_path, b"y,a,b\n1,2,3\n1,2\n\xff,2,3\n")
    with pytest.raises(DataError, match="line 3 has 2 columns"):
        rows(path)
    path = write(tmp_path, b"y,a,b\n1,2,3\n\xff,2,3\n1,2\n")
    with pytest.raises(DataError, match="line 3 is not UTF-8"):
        rows(path)


def test_a_block_of_bad_lines_only_is_empty_and_counts_them(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b\n1\n2\n3,3,3\n")
    first, second = read_blocks([path], CSV, rows_per_block=2, bad_lines=BadLines.SKIP)
    assert (len(first.table), first.num_bad_lines) == (0, 2)
    assert first.table.schema == second.table.schema
    assert second.table.rows() == [("3", "3", "3")]


def test_a_very_long_line_is_skipped_and_reading_goes_on_behind_it(tmp_path: Path) -> None:
    good = b"1,2,3\n"
    for size in (1 << 20, 9 << 20):
        data = b"y,a,b\n" + good + b"4,5," + b"6" * size + b"\n" + good + b"7,8," + b"9" * size
        path = write(tmp_path, data)
        blocks = list(read_blocks([path], CSV, rows_per_block=1, bad_lines=BadLines.SKIP))
        assert [len(block.table) for block in blocks] == [1, 0, 1, 0]
        assert blocks[-1].next == Position(0, row=4, byte=len(data), line=5)
        rest = list(read_blocks([path], CSV, start=blocks[1].next, bad_lines=BadLines.SKIP))
        assert [(len(block.table), block.num_bad_lines) for block in rest] == [(1, 1)]
        with pytest.raises(DataError, match="line 3 is longer than 1048576 bytes"):
            rows(path)


def test_a_value_may_be_as_long_as_a_line(tmp_path: Path) -> None:
    value = "6" * ((1 << 20) - 4)
    path = write(tmp_path, f"y,a,b\n1,2,{value}\r\n")
    assert rows(path) == [("1", "2", value)]


def test_a_mark_in_the_middle_of_a_file_stays(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeffy,a,b\n\ufeff1,2,3\n")
    for rows_per_block in (1, 100):
        (block,) = read_blocks([path], CSV, rows_per_block=rows_per_block)
        assert block.table.rows() == [("\ufeff1", "2", "3")]


def test_files_that_are_not_there_or_not_files_are_refused_at_once(tmp_path: Path) -> None:
    good = write(tmp_path, "y,a,b\n1,2,3\n")
    with pytest.raises(DataError, match=r"no\.csv does not exist"):
        read_blocks([good, tmp_path / "no.csv"], CSV)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv is a folder"):
        read_blocks([good, tmp_path / "folder.csv"], CSV)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        (
            "log.csv",
            gzip.compress(b"y,a,b\n", mtime=0),
            "plain text by its name and gzip by its content",
        ),
        ("log.csv", zstandard.compress(b"y,a,b\n"), "plain text by its name and zstd by"),
        ("log.csv.gz", b"y,a,b\n", "gzip by its name and plain text by"),
        ("log.csv.gz", zstandard.compress(b"y,a,b\n"), "gzip by its name and zstd by"),
        ("log.csv.zst", b"", "zstd by its name and empty by its content.*cut off"),
        ("log.parquet", b"y,a,b\n", "Parquet by its name and plain text by"),
    ],
)
def test_a_name_that_does_not_fit_the_content_is_refused(
    tmp_path: Path, name: str, data: bytes, match: str
) -> None:
    with pytest.raises(DataError, match=match):
        read_blocks([write(tmp_path, data, name)], CSV)


def test_frames_to_be_skipped_are_skipped(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    whole = zstandard.compress(b"y,a,b\n1,2,3\n")
    for data in (skipped + whole, whole + skipped):
        assert rows(write(tmp_path, data, "log.csv.zst")) == [("1", "2", "3")]


@pytest.mark.parametrize("name", ["log.csv.gz", "log.csv.zst"])
def test_an_archive_with_something_else_behind_it_is_refused(tmp_path: Path, name: str) -> None:
    compress = gzip.compress if name.endswith("gz") else zstandard.compress
    path = write(tmp_path, compress(b"y,a,b\n1,2,3\n") + b"1,2,3\n", name)
    with pytest.raises(DataError, match="cut off or damaged"):
        rows(path)


def test_a_file_that_changed_since_a_stop_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "y,a,b\n1,2,3\n4,5,6\n7,8,9")
    blocks = list(read_blocks([path], CSV, rows_per_block=2))
    write(tmp_path, "y,a,b\n1,2,3\n")
    with pytest.raises(DataError, match="is shorter than when reading stopped"):
        list(read_blocks([path], CSV, start=blocks[0].next))
    write(tmp_path, "y,a,b\n1,2,3\n4,5,66\n7,8,9")
    with pytest.raises(DataError, match="has other lines than when reading stopped"):
        list(read_blocks([path], CSV, start=blocks[0].next))
    write(tmp_path, "y,a,b\n1,2,3\n4,5,6\n7,8,99")
    with pytest.raises(DataError, match="has other lines than when reading stopped"):
        list(read_blocks([path], CSV, start=blocks[1].next))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"rows_per_block": 0}, "rows_per_block=0 must be >= 1"),
        ({"rows_per_block": 1.5}, r"rows_per_block=1\.5 must be an integer"),
        ({"columns": []}, "must name at least one column"),
        ({"columns": ["a", "a"]}, "names a column twice"),
        ({"columns": ["x"]}, "column 'x' has no role under which"),
        ({"columns": ["aa"]}, r"column 'aa' has no role.*did you mean 'a'"),
        ({"bad_lines": "skip"}, "bad_lines='skip' must be a BadLines"),
        ({"start": Position(1, 0, 0, 0)}, "there are only 1 files"),
    ],
)
def test_settings_that_cannot_be_are_refused(
    tmp_path: Path, settings: dict[str, object], match: str
) -> None:
    path = write(tmp_path, "y,a,b\n1,2,3\n")
    with pytest.raises(ConfigError, match=match):
        read_blocks([path], CSV, **settings)  # type: ignore[arg-type]


def test_one_path_in_place_of_a_list_is_refused(tmp_path: Path) -> None:
    for paths in ([], tmp_path / "log.csv", "log.csv"):
        with pytest.raises(ConfigError, match="must be a list of at least one file"):
            read_blocks(paths, CSV)  # type: ignore[arg-type]


def test_a_position_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="position has row=-1"):
        Position(0, -1, 0, 0)
    with pytest.raises(ConfigError, match="did you mean 'row'"):
        Position.from_dict({"file_index": 0, "rows": 1, "byte": 0, "line": 0})


def test_a_layout_for_any_file_follows_its_name() -> None:
    assert layout_for(Path("log.tsv.zst"), SCHEMA).separator == "\t"
    assert layout_for(Path("log.tsv.zst"), SCHEMA).quote is None
    assert layout_for(Path("log.CSV.GZ"), SCHEMA).separator == ","
    assert layout_for(Path("log.parquet"), SCHEMA).schema == SCHEMA
    for name in ("log.txt", "log", "log.gz"):
        with pytest.raises(ConfigError, match="does not say how its columns are separated"):
            layout_for(Path(name), SCHEMA)


def test_empty_text_is_kept_where_it_does_not_mean_missing(tmp_path: Path) -> None:
    layout = Layout(
        name="log", columns=("y", "a", "b", "x"), separator=",", has_header=True,
        missing=("?",), schema=SCHEMA,
    )  # fmt: skip
    path = write(tmp_path, "y,a,b\n?,,3\n")
    assert rows(path, layout) == [(None, "", "3")]
    pl.DataFrame({"y": ["?"], "a": [""], "b": ["3"]}).write_parquet(tmp_path / "log.parquet")
    assert rows(tmp_path / "log.parquet", layout) == [(None, "", "3")]
