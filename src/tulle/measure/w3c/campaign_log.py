"""Timelines of users, from tables of impressions and conversions.

Users without a conversion report nothing, so their impressions are left out at once.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from tulle.data.tables.rows import RowTable, whole_numbers_of
from tulle.errors import ConfigError, DataError
from tulle.measure.ad_log import AdLog, DatabaseTable, FileTable, LogColumns, Side, TableSource
from tulle.measure.small_tables import present_texts_of, read_rows, seconds_of
from tulle.measure.w3c.attribution_state import SavedImpression
from tulle.measure.w3c.options import DAY_SECONDS

_USERS_AT_ONCE = 20_000
"""Users whose rows are objects at once, which bounds the memory."""
_DEFAULTS: dict[str, str | int] = {"site": "all", "for_site": "all", "priority": 0, "value": 1}
"""Values of roles that a log has no column for."""
_WHOLE = ("time", "value", "priority", "bucket")
"""Roles that hold whole numbers."""
_MOST_VALUE = 2**32 - 1
"""Largest value that the specification allows, 32 bits."""


@dataclasses.dataclass(frozen=True, eq=False)
class CampaignLog:
    """Rows of users with conversions, by user and time. Sensitive."""

    impressions: pl.DataFrame
    conversions: pl.DataFrame
    num_users: int
    sites: tuple[str, ...]
    """Conversion sites."""

    def timelines(
        self, *, lifetime_days: int
    ) -> Iterator[tuple[list[SavedImpression], list[tuple[int, str, int]]]]:
        """Impressions of a user, and times, sites and values of the conversions; in time order."""
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
                yield saved[impression_start:impression_end], made[conversion_start:conversion_end]
                impression_start, conversion_start = impression_end, conversion_end


def load_campaign(log: AdLog, *, bucket: str, histogram_size: int) -> CampaignLog:
    """Reads a log and brings its rows into the order that browsers see them in.

    Args:
      log: Advertisers are conversion sites, and publishers are impression sites; without such a
        column all rows are of one site. Without a value column every conversion is worth 1.
      bucket: Column of impressions with the bucket that gets their credit.
      histogram_size: Number of buckets.
    """
    columns, user = log.columns, log.columns.owners()[0]
    if log.conversions is None:
        raise ConfigError("conversions=None; a campaign is measured by its conversions.")
    conversions = _table(
        log.conversions,
        "conversions",
        columns,
        {
            "user": user,
            "time": columns.conversion_time,
            "site": columns.advertiser,
            "value": columns.value,
        },
    )
    impressions = _table(
        log.impressions,
        "impressions",
        columns,
        {
            "user": user,
            "time": columns.needed_time(Side.IMPRESSION),
            "for_site": columns.advertiser,
            "site": columns.publisher,
            "priority": columns.priority,
            "bucket": bucket,
        },
    )
    _check_range(impressions["bucket"], bucket, 0, histogram_size - 1)
    _check_range(conversions["value"], columns.value, 0, _MOST_VALUE)
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


def _table(
    source: TableSource, name: str, columns: LogColumns, roles: dict[str, str | None]
) -> pl.DataFrame:
    """The columns of a table under the names of their roles, without nulls."""
    if isinstance(source, DatabaseTable):
        raise ConfigError(
            f"{name} is a table of a database; write it to a Parquet file and name that."
        )
    pieces: Sequence[object] = source.paths if isinstance(source, FileTable) else [source.table]
    wanted = [column for column in roles.values() if column is not None]
    return pl.concat(_typed(read_rows(piece, wanted), columns, roles) for piece in pieces)


def _typed(rows: RowTable, columns: LogColumns, roles: dict[str, str | None]) -> pl.DataFrame:
    found = []
    for role, column in roles.items():
        if column is None:
            default = pl.lit(_DEFAULTS[role]).cast(pl.Int64 if role in _WHOLE else pl.String)
            values = pl.select(pl.repeat(default, len(rows.table))).to_series()
        elif role == "time":
            values = seconds_of(rows, column, columns.kind_of(column))
        elif role in _WHOLE:
            values = whole_numbers_of(rows, column)
        else:
            values = present_texts_of(rows, column)
        found.append(values.alias(role))
    return pl.DataFrame(found)


def _check_range(values: pl.Series, column: str | None, least: int, most: int) -> None:
    if not values.is_between(least, most).all():
        raise DataError(f"column {column!r} must have whole numbers from {least} to {most} alone.")
