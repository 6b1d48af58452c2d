"""What-ifs of a campaign whose slices are named by columns, and the buckets that they need.

Every conversion site has a histogram of its own, so its slices are numbered on their own,
and one site's campaigns need no room in another's.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from tulle.data.schema import Kind
from tulle.data.tables.kinds import as_text
from tulle.errors import ConfigError
from tulle.measure.ad_log import AdLog, FrameTable, LogColumns, Side, table_source
from tulle.measure.expected_error import root_mean_square
from tulle.measure.small_tables import read_rows
from tulle.measure.w3c.campaign import CampaignResult, CampaignSettings, what_if
from tulle.mechanisms.entropy import noise_source

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
        """A row for each slice of a site with conversions. Not protected.

        The columns are site, slice, true, reported, noise_stddev and relative_error.
        """
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


def simulate_w3c(
    impressions: object,
    conversions: object,
    *,
    epsilon: float = 1.0,
    site_budget: float = 1.0,
    credit: Sequence[float] = (1.0,),
    by: Sequence[str] = ("campaign",),
    lookback_days: int = 30,
    tau: float = 5.0,
    kinds: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> BrowserSimulation:
    """Counts conversions as browsers with Attribution Level 1 would report them.

    Every user is a browser, every advertiser a site with a histogram of its own. The budgets of
    all sites together and of publishers are 8 and 4 times that of a site.

    Args:
      impressions: A path or a table in memory with the columns user, timestamp, advertiser,
        publisher and those to slice by.
      conversions: The same with the columns user, timestamp and advertiser.
      epsilon: Epsilon of each conversion.
      site_budget: Epsilon of a conversion site for each week of a browser.
      credit: Weights of the last, the last but one, ... impression.
      by: Columns of impressions whose values make slices.
      lookback_days: Most days from an impression to a conversion.
      tau: Slices below this many conversions count as this many in relative errors.
      kinds: Kinds of columns, where small numbers in timestamp do not say what they count.
      seed: Makes the noise repeatable.

    Privacy:
      None: the figures come from raw rows. Keep them with the data.
    """
    columns = LogColumns(advertiser="advertiser", publisher="publisher", kinds=kinds or {})
    buckets = number_buckets(impressions, conversions, by=tuple(by), columns=columns)
    settings = CampaignSettings(
        bucket=buckets.bucket_column,
        histogram_size=buckets.histogram_size,
        epsilon=epsilon,
        credit=tuple(credit),
        lookback_days=lookback_days,
    )
    (result,) = what_if(
        buckets.log,
        settings,
        epsilons=[epsilon],
        site_budgets=[site_budget],
        rng=noise_source(seed),
    )
    table = buckets.errors(result, tau=tau)
    return BrowserSimulation(
        overall={**result.to_dict(tau=tau), "rmsre": rmsre_of(table)},
        slices=table.sort("true", descending=True, maintain_order=True),
    )
