"""Timelines of users, from tables of impressions and conversions.

Users without a conversion report nothing, so their impressions are left out at once.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl

from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, TableSource
from tulle.measure.w3c.attribution_state import SavedImpression
from tulle.measure.w3c.limits import DAY_SECONDS
from tulle.privacy.fields import did_you_mean

_USERS_AT_ONCE = 20_000
_DEFAULTS: dict[str, str | int] = {"site": "all", "for_site": "all", "priority": 0, "value": 1}
_WHOLE = ("time", "value", "priority", "bucket")
_MOST_VALUE = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class Timeline:
    """One user's impressions and conversions, each in the order of time. Sensitive."""

    impressions: list[SavedImpression]
    conversions: list[tuple[int, str, int]]
    """Time in seconds, conversion site and value."""


@dataclasses.dataclass(frozen=True, eq=False)
class CampaignLog:
    """Rows of users with conversions, by user and time. Sensitive."""

    impressions: pl.DataFrame
    conversions: pl.DataFrame
    num_users: int
    sites: tuple[str, ...]
    """Conversion sites."""

    def timelines(self, *, lifetime_days: int) -> Iterator[Timeline]:
        """User by user."""
        for first in range(0, self.num_users, _USERS_AT_ONCE):
            last = min(first + _USERS_AT_ONCE, self.num_users)
            impressions = _rows_of(self.impressions, first, last)
            conversions = _rows_of(self.conversions, first, last)
            saved = _saved(impressions, lifetime_days * DAY_SECONDS)
            made = conversions.select("time", "site", "value").rows()
            impression_ends = _ends(impressions, first, last)
            conversion_ends = _ends(conversions, first, last)
            impression_start = conversion_start = 0
            for impression_end, conversion_end in zip(
                impression_ends, conversion_ends, strict=True
            ):
                yield Timeline(
                    saved[impression_start:impression_end], made[conversion_start:conversion_end]
                )
                impression_start, conversion_start = impression_end, conversion_end


def load_campaign(log: AdLog, *, bucket: str, histogram_size: int) -> CampaignLog:
    """Reads a log and brings its rows into the order that browsers see them in.

    Args:
      log: Advertisers are conversion sites, and publishers are impression sites; without such a
        column all rows are of one site. Without a value column every conversion is worth 1.
      bucket: Column of impressions with the bucket that gets their credit.
      histogram_size: Number of buckets.
    """
    columns = log.columns
    if log.conversions is None:
        raise ConfigError("conversions=None; a campaign is measured by its conversions.")
    conversions = _table(
        log.conversions,
        "conversions",
        {
            "user": columns.user,
            "time": columns.conversion_time,
            "site": columns.advertiser,
            "value": columns.value,
        },
    )
    impressions = _table(
        log.impressions,
        "impressions",
        {
            "user": columns.user,
            "time": columns.impression_time,
            "for_site": columns.advertiser,
            "site": columns.publisher,
            "priority": columns.priority,
            "bucket": bucket,
        },
    )
    _check_range(impressions["bucket"], bucket, 0, histogram_size - 1)
    _check_range(conversions["value"], columns.value, 0, _MOST_VALUE)
    if impressions["user"].dtype != conversions["user"].dtype:
        raise DataError(
            f"column {columns.user!r} has type {impressions['user'].dtype} in the impressions and "
            f"{conversions['user'].dtype} in the conversions; make them the same."
        )
    return _in_order(conversions.filter(pl.col("value") > 0), impressions)


def _in_order(conversions: pl.DataFrame, impressions: pl.DataFrame) -> CampaignLog:
    users = conversions.select(pl.col("user").unique(maintain_order=True)).with_row_index("index")
    in_order = [
        frame.join(users, on="user", how="inner", maintain_order="left").sort(
            "index", "time", maintain_order=True
        )
        for frame in (impressions, conversions)
    ]
    sites = tuple(sorted(conversions["site"].unique()))
    return CampaignLog(in_order[0], in_order[1], len(users), sites)


def _rows_of(frame: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    start, end = np.searchsorted(frame["index"].to_numpy(), [first, last])
    return frame.slice(int(start), int(end - start))


def _ends(frame: pl.DataFrame, first: int, last: int) -> list[int]:
    users = np.arange(first, last)
    ends: list[int] = np.searchsorted(frame["index"].to_numpy(), users, side="right").tolist()
    return ends


def _saved(impressions: pl.DataFrame, lifetime: int) -> list[SavedImpression]:
    for_sites = {site: frozenset((site,)) for site in impressions["for_site"].unique()}
    rows = impressions.select("time", "bucket", "priority", "site", "for_site").iter_rows()
    return [
        SavedImpression(time, lifetime, bucket, priority, site, site, 0, for_sites[for_site])
        for time, bucket, priority, site, for_site in rows
    ]


def _frame(source: TableSource, name: str) -> pl.LazyFrame:
    if isinstance(source, DatabaseTable):
        raise ConfigError(
            f"{name} is a table of a database; write it to a Parquet file and name that."
        )
    if not isinstance(source, FileTable):
        frame = source.frame
        is_polars = isinstance(frame, pl.DataFrame | pl.LazyFrame)
        lazy: pl.LazyFrame = (frame if is_polars else pl.DataFrame(frame)).lazy()
        return lazy
    scans = [
        pl.scan_csv(path) if path.suffix == ".csv" else pl.scan_parquet(path)
        for path in source.paths
    ]
    return pl.concat(scans)


def _table(source: TableSource, name: str, roles: dict[str, str | None]) -> pl.DataFrame:
    """The columns of a table under the names of their roles, without nulls."""
    frame = _frame(source, name)
    known = frame.collect_schema().names()
    for column in roles.values():
        if column is not None and column not in known:
            raise DataError(f"{name} have no column {column!r}{did_you_mean(column, known)}.")
    chosen = [
        (pl.lit(_DEFAULTS[role]) if column is None else pl.col(column)).alias(role)
        for role, column in roles.items()
    ]
    table = frame.select(chosen).collect()
    for role, column in roles.items():
        if table[role].null_count():
            raise DataError(f"column {column!r} of the {name} has nulls; drop those rows first.")
        if role in _WHOLE:
            table = table.with_columns(_whole_numbers(table[role], f"{column} of the {name}"))
        elif role != "user":
            table = table.with_columns(pl.col(role).cast(pl.String))
    return table


def _whole_numbers(values: pl.Series, what: str) -> pl.Series:
    """Whole numbers; of times those of seconds since 1970."""
    if values.dtype.is_temporal() and values.dtype not in (pl.Time, pl.Duration):
        return values.dt.epoch("s").cast(pl.Int64)
    if values.dtype.is_integer() or values.dtype == pl.Boolean:
        return values.cast(pl.Int64)
    if values.dtype.is_float() and values.is_finite().all() and (values == values.round()).all():
        return values.cast(pl.Int64)
    raise DataError(f"column {what} must hold whole numbers, or dates if it is a time.")


def _check_range(values: pl.Series, column: str | None, least: int, most: int) -> None:
    if not values.is_between(least, most).all():
        raise DataError(f"column {column!r} must have whole numbers from {least} to {most} alone.")
