"""`tulle select simulate`: the published experiments on a market."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.cli.select_options import ColumnOptions, OutputOptions
from tulle.errors import ConfigError, RunStateError

if TYPE_CHECKING:
    from tulle.select.auctions import Auctions, DeviceClicks
    from tulle.select.market.experiments import MarketExperiments
    from tulle.select.market.market_sample import MarketSample
    from tulle.select.market.mixing_grid import GridRow
    from tulle.select.market.verdicts import ClaimVerdict
    from tulle.select.planner.click_prior import LogitNormalPrior

SIMULATE_EPILOG = (
    "Example: tulle select simulate --market search --out simulation"
    "\n\nExample: tulle select simulate auctions.parquet --reserve 0.01 --out simulation"
)

_MARKETS = {
    "search": "search, 15 candidates",
    "display": "display, 15 candidates",
    "small-display": "display, 4 candidates",
}


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
        typer.Option(help="Or a synthetic market: search, display or small-display."),
    ] = None
    num_auctions: Annotated[
        int, typer.Option(min=20, help="To draw, or at most to read from the file.")
    ] = 10_000
    seed: Annotated[int, typer.Option(min=0, help="Of a synthetic market.")] = 1
    reserve: Annotated[float, typer.Option(help="Least server score that takes part.")] = 0.0
    private_stddev: Annotated[
        float | None,
        typer.Option(help="Of the planner's prior, for a file [default: fitted to half of it]."),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="New folder for simulation.json and plots (SVG).")
    ] = None


def simulate(options: SimulateOptions) -> None:
    """Run the published experiments on a market and judge their claims.

    Effect of prices without private data; epsilon, gamma and list length; single auctions;
    devices that know less (Laro et al. 2024). Settings are tuned on one half of the devices and
    judged on the other. All expectations are exact. Nothing is protected: use synthetic markets,
    or people who agreed.
    """
    from tulle.select.market.claims import judge_claims
    from tulle.select.market.experiments import ExperimentSettings, run_experiments
    from tulle.select.market.mixing_grid import GridSettings, groups_by_size, mixing_grid

    if (options.auctions is None) == (options.market is None):
        raise ConfigError("give a file of auctions or --market, one of them.")
    if options.out is not None and options.out.exists():
        raise RunStateError(f"{options.out.name} exists already; name a new folder.")
    with showing_steps(quiet=options.quiet) as say:
        say("read the market")
        name, planning, judged, prior = _market(options)
        say("sweep mechanisms")
        found = run_experiments(name, planning, judged, settings=ExperimentSettings(), prior=prior)
        say("mix predictions")
        grid = mixing_grid(groups_by_size(judged), GridSettings())
        claims = judge_claims([found], score_rows=(), grid_rows=grid)
    facts = {
        "simulation": "not a private release",
        **found.to_dict(),
        "grid_rows": [row.to_dict() for row in grid],
        "claims": [claim.to_dict() for claim in claims],
    }
    if options.out is not None:
        _write(options.out, facts, found, grid)
    if options.as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    _print(found, claims)
    if options.out is not None:
        typer.echo(f"results and plots   {options.out}")


def _market(
    options: SimulateOptions,
) -> "tuple[str, MarketSample, MarketSample, LogitNormalPrior]":
    """Name, the half for tuning, the half to judge, and the planner's prior."""
    return _drawn_market(options) if options.auctions is None else _read_market(options)


def _drawn_market(
    options: SimulateOptions,
) -> "tuple[str, MarketSample, MarketSample, LogitNormalPrior]":
    from tulle.privacy.fields import did_you_mean
    from tulle.select.market.reference_markets import REFERENCE_MARKETS
    from tulle.select.planner.click_prior import LogitNormalPrior

    if options.market not in _MARKETS:
        raise ConfigError(
            f"--market {options.market} is unknown{did_you_mean(options.market, _MARKETS)}; use "
            f"one of {', '.join(_MARKETS)}."
        )
    if options.private_stddev is not None:
        raise ConfigError("--private-stddev is for a file: a synthetic market has its own.")
    name = _MARKETS[options.market]
    market = REFERENCE_MARKETS[name]
    planning, judged = (
        _sample(*market.draw(options.num_auctions // 2, seed=seed), options.reserve)
        for seed in (options.seed + 1, options.seed)
    )
    return name, planning, judged, LogitNormalPrior(private_stddev=market.private_stddev)


def _read_market(
    options: SimulateOptions,
) -> "tuple[str, MarketSample, MarketSample, LogitNormalPrior]":
    import numpy as np

    from tulle.errors import DataError
    from tulle.select.deciding.auction_blocks import first_auctions
    from tulle.select.planner.click_prior import LogitNormalPrior, private_stddev_of_sample

    if options.auctions is None:
        raise ConfigError("there is no file of auctions.")
    block = first_auctions(
        options.auctions,
        options.columns(),
        num_auctions=options.num_auctions,
        reserve=options.reserve,
        with_device=True,
    )
    if len(block.auctions) < 2:
        raise DataError(f"{options.auctions.name} has fewer than two auctions above the reserve.")
    whole = _sample(block.auctions, block.device_clicks(), options.reserve)
    rows = np.arange(len(block.auctions))
    planning, judged = whole.subset(rows[1::2]), whole.subset(rows[::2])
    stddev = options.private_stddev
    if stddev is None:
        stddev = private_stddev_of_sample(planning.auctions, planning.device)
    return options.auctions.stem, planning, judged, LogitNormalPrior(private_stddev=stddev)


def _sample(auctions: "Auctions", device: "DeviceClicks", reserve: float) -> "MarketSample":
    from tulle.select.auctions import DeviceClicks
    from tulle.select.billing.prices import PricingRule
    from tulle.select.billing.reserve import above_reserve
    from tulle.select.market.market_sample import MarketSample

    eligible = above_reserve(auctions, reserve)
    return MarketSample(
        auctions=eligible.auctions,
        device=DeviceClicks(click_probs=device.click_probs[eligible.kept_candidates]),
        pricing=PricingRule.SECOND_PRICE_PER_CLICK,
        reserve=reserve,
    )


def _write(
    out: Path, facts: dict[str, Any], found: "MarketExperiments", grid: "tuple[GridRow, ...]"
) -> None:
    from tulle.report.market_plots import plot_market
    from tulle.report.svg_figures import write_plot
    from tulle.runs.whole_files import reporting_disk_errors, write_text

    figures = plot_market(found, grid)
    with reporting_disk_errors(out):
        out.mkdir(parents=True)
        for name, svg in figures.items():
            write_plot(out / f"{name}.svg", svg)
        write_text(out / "simulation.json", json.dumps(facts, indent=2, allow_nan=False) + "\n")


def _print(found: "MarketExperiments", claims: "tuple[ClaimVerdict, ...]") -> None:
    from tulle.select.market.epsilon_sweep import CLIPPED

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
