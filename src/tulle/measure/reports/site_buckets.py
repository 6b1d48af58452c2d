"""Buckets for a W3C what-if: the slices of each conversion site, numbered from 0.

Every conversion site has a histogram of its own, so its slices are numbered on their own,
and one site's campaigns need no room in another's.
"""

import dataclasses
from pathlib import Path

import polars as pl

from tulle.measure.ad_log import AdLog, FrameTable, LogColumns
from tulle.measure.expected_error import root_mean_square
from tulle.measure.reports.log_files import load_columns, scan_table
from tulle.measure.reports.slice_places import as_text, slice_names
from tulle.measure.w3c.campaign_result import CampaignResult

_COLUMNS = LogColumns(advertiser="advertiser", publisher="publisher")
_BUCKET, _SITE, _SLICE = "(bucket)", "(site)", "(slice)"
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


def rmsre_of(errors: pl.DataFrame) -> float:
    """RMSRE_tau over the slices that a site has, leaving out buckets that stand for nothing."""
    return root_mean_square(errors["relative_error"].to_numpy())


def number_buckets(
    impressions: Path,
    conversions: Path,
    *,
    by: tuple[str, ...] = ("campaign",),
    columns: LogColumns = _COLUMNS,
) -> SiteBuckets:
    """Numbers the slices of each site, the advertiser of an impression being its site.

    Privacy:
      Returns raw rows, without any protection.
    """
    owner = [columns.user] + ([columns.advertiser] if columns.advertiser else [])
    publisher = [columns.publisher] if columns.publisher else []
    shown = load_columns(
        "impressions",
        scan_table(impressions),
        [*owner, columns.impression_time, *publisher, *by],
    )
    converted = load_columns(
        "conversions", scan_table(conversions), [*owner, columns.conversion_time]
    )
    site = pl.lit(_ONE_SITE) if columns.advertiser is None else pl.col(columns.advertiser)
    named = shown.with_columns(
        site.cast(pl.String).alias(_SITE), slice_names(as_text(shown, by)).alias(_SLICE)
    )
    numbered = named.with_columns(
        (pl.col(_SLICE).rank("dense").over(_SITE) - 1).cast(pl.Int64).alias(_BUCKET)
    )
    buckets = (
        numbered.select(site=_SITE, bucket=_BUCKET, slice=_SLICE).unique().sort("site", "bucket")
    )
    return SiteBuckets(
        log=AdLog(
            impressions=FrameTable(frame=numbered.drop(_SITE, _SLICE)),
            conversions=FrameTable(frame=converted),
            columns=columns,
        ),
        histogram_size=max(buckets["bucket"], default=0) + 1,
        buckets=buckets,
    )
