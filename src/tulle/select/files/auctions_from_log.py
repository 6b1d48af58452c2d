"""Auctions from a log of shown ads, as in appendix E of Laro et al. 2024.

Ads shown to one user at one time are the candidates of one auction for one slot. Bids are
proportional to the prices of what is advertised. No log says who else would have bid: such auctions
are for experiments.
"""

import dataclasses
import math
import os
import secrets
from pathlib import Path
from typing import Any

import polars as pl

from tulle.atomic_files import sync_folder
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.select.files.auction_files import AuctionColumns
from tulle.select.files.log_rows import (
    AuctionLogColumns,
    LogSources,
    Progress,
    read_log_rows,
)
from tulle.select.files.whole_auctions import RowForm, write_row_tables

_ROWS_AT_ONCE = 200_000
"""Rows that are written at once, to keep memory small."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionLogConfig:
    """How a log becomes auctions. Every field is public information."""

    columns: AuctionLogColumns = dataclasses.field(default_factory=AuctionLogColumns)
    bid_factor: float = 1.0
    """Bid for a click divided by the price of what is advertised."""
    min_candidates: int = 2
    """Auctions with fewer candidates are left out."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bid_factor) and self.bid_factor > 0):
            raise ConfigError(f"bid_factor={self.bid_factor} must be finite and > 0.")
        if not self.min_candidates >= 1:
            raise ConfigError(f"min_candidates={self.min_candidates} must be >= 1.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuctionLogFacts:
    """What became of a log. Exact numbers of raw data: for those who may see it."""

    auctions: int
    candidates: int
    mean_candidates: float
    most_candidates: int
    least_bid: float
    """Least bid for a click; Laro et al. 2024 take it as the reserve of a click."""
    least_server_score: float
    """Least score of an impression: bid times click probability, above 0, for a reserve of an
    impression."""
    clicks: int | None
    """Candidates that were clicked; None if the log does not say."""
    rows: int
    """Number of rows of the log."""
    rows_without_price: int
    """Left out: without a price an ad has no bid."""
    rows_merged: int
    """Further rows of an ad in its auction. The first is kept; any click counts."""
    auctions_without_predictions: int
    """Left out: a candidate has no prediction of the server."""
    auctions_too_small: int
    """Left out: they have fewer than min_candidates."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)


def write_auctions_from_log(
    sources: LogSources,
    output: Path,
    config: AuctionLogConfig | None = None,
    *,
    progress: Progress | None = None,
) -> AuctionLogFacts:
    """Writes a file of auctions that `read_auctions` reads, whole or not at all.

    Auctions are numbered from 0 in the order of their first rows in the log, and candidates
    come in the order of theirs, whether or not the log is sorted.

    Args:
      sources: The log, the table of ads and files of predictions.
      output: A new file that ends in .parquet, .csv, .jsonl or .ndjson.
      config: How rows become auctions; None: columns with default names.
      progress: Function that is told how many rows of the log are read.

    Privacy:
      The file holds raw data of users: predictions from private data, and clicks if they are
      named. Keep it where the log is.

    Raises:
      ConfigError: Predictions of one side come from no place or from two.
      DataError: A file cannot be read, a value is missing or out of range, or no auction is left.
      RunStateError: The output exists or cannot be written.
    """
    form = RowForm.of(output)
    if output.exists():
        raise RunStateError(f"{output.name} exists already; name another file.")
    if not output.parent.is_dir():
        raise ConfigError(f"{output.name} is to be in a folder that does not exist; make it first.")
    settings = config or AuctionLogConfig()
    rows = read_log_rows(sources, settings.columns, progress)
    auctions, left_out = _group(rows, settings)
    table = _auction_table(auctions, settings)
    _write(output, table, form)
    sizes = table.group_by("auction_id").len()["len"]
    return AuctionLogFacts(
        auctions=len(sizes),
        candidates=table.height,
        mean_candidates=table.height / len(sizes),
        most_candidates=int(sizes.to_numpy().max()),
        least_bid=float(table["bid"].to_numpy().min()),
        least_server_score=_least_score(table),
        clicks=int(table["click"].sum()) if "click" in table.columns else None,
        rows=rows.height,
        **left_out,
    )


def _group(rows: pl.DataFrame, config: AuctionLogConfig) -> tuple[pl.DataFrame, dict[str, int]]:
    """Candidates of the auctions that are kept, in order; `first` tells auctions apart."""
    is_predicted = pl.col("server_prob").is_not_nan()
    _refuse_missing_devices(rows)
    # Only what decides is moved about; the rest follows by row.
    priced = (
        rows.lazy()
        .filter(pl.col("price").is_not_null())
        .select(
            "row",
            "ad",
            pl.col("row").min().over("user", "time").alias("first"),
            is_predicted.alias("is_predicted"),
        )
        .collect()
    )
    candidates = priced.sort("first", "row").unique(
        ["first", "ad"], keep="first", maintain_order=True
    )
    marked = candidates.select(
        "row",
        "first",
        is_complete=pl.col("is_predicted").all().over("first"),
        is_large=pl.len().over("first") >= config.min_candidates,
    )
    kept = marked.filter(pl.col("is_complete") & pl.col("is_large"))
    if not kept.height:
        raise DataError(
            "no auction is left: each has fewer candidates with a price than "
            f"min_candidates={config.min_candidates}, or a candidate without predictions. Check "
            "the columns of user and time, and that predictions cover the rows of this log."
        )
    auctions = rows.drop("row")[kept["row"]].with_columns(kept["first"])
    if "click" in rows.columns:
        auctions = _with_any_click(auctions, priced, rows["click"])
    return auctions, {
        "rows_without_price": rows.height - priced.height,
        "rows_merged": priced.height - candidates.height,
        "auctions_without_predictions": marked.filter(~pl.col("is_complete"))["first"].n_unique(),
        "auctions_too_small": marked.filter(pl.col("is_complete") & ~pl.col("is_large"))[
            "first"
        ].n_unique(),
    }


def _least_score(table: pl.DataFrame) -> float:
    names = AuctionColumns()
    scores = (table[names.bid] * table[names.server_prob]).to_numpy()
    return float(scores[scores > 0].min()) if (scores > 0).any() else 0.0


def _refuse_missing_devices(rows: pl.DataFrame) -> None:
    """Refuses gaps of devices: auctions left out by what they can not predict would tell of it."""
    is_missing = pl.col("server_prob").is_not_nan() & pl.col("device_prob").is_nan()
    if rows.select(is_missing.any()).item():
        raise DataError(
            "a row has a prediction of the server and none of the device; predict the same rows "
            "by both, and fill in the server's where a device has none of its own: which auctions "
            "there are must not depend on private data."
        )


def _with_any_click(
    auctions: pl.DataFrame, priced: pl.DataFrame, clicks: pl.Series
) -> pl.DataFrame:
    """An ad is clicked in its auction if any of its rows there was, not only the first."""
    clicked = (
        priced.filter(clicks.gather(priced["row"]))
        .select("first", "ad")
        .unique()
        .with_columns(click=pl.lit(True))
    )
    joined = auctions.drop("click").join(
        clicked, on=["first", "ad"], how="left", maintain_order="left"
    )
    return joined.with_columns(pl.col("click").fill_null(False))


def _auction_table(auctions: pl.DataFrame, config: AuctionLogConfig) -> pl.DataFrame:
    names = AuctionColumns()
    time = pl.col("time")
    if auctions["time"].dtype in (pl.Datetime, pl.Date):
        time = time.dt.epoch("s").cast(pl.Int64)
    columns = {
        names.auction: pl.col("first").rle_id().cast(pl.Int64),
        str(names.user): pl.col("user"),
        str(names.time): time,
        names.ad: pl.col("ad"),
        names.bid: pl.col("price") * config.bid_factor,
        names.server_prob: pl.col("server_prob"),
        names.device_prob: pl.col("device_prob"),
    }
    for role in ("click", "consent"):
        if role in auctions.columns:
            columns[str(getattr(names, role))] = pl.col(role)
    table = auctions.select(**columns)
    if not table[names.bid].is_finite().all():
        raise DataError(
            f"a price times bid_factor={config.bid_factor} is beyond all numbers; use a smaller "
            "factor."
        )
    return table


def _write(output: Path, table: pl.DataFrame, form: RowForm) -> None:
    hidden = output.with_name(f".{output.name}.{secrets.token_hex(8)}.tmp")
    try:
        write_row_tables(hidden, table.iter_slices(_ROWS_AT_ONCE), form)
        os.link(hidden, output)  # unlike a rename, it refuses a file that came meanwhile
        sync_folder(output.parent)
    except FileExistsError:
        raise RunStateError(f"{output.name} exists already; name another file.") from None
    finally:
        hidden.unlink(missing_ok=True)
