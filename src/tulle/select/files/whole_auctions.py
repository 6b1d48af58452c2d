"""Rows of auctions in a stream: cut where auctions end, held to their rules, and written safely.

The rows of an auction are consecutive and no auction comes back: so a stream of any length is
read with the rows of a few auctions and the ids of all of them in memory.
"""

import dataclasses
import enum
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import PanicException, PolarsError

from tulle.data.tables.columnar import sink_tables
from tulle.data.tables.rows import RowTable
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.select.auctions import IntArray

IdArray = npt.NDArray[np.int64] | npt.NDArray[np.object_]
"""Ids as a file has them: whole numbers, or texts."""

AUCTION = "auction"
"""The column of a typed table that says which rows belong together."""
MAX_ROWS_PER_AUCTION = 1_000_000
"""Rows of one auction that are held in memory; more are taken for a wrong column of auctions."""


def whole_auctions(tables: Iterator[RowTable], num_wanted: int) -> Iterator[RowTable]:
    """The same rows in tables of at least `num_wanted` that end where an auction ends."""
    held: list[RowTable] = []
    for table in tables:
        if held and table.table.schema != held[0].table.schema:
            raise DataError(
                f"{table.place(0)}: ids are whole numbers in one part of the file and texts in "
                "another; write them alike."
            )
        held.append(table)
        if sum(len(rows.numbers) for rows in held) < num_wanted:
            continue
        joined = _joined(held)
        last = int(auction_starts(joined)[-1])
        if len(joined.numbers) - last > MAX_ROWS_PER_AUCTION:
            raise DataError(
                f"{joined.place(last)}: an auction has more than {MAX_ROWS_PER_AUCTION} rows; is "
                "the column of auctions the right one?"
            )
        if last:
            yield _part(joined, 0, last)
        held = [_part(joined, last, len(joined.numbers))]
    if held:
        yield _joined(held)


def auction_starts(rows: RowTable) -> IntArray:
    """[auctions], the first row of each."""
    return np.flatnonzero(_differs_from_last(rows.table[AUCTION]))


def take_auction_ids(rows: RowTable, name: str, seen: "SeenIds") -> IdArray:
    """[auctions], the id of each, which must be new.

    Args:
      rows: Whole auctions.
      name: The column of auctions in the file, for messages.
      seen: Ids of the auctions before; those of `rows` are added.
    """
    starts = auction_starts(rows)
    ids: IdArray = rows.table[AUCTION].gather(starts).to_numpy()
    if (place := seen.add(ids)) is not None:
        raise DataError(
            f"{rows.place(int(starts[place]))}: an auction comes back after another one; write "
            f"all rows with the same {name!r} one after the other."
        )
    return ids


def refuse_repeats(rows: RowTable, role: str, name: str) -> None:
    """Refuses a value of a column that an auction has twice.

    Args:
      rows: Whole auctions.
      role: The column of the typed table.
      name: The column of the file, for messages.
    """
    pairs = rows.table.select(AUCTION, role)
    if pairs.n_unique() < len(pairs):
        is_first = pairs.select(pl.struct(AUCTION, role).is_first_distinct()).to_series()
        raise DataError(
            f"{rows.place(int(np.argmin(is_first.to_numpy())))}: column {name!r} has a value a "
            "second time in the same auction; keep one row for each."
        )


def refuse_several_rows(rows: RowTable, way_out: str) -> None:
    """Refuses an auction of more than one row."""
    is_second = ~_differs_from_last(rows.table[AUCTION])
    if is_second.any():
        raise DataError(
            f"{rows.place(int(np.argmax(is_second)))}: an auction has a second row; {way_out}."
        )


def shared_value(rows: RowTable, role: str, name: str) -> npt.NDArray[np.generic]:
    """[auctions], the value that all rows of an auction must share.

    Args:
      rows: Whole auctions.
      role: The column of the typed table.
      name: The column of the file, for messages.
    """
    values = rows.table[role]
    starts = auction_starts(rows)
    differs = _differs_from_last(values)
    differs[starts] = False
    if differs.any():
        raise DataError(
            f"{rows.place(int(np.argmax(differs)))}: column {name!r} differs between rows of one "
            "auction; all of them must have the same."
        )
    shared: npt.NDArray[np.generic] = values.gather(starts).to_numpy()
    return shared


def _differs_from_last(values: pl.Series) -> npt.NDArray[np.bool_]:
    differs = np.ones(len(values), dtype=np.bool_)
    differs[1:] = values.ne_missing(values.shift(1)).to_numpy()[1:]
    return differs


def _joined(tables: list[RowTable]) -> RowTable:
    return dataclasses.replace(
        tables[0],
        table=pl.concat([rows.table for rows in tables], rechunk=True),
        numbers=np.concatenate([rows.numbers for rows in tables]),
    )


