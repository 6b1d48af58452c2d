"""Choices of devices on disk, and the clicks that follow them.

A row says which ad was chosen in an auction, and nothing of why. With randomized response the
exact probability of the choice says whether it was the ad that the device liked best, which the
randomness is there to hide; so such a column is refused beside a choice.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

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
from tulle.select.auctions import BoolArray, IntArray
from tulle.select.files.whole_auctions import (
    AUCTION,
    IdArray,
    RowForm,
    SeenIds,
    refuse_repeats,
    refuse_several_rows,
    take_auction_ids,
    whole_auctions,
    write_row_tables,
)

CHOICE_COLUMNS = ("auction_id", "ad")
RELEASED_COLUMNS = ("auction_id", "slot", "ad", "cell", "impressions")
"""All columns that may leave with a choice, or with counts of choices."""
CLICK_COLUMNS = ("auction_id", "ad", "clicked")

_ROWS_AT_ONCE = 200_000
"""Rows that are read at once, to keep memory small."""
_COUNTS = ("slot", "impressions")
_TYPES: dict[Any, str] = {pl.Int64(): "integer", pl.String(): "text"}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ChoiceRows:
    """Consecutive choices."""

    auction_ids: IdArray
    """[choices], whole numbers or texts as the file has them."""
    ads: IdArray
    slots: IntArray | None
    """[choices], from 0; None if the file has no such column."""

    def __len__(self) -> int:
        return len(self.auction_ids)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ClickRows:
    """Consecutive reports of clicks. They are not protected by the choice."""

    auction_ids: IdArray
    ads: IdArray | None
    """[reports]; None if the file has no such column, as with one slot."""
    clicked: BoolArray
    """[reports]; all true if the file has no such column: it lists clicks then."""

    def __len__(self) -> int:
        return len(self.auction_ids)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CellCountRows:
    """How often each ad was chosen in each cell of auctions with the same candidates."""

    cells: IdArray
    ads: IdArray
    impressions: IntArray
    """[rows], >= 0."""

    def __len__(self) -> int:
        return len(self.cells)


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


def read_choices(
    path: Path,
    *,
    auction: str = "auction_id",
    ad: str = "ad",
    slot: str = "slot",
    has_numeric_ids: bool = False,
) -> Iterator[ChoiceRows]:
    """Streams choices; the column of slots may be absent.

    Without slots each auction has one row. With them its rows are consecutive, and no two have
    the same slot or ad.

    Args:
      path: The file.
      auction: Column of the auction.
      ad: Column of the ad.
      slot: Column of the slot.
      has_numeric_ids: Whether ids in text files are whole numbers; else they are text.

    Raises:
      DataError: A column or value is missing, or an auction breaks these rules.
    """
    roles, absent = _present(path, {AUCTION: auction, "ad": ad}, {"slot": slot})
    ids = whole_numbers_of if has_numeric_ids else ids_of
    readers = {AUCTION: ids, "ad": ids, "slot": whole_numbers_of}
    for rows, auction_ids in _auctions(path, roles, absent, readers):
        if "slot" in roles:
            refuse_repeats(rows, "slot", slot)
            refuse_repeats(rows, "ad", ad)
        else:
            refuse_several_rows(rows, f"with several slots, say which in a column {slot!r}")
        yield ChoiceRows(
            auction_ids=auction_ids,
            ads=rows.table["ad"].to_numpy(),
            slots=rows.table["slot"].to_numpy() if "slot" in roles else None,
        )


def read_clicks(
    path: Path,
    *,
    auction: str = "auction_id",
    ad: str = "ad",
    clicked: str = "clicked",
    has_numeric_ids: bool = False,
) -> Iterator[ClickRows]:
    """Streams reports of clicks: on all impressions with `clicked`, or clicks alone without.

    With a column of ads an auction may have several consecutive rows, one an ad; without it
    has one.

    Args:
      path: The file.
      auction: Column of the auction.
      ad: Column of the ad.
      clicked: Column that says whether the ad was clicked.
      has_numeric_ids: Whether ids in text files are whole numbers; else they are text.

    Privacy:
      Clicks are what users do with the ad that they see. No mechanism of selection protects
      them: who bills by click counts them exactly.

    Raises:
      DataError: A column or value is missing, or an auction breaks these rules.
    """
    if _has_no_line(path):
        return  # JSON lines without a line: nobody clicked
    roles, absent = _present(path, {AUCTION: auction}, {"ad": ad, "clicked": clicked})
    ids = whole_numbers_of if has_numeric_ids else ids_of
    readers = {AUCTION: ids, "ad": ids, "clicked": flags_of}
    for rows, auction_ids in _auctions(path, roles, absent, readers):
        if "ad" in roles:
            refuse_repeats(rows, "ad", ad)
        else:
            refuse_several_rows(rows, f"with several slots, say which ad in a column {ad!r}")
        yield ClickRows(
            auction_ids=auction_ids,
            ads=rows.table["ad"].to_numpy() if "ad" in roles else None,
            clicked=rows.table["clicked"].to_numpy()
            if "clicked" in roles
            else np.ones(len(auction_ids), dtype=np.bool_),
        )


def _has_no_line(path: Path) -> bool:
    return is_json(path) and path.is_file() and path.stat().st_size == 0


def read_cell_counts(
    path: Path, *, cell: str = "cell", ad: str = "ad", impressions: str = "impressions"
) -> CellCountRows:
    """Reads counts of cells, which are what leaves a shuffler. They are held in memory.

    Args:
      path: The file.
      cell: Column of the cell.
      ad: Column of the ad.
      impressions: Column of the counts.

    Raises:
      DataError: A column or value is missing, a count is negative, or a cell has an ad twice.
    """
    tables = list(read_row_tables(path, (cell, ad, impressions), rows_per_table=_ROWS_AT_ONCE))
    if not tables:
        raise DataError(f"{path.name} has no counts; it needs at least one row.")
    parts = [
        pl.DataFrame(
            {
                "cell": ids_of(rows, cell),
                "ad": ids_of(rows, ad),
                "impressions": whole_numbers_of(rows, impressions),
            }
        )
        for rows in tables
    ]
    if any(part.schema != parts[0].schema for part in parts):
        raise DataError(f"{path.name} has ids that are whole numbers and ids that are texts.")
    table = pl.concat(parts)
    if (table["impressions"] < 0).any():
        raise DataError(f"{path.name}: column {impressions!r} must be >= 0.")
    if table.select("cell", "ad").n_unique() < len(table):
        raise DataError(f"{path.name} has an ad twice in one cell; add up its counts.")
    return CellCountRows(
        cells=table["cell"].to_numpy(),
        ads=table["ad"].to_numpy(),
        impressions=table["impressions"].to_numpy(),
    )


def _present(
    path: Path, needed: dict[str, str], optional: Mapping[str, str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The columns to read by their role, and the optional ones that the file has not."""
    names = column_names(path)
    found = {role: name for role, name in optional.items() if name in names}
    return needed | found, tuple(name for name in optional.values() if name not in names)


def _auctions(
    path: Path,
    roles: Mapping[str, str],
    absent: tuple[str, ...],
    readers: Mapping[str, ColumnReader],
) -> Iterator[tuple[RowTable, IdArray]]:
    """Typed rows of whole auctions with the auction of each row."""
    tables = read_row_tables(
        path, tuple(roles.values()), absent=absent, rows_per_table=_ROWS_AT_ONCE
    )
    seen = SeenIds()
    for rows in whole_auctions((_typed(table, roles, readers) for table in tables), _ROWS_AT_ONCE):
        take_auction_ids(rows, roles[AUCTION], seen)
        yield rows, rows.table[AUCTION].to_numpy()


def _typed(
    rows: RowTable, roles: Mapping[str, str], readers: Mapping[str, ColumnReader]
) -> RowTable:
    columns = [readers[role](rows, name).alias(role) for role, name in roles.items()]
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
