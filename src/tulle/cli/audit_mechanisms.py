"""`tulle audit mechanisms`: every randomizer, on made-up neighbours, against its claim."""

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.option_class import command_taking
from tulle.errors import ConfigError

if TYPE_CHECKING:
    from tulle.audit.mechanism_audit import MechanismAudit

AUDIT_MECHANISMS_EPILOG = (
    "Example: tulle audit mechanisms --draws 100000"
    "\n\nExample: tulle audit mechanisms --only laplace --only rappor"
    "\n\nExample: tulle audit mechanisms --only gaussian --noise-factor 0.5"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditMechanismsOptions:
    """Which randomizers, and how hard to look."""

    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="This randomizer alone. May be repeated."),
    ] = None
    draws: Annotated[
        int, typer.Option(help="On each of two neighbouring inputs.", min=1000, max=10**6)
    ] = 20_000
    noise_factor: Annotated[
        float,
        typer.Option(help="Draw with so much of the claimed noise: below 1 plants a fault."),
    ] = 1.0
    false_alarm_prob: Annotated[
        float, typer.Option(help="Largest chance to call one right randomizer wrong.")
    ] = 1e-6
    seed: Annotated[
        int | None,
        typer.Option(help="Repeatable draws [default: operating-system entropy].", min=0),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No heading on stderr.")] = False


def audit_mechanisms(options: AuditMechanismsOptions) -> None:
    """Draw from every randomizer on two neighbouring inputs and test its whole claim.

    Inputs are made up: no data are read and no budget is spent. A lower bound is what these
    draws prove; below the claim it proves nothing. Ends with exit code 1 if a claim is violated.
    """
    from tulle.audit.mechanism_audit import audit_randomizer
    from tulle.audit.randomizers.catalogue import RANDOMIZERS, find_randomizer
    from tulle.mechanisms.entropy import SeededNoise, release_rng

    chosen = [find_randomizer(name) for name in options.only] if options.only else RANDOMIZERS
    if not 0 < options.noise_factor <= 1:
        raise ConfigError(
            f"--noise-factor {options.noise_factor:g} must be in (0, 1]; 1 audits what is released."
        )
    rng = release_rng() if options.seed is None else SeededNoise(options.seed)
    if not options.as_json and not options.quiet:
        typer.echo(f"{'randomizer':<26}{'claim':>9}{'at least':>10}  {'delta':<9}verdict", err=True)
    audits = []
    for randomizer in chosen:
        audit = audit_randomizer(
            randomizer,
            num_draws=options.draws,
            rng=rng,
            noise_factor=options.noise_factor,
            false_alarm_prob=options.false_alarm_prob,
        )
        audits.append(audit)
        if not options.as_json:
            typer.echo(_line(audit))
    if options.as_json:
        typer.echo(json.dumps([_facts(audit) for audit in audits], allow_nan=False))
    if any(audit.profile.is_violated for audit in audits):
        raise typer.Exit(1)


def _line(audit: "MechanismAudit") -> str:
    profile = audit.profile
    numbers = f"{profile.claimed_epsilon:>9.4f}{profile.epsilon_lower_bound:>10.4f}"
    return f"{audit.name:<26}{numbers}  {profile.delta:<9.0e}{audit.verdict}"


def _facts(audit: "MechanismAudit") -> dict[str, object]:
    from tulle.privacy.fields import null_if_infinite

    profile = audit.profile
    return {
        "randomizer": audit.name,
        "claimed_epsilon": null_if_infinite(profile.claimed_epsilon),
        "epsilon_lower_bound": profile.epsilon_lower_bound,
        "delta": profile.delta,
        "worst_excess": profile.worst_excess,
        "num_draws": audit.num_draws,
        "false_alarm_prob": profile.false_alarm_prob,
        "is_violated": profile.is_violated,
    }


audit_mechanisms_command = command_taking(AuditMechanismsOptions, audit_mechanisms)