def _part(rows: RowTable, first: int, last: int) -> RowTable:
    table = rows.table.slice(first, last - first)
    return dataclasses.replace(rows, table=table, numbers=rows.numbers[first:last])


class SeenIds:
    """All ids of one kind, whole numbers or texts, that were added, to find one that comes back.

    The check is exact. Memory grows with the ids alone: 8 bytes for a whole number, a Python text
    for a text. Whole numbers that rise are found new without a search.
    """

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._runs: list[IntArray] = []  # sorted and distinct, each over twice its successor

    def add(self, ids: IdArray) -> int | None:
        """Adds ids; the place among them of the first that was there before, None if all are new.

        After an id has come back nothing more should be added.
        """
        if not len(ids):
            return None
        if ids.dtype == object:
            return self._add_texts(ids)
        return self._add_numbers(ids.astype(np.int64, copy=False))

    def _add_texts(self, ids: IdArray) -> int | None:
        for place, text in enumerate(ids):
            if text in self._texts:
                return place
            self._texts.add(text)
        return None

    def _add_numbers(self, ids: IntArray) -> int | None:
        order = np.argsort(ids, kind="stable")
        ordered = ids[order]
        is_repeat = np.append(False, ordered[1:] == ordered[:-1])
        for run in self._runs:
            if ordered[0] <= run[-1] and run[0] <= ordered[-1]:
                found = np.minimum(np.searchsorted(run, ordered), len(run) - 1)
                is_repeat |= run[found] == ordered
        if is_repeat.any():
            return int(order[is_repeat].min())
        self._runs.append(ordered)
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            last = self._runs.pop()
            merged = np.concatenate([self._runs.pop(), last])
            self._runs.append(np.sort(merged, kind="stable"))
        return None


class RowForm(enum.Enum):
    """How rows are written."""

    PARQUET = "Parquet"
    CSV = "comma-separated text"
    JSON_LINES = "JSON lines"

    @classmethod
    def of(cls, path: Path) -> "RowForm":
        """What the name of a file says."""
        form = _FORMS.get(path.suffix.lower())
        if form is None:
            raise ConfigError(
                f"the name {path.name} does not say how to write rows; end it in "
                f"{', '.join(_FORMS)}."
            )
        return form


_FORMS = {
    ".parquet": RowForm.PARQUET,
    ".pq": RowForm.PARQUET,
    ".csv": RowForm.CSV,
    ".jsonl": RowForm.JSON_LINES,
    ".ndjson": RowForm.JSON_LINES,
}


def write_row_tables(path: Path, tables: Iterator[pl.DataFrame], form: RowForm) -> pl.Schema:
    """Writes tables of one schema, in their order, safely to disk; gives back the schema.

    Args:
      path: New file; its name need not say the form. It is gone if writing fails.
      tables: Tables, at least one. An error that they raise is raised here as it is.
      form: How the rows are written.

    Raises:
      DataError: There is no table, or tables have different columns or types.
      RunStateError: The file is there, or the disk refuses it.
    """
    first = next(tables, None)
    if first is None:
        raise DataError("there are no rows to write; give at least one table.")
    problem: list[BaseException] = []

    def watched() -> Iterator[pl.DataFrame]:
        try:
            for table in itertools.chain([first], tables):
                if table.schema != first.schema:
                    raise DataError(
                        "tables of one file have different columns or types; ids must be all "
                        "whole numbers or all texts."
                    )
                yield table
        except BaseException as error:
            problem.append(error)  # polars would wrap it in one of its own
            raise

    try:
        # Made first, so that a file that is there already is not replaced.
        path.open("xb").close()
    except OSError as error:
        raise _refused(path, error) from None
    try:
        _write(path, first.schema, watched(), form)
    except BaseException as error:
        path.unlink(missing_ok=True)
        if problem:
            raise problem[0] from None
        if isinstance(error, OSError | PolarsError | PanicException):
            raise _refused(path, error) from None
        raise
    return first.schema


def _write(path: Path, schema: pl.Schema, tables: Iterator[pl.DataFrame], form: RowForm) -> None:
    if form is RowForm.PARQUET:
        sink_tables(path, schema, tables)
    else:
        with path.open("wb") as file:
            for place, table in enumerate(tables):
                if form is RowForm.CSV:
                    table.write_csv(file, include_header=place == 0)
                else:
                    table.write_ndjson(file)
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _refused(path: Path, error: BaseException) -> RunStateError:
    reason = getattr(error, "strerror", None) or error
    return RunStateError(
        f"{path.name} cannot be written: {reason}; name a new file in a folder that exists and "
        "has room."
    )
