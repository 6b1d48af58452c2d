"""Rows of a log of shown ads, each with its price and the predictions for it.

A log has a user, a time, an ad and its price (or a table of ads has the prices). Predictions
come from files that name rows of the log, or from columns of it. These columns are held in
memory: with what is made of them some 200 bytes a row.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data.formats.public import MISSING
from tulle.data.prediction_file import read_predictions
from tulle.data.tables import rows as table_rows
from tulle.data.tables.rows import RowSource, RowTable, read_row_tables, source_name
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_text, did_you_mean

_ROWS_AT_ONCE = 200_000
"""Rows that are read at once; all of them are held in the end, in fewer bytes."""

Progress = Callable[[int], None]
"""Function that is told how many rows are read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionLogColumns:
    """Names of the columns of a log, and how it writes values. Public."""

    user: str = "user_id"
    """Column of the user."""
    time: str = "timestamp"
    """Column of the time: rows of one user and one time are one auction."""
    ad: str = "ad_id"
    """Column of the ad."""
    price: str = "price"
    """Column of the price, in the table of ads if there is one, else in the log."""
    click: str | None = None
    """Whether the ad was clicked; carried over."""
    consent: str | None = None
    """Whether the user agreed to personalised ads; carried over."""
    server_prob: str | None = None
    """Probability of a click by public data; None: it is in a file of predictions."""
    device_prob: str | None = None
    """The same by private data. Sensitive."""
    has_numeric_ids: bool = False
    """Ids in text files are whole numbers; otherwise they are kept as text."""
    missing: tuple[str, ...] = ("",)
    """Texts that mean that a value is missing."""

    def __post_init__(self) -> None:
        for name in (
            *("user", "time", "ad", "price", "click", "consent"),
            *("server_prob", "device_prob"),
        ):
            if getattr(self, name) is not None:
                check_text(name, getattr(self, name))


