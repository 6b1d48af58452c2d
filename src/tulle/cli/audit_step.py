"""`tulle audit step`: private steps, on synthetic neighbours, against their plan."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking

if TYPE_CHECKING:
    from tulle.audit.verbs import StepAudits

AUDIT_STEP_EPILOG = (
    "Example: tulle audit step"
    "\n\nExample: tulle audit step --only banded --epsilon 2 --output banded.json"
    "\n\nExample: tulle audit step --twin half-noise"
)
_PRIVACY, _AUDIT, _OUTPUT = "Privacy", "Audit", "Output"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditStepOptions:
    """Which engines, and how hard to look."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENGINE",
            help="Engine to audit alone: dense, lazy, lattice, banded or selected. May be "
            "repeated.",
            rich_help_panel=_AUDIT,
        ),
    ] = None
    draws: Annotated[
        int,
        typer.Option(
            help="Number of runs on each of two neighbouring data sets.",
            min=1000,
            max=10**6,
            rich_help_panel=_AUDIT,
        ),
    ] = 50_000
    epsilon: Annotated[
        float, typer.Option(help="Epsilon of the audited plan.", rich_help_panel=_PRIVACY)
    ] = 4.0
    delta: Annotated[
        float, typer.Option(help="Delta of the audited plan.", rich_help_panel=_PRIVACY)
    ] = 1e-5
    twin: Annotated[
        str | None,
        typer.Option(
            help="Faulty twin to audit instead: half-noise. It must be caught.",
            rich_help_panel=_AUDIT,
        ),
    ] = None
    false_alarm_prob: Annotated[
        float,
        typer.Option(
            help="Largest probability to call one right engine wrong.", rich_help_panel=_AUDIT
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
    output: Annotated[
        Path | None,
        typer.Option(help="New JSON file for the result.", rich_help_panel=_OUTPUT),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=_OUTPUT)
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Show no progress.", rich_help_panel=_OUTPUT)
    ] = False


def audit_step(options: AuditStepOptions) -> None:
    """Take private steps on two neighbouring data sets and test the whole claim of their plan.

    Sampler, clipping, noise and engine are those of training; the data sets are synthetic, so no
    data are read and no budget is charged. A lower bound is what these runs prove; below the claim
    it proves nothing. Ends with exit code 1 if a claim is violated.
    """
    from tulle.train.run_context import require_torch

    require_torch("an audit of steps")
    from tulle.audit.verbs import audit_steps

    with showing_steps(quiet=options.quiet) as say:
        found = audit_steps(
            options.only or (),
            draws=options.draws,
            epsilon=options.epsilon,
            delta=options.delta,
            twin=options.twin,
            false_alarm_prob=options.false_alarm_prob,
            seed=options.seed,
            output=options.output,
            watch=say,
        )
    _print(found, options)
    if found.is_violated:
        raise typer.Exit(1)


def _print(found: "StepAudits", options: AuditStepOptions) -> None:
    if options.as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
        return
    typer.echo(f"{'engine':<12}{'claim':>9}{'at least':>10}{'excess':>10}  {'delta':<9}verdict")
    for audit in found.audits:
        worst = audit.worst
        numbers = f"{worst.claimed_epsilon:>9.4f}{audit.epsilon_lower_bound:>10.4f}"
        line = f"{audit.engine:<12}{numbers}{worst.worst_excess:>10.4f}  {worst.delta:<9.0e}"
        typer.echo(f"{line}{audit.verdict}")
    if options.twin is not None:
        typer.echo(f"A twin with the fault {options.twin} was audited, not what training runs.")
        for audit in found.audits:
            if not audit.is_violated:
                typer.echo(f"The twin of {audit.engine} was not caught: take more --draws.")
    if options.output is not None:
        typer.echo(f"result   {options.output}")


audit_step_command = command_taking(AuditStepOptions, audit_step)
