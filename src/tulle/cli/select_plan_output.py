"""How `tulle select plan` shows what it found."""

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tulle.select.billing.incentives import IncentiveReport
    from tulle.select.planner.outlook import SelectionOutlook
    from tulle.select.selection_config import SelectionConfig


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
