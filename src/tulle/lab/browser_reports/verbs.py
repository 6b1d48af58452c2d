"""What-ifs of a campaign by the Attribution Reporting API, from two tables and a few numbers."""

from collections.abc import Mapping, Sequence

from tulle.errors import ConfigError
from tulle.lab.browser_reports.attributed_log import (
    AttributedLog,
    LastTouchSettings,
    attribute_last_touch,
)
from tulle.lab.browser_reports.event_reports import simulate_events
from tulle.lab.browser_reports.event_settings import DAY, EventSettings, SourceReports
from tulle.lab.browser_reports.summary_reports import simulate_summary
from tulle.lab.browser_reports.summary_settings import Goal, SummarySettings
from tulle.measure.ad_log import LogColumns
from tulle.measure.w3c.verbs import BrowserSimulation
from tulle.mechanisms.entropy import noise_source


def simulate_summary_reports(
    impressions: object,
    conversions: object,
    *,
    epsilon: float = 10.0,
    max_value: float | None = None,
    value_column: str = "value",
    value_share: float = 0.5,
    conversions_per_source: int = 1,
    by: Sequence[str] = ("campaign",),
    lookback_days: int = 30,
    tau: float = 5.0,
    kinds: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> BrowserSimulation:
    """Adds up conversions as summary reports would: with clips, dropped reports and noise.

    Args:
      impressions: A path or a table in memory with the columns user, timestamp, advertiser and
        those to slice by.
      conversions: The same with the columns user, timestamp and advertiser.
      epsilon: Epsilon of one aggregation, in (0, 64].
      max_value: Add up values too, each cut to this; None counts alone.
      value_column: Column of conversions to add up.
      value_share: Share of the budget for values; counts get the rest.
      conversions_per_source: Conversions of one impression that must fit its budget.
      by: Columns of impressions whose values make slices.
      lookback_days: Most days from an impression to a conversion.
      tau: Slices below this many conversions count as this many in relative errors.
      kinds: Kinds of columns, where small numbers in timestamp do not say what they count.
      seed: Makes the noise repeatable.

    Privacy:
      None: the figures come from raw rows. Keep them with the data.
    """
    slices = tuple(by)
    if max_value is not None and not 0 < value_share < 1:
        raise ConfigError(f"value_share={value_share} must be between 0 and 1, e.g. 0.5.")
    goals = [Goal(name="conversions", by=slices)]
    if max_value is not None:
        values = Goal(
            name=value_column,
            by=slices,
            column=value_column,
            max_value=max_value,
            budget_share=value_share,
        )
        goals = [Goal(name="conversions", by=slices, budget_share=1 - value_share), values]
    settings = SummarySettings(
        goals=tuple(goals),
        epsilon=epsilon,
        max_conversions_per_source=conversions_per_source,
        tau=tau,
    )
    columns = LogColumns(advertiser="advertiser", kinds=kinds or {})
    added_up = () if max_value is None else (value_column,)
    log = _attributed(impressions, conversions, columns, slices, added_up, lookback_days)
    outcome = simulate_summary(log, settings, rng=noise_source(seed))
    overall = {
        "epsilon": epsilon,
        "tau": tau,
        "num_attributed": len(log.conversion_sources),
        "num_unattributed": log.num_unattributed,
        "dropped_share": outcome.dropped_share,
        "rmsre": outcome.overall_rmsre,
        **{f"rmsre_of_{name}": error for name, error in outcome.rmsre.items()},
    }
    rows = outcome.table.sort("goal", "conversions", descending=[False, True], maintain_order=True)
    return BrowserSimulation(overall=overall, slices=rows)


def simulate_event_reports(
    impressions: object,
    conversions: object,
    *,
    epsilon: float = 14.0,
    trigger_data: str | None = None,
    num_trigger_data: int = 8,
    window_days: Sequence[int] = (2, 7, 30),
    max_reports: int = 3,
    by: Sequence[str] = ("campaign",),
    lookback_days: int = 30,
    tau: float = 5.0,
    kinds: Mapping[str, str] | None = None,
    seed: int | None = None,
) -> BrowserSimulation:
    """Counts conversions as event-level reports would: with lost reports and randomized response.

    Views report once, one of two values, after 30 days.

    Args:
      impressions: A path or a table in memory with the columns user, timestamp, advertiser,
        interaction (click or view) and those to slice by.
      conversions: The same with the columns user, timestamp and advertiser.
      epsilon: Epsilon of each source, in (0, 14].
      trigger_data: Column of conversions that reports carry; None for one value.
      num_trigger_data: Values that a click may report.
      window_days: Ends of the windows of clicks, in days.
      max_reports: Reports of a click.
      by: Columns of impressions whose values make slices.
      lookback_days: Most days from an impression to a conversion.
      tau: Slices below this many conversions count as this many in relative errors.
      kinds: Kinds of columns, where small numbers in timestamp do not say what they count.
      seed: Makes the noise repeatable.

    Privacy:
      None: the figures come from raw rows. Keep them with the data.
    """
    slices = tuple(by)
    clicks = SourceReports(
        kind=SourceReports.click().kind,
        window_ends=tuple(DAY * days for days in window_days),
        num_trigger_data=num_trigger_data,
        max_reports=max_reports,
        epsilon=epsilon,
    )
    settings = EventSettings(
        clicks=clicks,
        views=SourceReports.view(epsilon),
        by=slices,
        trigger_data_column=trigger_data,
        tau=tau,
    )
    columns = LogColumns(advertiser="advertiser", kind="interaction", kinds=kinds or {})
    carried = () if trigger_data is None else (trigger_data,)
    log = _attributed(impressions, conversions, columns, slices, carried, lookback_days)
    outcome = simulate_events(log, settings, rng=noise_source(seed))
    overall = {
        "epsilon": epsilon,
        "tau": tau,
        "click_states": clicks.noise.spec.num_states,
        "click_flip_prob": clicks.noise.flip_prob,
        "view_flip_prob": settings.views.noise.flip_prob,
        "num_attributed": len(log.conversion_sources),
        "num_unattributed": log.num_unattributed,
        "lost_share": outcome.lost_share,
        "rmsre": outcome.rmsre,
    }
    return BrowserSimulation(
        overall=overall,
        slices=outcome.slices.sort("conversions", descending=True, maintain_order=True),
        trigger_data=outcome.trigger_data,
    )


def _attributed(
    impressions: object,
    conversions: object,
    columns: LogColumns,
    by: tuple[str, ...],
    carried: tuple[str, ...],
    lookback_days: int,
) -> AttributedLog:
    settings = LastTouchSettings(
        lookback_seconds=DAY * lookback_days,
        columns=columns,
        source_columns=by,
        conversion_columns=carried,
    )
    return attribute_last_touch(impressions, conversions, settings)
