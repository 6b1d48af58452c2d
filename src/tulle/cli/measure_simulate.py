"""`tulle measure simulate`: what error a campaign would see through a browser's API."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.data_log import AsJson
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.measure.reports.attributed_log import AttributedLog
    from tulle.measure.reports.summary_settings import Goal
    from tulle.mechanisms.entropy import NoiseSource

Impressions = Annotated[
    Path,
    typer.Argument(
        help="Parquet or CSV with the columns user, timestamp (seconds), advertiser and those to "
        "slice by; for event also interaction (click or view), for w3c publisher."
    ),
]
Conversions = Annotated[
    Path, typer.Argument(help="Parquet or CSV with the columns user, timestamp and advertiser.")
]
Slices = Annotated[
    list[str] | None,
    typer.Option("--slice", help="Column of impressions to slice by; repeat it. [campaign]"),
]
LookbackDays = Annotated[
    int, typer.Option(min=1, help="Days from an impression to a conversion, at most.")
]
Tau = Annotated[float, typer.Option(help="Slices below this many conversions count as this many.")]
Top = Annotated[int, typer.Option(min=1, help="Slices to print, largest first; --json prints all.")]
Seed = Annotated[
    int | None, typer.Option(help="Repeatable noise, for experiments; without it always fresh.")
]

_DAY = 86_400
SUMMARY_EPILOG = (
    "Example: tulle measure simulate summary log/impressions.csv log/conversions.csv --epsilon 10"
    "\n\nExample: tulle measure simulate summary i.parquet c.parquet --epsilon 10 --max-value 200 "
    "--slice campaign --slice geo"
)
EVENT_EPILOG = (
    "Example: tulle measure simulate event log/impressions.csv log/conversions.csv "
    "--trigger-data conversion_type --window-days 7 --max-reports 1"
)
W3C_EPILOG = (
    "Example: tulle measure simulate w3c log/impressions.csv log/conversions.csv --epsilon 1 "
    "--site-budget 4"
)

simulate_app = typer.Typer(
    name="simulate",
    help="What error a campaign would see through a browser's measurement API.",
    epilog="Start with: tulle measure simulate summary --help",
    no_args_is_help=True,
)


@simulate_app.command("summary", epilog=SUMMARY_EPILOG)
def simulate_summary_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, typer.Option(help="Of one aggregation, in (0, 64].")] = 10.0,
    max_value: Annotated[
        float | None,
        typer.Option(help="Add up values too, each cut to this. Without it only counts."),
    ] = None,
    value_column: Annotated[str, typer.Option(help="Column of conversions to add up.")] = "value",
    value_share: Annotated[
        float, typer.Option(help="Share of the budget for values; counts get the rest.")
    ] = 0.5,
    conversions_per_source: Annotated[
        int, typer.Option(help="Conversions of one impression that must fit its budget.")
    ] = 1,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Attribution Reporting API, summary reports: clipping, dropped reports and noise.

    The API is retired by Chrome; the error of a budget split is the same elsewhere.
    """
    from tulle.measure.reports.summary_reports import simulate_summary
    from tulle.measure.reports.summary_settings import SummarySettings

    by = tuple(slices or ("campaign",))
    settings = SummarySettings(
        goals=_goals(by, value_column, max_value, value_share),
        epsilon=epsilon,
        max_conversions_per_source=conversions_per_source,
        tau=tau,
    )
    columns = () if max_value is None else (value_column,)
    log = _attributed(impressions, conversions, by, columns, lookback_days, kind=None)
    outcome = simulate_summary(log, settings, rng=_noise(seed))
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
    if as_json:
        _print_json(overall, rows.to_dicts())
        return
    for goal in settings.goals:
        typer.echo(f"{goal.name} by {', '.join(by)}")
        chosen = [row for row in rows.iter_rows(named=True) if row["goal"] == goal.name]
        _print_rows(
            chosen[:top],
            ("slice", "true", "noisy", "noise_stddev", "relative_error", "dropped_share"),
        )
    _print_overall(overall)


