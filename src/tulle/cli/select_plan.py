"""`tulle select plan`: which mechanism to use, before any private score is read."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.json_schema import SelectSchema
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import DATA, OUTPUT, PRIVACY, AuctionsFile, ColumnOptions

if TYPE_CHECKING:
    from tulle.select.billing.incentives import IncentiveReport
    from tulle.select.planner.outlook import SelectionOutlook
    from tulle.select.selection_config import SelectionConfig

_PLANNING, _PRICES = "Planning", "Prices"

PLAN_SELECTION_EPILOG = (
    "Example: tulle select plan auctions.parquet --epsilon 3 --private-stddev 0.6 --output "
    "selection.toml"
    "\n\nExample: tulle select plan auctions.parquet --epsilon 1 --epsilon 3 --epsilon 5 "
    "--private-stddev 0.6 --baselines --plot captured.svg"
    "\n\nExample: tulle select plan panel.parquet --epsilon 3 --from-devices --objective revenue "
    "--pricing second-price-per-click"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSelectionOptions(ColumnOptions):
    """Options of a plan."""

    auctions: AuctionsFile
    epsilon: Annotated[
        list[float],
        typer.Option(
            help="Privacy that one decision may cost; may be given again to compare.",
            rich_help_panel=PRIVACY,
        ),
    ]
    delta: Annotated[
        float,
        typer.Option(
            help="The delta of the guarantee; 0 for a pure epsilon.", rich_help_panel=PRIVACY
        ),
    ] = 0.0
    unit: Annotated[
        str,
        typer.Option(
            help="Who is protected: impression (one decision) or user.", rich_help_panel=PRIVACY
        ),
    ] = "impression"
    max_decisions_per_user: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most personalised decisions of a user, for unit user.",
            rich_help_panel=PRIVACY,
        ),
    ] = None
    least_finalists: Annotated[
        int,
        typer.Option(
            min=2,
            help="With fewer finalists the server's winner is shown.",
            rich_help_panel=PRIVACY,
        ),
    ] = 2
    min_cell_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For shuffling: least number of decisions that share finalists; needs posted "
            "prices.",
            rich_help_panel=PRIVACY,
        ),
    ] = None
    consent: Annotated[
        str,
        typer.Option(
            help="Who may be personalised for: column (as the column says), or everyone if all in "
            "the data agreed.",
            rich_help_panel=PRIVACY,
        ),
    ] = "column"
    private_stddev: Annotated[
        float | None,
        typer.Option(
            help="How much more devices know: standard deviation of the private part of the "
            "logit of a click. Then predictions of devices are not read.",
            rich_help_panel=_PLANNING,
        ),
    ] = None
    from_devices: Annotated[
        bool,
        typer.Option(
            "--from-devices",
            help="Evaluate on predictions of devices, of a panel: the outlook is not private.",
            rich_help_panel=_PLANNING,
        ),
    ] = False
    objective: Annotated[
        str,
        typer.Option(
            help="What is made large: welfare, click_rate, revenue or surplus.",
            rich_help_panel=_PLANNING,
        ),
    ] = "welfare"
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Compare noisy maxima and others too.",
            rich_help_panel=_PLANNING,
        ),
    ] = False
    sample: Annotated[
        int,
        typer.Option(min=1, help="Number of first auctions to plan on.", rich_help_panel=DATA),
    ] = 20_000
    pricing: Annotated[
        str,
        typer.Option(
            help="What chosen ads pay: second-price, second-price-per-click, first-price, "
            "first-price-per-click or posted.",
            rich_help_panel=_PRICES,
        ),
    ] = "second-price"
    reserve: Annotated[
        float,
        typer.Option(help="Least server score that takes part.", rich_help_panel=_PRICES),
    ] = 0.0
    top: Annotated[
        int,
        typer.Option(
            min=1, help="Number of options to print for each epsilon.", rich_help_panel=OUTPUT
        ),
    ] = 5
    output: Annotated[
        Path | None,
        typer.Option(
            help="New settings file of the recommended selection.", rich_help_panel=OUTPUT
        ),
    ] = None
    plot: Annotated[
        Path | None,
        typer.Option(
            help="New SVG file: captured gain over gamma and list length.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT)] = (
        False
    )
    json_schema: SelectSchema = False


def plan_selection(options: PlanSelectionOptions) -> None:
    """Compare mechanisms by exact expectations and recommend one. Nothing is spent.

    Expected clicks, revenue, surplus and welfare of randomized response over every shortlist, and
    the share that each captures of what personalisation without privacy would add. The best one
    is recommended, never one that is worse than not personalising, with what advertisers may
    object to.
    """
    from tulle.report.html.chart_svg import check_plot_name, write_charts
    from tulle.report.select_report import plan_charts
    from tulle.select import plan as plan_auctions

    if options.plot is not None:
        check_plot_name(options.plot)
    made = plan_auctions(
        options.auctions,
        epsilon=options.epsilon,
        private_stddev=options.private_stddev,
        from_devices=options.from_devices,
        objective=options.objective,
        baselines=options.baselines,
        pricing=options.pricing,
        reserve=options.reserve,
        unit=options.unit,
        max_decisions_per_user=options.max_decisions_per_user,
        least_finalists=options.least_finalists,
        delta=options.delta,
        min_cell_size=options.min_cell_size,
        consent=options.consent,
        sample=options.sample,
        columns=options.columns(),
        output=options.output,
    )
    if options.plot is not None:
        write_charts(options.plot, plan_charts(made.to_dict()["options"]))
    if options.as_json:
        typer.echo(json.dumps(made.to_dict(), allow_nan=False))
        return
    if made.outlook is not None:
        print_outlook(made.outlook, options.top)
    typer.echo(f"personalised        {made.personalised_share:.1%} of the sample, by [privacy]")
    if made.config.pricing.is_posted:
        typer.echo("prices              second prices, of which posted ones are means")
    print_selection(made.config, made.incentives)
    if options.output is not None:
        typer.echo(f"settings            {options.output}")


plan_selection_command = command_taking(PlanSelectionOptions, plan_selection)


def print_outlook(outlook: "SelectionOutlook", top: int) -> None:
    """The best options of each epsilon, between no personalisation and no privacy."""
    from tulle.select.mechanisms.floors import FloorMechanism

    source = "predictions of devices: NOT PRIVATE" if outlook.is_from_devices else "a prior"
    typer.echo(f"planned on          {outlook.num_auctions:,} auctions and {source}")
    heads = ("clicks", "revenue", "surplus", "welfare", "captured")
    width = max(len(option.mechanism.name) for option in outlook.options) + 2
    typer.echo(" " * width + "".join(f"{head:>11}" for head in heads))
    typer.echo(_line("not personalised", outlook.baseline.to_dict(), 0.0, width))
    for epsilon in outlook.epsilons:
        found = [o for o in outlook.options if o.mechanism.epsilon == epsilon]
        found.sort(key=lambda option: -outlook.objective.of(option.metrics))
        shown = [
            option
            for place, option in enumerate(found)
            if place < top or not isinstance(option.mechanism, FloorMechanism)
        ]
        for option in shown:
            share = option.captured_share
            typer.echo(_line(option.mechanism.name, option.metrics.to_dict(), share, width))
    typer.echo(_line("greedy, not private", outlook.ideal.to_dict(), 1.0, width))
    typer.echo("(captured: of the welfare that greedy selection adds)")
    for epsilon in outlook.epsilons:
        best = outlook.recommended(epsilon)
        typer.echo(f"best at epsilon {epsilon:g}: {best.mechanism.name}")


def _line(name: str, metrics: dict[str, float], share: float | None, width: int) -> str:
    names = ("click_rate", "revenue", "surplus", "welfare")
    captured = "-" if share is None else f"{share:.1%}"
    return f"{name:<{width}}" + "".join(f"{metrics[n]:>11.5f}" for n in names) + f"{captured:>11}"


def print_selection(config: "SelectionConfig", report: "IncentiveReport | None") -> None:
    """The recommended selection, what it costs, and what advertisers may object to."""
    accounting = config.accounting
    typer.echo(f"selection           {config.mechanism.name}")
    typer.echo(f"one decision        {accounting.decision_guarantee(config.privacy.delta)}")
    if config.privacy.max_decisions_per_user is not None:
        typer.echo(
            f"{config.privacy.max_decisions_per_user:,} decisions".ljust(20)
            + f"{accounting.user_guarantee(config.privacy.delta)}"
        )
    for finding in () if report is None else report.findings:
        advice = f" Fix: {finding.way_out}" if finding.way_out else ""
        typer.echo(f"{finding.severity.value:<20}{finding.text}{advice}")
