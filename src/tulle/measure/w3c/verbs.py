"""What-ifs of a campaign in browsers with the W3C's Attribution API."""

from collections.abc import Mapping, Sequence

from tulle.measure.ad_log import LogColumns
from tulle.measure.w3c.campaign import CampaignSettings, what_if
from tulle.measure.w3c.site_buckets import BrowserSimulation, number_buckets, rmsre_of
from tulle.mechanisms.entropy import noise_source


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
