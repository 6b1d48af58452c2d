"""Rows of a log of shown ads, each with its price and the predictions for it.

A log has a user, a time, an ad and its price (or a table of ads has the prices). Predictions
come from files that name rows of the log, or from columns of it. These columns are held in
memory: with what is made of them some 200 bytes a row.
"""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from tulle.data import declared_values
from tulle.data.formats.taobao import MISSING
from tulle.data.prediction_file import read_predictions
from tulle.data.row_files import RowTable, read_row_tables
from tulle.errors import ConfigError, DataError
from tulle.privacy.fields import check_text

_ROWS_AT_ONCE = 200_000

Progress = Callable[[int], None]
"""Is told how many rows are read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogColumns:
    """Names of the columns of a log, and how it writes values. Public."""

    user: str = "user_id"
    time: str = "timestamp"
    ad: str = "ad_id"
    price: str = "price"
    """In the table of ads if there is one, else in the log."""
    click: str | None = None
    consent: str | None = None
    """Whether the user agreed to personalised ads; carried over."""
    server_prob: str | None = None
    """Chance of a click by public data; None: it is in a file of predictions."""
    device_prob: str | None = None
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


TAOBAO_COLUMNS = LogColumns(
    user="user",
    time="time_stamp",
    ad="adgroup_id",
    price="price",
    click="clk",
    has_numeric_ids=True,
    missing=MISSING,
)
"""Of raw_sample.csv, with ad_feature.csv as the table of ads."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogSources:
    """The files that auctions are made from."""

    log: Path
    ad_table: Path | None = None
    """One row an ad, with its price."""
    server_predictions: Path | None = None
    """Parquet with `row`, a row of the log from 0, and `probability`."""
    device_predictions: Path | None = None


def read_log_rows(
    sources: LogSources, columns: LogColumns, progress: Progress | None = None
) -> pl.DataFrame:
    """The log as columns row, user, time, ad, price, server_prob, device_prob and more.

    A price is null where the ad has none, a prediction is NaN where a row has none. `time` is
    whole seconds or the file's own type of time.

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


def _check_one_source(sources: LogSources, columns: LogColumns, side: str) -> None:
    path = getattr(sources, f"{side}_predictions")
    column = getattr(columns, f"{side}_prob")
    if (path is None) == (column is None):
        raise ConfigError(
            f"chances of a click predicted by the {side} must come from one place: give either "
            f"{side}_predictions, a file, or {side}_prob, a column of the log."
        )


def _log_tables(
    sources: LogSources, columns: LogColumns, progress: Progress | None
) -> Iterator[pl.DataFrame]:
    ids = _id_reader(columns)
    readers: dict[str, tuple[str | None, declared_values.ColumnReader]] = {
        "user": (columns.user, ids),
        "time": (columns.time, _times),
        "ad": (columns.ad, ids),
        "price": (
            columns.price if sources.ad_table is None else None,
            declared_values.reals_or_missing_of,
        ),
        "click": (columns.click, declared_values.flags_of),
        "consent": (columns.consent, declared_values.flags_of),
        "server_prob": (columns.server_prob, declared_values.chances_of),
        "device_prob": (columns.device_prob, declared_values.chances_of),
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


def _concat(path: Path, tables: list[pl.DataFrame]) -> pl.DataFrame:
    if not tables:
        raise DataError(f"{path.name} has no rows; auctions need at least one.")
    if any(table.schema != tables[0].schema for table in tables):
        raise DataError(
            f"{path.name} has ids that are whole numbers in one part and texts in another; write "
            "them alike."
        )
    return pl.concat(tables)


def _id_reader(columns: LogColumns) -> declared_values.ColumnReader:
    if columns.has_numeric_ids:
        return declared_values.whole_numbers_of
    return declared_values.ids_of


def _times(rows: RowTable, column: str) -> pl.Series:
    # Times of a finer grain than seconds still tell auctions apart.
    seconds = declared_values.times_of(rows, column)
    times = rows.table[column]
    return times if times.dtype in (pl.Datetime, pl.Date) else seconds


def _with_prices(rows: pl.DataFrame, ad_table: Path, columns: LogColumns) -> pl.DataFrame:
    ids = _id_reader(columns)
    tables = [
        pl.DataFrame(
            {
                "ad": ids(part, columns.ad),
                "price": declared_values.reals_or_missing_of(part, columns.price),
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
            f"{ad_table.name} has an ad twice in {columns.ad!r}; keep one row for each."
        )
    if prices["ad"].dtype != rows["ad"].dtype:
        raise DataError(
            f"column {columns.ad!r} is of type {rows['ad'].dtype} in the log and "
            f"{prices['ad'].dtype} in {ad_table.name}; store both alike, or read ids of text "
            "files as whole numbers with has_numeric_ids."
        )
    return rows.join(prices, on="ad", how="left", maintain_order="left")


def _predictions(path: Path, num_rows: int) -> npt.NDArray[np.float64]:
    places, probs = read_predictions(path, num_rows)
    filled = np.full(num_rows, np.nan)
    filled[places] = probs
    return filled
