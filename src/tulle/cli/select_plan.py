"""`tulle select plan`: which mechanism to use, before any private score is read."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.option_class import command_taking
from tulle.cli.select_options import AuctionsFile, ColumnOptions
from tulle.cli.select_plan_output import plan_facts, print_outlook, print_selection
from tulle.errors import ConfigError, RunStateError

if TYPE_CHECKING:
    from tulle.select.auctions import Auctions, DeviceClicks
    from tulle.select.billing.incentives import IncentiveReport
    from tulle.select.deciding.auction_blocks import AuctionBlock
    from tulle.select.mechanism_table import DecidingMechanism
    from tulle.select.planner.click_prior import LogitNormalPrior
    from tulle.select.planner.selection_outlook import SelectionOutlook
    from tulle.select.selection_config import SelectionConfig

PLAN_SELECTION_EPILOG = (
    "Example: tulle select plan auctions.parquet --epsilon 3 --private-stddev 0.6 --out "
    "selection.toml"
    "\n\nExample: tulle select plan auctions.parquet --epsilon 1 --epsilon 3 --epsilon 5 "
    "--private-stddev 0.6 --baselines --plot captured.svg"
    "\n\nExample: tulle select plan panel.parquet --epsilon 3 --from-devices --objective revenue "
    "--pricing second-price-per-click"
)

_INCENTIVE_AUCTIONS = 2000
_DRAWN_SEED = 1
_MOST_FINALISTS = 15
_CLIPPED_WIDTHS = (0.02, 0.1, 0.4)
"""Of the baselines, in typical server scores."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSelectionOptions(ColumnOptions):
    """Options of a plan."""

    auctions: AuctionsFile
    epsilon: Annotated[list[float], typer.Option(help="Of one decision; may be given again.")]
    private_stddev: Annotated[
        float | None,
        typer.Option(
            help="How much more devices know: standard deviation of the private part of the "
            "logit of a click. Then predictions of devices are not read."
        ),
    ] = None
    from_devices: Annotated[
        bool,
        typer.Option(
            "--from-devices",
            help="Evaluate on predictions of devices, of a panel: the outlook is not private.",
        ),
    ] = False
    objective: Annotated[str, typer.Option(help="welfare, click_rate, revenue or surplus.")] = (
        "welfare"
    )
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Compare noisy maxima and others too.")
    ] = False
    pricing: Annotated[
        str,
        typer.Option(
            help="second-price, second-price-per-click, first-price, first-price-per-click or "
            "posted."
        ),
    ] = "second-price"
    reserve: Annotated[float, typer.Option(help="Least server score that takes part.")] = 0.0
    unit: Annotated[str, typer.Option(help="impression (one decision) or user.")] = "impression"
    max_decisions_per_user: Annotated[
        int | None, typer.Option(min=1, help="Personalised ones, for unit user.")
    ] = None
    least_finalists: Annotated[
        int, typer.Option(min=2, help="With fewer, the server's winner is shown.")
    ] = 2
    delta: Annotated[float, typer.Option(help="Of the guarantee; 0 for a pure epsilon.")] = 0.0
    min_cell_size: Annotated[
        int | None,
        typer.Option(min=1, help="Shuffle: decisions that share finalists; needs posted prices."),
    ] = None
    consent: Annotated[str, typer.Option(help="column, or everyone if all in the data agreed.")] = (
        "column"
    )
    sample: Annotated[int, typer.Option(min=1, help="Plan on this many first auctions.")] = 20_000
    top: Annotated[int, typer.Option(min=1, help="Options to print for each epsilon.")] = 5
    out: Annotated[
        Path | None, typer.Option(help="New settings file of the recommended selection.")
    ] = None
    plot: Annotated[
        Path | None, typer.Option(help="SVG file: captured gain over gamma and list length.")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


def plan_selection(options: PlanSelectionOptions) -> None:
    """Compare mechanisms by exact expectations and recommend one. Nothing is spent.

    Expected clicks, revenue, surplus and welfare of randomized response over every shortlist, and
    the share that each captures of what personalisation without privacy would add. The best one
    is recommended, never one that is worse than not personalising, with what advertisers may
    object to.
    """
    from tulle.privacy.fields import check_choice
    from tulle.runs.whole_files import reporting_disk_errors, write_text
    from tulle.select.billing.prices import price_candidates
    from tulle.select.deciding.requests import personalised_requests
    from tulle.select.planner.plan_selection import OptionGrid
    from tulle.select.planner.plan_selection import plan_selection as compare
    from tulle.select.planner.selection_outlook import Objective
    from tulle.select.settings_file import read_pricing, settings_text

    _check_options(options)
    block = _sample(options)
    auctions = block.auctions
    device = block.device_clicks() if options.from_devices else None
    prior = _prior(options, auctions, device)
    pricing = read_pricing(options.pricing, options.reserve)
    extra = _baselines(options, auctions, prior, device) if options.baselines else ()
    outlook = compare(
        auctions,
        price_candidates(auctions, pricing.rule, reserve=pricing.reserve),
        epsilons=tuple(sorted(set(options.epsilon))),
        prior=prior,
        device=device,
        objective=check_choice("--objective", options.objective, Objective),
        grid=OptionGrid(
            mechanisms=extra,
            nums_finalists=tuple(range(1, min(int(auctions.sizes.max()), _MOST_FINALISTS) + 1)),
        ),
    )
    config = _config(options, outlook)
    is_personalised = personalised_requests(config, [block]).is_personalised
    report = _incentives(config, auctions, device, prior)
    if options.plot is not None:
        _write_plot(options.plot, outlook)
    if options.out is not None:
        with reporting_disk_errors(options.out):
            write_text(options.out, settings_text(config))
    if options.as_json:
        share = {"personalised_share": float(is_personalised.mean())}
        typer.echo(json.dumps(plan_facts(outlook, config, report) | share, allow_nan=False))
        return
    print_outlook(outlook, options.top)
    typer.echo(f"personalised        {is_personalised.mean():.1%} of the sample, by [privacy]")
    if config.pricing.is_posted:
        typer.echo("prices              second prices, of which posted ones are means")
    print_selection(config, report)
    if options.out is not None:
        typer.echo(f"settings            {options.out}")


def _check_options(options: PlanSelectionOptions) -> None:
    if options.out is not None and len(set(options.epsilon)) > 1:
        raise ConfigError(
            f"--out {options.out} holds one selection; give one --epsilon, or leave --out out."
        )
    if options.plot is not None and options.plot.suffix != ".svg":
        raise ConfigError(f"--plot {options.plot} must end in .svg, which it will be.")
    if options.out is not None and options.out.suffix != ".toml":
        raise ConfigError(f"--out {options.out} must end in .toml, which it will be.")
    if options.out is not None and options.out.exists():
        raise RunStateError(f"{options.out.name} exists already; name another file.")


def _sample(options: PlanSelectionOptions) -> "AuctionBlock":
    """The first auctions of the file; predictions of devices only if they were asked for."""
    from tulle.errors import DataError
    from tulle.select.deciding.auction_blocks import first_auctions

    block = first_auctions(
        options.auctions,
        options.columns(),
        num_auctions=options.sample,
        reserve=options.reserve,
        with_device=options.from_devices,
    )
    if not len(block.auctions):
        raise DataError(f"no auction has an ad with a server score of {options.reserve} or more.")
    return block


def _prior(
    options: PlanSelectionOptions, auctions: "Auctions", device: "DeviceClicks | None"
) -> "LogitNormalPrior":
    """What devices may find. Asked for only after the file has shown that it holds auctions."""
    from tulle.select.planner.click_prior import LogitNormalPrior, private_stddev_of_sample

    if options.private_stddev is not None:
        return LogitNormalPrior(private_stddev=options.private_stddev)
    if device is None:
        raise ConfigError(
            "a plan needs to know what devices may find: give --private-stddev, e.g. 0.6, or "
            "--from-devices with predictions of a panel."
        )
    return LogitNormalPrior(private_stddev=round(private_stddev_of_sample(auctions, device), 3))


def _baselines(
    options: PlanSelectionOptions,
    auctions: "Auctions",
    prior: "LogitNormalPrior | None",
    device: "DeviceClicks | None",
) -> tuple[Any, ...]:
    from tulle.select.baselines.noisy_max import NoiseKind, NoisyMax
    from tulle.select.baselines.prior_response import PriorResponse
    from tulle.select.baselines.score_bounds import ClippedScores, ScaledScores
    from tulle.select.market.tuned_mechanisms import typical_score
    from tulle.select.planner.top_chances import winner_chances

    unit = typical_score(auctions)
    bounds: list[Any] = [ClippedScores(width=width * unit) for width in _CLIPPED_WIDTHS]
    if device is not None:  # over a prior they have no known expectation
        bounds.append(ScaledScores())
    found: list[Any] = [
        NoisyMax(epsilon=epsilon, noise=noise, score_bound=bound)
        for epsilon in options.epsilon
        for bound, noise in itertools.product(bounds, NoiseKind)
    ]
    if prior is not None:
        chances = winner_chances(auctions, prior)
        found += [
            PriorResponse(epsilon=epsilon, winner_probs=chances) for epsilon in options.epsilon
        ]
    return tuple(found)


def _config(options: PlanSelectionOptions, outlook: "SelectionOutlook") -> "SelectionConfig":
    """The recommended selection at the largest epsilon."""
    from tulle.privacy.fields import check_choice
    from tulle.privacy.units import Unit
    from tulle.select.baselines.greedy import NonPersonalised
    from tulle.select.decision_accounting import Shuffle
    from tulle.select.floors.floor_mechanism import FloorMechanism
    from tulle.select.selection_config import Consent, SelectionConfig, shows_one_ad
    from tulle.select.settings_file import read_pricing

    best = outlook.recommended(max(outlook.epsilons)).mechanism
    # The server's winner alone costs nothing; a response over one ad would be charged.
    mechanism: DecidingMechanism = NonPersonalised()
    if isinstance(best, FloorMechanism) and not shows_one_ad(best):
        mechanism = best
    shuffle = None
    if options.min_cell_size is not None:
        shuffle = Shuffle(min_cell_size=options.min_cell_size)
    return SelectionConfig(
        name=options.auctions.stem if options.out is None else options.out.stem,
        mechanism=mechanism,
        unit=Unit.parse(options.unit),
        max_decisions_per_user=options.max_decisions_per_user,
        least_finalists=options.least_finalists,
        delta=options.delta,
        shuffle=shuffle,
        pricing=read_pricing(options.pricing, options.reserve),
        consent=check_choice("--consent", options.consent, Consent),
        is_planned_on_devices=options.from_devices,
    )


def _incentives(
    config: "SelectionConfig",
    auctions: "Auctions",
    device: "DeviceClicks | None",
    prior: "LogitNormalPrior | None",
) -> "IncentiveReport | None":
    """What advertisers may object to, on the first auctions; devices are drawn if none is known."""
    import numpy as np

    from tulle.select.auctions import DeviceClicks
    from tulle.select.billing.bid_shading import PricedSelection
    from tulle.select.billing.incentives import report_incentives
    from tulle.select.billing.reserve import keep_candidates
    from tulle.select.planner.drawn_devices import draw_devices
    from tulle.select.slots import SlotMechanism

    if isinstance(config.mechanism, SlotMechanism) or prior is None:
        return None
    is_first = np.repeat(np.arange(len(auctions)) < _INCENTIVE_AUCTIONS, auctions.sizes)
    first = keep_candidates(auctions, is_first)
    if device is None:
        devices = draw_devices(first.auctions, prior, seed=_DRAWN_SEED)
    else:
        devices = DeviceClicks(click_probs=device.click_probs[first.kept_candidates])
    selection = PricedSelection(
        mechanism=config.mechanism, rule=config.pricing.rule, reserve=config.pricing.reserve
    )
    return report_incentives(first.auctions, devices, selection)


def _write_plot(path: Path, outlook: "SelectionOutlook") -> None:
    from tulle.report.outlook_plot import plot_outlook
    from tulle.report.svg_figures import write_plot
    from tulle.runs.whole_files import reporting_disk_errors

    with reporting_disk_errors(path):
        write_plot(path, plot_outlook(outlook))


plan_selection_command = command_taking(PlanSelectionOptions, plan_selection)
