"""`tulle measure simulate` and `w3c-conformance`: campaigns in browsers, and how right they are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.measure_options import AsJson, ColumnKinds, column_kinds
from tulle.cli.options import DATA, OUTPUT, PRIVACY, PanelledCommand, option

if TYPE_CHECKING:
    from tulle.measure import BrowserSimulation

_LOG = "user, timestamp, advertiser"
Impressions = Annotated[
    Path,
    typer.Argument(
        help=f"File with the columns {_LOG} and those to slice by; for event also interaction "
        "(click or view), for w3c publisher."
    ),
]
Conversions = Annotated[Path, typer.Argument(help=f"File with the columns {_LOG}.")]
Slices = Annotated[
    list[str] | None,
    option(
        DATA,
        "Column of impressions to slice by; repeat it [default: campaign].",
        "--slice",
        metavar="COLUMN",
    ),
]
LookbackDays = Annotated[
    int, option(DATA, "Most days from an impression to a conversion.", least=1)
]
Tau = Annotated[
    float,
    option(OUTPUT, "Slices below this many conversions count as this many in relative errors."),
]
Top = Annotated[
    int, option(OUTPUT, "Number of slices to print, the largest first; --json prints all.", least=1)
]
Seed = Annotated[
    int | None, option(PRIVACY, "Seed that makes the noise repeatable, for experiments.")
]

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
W3C_CONFORMANCE_EPILOG = "Example: tulle measure w3c-conformance attribution/impl/e2e-tests"

simulate_app = typer.Typer(
    name="simulate",
    help="Show what error a campaign would see through a browser's measurement API.",
    epilog="Start with: tulle measure simulate summary --help",
    no_args_is_help=True,
)


@simulate_app.command("summary", epilog=SUMMARY_EPILOG, cls=PanelledCommand)
def simulate_summary_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, option(PRIVACY, "Epsilon of one aggregation, in (0, 64].")] = 10.0,
    max_value: Annotated[
        float | None,
        option(DATA, "Largest value; with it values are added up too, each cut to this."),
    ] = None,
    value_column: Annotated[
        str, option(DATA, "Column of conversions to add up.", metavar="COLUMN")
    ] = "value",
    value_share: Annotated[
        float, option(PRIVACY, "Share of the budget for values; counts get the rest.")
    ] = 0.5,
    conversions_per_source: Annotated[
        int, option(PRIVACY, "Conversions of one impression that must fit its budget.")
    ] = 1,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    column_kind: ColumnKinds = None,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Simulate summary reports of the Attribution Reporting API: clips, drops and noise.

    The API is retired by Chrome; the error of a budget split is the same elsewhere.
    """
    from tulle.lab.browser_reports import simulate_summary_reports

    found = simulate_summary_reports(
        impressions,
        conversions,
        epsilon=epsilon,
        max_value=max_value,
        value_column=value_column,
        value_share=value_share,
        conversions_per_source=conversions_per_source,
        by=slices or ("campaign",),
        lookback_days=lookback_days,
        tau=tau,
        kinds=column_kinds(column_kind),
        seed=seed,
    )
    if as_json:
        _print_json(found)
        return
    rows = found.slices.to_dicts()
    for goal in dict.fromkeys(row["goal"] for row in rows):
        typer.echo(f"{goal} by {', '.join(slices or ('campaign',))}")
        chosen = [row for row in rows if row["goal"] == goal]
        shown = ("slice", "true", "noisy", "noise_stddev", "relative_error", "dropped_share")
        _print_rows(chosen[:top], shown)
    _print_overall(found.overall)


