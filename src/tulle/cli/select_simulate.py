"""`tulle select simulate`: the published experiments on a market."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import DATA, OUTPUT, ColumnOptions, OutputOptions

if TYPE_CHECKING:
    from tulle.lab.markets.claims import ClaimVerdict
    from tulle.lab.markets.experiments import MarketExperiments

SIMULATE_EPILOG = (
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
        str | None,
        typer.Option(
            help="Or a synthetic market: search, display or small-display.", rich_help_panel=DATA
        ),
    ] = None
    num_auctions: Annotated[
        int,
        typer.Option(
            min=20,
            help="Number of auctions to draw, or to read at most from the file.",
            rich_help_panel=DATA,
        ),
    ] = 10_000
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of a synthetic market.", rich_help_panel=DATA)
    ] = 1
    reserve: Annotated[
        float, typer.Option(help="Least server score that takes part.", rich_help_panel=DATA)
    ] = 0.0
    private_stddev: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the planner's prior, for a file [default: fitted to half "
            "of it].",
            rich_help_panel=DATA,
        ),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            help="New folder for simulation.json and plots (SVG).", rich_help_panel=OUTPUT
        ),
    ] = None


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
    _print(made.found, made.claims)
    if options.output is not None:
        typer.echo(f"results and plots   {options.output}")


def _print(found: "MarketExperiments", claims: "tuple[ClaimVerdict, ...]") -> None:
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


simulate_command = command_taking(SimulateOptions, simulate)
