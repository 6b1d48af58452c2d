"""Log files for tests of readers, written value by value from rows."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import zstandard

from tulle.data.tables.layout import Layout

Row = list[str | None]

FORMS = ("plain", "gzip", "zstd")


def make_rows(layout: Layout, num_rows: int) -> list[Row]:
    """Distinct rows with a missing value here and there, and quotes where they are allowed."""
    rows: list[Row] = []
    for row in range(num_rows):
        values: Row = [
            f"{row * 7 + place * 3}é"[: 4 + row % 3] for place in range(len(layout.columns))
        ]
        values[row % len(values)] = None
        if layout.quote is not None:
            values[(row + 1) % len(values)] = f'say "{row}", then go'
        rows.append(values)
    return rows


def text_of(layout: Layout, rows: Sequence[Row], *, line_end: str = "\n") -> bytes:
    """The rows as a text file, header included."""
    lines = [layout.separator.join(layout.columns)] if layout.has_header else []
    lines += [layout.separator.join(_written(layout, value) for value in row) for row in rows]
    return "".join(line + line_end for line in lines).encode()


def write_form(folder: Path, name: str, data: bytes, form: str) -> Path:
    """Writes bytes plain or compressed, under the name the form asks for."""
    path = folder / {"plain": name, "gzip": f"{name}.gz", "zstd": f"{name}.zst"}[form]
    path.write_bytes(compressed(data, form))
    return path


def compressed(data: bytes, form: str) -> bytes:
    if form == "gzip":
        return gzip.compress(data, mtime=0)
    return zstandard.compress(data) if form == "zstd" else data


def write_parquet(path: Path, layout: Layout, rows: Sequence[Row]) -> Path:
    columns = {name: [row[place] for row in rows] for place, name in enumerate(layout.columns)}
    schema = dict.fromkeys(layout.columns, pl.String)
    pl.DataFrame(columns, schema=schema).write_parquet(path, row_group_size=11)
    return path


def expected(
    layout: Layout, rows: Sequence[Row], columns: Sequence[str]
) -> list[tuple[str | None, ...]]:
    places = [layout.columns.index(name) for name in columns]
    return [tuple(row[place] for place in places) for row in rows]


def _written(layout: Layout, value: str | None) -> str:
    if value is None:
        return layout.missing[-1]
    if layout.quote is not None and any(c in value for c in f"{layout.quote}{layout.separator}"):
        return f'"{value.replace(chr(34), chr(34) * 2)}"'
    return value