@simulate_app.command("event", epilog=EVENT_EPILOG, cls=PanelledCommand)
def simulate_event_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, option(PRIVACY, "Epsilon of each source, in (0, 14].")] = 14.0,
    trigger_data: Annotated[
        str | None,
        option(DATA, "Column of conversions that reports carry [default: none].", metavar="COLUMN"),
    ] = None,
    num_trigger_data: Annotated[
        int, option(PRIVACY, "Number of values that a click may report.")
    ] = 8,
    window_days: Annotated[
        list[int] | None,
        option(PRIVACY, "End of a window of clicks, in days; repeat it [default: 2, 7 and 30]."),
    ] = None,
    max_reports: Annotated[int, option(PRIVACY, "Most reports of a click.")] = 3,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    column_kind: ColumnKinds = None,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Simulate event-level reports of the same API: lost reports and randomized response.

    Views report once, one of two values, after 30 days. The API is retired by Chrome; the
    error of randomized response is the same elsewhere.
    """
    from tulle.lab.browser_reports import simulate_event_reports

    found = simulate_event_reports(
        impressions,
        conversions,
        epsilon=epsilon,
        trigger_data=trigger_data,
        num_trigger_data=num_trigger_data,
        window_days=window_days or (2, 7, 30),
        max_reports=max_reports,
        by=slices or ("campaign",),
        lookback_days=lookback_days,
        tau=tau,
        kinds=column_kinds(column_kind),
        seed=seed,
    )
    if as_json:
        _print_json(found)
        return
    _print_rows(
        found.slices.head(top).to_dicts(),
        ("slice", "conversions", "noisy", "noise_stddev", "relative_error", "lost_share"),
    )
    _print_overall(found.overall)


@simulate_app.command("w3c", epilog=W3C_EPILOG, cls=PanelledCommand)
def simulate_w3c_command(
    impressions: Impressions,
    conversions: Conversions,
    epsilon: Annotated[float, option(PRIVACY, "Epsilon of each conversion.")] = 1.0,
    site_budget: Annotated[
        float, option(PRIVACY, "Epsilon of a conversion site for each week of a browser.")
    ] = 1.0,
    credit: Annotated[
        list[float] | None,
        option(
            DATA, "Weight of the last, the last but one ... impression; repeat it [default: 1]."
        ),
    ] = None,
    slices: Slices = None,
    lookback_days: LookbackDays = 30,
    column_kind: ColumnKinds = None,
    tau: Tau = 5.0,
    top: Top = 10,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Simulate W3C Attribution Level 1: budgets that run out, and noise, on counts of conversions.

    Every user is a browser, every advertiser a site with a histogram of its own. The budgets
    of all sites together and of publishers are 8 and 4 times that of a site.
    """
    from tulle import measure

    found = measure.simulate_w3c(
        impressions,
        conversions,
        epsilon=epsilon,
        site_budget=site_budget,
        credit=credit or (1.0,),
        by=slices or ("campaign",),
        lookback_days=lookback_days,
        tau=tau,
        kinds=column_kinds(column_kind),
        seed=seed,
    )
    if as_json:
        _print_json(found)
        return
    _print_rows(
        found.slices.head(top).to_dicts(),
        ("slice", "site", "true", "reported", "noise_stddev", "relative_error"),
    )
    _print_overall({name: value for name, value in found.overall.items() if name != "refusals"})


def w3c_conformance(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Folder with CONFIG.json and one JSON file for each case."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Run cases of W3C Attribution Level 1 against the simulator. Exit code 1 if one fails."""
    from tulle import measure

    results = measure.run_w3c_cases(folder)
    num_failed = sum(not result.is_passed for result in results)
    if as_json:
        facts = {
            "num_passed": len(results) - num_failed,
            "num_failed": num_failed,
            "cases": [result.to_dict() for result in results],
        }
        typer.echo(json.dumps(facts, allow_nan=False))
    else:
        for result in results:
            typer.echo(f"{'passed' if result.is_passed else 'FAILED'}  {result.name}")
            for failure in result.failures:
                typer.echo(f"        {failure}")
        typer.echo(f"{len(results) - num_failed} passed, {num_failed} failed")
    if num_failed:
        raise typer.Exit(1)


def _print_json(found: "BrowserSimulation") -> None:
    _warn()
    facts = {"overall": found.overall, "slices": found.slices.to_dicts()}
    if found.trigger_data is not None:
        facts["trigger_data"] = found.trigger_data.to_dicts()
    typer.echo(json.dumps(facts, allow_nan=False))


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
