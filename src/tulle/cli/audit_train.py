"""`tulle audit train`: one training run on data with canaries, and what it gave away."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.data_progress import Report, showing_progress
from tulle.cli.option_class import command_taking
from tulle.cli.train import output_folder
from tulle.cli.train_options import Chosen, TrainingOptions, read_settings
from tulle.cli.train_output import plan_line, showing_training
from tulle.errors import RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.audit.training_audit import TrainingAudit
    from tulle.train.methods.train_plan import TrainPlan

AUDIT_TRAIN_EPILOG = (
    "Example: tulle audit train synth:search --rows 20000 --epsilon 3 --canaries 2000"
    "\n\nExample: tulle audit train synth:search --rows 20000 --method nonprivate"
)

_ANEW = (
    "An audit cannot be resumed, because its coins are kept nowhere: choose another --output, "
    "or none. What a ledger was charged stays spent."
)
_STOPPED = f"stopped as asked. {_ANEW}"
_AUDIT = "Audit"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditTrainOptions(TrainingOptions):
    """What is trained, and how it is attacked."""

    canaries: Annotated[
        int,
        typer.Option(
            help="Number of training rows whose labels become fair coins.",
            min=10,
            rich_help_panel=_AUDIT,
        ),
    ] = 1000
    false_alarm_prob: Annotated[
        float,
        typer.Option(
            help="Largest probability that the lower bound is above the truth.",
            rich_help_panel=_AUDIT,
        ),
    ] = 0.05


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
    path = _new_run(options, chosen.method.kind)
    with (
        stopping_cleanly(_STOPPED),
        showing_progress("preparing", quiet=options.quiet) as report,
    ):
        audit = _run(chosen, path, options, report)
    _print(audit, path, as_json=options.as_json)
    if audit.result.is_violated:
        raise typer.Exit(1)


def _new_run(options: AuditTrainOptions, kind: str) -> Path:
    """A folder for the audit: what an earlier one left is never gone on with."""
    try:
        return output_folder(options, kind, prefix="audit-")
    except RunStateError:
        raise RunStateError(f"{options.output} holds a run already. {_ANEW}") from None


def _run(chosen: Chosen, path: Path, options: AuditTrainOptions, report: Report) -> "TrainingAudit":
    from tulle.audit.verbs import audit_run

    def show(plan: "TrainPlan") -> None:
        if not options.quiet:
            typer.echo(plan_line(plan), err=True)

    with showing_training(quiet=options.quiet) as watch:
        try:
            return audit_run(
                **chosen.data,
                canaries=options.canaries,
                false_alarm_prob=options.false_alarm_prob,
                epsilon=chosen.epsilon,
                delta=chosen.delta,
                method=chosen.method,
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


def _print(audit: "TrainingAudit", path: Path, *, as_json: bool) -> None:
    facts = audit.to_dict() | {"run": str(path), "card": str(path / "card.json")}
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        typer.echo(f"{name.replace('_', ' '):<22}{'none: no privacy' if value is None else shown}")


audit_train_command = command_taking(AuditTrainOptions, audit_train)
