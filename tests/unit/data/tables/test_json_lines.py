"""Logs as JSON lines: read in blocks from any of them on, every value as the text that it is."""

from pathlib import Path

import polars as pl
import pytest

from tulle.data.schema import Schema
from tulle.data.tables.layout import BadLines, layout_for
from tulle.data.tables.sources import read_blocks
from tulle.errors import DataError

SCHEMA = Schema(label="y", public=("a", "b"))
LINES = [
    '{"a": "x", "b": 12345678901234567890, "y": 1, "more": {"any": "thing"}}',
    '{"y": 0.10, "a": null}',
    '{"a": "", "b": true, "y": false}',
    '{"a": "ä", "b": -1e3, "y": "1"}',
]
EXPECTED = {
    "a": ["x", None, None, "ä"],
    "b": ["12345678901234567890", None, "true", "-1e3"],
    "y": ["1", "0.10", "false", "1"],
}


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("rows_per_block", [1, 3, 10])
def test_every_value_is_text_and_reading_goes_on_from_any_block(
    tmp_path: Path, rows_per_block: int
) -> None:
    path = write(tmp_path / "log.jsonl", LINES)
    layout = layout_for(path, SCHEMA)
    blocks = list(read_blocks([path], layout, rows_per_block=rows_per_block))
    table = pl.concat([block.table for block in blocks])
    assert table.select("a", "b", "y").to_dict(as_series=False) == EXPECTED
    for place, block in enumerate(blocks):
        rest = list(read_blocks([path], layout, rows_per_block=rows_per_block, start=block.next))
        assert [each.next for each in rest] == [each.next for each in blocks[place + 1 :]]
        assert all(
            one.table.equals(two.table) for one, two in zip(rest, blocks[place + 1 :], strict=True)
        )


def test_lines_that_are_no_objects_are_refused_or_counted(tmp_path: Path) -> None:
    lines = [LINES[0], "secret", "[1]", '{"a": [1], "b": 2, "y": 0}', LINES[1]]
    path = write(tmp_path / "log.jsonl", lines)
    layout = layout_for(path, SCHEMA)
    with pytest.raises(DataError, match=r"log\.jsonl line 2 is no JSON") as caught:
        list(read_blocks([path], layout))
    assert "secret" not in str(caught.value)
    (block,) = read_blocks([path], layout, bad_lines=BadLines.SKIP)
    assert (len(block.table), block.num_bad_lines, block.next.row) == (2, 3, 5)


def test_a_column_that_the_first_line_lacks_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", ['{"a": 1, "bb": 2, "y": 0}'])
    with pytest.raises(DataError, match=r"no column 'b' .*did you mean 'bb'"):
        list(read_blocks([path], layout_for(path, SCHEMA)))
