"""Choices of devices on disk, and the clicks that follow them.

A row says which ad was chosen in an auction, and nothing of why. With randomized response the
exact probability of the choice says whether it was the ad that the device liked best, which the
randomness is there to hide; so such a column is refused beside a choice.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import polars as pl

from tulle.data.tables.memory import as_file
from tulle.data.tables.rows import (
    ColumnReader,
    RowTable,
    column_names,
    flags_of,
    ids_of,
    is_json,
    read_row_tables,
    whole_numbers_of,
)
from tulle.errors import ConfigError, DataError
from tulle.runs.record import Result
from tulle.runs.release_files import released_file
from tulle.select.files.whole_auctions import (
    AUCTION,
    RowForm,
    SeenIds,
    refuse_repeats,
    refuse_several_rows,
    take_auction_ids,
    whole_auctions,
    write_row_tables,
)

_AUCTION_ID = "auction_id"
CHOICE_COLUMNS = ("auction_id", "ad")
RELEASED_COLUMNS = ("auction_id", "slot", "ad", "cell", "impressions")
"""All columns that may leave with a choice, or with counts of choices."""
CLICK_COLUMNS = ("auction_id", "ad", "clicked")

_ROWS_AT_ONCE = 200_000
"""Rows that are read at once, to keep memory small."""
_COUNTS = ("slot", "impressions")
_TYPES: dict[Any, str] = {pl.Int64(): "integer", pl.String(): "text"}


def write_choices(
    path: Path,
    blocks: Iterable[Mapping[str, npt.NDArray[Any]]],
    columns: Sequence[str] = CHOICE_COLUMNS,
    *,
    form: RowForm | None = None,
) -> dict[str, str]:
    """Writes choices in a stream, safely to disk; gives back the type of each column.

    Args:
      path: New file. It is gone if writing fails.
      blocks: Arrays of whole numbers or texts by the name of their column. Others than
        `columns` are not written.
      columns: What is written: the auction, the ad and, with several slots, the slot.
      form: How rows are written; None: as the name of the file says.

    Privacy:
      A choice is a release of the mechanism that drew it, and already spent. Nothing else of a
      device may go with it, so no other column can be written.

    Raises:
      ConfigError: A column would tell more than the choice.
      DataError: A block lacks a column, or has values that are no ids.
    """
    for name in columns:
        if name not in RELEASED_COLUMNS:
            raise ConfigError(
                f"column {name!r} must not be written beside a choice: with randomized response "
                "the exact propensity says which ad the device liked best, and any score or "
                "weight made from private data adds to that. Use it on the device and release a "
                f"noisy sum; {', '.join(RELEASED_COLUMNS)} can be written."
            )
    if len(set(columns)) < max(len(columns), 2):
        raise ConfigError(f"columns={tuple(columns)} must name an auction and an ad, each once.")
    tables = (_choice_table(block, columns) for block in blocks)
    schema = write_row_tables(path, tables, form or RowForm.of(path))
    return {name: _TYPES[kind] for name, kind in schema.items()}


def read_released(path: Path, types: Mapping[str, str | None]) -> pl.DataFrame:
    """Reads a file that `write_choices` wrote as one table, in the types that were written.

    Args:
      path: The file.
      types: What each column holds, as `write_choices` gave it. None where that is not known:
        counts are whole numbers then, and ids what the file says, which is text in a text file.

    Raises:
      DataError: The file is gone, or is not as it was written.
    """
    readers: dict[str, ColumnReader] = {
        name: whole_numbers_of if kind == "integer" or name in _COUNTS else ids_of
        for name, kind in types.items()
    }
    parts = [
        pl.DataFrame([read(rows, name).alias(name) for name, read in readers.items()])
        for rows in read_row_tables(path, tuple(types), rows_per_table=_ROWS_AT_ONCE)
    ]
    if not parts:
        raise DataError(f"{path.name} has no rows; restore the file that was released.")
    return pl.concat(parts)


def choices_file(choices: object) -> contextlib.AbstractContextManager[Path]:
    """The file of choices: of a release, with its record, or of a path or a table."""
    if isinstance(choices, Result):
        return released_file(choices)
    return as_file(choices, name="choices.parquet", columns=RELEASED_COLUMNS)


def clicks_file(clicks: object) -> contextlib.AbstractContextManager[Path]:
    """The file of clicks; of a table in memory, with the columns that are read."""
    return as_file(clicks, name="clicks.parquet", columns=CLICK_COLUMNS)


def read_choices(path: Path) -> Iterator[pl.DataFrame]:
    """Streams choices as columns auction, ad and, where the file has it, slot.

    Without slots each auction has one row. With them its rows are consecutive, and no two have
    the same slot or ad.

    Raises:
      DataError: A column or value is missing, or an auction breaks these rules.
    """
    for rows in _auctions(path, {"ad": ids_of}, {"slot": whole_numbers_of}):
        if "slot" in rows.table.columns:
            refuse_repeats(rows, "slot", "slot")
            refuse_repeats(rows, "ad", "ad")
        else:
            refuse_several_rows(rows, "with several slots, say which in a column 'slot'")
        yield rows.table


def read_clicks(path: Path) -> Iterator[pl.DataFrame]:
    """Streams reports of clicks as columns auction, clicked and, where the file has it, ad.

    A file without `clicked` lists clicks alone. With a column of ads an auction may have several
    consecutive rows, one an ad; without it has one.

    Privacy:
      Clicks are what users do with the ad that they see. No mechanism of selection protects
      them: who bills by click counts them exactly.

    Raises:
      DataError: A column or value is missing, or an auction breaks these rules.
    """
    if is_json(path) and path.is_file() and path.stat().st_size == 0:
        return  # JSON lines without a line: nobody clicked
    for rows in _auctions(path, {}, {"ad": ids_of, "clicked": flags_of}):
        table = rows.table
        if "ad" in table.columns:
            refuse_repeats(rows, "ad", "ad")
        else:
            refuse_several_rows(rows, "with several slots, say which ad in a column 'ad'")
        yield table if "clicked" in table.columns else table.with_columns(clicked=pl.lit(True))


def read_cell_counts(path: Path) -> pl.DataFrame:
    """Reads counts of cells, which are what leaves a shuffler: cell, ad and impressions >= 0.

    Raises:
      DataError: A column or value is missing, a count is negative, or a cell has an ad twice.
    """
    readers: dict[str, ColumnReader] = {
        "cell": ids_of,
        "ad": ids_of,
        "impressions": whole_numbers_of,
    }
    parts = [
        _typed(rows, readers).table
        for rows in read_row_tables(path, tuple(readers), rows_per_table=_ROWS_AT_ONCE)
    ]
    if not parts:
        raise DataError(f"{path.name} has no counts; it needs at least one row.")
    if any(part.schema != parts[0].schema for part in parts):
        raise DataError(f"{path.name} has ids that are whole numbers and ids that are texts.")
    table = pl.concat(parts)
    if (table["impressions"] < 0).any():
        raise DataError(f"{path.name}: column 'impressions' must be >= 0.")
    if table.select("cell", "ad").n_unique() < len(table):
        raise DataError(f"{path.name} has an ad twice in one cell; add up its counts.")
    return table


def _auctions(
    path: Path, needed: Mapping[str, ColumnReader], optional: Mapping[str, ColumnReader]
) -> Iterator[RowTable]:
    """Typed rows of whole auctions; optional columns are there if the file has them."""
    present = column_names(path)
    absent = tuple(name for name in optional if name not in present)
    readers = {_AUCTION_ID: ids_of, **needed, **optional}
    read = {name: reader for name, reader in readers.items() if name not in absent}
    tables = read_row_tables(path, tuple(read), absent=absent, rows_per_table=_ROWS_AT_ONCE)
    seen = SeenIds()
    for rows in whole_auctions((_typed(table, read) for table in tables), _ROWS_AT_ONCE):
        take_auction_ids(rows, _AUCTION_ID, seen)
        yield rows


def _typed(rows: RowTable, readers: Mapping[str, ColumnReader]) -> RowTable:
    columns = [
        read(rows, name).alias(AUCTION if name == _AUCTION_ID else name)
        for name, read in readers.items()
    ]
    return dataclasses.replace(rows, table=pl.DataFrame(columns))


def _choice_table(block: Mapping[str, npt.NDArray[Any]], columns: Sequence[str]) -> pl.DataFrame:
    if missing := [name for name in columns if name not in block]:
        raise DataError(f"a block of choices has no column {missing[0]!r}; give all of columns.")
    return pl.DataFrame([_id_column(name, block[name]) for name in columns])


def _id_column(name: str, values: npt.NDArray[Any]) -> pl.Series:
    if values.dtype.kind not in "iuOU":
        raise ConfigError(
            f"column {name!r} has the type {values.dtype}; a choice has whole numbers and texts "
            "alone, since fractions can tell how it came about."
        )
    if values.dtype == object and set(map(type, values)) != {str}:
        raise DataError(f"column {name!r} of choices has objects that are no text.")
    kind = pl.Int64 if values.dtype.kind in "iu" else pl.String
    try:
        return pl.Series(name, values.tolist() if kind == pl.String else values, dtype=kind)
    except (OverflowError, pl.exceptions.PolarsError):
        raise DataError(f"column {name!r} of choices has numbers beyond 64 bits.") from None
