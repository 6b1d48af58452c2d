"""Buckets for a W3C what-if: the slices of each conversion site, numbered from 0.

Every conversion site has a histogram of its own, so its slices are numbered on their own,
and one site's campaigns need no room in another's.
"""

import dataclasses
from typing import Any

import polars as pl

from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text
from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, FrameTable, LogColumns, Side, table_source
from tulle.measure.expected_error import root_mean_square
from tulle.measure.small_tables import read_rows
from tulle.measure.w3c.campaign import CampaignResult

_COLUMNS = LogColumns(advertiser="advertiser", publisher="publisher")
"""Columns of the logs that `tulle data synth impressions` writes."""
_BUCKET, _SITE, _SLICE = "(bucket)", "(site)", "(slice)"
MISSING = "(missing)"
"""What the slice of a row without a value is called."""
_ONE_SITE = "all"  # What the simulator calls the site of a log without such a column.


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SiteBuckets:
    """A log whose impressions have buckets, and what these stand for. Sensitive: raw rows."""

    log: AdLog = dataclasses.field(repr=False)
    histogram_size: int
    """Buckets of the site that has most."""
    buckets: pl.DataFrame = dataclasses.field(repr=False)
    """Columns site, bucket and slice."""
    bucket_column: str = _BUCKET
    """The column of impressions with their buckets."""

    def errors(self, result: CampaignResult, *, tau: float) -> pl.DataFrame:
        """A row for each slice of a site with conversions: site, slice, true, reported,
        noise_stddev and relative_error. Not protected."""
        places = pl.DataFrame({"site": result.sites}, schema={"site": pl.String})
        rows = self.buckets.join(places.with_row_index("place"), on="site")
        place, bucket = rows["place"].to_numpy(), rows["bucket"].to_numpy()
        return rows.select("site", "slice").with_columns(
            true=pl.Series(result.raw_true[place, bucket]),
            reported=pl.Series(result.raw_reported[place, bucket]),
            noise_stddev=pl.lit(result.noise_stddev),
            relative_error=pl.Series(result.relative_errors(tau=tau)[place, bucket]),
        )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BrowserSimulation:
    """What error a campaign would see through a browser's API. Sensitive: it holds raw totals."""

    overall: dict[str, Any] = dataclasses.field(repr=False)
    """Figures of the whole campaign by name."""
    slices: pl.DataFrame = dataclasses.field(repr=False)
    """One row for each slice, the largest first."""
    trigger_data: pl.DataFrame | None = dataclasses.field(default=None, repr=False)
    """One row for each slice, kind of source and value, for event-level reports; else None."""

    def to_polars(self) -> pl.DataFrame:
        """The slices."""
        return self.slices


def rmsre_of(errors: pl.DataFrame) -> float:
    """RMSRE_tau over the slices that a site has, leaving out buckets that stand for nothing."""
    return root_mean_square(errors["relative_error"].to_numpy())


def number_buckets(
    impressions: object,
    conversions: object,
    *,
    by: tuple[str, ...] = ("campaign",),
    columns: LogColumns = _COLUMNS,
) -> SiteBuckets:
    """Numbers the slices of each site, the advertiser of an impression being its site.

    Args:
      impressions: A path, or a table of polars, pandas, Arrow or DuckDB.
      conversions: The same for conversions.
      by: Columns of impressions whose values make slices.
      columns: Names of the columns that have a meaning of their own.

    Privacy:
      Returns raw rows, without any protection.
    """
    publisher = [columns.publisher] if columns.publisher else []
    time = columns.needed_time(Side.IMPRESSION)
    shown = read_rows(impressions, [*columns.owners(), time, *publisher, *by]).table
    site = pl.lit(_ONE_SITE).alias(_SITE)
    if columns.advertiser is not None:
        site = pl.lit(as_text(shown[columns.advertiser], Kind.CATEGORICAL)).alias(_SITE)
    named = shown.with_columns(site, slice_names(slice_texts(shown, by)).alias(_SLICE))
    numbered = named.with_columns(
        (pl.col(_SLICE).rank("dense").over(_SITE) - 1).cast(pl.Int64).alias(_BUCKET)
    )
    buckets = (
        numbered.select(site=_SITE, bucket=_BUCKET, slice=_SLICE).unique().sort("site", "bucket")
    )
    return SiteBuckets(
        log=AdLog(
            impressions=FrameTable(frame=numbered.drop(_SITE, _SLICE)),
            conversions=table_source(conversions),
            columns=columns,
        ),
        histogram_size=max(buckets["bucket"], default=0) + 1,
        buckets=buckets,
    )


def slice_texts(frame: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    """The columns of `by` alone, as text without gaps.

    Raises:
      ConfigError: A column is not there, or named twice.
    """
    for name in by:
        if name not in frame.columns or by.count(name) > 1:
            raise ConfigError(
                f"slices by {', '.join(by)}: {name!r} must be a column that was read, named once; "
                f"those are {', '.join(frame.columns)}."
            )
    return frame.select(as_text(frame[name], Kind.CATEGORICAL).fill_null(MISSING) for name in by)


def slice_names(slices: pl.DataFrame) -> pl.Series:
    """Each slice as one text: its values with " / " between them."""
    return slices.select(pl.concat_str(pl.all(), separator=" / ").alias("slice"))["slice"]
