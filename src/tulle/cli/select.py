"""`tulle select`: private, personalised ad selection with exact billing."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AsJson,
    OutputOptions,
    PanelledCommand,
    option,
    taking_options,
)
from tulle.cli.select_choices import (
    BILL_EPILOG,
    DECIDE_EPILOG,
    EVALUATE_EPILOG,
    AuctionsFile,
    ColumnOptions,
    SelectSchema,
    bill,
    decide,
    evaluate,
)
from tulle.cli.terminal import showing_steps

if TYPE_CHECKING:
    from tulle.lab.markets.claims import ClaimVerdict
    from tulle.lab.markets.experiments import MarketExperiments
    from tulle.select.billing.incentives import IncentiveReport
    from tulle.select.planner.outlook import SelectionOutlook
    from tulle.select.selection_config import SelectionConfig

_PLANNING, _PRICES = "Planning", "Prices"
_PLAN_EPILOG = (
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
        option(PRIVACY, "Epsilon of one decision; may be repeated to compare several."),
    ]
    delta: Annotated[
        float, option(PRIVACY, "The delta of the guarantee; 0 for a pure epsilon.")
    ] = 0.0
    unit: Annotated[
        str, option(PRIVACY, "Who is protected: impression (one decision) or user.")
    ] = "impression"
    max_decisions_per_user: Annotated[
        int | None,
        option(PRIVACY, "Most personalised decisions of a user, for unit user.", least=1),
    ] = None
    least_finalists: Annotated[
        int, option(PRIVACY, "With fewer finalists the server's winner is shown.", least=2)
    ] = 2
    min_cell_size: Annotated[
        int | None,
        option(
            PRIVACY,
            "For shuffling: least number of decisions that share finalists; needs posted prices.",
            least=1,
        ),
    ] = None
    consent: Annotated[
        str,
        option(
            PRIVACY,
            "Who may be personalised for: column (as the column says), or everyone if all in "
            "the data agreed.",
        ),
    ] = "column"
    private_stddev: Annotated[
        float | None,
        option(
            _PLANNING,
            "How much more devices know: standard deviation of the private part of the "
            "logit of a click. Then predictions of devices are not read.",
        ),
    ] = None
    from_devices: Annotated[
        bool,
        option(
            _PLANNING,
            "Evaluate on predictions of devices, of a panel: the outlook is not private.",
            "--from-devices",
        ),
    ] = False
    objective: Annotated[
        str, option(_PLANNING, "What the plan maximises: welfare, click_rate, revenue or surplus.")
    ] = "welfare"
    baselines: Annotated[
        bool, option(_PLANNING, "Compare noisy maxima and others too.", "--baselines")
    ] = False
    sample: Annotated[int, option(DATA, "Number of first auctions to plan on.", least=1)] = 20_000
    pricing: Annotated[
        str,
        option(
            _PRICES,
            "What chosen ads pay: second-price, second-price-per-click, first-price, "
            "first-price-per-click or posted.",
        ),
    ] = "second-price"
    reserve: Annotated[float, option(_PRICES, "Least server score that takes part.")] = 0.0
    top: Annotated[int, option(OUTPUT, "Number of options to print for each epsilon.", least=1)] = 5
    output: Annotated[
        Path | None, option(OUTPUT, "New settings file of the recommended selection.")
    ] = None
    plot: Annotated[
        Path | None, option(OUTPUT, "New SVG file: captured gain over gamma and list length.")
    ] = None
    as_json: AsJson = False
    json_schema: SelectSchema = False


@taking_options
def plan(options: PlanSelectionOptions) -> None:
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
        _print_outlook(made.outlook, options.top)
    typer.echo(f"personalised        {made.personalised_share:.1%} of the sample, by [privacy]")
    if made.config.pricing.is_posted:
        typer.echo("prices              second prices, of which posted ones are means")
    _print_selection(made.config, made.incentives)
    if options.output is not None:
        typer.echo(f"settings            {options.output}")


def _print_outlook(outlook: "SelectionOutlook", top: int) -> None:
    """The best options of each epsilon, between no personalisation and no privacy."""
    from tulle.select.mechanisms.floors import FloorMechanism

    source = "predictions of devices: NOT PRIVATE" if outlook.is_from_devices else "a prior"
    typer.echo(f"planned on          {outlook.num_auctions:,} auctions and {source}")
    heads = ("clicks", "revenue", "surplus", "welfare", "captured")
    width = max(len(made.mechanism.name) for made in outlook.options) + 2
    typer.echo(" " * width + "".join(f"{head:>11}" for head in heads))
    typer.echo(_line("not personalised", outlook.baseline.to_dict(), 0.0, width))
    for epsilon in outlook.epsilons:
        found = [o for o in outlook.options if o.mechanism.epsilon == epsilon]
        found.sort(key=lambda made: -outlook.objective.of(made.metrics))
        shown = [
            made
            for place, made in enumerate(found)
            if place < top or not isinstance(made.mechanism, FloorMechanism)
        ]
        for made in shown:
            share = made.captured_share
            typer.echo(_line(made.mechanism.name, made.metrics.to_dict(), share, width))
    typer.echo(_line("greedy, not private", outlook.ideal.to_dict(), 1.0, width))
    typer.echo("(captured: of the welfare that greedy selection adds)")
    for epsilon in outlook.epsilons:
        best = outlook.recommended(epsilon)
        typer.echo(f"best at epsilon {epsilon:g}: {best.mechanism.name}")


def _line(name: str, metrics: dict[str, float], share: float | None, width: int) -> str:
    names = ("click_rate", "revenue", "surplus", "welfare")
    captured = "-" if share is None else f"{share:.1%}"
    return f"{name:<{width}}" + "".join(f"{metrics[n]:>11.5f}" for n in names) + f"{captured:>11}"


def _print_selection(config: "SelectionConfig", report: "IncentiveReport | None") -> None:
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


_SIMULATE_EPILOG = (
    "Example: tulle select simulate --market search --output simulation"
    "\n\nExample: tulle select simulate auctions.parquet --reserve 0.01 --output simulation"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateOptions(OutputOptions, ColumnOptions):
    """Options of a simulation."""

    auctions: Annotated[
        Path | None,
        typer.Argument(
            metavar="[AUCTIONS]",
            help="Auctions with predictions of devices, e.g. of `tulle data auctions`.",
        ),
    ] = None
    market: Annotated[
        str | None, option(DATA, "Or a synthetic market: search, display or small-display.")
    ] = None
    num_auctions: Annotated[
        int, option(DATA, "Number of auctions to draw, or to read at most from the file.", least=20)
    ] = 10_000
    seed: Annotated[int, option(DATA, "Seed of a synthetic market.", least=0)] = 1
    reserve: Annotated[float, option(DATA, "Least server score that takes part.")] = 0.0
    private_stddev: Annotated[
        float | None,
        option(
            DATA,
            "Standard deviation of the planner's prior, for a file [default: fitted to half "
            "of it].",
        ),
    ] = None
    output: Annotated[
        Path | None, option(OUTPUT, "New folder for simulation.json and plots (SVG).")
    ] = None


@taking_options
def simulate(options: SimulateOptions) -> None:
    """Run the published experiments on a market and judge their claims.

    Effect of prices without private data; epsilon, gamma and list length; single auctions;
    devices that know less (Laro et al. 2024). Settings are tuned on one half of the devices and
    judged on the other. All expectations are exact. Nothing is protected: use synthetic markets,
    or people who agreed.
    """
    from tulle.lab.markets import simulate as simulate_market

    with showing_steps(quiet=options.quiet) as say:
        made = simulate_market(
            options.auctions,
            market=options.market,
            num_auctions=options.num_auctions,
            seed=options.seed,
            reserve=options.reserve,
            private_stddev=options.private_stddev,
            columns=options.columns(),
            output=options.output,
            watch=say,
        )
    if options.as_json:
        typer.echo(json.dumps(made.to_dict(), allow_nan=False))
        return
    _print_experiments(made.found, made.claims)
    if options.output is not None:
        typer.echo(f"results and plots   {options.output}")


def _print_experiments(found: "MarketExperiments", claims: "tuple[ClaimVerdict, ...]") -> None:
    from tulle.lab.markets.sweeps import CLIPPED

    typer.echo(
        f"{found.market}: {found.num_auctions:,} auctions, {found.mean_candidates:.1f} candidates, "
        f"personalisation would add {found.gain:.1%} of welfare. Not a private release."
    )
    rule = found.epsilon_rows[0].rule
    rows = [row for row in found.epsilon_rows if row.rule == rule]
    epsilons = list(dict.fromkeys(row.epsilon for row in rows))
    typer.echo("captured share of that, by epsilon:")
    typer.echo(" " * 46 + "".join(f"{epsilon:>9g}" for epsilon in epsilons))
    for name in dict.fromkeys(row.mechanism for row in rows if row.mechanism != CLIPPED):
        shares = [row.captured_share for row in rows if row.mechanism == name]
        typer.echo(f"{name:<46}" + "".join(f"{share:>9.1%}" for share in shares))
    typer.echo("prices from other predictions than the device's, greedy selection:")
    for row in found.pricing:
        typer.echo(
            f"  {row.rule}, {row.predictions}: revenue {row.revenue_lift:+.1%}, surplus "
            f"{row.surplus_lift:+.1%}"
        )
    typer.echo("claims of Laro et al. 2024 in this market:")
    for claim in claims:
        typer.echo(f"  {claim.verdict.value:<15}{claim.claim} ({claim.condition})")


select_app = typer.Typer(
    name="select",
    help="Select ads on devices, privately, and bill them exactly.",
    epilog="Synthetic auctions to try it on, planned with --consent everyone: "
    "tulle data synth auctions --rows 2000 --output auctions.parquet",
    no_args_is_help=True,
)
_add = functools.partial(select_app.command, cls=PanelledCommand)
_add("plan", epilog=_PLAN_EPILOG)(plan)
_add("simulate", epilog=_SIMULATE_EPILOG)(simulate)
_add("decide", epilog=DECIDE_EPILOG)(decide)
_add("bill", epilog=BILL_EPILOG)(bill)
_add("evaluate", epilog=EVALUATE_EPILOG)(evaluate)
