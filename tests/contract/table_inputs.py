"""One table in every form in which a user may have it: all jobs must read them alike.

`FORMS` are files and tables in memory that hold the same rows; `TIMES` and `FLAGS` are columns that
hold the same moments and the same truth values in other words. A test of a verb takes each of them
and compares what it makes of it with what it makes of the plain polars table.
"""

import contextlib
import datetime
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import zstandard

_Writer = Callable[[pl.DataFrame, Path], object]


def _csv(frame: pl.DataFrame, separator: str = ",", line_end: str = "\n") -> bytes:
    """Text with a header. Between tabs a quote is only text."""
    texts = frame.select(pl.all().cast(pl.String))
    quotes: Any = "never" if separator == "\t" else "necessary"
    made = texts.write_csv(separator=separator, line_terminator=line_end, quote_style=quotes)
    return made.encode()


def _json_lines(frame: pl.DataFrame) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in frame.iter_rows(named=True))


def _stored(name: str, content: Callable[[pl.DataFrame], bytes]) -> _Writer:
    def write(frame: pl.DataFrame, folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content(frame))
        return path

    return write


def _parquet(frame: pl.DataFrame, folder: Path, name: str = "table.parquet") -> Path:
    frame.write_parquet(folder / name)
    return folder / name


def _arrow(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_ipc(folder / "table.arrow")
    return folder / "table.arrow"


def _two_files(frame: pl.DataFrame, folder: Path) -> list[Path]:
    half = len(frame) // 2
    parts = [folder / "one.csv", folder / "two.csv.gz"]
    parts[0].write_bytes(_csv(frame.head(half)))
    parts[1].write_bytes(gzip.compress(_csv(frame.tail(-half))))
    return parts


def _pandas(frame: pl.DataFrame, folder: Path) -> pd.DataFrame:
    del folder
    return pd.DataFrame(frame.to_dict(as_series=False))


def _categories(frame: pl.DataFrame, folder: Path) -> pd.DataFrame:
    table = _pandas(frame, folder)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return table.astype(dict.fromkeys(texts, "category"))


FILES: dict[str, _Writer] = {
    "csv": _stored("table.csv", _csv),
    "csv with semicolons": _stored("table.csv", lambda frame: _csv(frame, ";")),
    "csv of Windows": _stored(
        "table.csv", lambda frame: b"\xef\xbb\xbf" + _csv(frame, line_end="\r\n")
    ),
    "tsv": _stored("table.tsv", lambda frame: _csv(frame, "\t")),
    "packed csv": _stored("table.csv.gz", lambda frame: gzip.compress(_csv(frame))),
    "zstd csv": _stored(
        "table.csv.zst", lambda frame: zstandard.ZstdCompressor().compress(_csv(frame))
    ),
    "json lines": _stored("table.jsonl", _json_lines),
    "packed json lines": _stored("table.jsonl.gz", lambda frame: gzip.compress(_json_lines(frame))),
    "parquet": _parquet,
    "arrow": _arrow,
    "path as text": lambda frame, folder: str(_parquet(frame, folder)),
    "name with a pattern": lambda frame, folder: _parquet(frame, folder, "table[1].parquet"),
    "two files": _two_files,
}
"""Writes a table to a folder and gives its path, or its paths."""

TABLES: dict[str, _Writer] = {
    "polars": lambda frame, _: frame,
    "lazy polars": lambda frame, _: frame.lazy(),
    "polars with a column of lists": lambda frame, _: frame.with_columns(
        pl.lit([1, 2]).alias("nested")
    ),
    "pandas": _pandas,
    "categories of pandas": _categories,
    "Arrow": lambda frame, _: frame.to_arrow(),
}
"""Gives the rows in the memory of another library."""

FORMS = [*FILES, *TABLES, "duckdb"]
ONE_SOURCE = [name for name in FORMS if name != "two files"]
"""Forms of a table that is small and comes in one piece."""


@contextlib.contextmanager
def in_form(form: str, frame: pl.DataFrame, folder: Path) -> Iterator[Any]:
    """The rows in one of `FORMS`, while the block lasts.

    Args:
      form: Its name.
      frame: The rows.
      folder: A folder for files, which must have none of them yet.
    """
    if form != "duckdb":
        yield (FILES | TABLES)[form](frame, folder)
        return
    with duckdb.connect() as connection:
        yield connection.from_arrow(frame.to_arrow())


_MOMENTS = [datetime.datetime(2026, 1, 14, 9, 30), datetime.datetime(2026, 1, 15, 23, 59, 59)]
_ZONE = datetime.timezone(datetime.timedelta(hours=1))

TIMES: dict[str, pl.Series] = {
    "seconds": pl.Series([1_768_383_000, 1_768_521_599]),
    "seconds as text": pl.Series(["1768383000", "1768521599"]),
    "fractions of seconds": pl.Series([1_768_383_000.25, 1_768_521_599.75]),
    "fractions as text": pl.Series(["1768383000.25", "1768521599.75"]),
    "timestamps": pl.Series(_MOMENTS),
    "timestamps with a zone": pl.Series(
        [moment.replace(tzinfo=datetime.UTC).astimezone(_ZONE) for moment in _MOMENTS]
    ),
    "nanoseconds": pl.Series(_MOMENTS).cast(pl.Datetime("ns")),
    "ISO text": pl.Series(["2026-01-14 09:30", "2026-01-15T23:59:59"]),
    "ISO text in UTC": pl.Series(["2026-01-14T09:30:00Z", "2026-01-15T23:59:59.75Z"]),
    "ISO text with zones": pl.Series(["2026-01-14T10:30:00+01:00", "2026-01-15T18:29:59-0530"]),
}
"""Two moments, in the evening of 2026-01-14 and of 2026-01-15 in UTC or before, in every form."""

DOUBTFUL_TIMES: dict[str, pl.Series] = {
    "days": pl.Series([20_467, 20_468]),
    "days as floats": pl.Series([20_467.0, 20_468.0]),
    "days as text": pl.Series(["20467", "20468"]),
    "a number among dates": pl.Series(["2026-01-14", "20468"]),
}
"""Times that may count days as well as seconds, and must be refused unless a kind is declared."""

FLAGS: dict[str, pl.Series] = {
    "booleans": pl.Series([True, False, None]),
    "true and false": pl.Series(["true", "FALSE", None]),
    "yes and no": pl.Series(["Yes", "no", None]),
    "one and zero": pl.Series([1, 0, None]),
    "one and zero as floats": pl.Series([1.0, 0.0, None]),
    "one and zero as text": pl.Series(["1", "0", None]),
}
"""True, false and nothing, where the column is declared boolean."""
