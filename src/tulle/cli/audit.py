"""`tulle audit`: attacks on what is claimed."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.options import (
    DATA,
    OUTPUT,
    PRIVACY,
    AsJson,
    PanelledCommand,
    TrainingCommand,
    option,
    taking_options,
)
from tulle.cli.terminal import (
    Report,
    plan_line,
    showing_progress,
    showing_steps,
    showing_training,
    stopping_cleanly,
)
from tulle.cli.train import output_folder, read_settings
from tulle.cli.train_options import TrainingOptions
from tulle.errors import RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.audit.mechanism_audit import MechanismAudit
    from tulle.audit.training_audit import TrainingAudit
    from tulle.audit.verbs import StepAudits
    from tulle.train.methods.train_plan import TrainPlan

audit_app = typer.Typer(
    name="audit",
    help="Attack what is claimed: randomizers, private steps, a training run, synthetic users.",
    no_args_is_help=True,
)
_command = functools.partial(audit_app.command, cls=PanelledCommand)
_AUDIT = "Audit"

_AUDIT_MECHANISMS_EPILOG = (
    "Example: tulle audit mechanisms --draws 100000"
    "\n\nExample: tulle audit mechanisms --only laplace --only rappor"
    "\n\nExample: tulle audit mechanisms --only gaussian --noise-factor 0.5"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditMechanismsOptions:
    """Which randomizers, and how hard to look."""

    only: Annotated[
        list[str] | None,
        option(_AUDIT, "Name of a randomizer to audit alone. May be repeated.", metavar="NAME"),
    ] = None
    draws: Annotated[
        int,
        option(
            _AUDIT, "Number of draws on each of two neighbouring inputs.", least=1000, most=10**6
        ),
    ] = 20_000
    noise_factor: Annotated[
        float, option(_AUDIT, "Factor on the noise that is drawn; below 1 it plants a fault.")
    ] = 1.0
    false_alarm_prob: Annotated[
        float, option(_AUDIT, "Largest probability to call one right randomizer wrong.")
    ] = 1e-6
    seed: Annotated[
        int | None,
        option(_AUDIT, "Seed of repeatable draws [default: operating-system entropy].", least=0),
    ] = None
    as_json: AsJson = False
    quiet: Annotated[bool, option(OUTPUT, "Show no heading.", "--quiet")] = False


@_command("mechanisms", epilog=_AUDIT_MECHANISMS_EPILOG)
@taking_options
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


_AUDIT_STEP_EPILOG = (
    "Example: tulle audit step"
    "\n\nExample: tulle audit step --only banded --epsilon 2 --output banded.json"
    "\n\nExample: tulle audit step --twin half-noise"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditStepOptions:
    """Which engines, and how hard to look."""

    only: Annotated[
        list[str] | None,
        option(
            _AUDIT,
            "Engine to audit alone: dense, lazy, lattice, banded or selected. May be repeated.",
            metavar="ENGINE",
        ),
    ] = None
    draws: Annotated[
        int,
        option(
            _AUDIT, "Number of runs on each of two neighbouring data sets.", least=1000, most=10**6
        ),
    ] = 50_000
    epsilon: Annotated[float, option(PRIVACY, "Epsilon of the audited plan.")] = 4.0
    delta: Annotated[float, option(PRIVACY, "Delta of the audited plan.")] = 1e-5
    twin: Annotated[
        str | None, option(_AUDIT, "Faulty twin to audit instead: half-noise. It must be caught.")
    ] = None
    false_alarm_prob: Annotated[
        float, option(_AUDIT, "Largest probability to call one right engine wrong.")
    ] = 1e-6
    seed: Annotated[
        int | None,
        option(_AUDIT, "Seed of repeatable draws [default: operating-system entropy].", least=0),
    ] = None
    output: Annotated[Path | None, option(OUTPUT, "New JSON file for the result.")] = None
    as_json: AsJson = False
    quiet: Annotated[bool, option(OUTPUT, "Show no progress.", "--quiet")] = False


@_command("step", epilog=_AUDIT_STEP_EPILOG)
@taking_options
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
    _print_steps(found, options)
    if found.is_violated:
        raise typer.Exit(1)


def _print_steps(found: "StepAudits", options: AuditStepOptions) -> None:
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


_AUDIT_TRAIN_EPILOG = (
    "Example: tulle audit train synth:search --rows 20000 --epsilon 3 --canaries 2000"
    "\n\nExample: tulle audit train synth:search --rows 20000 --method nonprivate"
)

_ANEW = (
    "An audit cannot be resumed, because its coins are kept nowhere: choose another --output, "
    "or none. What a ledger was charged stays spent."
)
_STOPPED = f"stopped as asked. {_ANEW}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditTrainOptions(TrainingOptions):
    """What is trained, and how it is attacked."""

    canaries: Annotated[
        int, option(_AUDIT, "Number of training rows whose labels become fair coins.", least=10)
    ] = 1000
    false_alarm_prob: Annotated[
        float, option(_AUDIT, "Largest probability that the lower bound is above the truth.")
    ] = 0.05


@audit_app.command("train", cls=TrainingCommand, epilog=_AUDIT_TRAIN_EPILOG)
@taking_options
def audit_train(options: AuditTrainOptions, settings: Mapping[str, Any]) -> None:
    """Train on data some of whose labels are coins, and guess the coins from the model.

    The run is a real one: it costs what its plan says, and leaves a folder whose card has the
    audit. Its model was trained on coins too, so it is not for serving. An attacker who sees
    the model alone proves little; a bound below the claim is no proof that the claim is loose.
    Counts of right guesses are exact: where the model reads sensitive columns, show them only to
    those who may see the rows. An audit that was interrupted cannot be resumed; start it anew.
    Ends with exit code 1 if the claim is violated.
    """
    chosen = read_settings(options, settings)
    path = _new_run(options, chosen["method"].kind)
    with (
        stopping_cleanly(_STOPPED),
        showing_progress("preparing", quiet=options.quiet) as report,
    ):
        audit = _run(chosen, path, options, report)
    _print_training(audit, path, as_json=options.as_json)
    if audit.result.is_violated:
        raise typer.Exit(1)


def _new_run(options: AuditTrainOptions, kind: str) -> Path:
    """A folder for the audit: what an earlier one left is never gone on with."""
    try:
        return output_folder(options, kind, prefix="audit-")
    except RunStateError:
        raise RunStateError(f"{options.output} holds a run already. {_ANEW}") from None


def _run(
    chosen: Mapping[str, Any], path: Path, options: AuditTrainOptions, report: Report
) -> "TrainingAudit":
    from tulle.audit.verbs import audit_run

    def show(plan: "TrainPlan") -> None:
        if not options.quiet:
            typer.echo(plan_line(plan), err=True)

    with showing_training(quiet=options.quiet) as watch:
        try:
            return audit_run(
                **chosen,
                canaries=options.canaries,
                false_alarm_prob=options.false_alarm_prob,
                unit=options.unit,
                output=path,
                ledger=options.ledger,
                purpose=options.purpose,
                seed=options.seed,
                watch=watch,
                watch_data=report,
                watch_plan=show,
            )
        except RunInterruptedError:
            raise RunInterruptedError(_STOPPED) from None


def _print_training(audit: "TrainingAudit", path: Path, *, as_json: bool) -> None:
    facts = audit.to_dict() | {"run": str(path), "card": str(path / "card.json")}
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        typer.echo(f"{name.replace('_', ' '):<22}{'none: no privacy' if value is None else shown}")


_ATTACKS_EPILOG = (
    "Example: tulle audit attacks --output attacks"
    "\n\nExample: tulle audit attacks membership --seed 7 --json"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttackOptions:
    """Options of attacks."""

    attack: Annotated[
        str,
        typer.Argument(
            metavar="ATTACK",
            help="reconstruction, differencing, linkage, membership or all of them.",
        ),
    ] = "all"
    seed: Annotated[int, option(DATA, "Seed of the synthetic users and of the noise.", least=0)] = 1
    output: Annotated[
        Path | None, option(OUTPUT, "New folder for a chart (SVG) and a JSON file of each attack.")
    ] = None
    as_json: AsJson = False
    quiet: Annotated[bool, option(OUTPUT, "Show no progress.", "--quiet")] = False


@_command("attacks", epilog=_ATTACKS_EPILOG)
@taking_options
def attacks(options: AttackOptions) -> None:
    """Attack synthetic users, with and without privacy.

    Reconstruction from many counts, differencing under k-anonymity, linkage with a table of
    names, and membership in the training data of a model. Each is shown beside what the
    guarantee allows any attacker. No data of yours is read.
    """
    from tulle.lab.attacks.verbs import run_attacks

    with showing_steps(quiet=options.quiet) as say:
        found = run_attacks(options.attack, seed=options.seed, output=options.output, watch=say)
    if options.as_json:
        facts = {name: result.to_dict() for name, result in found.items()}
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for result in found.values():
        typer.echo("\n".join(result.lines()))
    typer.echo("Users are synthetic and noise had a seed: this is not a private release.")
    if options.output is not None:
        typer.echo(f"results and charts  {options.output}")