TAOBAO_COLUMNS = AuctionLogColumns(
    user="user",
    time="time_stamp",
    ad="adgroup_id",
    price="price",
    click="clk",
    has_numeric_ids=True,
    missing=MISSING,
)
"""Columns of raw_sample.csv, with ad_feature.csv as the table of ads."""
_LAYOUTS = {"taobao": TAOBAO_COLUMNS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSources:
    """The files that auctions are made from."""

    log: RowSource
    """The log of shown ads: a file, or a table in memory."""
    ad_table: RowSource | None = None
    """One row an ad, with its price."""
    server_predictions: Path | None = None
    """Parquet with `row`, a row of the log from 0, and `probability`."""
    device_predictions: Path | None = None
    """The same by private data too. Sensitive."""


def log_columns(
    layout: str | None, columns: AuctionLogColumns | Mapping[str, Any] | None
) -> AuctionLogColumns:
    """Columns of a log: those of a known layout or the usual ones, with others named.

    Args:
      layout: "taobao", or None for the usual names.
      columns: Names that differ from those, by their role.

    Raises:
      ConfigError: The layout or a role is unknown.
    """
    if isinstance(columns, AuctionLogColumns):
        return columns
    if layout is not None and layout not in _LAYOUTS:
        raise ConfigError(
            f"format={layout!r} is unknown{did_you_mean(layout, _LAYOUTS)}; use "
            f"{', '.join(_LAYOUTS)}, or name the columns."
        )
    start = AuctionLogColumns() if layout is None else _LAYOUTS[layout]
    named = dict(columns or {})
    known = [field.name for field in dataclasses.fields(AuctionLogColumns)]
    if unknown := [role for role in named if role not in known]:
        raise ConfigError(
            f"columns has no role {unknown[0]!r}{did_you_mean(unknown[0], known)}; it has "
            f"{', '.join(known)}."
        )
    return dataclasses.replace(start, **named)


def read_log_rows(
    sources: LogSources, columns: AuctionLogColumns, progress: Progress | None = None
) -> pl.DataFrame:
    """The log as columns row, user, time, ad, price, server_prob, device_prob and more.

    A price is null where the ad has none, a prediction is NaN where a row has none. `time` is
    whole seconds or the file's own type of time.

    Args:
      sources: The log, the table of ads and files of predictions.
      columns: Names of the columns of the log.
      progress: Function that is told how many rows are read.

    Privacy:
      Reads sensitive rows and releases nothing. Errors name places and columns, no values.

    Raises:
      ConfigError: Predictions of one side come from no place or from two.
      DataError: A file cannot be read, or a value is missing or out of its range.
    """
    for side in ("server", "device"):
        _check_one_source(sources, columns, side)
    rows = _concat(sources.log, list(_log_tables(sources, columns, progress)))
    rows = rows.with_row_index("row")
    if sources.ad_table is not None:
        rows = _with_prices(rows, sources.ad_table, columns)
    for role, path in (
        ("server_prob", sources.server_predictions),
        ("device_prob", sources.device_predictions),
    ):
        if path is not None:
            rows = rows.with_columns(pl.Series(role, _predictions(path, rows.height)))
    return rows


def _check_one_source(sources: LogSources, columns: AuctionLogColumns, side: str) -> None:
    path = getattr(sources, f"{side}_predictions")
    column = getattr(columns, f"{side}_prob")
    if (path is None) == (column is None):
        raise ConfigError(
            f"give either {side}_predictions or {side}_prob, a column of the log: the "
            f"probabilities of a click as the {side} predicts them."
        )


def _log_tables(
    sources: LogSources, columns: AuctionLogColumns, progress: Progress | None
) -> Iterator[pl.DataFrame]:
    ids = _id_reader(columns)
    readers: dict[str, tuple[str | None, table_rows.ColumnReader]] = {
        "user": (columns.user, ids),
        "time": (columns.time, _times),
        "ad": (columns.ad, ids),
        "price": (
            columns.price if sources.ad_table is None else None,
            table_rows.reals_or_missing_of,
        ),
        "click": (columns.click, table_rows.flags_of),
        "consent": (columns.consent, table_rows.flags_of),
        "server_prob": (columns.server_prob, table_rows.chances_of),
        "device_prob": (columns.device_prob, table_rows.chances_of),
    }
    used = {role: (name, read) for role, (name, read) in readers.items() if name is not None}
    names = tuple(name for name, _ in used.values())
    num_rows = 0
    for rows in read_row_tables(
        sources.log, names, rows_per_table=_ROWS_AT_ONCE, missing=columns.missing
    ):
        yield pl.DataFrame([read(rows, name).alias(role) for role, (name, read) in used.items()])
        num_rows += len(rows.numbers)
        if progress is not None:
            progress(num_rows)


def _concat(source: RowSource, tables: list[pl.DataFrame]) -> pl.DataFrame:
    if not tables:
        raise DataError(f"{source_name(source)} has no rows; auctions need at least one.")
    if any(table.schema != tables[0].schema for table in tables):
        raise DataError(
            f"{source_name(source)} has ids that are whole numbers in one part and texts in "
            "another; write them alike."
        )
    return pl.concat(tables)


def _id_reader(columns: AuctionLogColumns) -> table_rows.ColumnReader:
    if columns.has_numeric_ids:
        return table_rows.whole_numbers_of
    return table_rows.ids_of


def _times(rows: RowTable, column: str) -> pl.Series:
    # Times of a finer grain than seconds still tell auctions apart.
    seconds = table_rows.times_of(rows, column)
    times = rows.table[column]
    return times if times.dtype in (pl.Datetime, pl.Date) else seconds


def _with_prices(
    rows: pl.DataFrame, ad_table: RowSource, columns: AuctionLogColumns
) -> pl.DataFrame:
    ids = _id_reader(columns)
    tables = [
        pl.DataFrame(
            {
                "ad": ids(part, columns.ad),
                "price": table_rows.reals_or_missing_of(part, columns.price),
            }
        )
        for part in read_row_tables(
            ad_table,
            (columns.ad, columns.price),
            rows_per_table=_ROWS_AT_ONCE,
            missing=columns.missing,
        )
    ]
    prices = _concat(ad_table, tables)
    if prices["ad"].is_duplicated().any():
        raise DataError(
            f"{source_name(ad_table)} has an ad twice in {columns.ad!r}; keep one row for each."
        )
    if prices["ad"].dtype != rows["ad"].dtype:
        raise DataError(
            f"column {columns.ad!r} is of type {rows['ad'].dtype} in the log and "
            f"{prices['ad'].dtype} in {source_name(ad_table)}; store both alike, or read ids of "
            "text files as whole numbers with has_numeric_ids."
        )
    return rows.join(prices, on="ad", how="left", maintain_order="left")


def _predictions(path: Path, num_rows: int) -> npt.NDArray[np.float64]:
    places, probs = read_predictions(path, num_rows)
    filled = np.full(num_rows, np.nan)
    filled[places] = probs
    return filled
