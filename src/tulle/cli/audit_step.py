"""`tulle audit step`: the private step of each engine, on made-up neighbours, against its plan."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.measure_progress import showing_steps
from tulle.cli.option_class import command_taking
from tulle.cli.train_settings import require_torch
from tulle.errors import ConfigError, RunStateError

if TYPE_CHECKING:
    from tulle.audit.steps.step_audit import StepAudit, StepAuditConfig

AUDIT_STEP_EPILOG = (
    "Example: tulle audit step"
    "\n\nExample: tulle audit step --only banded --epsilon 2 --out banded.json"
    "\n\nExample: tulle audit step --twin half-noise"
)
_TWINS = {"half-noise": 0.5}
"""Noise of each twin over that of its claim."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditStepOptions:
    """Which engines, and how hard to look."""

    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENGINE",
            help="dense, lazy, lattice, banded or selected alone. May be repeated.",
        ),
    ] = None
    draws: Annotated[
        int,
        typer.Option(help="Runs on each of two neighbouring data sets.", min=1000, max=10**6),
    ] = 50_000
    epsilon: Annotated[float, typer.Option(help="What the audited plan promises.")] = 4.0
    delta: Annotated[float, typer.Option(help="What the audited plan promises.")] = 1e-5
    twin: Annotated[
        str | None,
        typer.Option(help="Audit a faulty twin instead: half-noise. It must be caught."),
    ] = None
    false_alarm_prob: Annotated[
        float, typer.Option(help="Largest chance to call one right engine wrong.")
    ] = 1e-6
    seed: Annotated[
        int | None,
        typer.Option(help="Repeatable draws [default: operating-system entropy].", min=0),
    ] = None
    out: Annotated[Path | None, typer.Option(help="New JSON file for the result.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


def audit_step(options: AuditStepOptions) -> None:
    """Take private steps on two neighbouring data sets and test the whole claim of their plan.

    Sampler, clipping, noise and engine are those of training; the data sets are made up, so no
    data are read and no budget is spent. A lower bound is what these runs prove; below the claim
    it proves nothing. Ends with exit code 1 if a claim is violated.
    """
    require_torch()
    from tulle.audit.steps.engines import ENGINES, find_engine
    from tulle.audit.steps.step_audit import audit_step as audit_engine
    from tulle.mechanisms.entropy import SeededNoise, release_rng

    engines = [find_engine(name) for name in options.only] if options.only else ENGINES
    config = _config(options)
    if options.out is not None and options.out.exists():
        raise RunStateError(f"{options.out.name} exists already; name a new file.")
    rng = release_rng() if options.seed is None else SeededNoise(options.seed)
    with showing_steps(quiet=options.quiet) as say:
        audits = [audit_engine(engine, config, rng=rng, say=say) for engine in engines]
    facts = _facts(audits, config, options)
    if options.out is not None:
        _write(options.out, facts)
    _print(audits, facts, options)
    if any(audit.is_violated for audit in audits):
        raise typer.Exit(1)


def _config(options: AuditStepOptions) -> "StepAuditConfig":
    from tulle.audit.steps.step_audit import StepAuditConfig
    from tulle.privacy.fields import did_you_mean

    if options.twin is not None and options.twin not in _TWINS:
        raise ConfigError(
            f"--twin {options.twin} is unknown{did_you_mean(options.twin, _TWINS)}; use "
            f"{', '.join(_TWINS)}, or leave it out to audit what is released."
        )
    return StepAuditConfig(
        num_runs=options.draws,
        epsilon=options.epsilon,
        delta=options.delta,
        noise_factor=1.0 if options.twin is None else _TWINS[options.twin],
        false_alarm_prob=options.false_alarm_prob,
    )


def _facts(
    audits: list["StepAudit"], config: "StepAuditConfig", options: AuditStepOptions
) -> dict[str, object]:
    return {
        "audit": "step",
        "data": "made up",
        "twin": options.twin,
        "noise_factor": config.noise_factor,
        "draws": config.num_runs,
        "seed": options.seed,
        "is_violated": any(audit.is_violated for audit in audits),
        "engines": [audit.to_dict() for audit in audits],
    }


def _write(out: Path, facts: dict[str, object]) -> None:
    from tulle.runs.whole_files import reporting_disk_errors, write_text

    with reporting_disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, json.dumps(facts, indent=2, allow_nan=False) + "\n")


def _print(audits: list["StepAudit"], facts: dict[str, object], options: AuditStepOptions) -> None:
    if options.as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    typer.echo(f"{'engine':<12}{'claim':>9}{'at least':>10}{'excess':>10}  {'delta':<9}verdict")
    for audit in audits:
        worst = audit.worst
        numbers = f"{worst.claimed_epsilon:>9.4f}{audit.epsilon_lower_bound:>10.4f}"
        line = f"{audit.engine:<12}{numbers}{worst.worst_excess:>10.4f}  {worst.delta:<9.0e}"
        typer.echo(f"{line}{audit.verdict}")
    if options.twin is not None:
        typer.echo(f"A twin with the fault {options.twin} was audited, not what training runs.")
        for audit in audits:
            if not audit.is_violated:
                typer.echo(f"The twin of {audit.engine} was not caught: take more --draws.")
    if options.out is not None:
        typer.echo(f"result   {options.out}")


audit_step_command = command_taking(AuditStepOptions, audit_step)
