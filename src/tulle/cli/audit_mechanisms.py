"""`tulle audit mechanisms`: every randomizer, on synthetic neighbours, against its claim."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.option_class import command_taking

if TYPE_CHECKING:
    from tulle.audit.mechanism_audit import MechanismAudit

AUDIT_MECHANISMS_EPILOG = (
    "Example: tulle audit mechanisms --draws 100000"
    "\n\nExample: tulle audit mechanisms --only laplace --only rappor"
    "\n\nExample: tulle audit mechanisms --only gaussian --noise-factor 0.5"
)
_AUDIT, _OUTPUT = "Audit", "Output"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditMechanismsOptions:
    """Which randomizers, and how hard to look."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Name of a randomizer to audit alone. May be repeated.",
            rich_help_panel=_AUDIT,
        ),
    ] = None
    draws: Annotated[
        int,
        typer.Option(
            help="Number of draws on each of two neighbouring inputs.",
            min=1000,
            max=10**6,
            rich_help_panel=_AUDIT,
        ),
    ] = 20_000
    noise_factor: Annotated[
        float,
        typer.Option(
            help="Factor on the noise that is drawn; below 1 it plants a fault.",
            rich_help_panel=_AUDIT,
        ),
    ] = 1.0
    false_alarm_prob: Annotated[
        float,
        typer.Option(
            help="Largest probability to call one right randomizer wrong.", rich_help_panel=_AUDIT
        ),
    ] = 1e-6
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of repeatable draws [default: operating-system entropy].",
            min=0,
            rich_help_panel=_AUDIT,
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no heading.", rich_help_panel=_OUTPUT)
    ] = False


def audit_mechanisms(options: AuditMechanismsOptions) -> None:
    """Draw from every randomizer on two neighbouring inputs and test its whole claim.

    Inputs are synthetic: no data are read and no budget is charged. A lower bound is what these
    draws prove; below the claim it proves nothing. Ends with exit code 1 if a claim is violated.
    """
    from tulle.audit import verbs
    from tulle.lab.audited_randomizers import LAB_RANDOMIZERS

    if not options.as_json and not options.quiet:
        typer.echo(f"{'randomizer':<26}{'claim':>9}{'at least':>10}  {'delta':<9}verdict", err=True)
    audits = verbs.audit_mechanisms(
        options.only or (),
        among=(*verbs.RANDOMIZERS, *LAB_RANDOMIZERS),
        draws=options.draws,
        noise_factor=options.noise_factor,
        false_alarm_prob=options.false_alarm_prob,
        seed=options.seed,
        watch=None if options.as_json else lambda audit: typer.echo(_line(audit)),
    )
    if options.as_json:
        typer.echo(json.dumps([audit.to_dict() for audit in audits], allow_nan=False))
    if any(audit.is_violated for audit in audits):
        raise typer.Exit(1)


def _line(audit: "MechanismAudit") -> str:
    profile = audit.profile
    numbers = f"{profile.claimed_epsilon:>9.4f}{profile.epsilon_lower_bound:>10.4f}"
    return f"{audit.name:<26}{numbers}  {profile.delta:<9.0e}{audit.verdict}"


audit_mechanisms_command = command_taking(AuditMechanismsOptions, audit_mechanisms)