@simulate_app.command("event", epilog=EVENT_EPILOG)
def simulate_event_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, typer.Option(help="Of each source, in (0, 14].")] = 14.0,
    trigger_data: Annotated[
        str | None, typer.Option(help="Column of conversions that reports carry. [none]")
    ] = None,
    num_trigger_data: Annotated[int, typer.Option(help="Values that a click may report.")] = 8,
    window_days: Annotated[
        list[int] | None,
        typer.Option(help="End of a window of clicks, in days; repeat it. [2, 7 and 30]"),
    ] = None,
    max_reports: Annotated[int, typer.Option(help="Reports of a click.")] = 3,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Attribution Reporting API, event-level reports: lost reports and randomized response.

    Views report once, one of two values, after 30 days. The API is retired by Chrome; the
    error of randomized response is the same elsewhere.
    """
    from tulle.measure.reports.event_reports import simulate_events
    from tulle.measure.reports.event_settings import EventSettings, SourceReports
    from tulle.mechanisms.information_gain import SourceKind

    by = tuple(slices or ("campaign",))
    clicks = SourceReports(
        kind=SourceKind.NAVIGATION,
        window_ends=tuple(_DAY * days for days in window_days or (2, 7, 30)),
        num_trigger_data=num_trigger_data,
        max_reports=max_reports,
        epsilon=epsilon,
    )
    settings = EventSettings(
        clicks=clicks,
        views=SourceReports.view(epsilon),
        by=by,
        trigger_data_column=trigger_data,
        tau=tau,
    )
    columns = () if trigger_data is None else (trigger_data,)
    log = _attributed(impressions, conversions, by, columns, lookback_days, kind="interaction")
    outcome = simulate_events(log, settings, rng=_noise(seed))
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
    rows = outcome.slices.sort("conversions", descending=True, maintain_order=True).to_dicts()
    if as_json:
        _print_json(overall, rows, trigger_data=outcome.trigger_data.to_dicts())
        return
    _print_rows(
        rows[:top],
        ("slice", "conversions", "noisy", "noise_stddev", "relative_error", "lost_share"),
    )
    _print_overall(overall)


@simulate_app.command("w3c", epilog=W3C_EPILOG)
def simulate_w3c_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, typer.Option(help="Of each conversion.")] = 1.0,
    site_budget: Annotated[
        float, typer.Option(help="Epsilon of a conversion site for each week of a browser.")
    ] = 1.0,
    credit: Annotated[
        list[float] | None,
        typer.Option(help="Weight of the last, the last but one ... impression; repeat it. [1]"),
    ] = None,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """W3C Attribution Level 1: budgets that run out, and noise, on counts of conversions.

    Every user is a browser, every advertiser a site with a histogram of its own. The budgets
    of all sites together and of publishers are 8 and 4 times that of a site.
    """
    from tulle.measure.reports.site_buckets import number_buckets, rmsre_of
    from tulle.measure.w3c.campaign import CampaignSettings, what_if

    by = tuple(slices or ("campaign",))
    buckets = number_buckets(impressions, conversions, by=by)
    settings = CampaignSettings(
        bucket=buckets.bucket_column,
        histogram_size=buckets.histogram_size,
        epsilon=epsilon,
        credit=tuple(credit or (1.0,)),
        lookback_days=lookback_days,
    )
    (result,) = what_if(
        buckets.log,
        settings,
        epsilons=[epsilon],
        site_budgets=[site_budget],
        rng=_noise(seed),
    )
    table = buckets.errors(result, tau=tau)
    overall = {**result.to_dict(tau=tau), "rmsre": rmsre_of(table)}
    rows = table.sort("true", descending=True, maintain_order=True).to_dicts()
    if as_json:
        _print_json(overall, rows)
        return
    _print_rows(rows[:top], ("slice", "site", "true", "reported", "noise_stddev", "relative_error"))
    _print_overall({name: value for name, value in overall.items() if name != "refusals"})


def _goals(
    by: tuple[str, ...], value_column: str, max_value: float | None, value_share: float
) -> "tuple[Goal, ...]":
    from tulle.measure.reports.summary_settings import Goal

    if max_value is None:
        return (Goal(name="conversions", by=by),)
    if not 0 < value_share < 1:
        raise ConfigError(f"--value-share {value_share} must be between 0 and 1, e.g. 0.5.")
    return (
        Goal(name="conversions", by=by, budget_share=1 - value_share),
        Goal(
            name=value_column,
            by=by,
            column=value_column,
            max_value=max_value,
            budget_share=value_share,
        ),
    )


def _attributed(
    impressions: Path,
    conversions: Path,
    by: tuple[str, ...],
    columns: tuple[str, ...],
    lookback_days: int,
    *,
    kind: str | None,
) -> "AttributedLog":
    from tulle.measure.ad_log import LogColumns
    from tulle.measure.reports.attributed_log import LastTouchSettings, read_attributed_log

    settings = LastTouchSettings(
        lookback_seconds=_DAY * lookback_days,
        columns=LogColumns(advertiser="advertiser", kind=kind),
        source_columns=by,
        conversion_columns=columns,
    )
    return read_attributed_log(impressions, conversions, settings)


def _noise(seed: int | None) -> "NoiseSource":
    from tulle.mechanisms.entropy import SeededNoise, release_rng

    return release_rng() if seed is None else SeededNoise(seed)


def _print_json(
    overall: dict[str, Any], rows: list[dict[str, Any]], **more: list[dict[str, Any]]
) -> None:
    _warn()
    typer.echo(json.dumps({"overall": overall, "slices": rows, **more}, allow_nan=False))


def _print_rows(rows: Sequence[dict[str, Any]], columns: tuple[str, ...]) -> None:
    width = max([len(str(row[columns[0]])) for row in rows], default=5)
    heads = "".join(f"{column.replace('_', ' '):>16}" for column in columns[1:])
    typer.echo(f"{columns[0]:<{width}}{heads}")
    for row in rows:
        cells = "".join(f"{_shown(row[column]):>16}" for column in columns[1:])
        typer.echo(f"{row[columns[0]]:<{width}}{cells}")


def _print_overall(overall: dict[str, Any]) -> None:
    for name, value in overall.items():
        typer.echo(f"{name.replace('_', ' '):<28}{_shown(value)}")
    _warn()


def _warn() -> None:
    typer.echo("these figures come from raw rows, unprotected: keep them with the data.", err=True)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"
