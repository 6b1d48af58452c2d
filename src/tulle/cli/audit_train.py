"""`tulle audit train`: one training run on data with canaries, and what it gave away."""

import dataclasses
import hashlib
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.option_class import command_taking
from tulle.cli.run_names import new_run
from tulle.cli.train_charge import training_charge
from tulle.cli.train_data import ChosenData, chosen_data
from tulle.cli.train_options import SettingOptions
from tulle.cli.train_planning import plan_line, plan_run
from tulle.cli.train_processes import CACHE
from tulle.cli.train_progress import showing_training
from tulle.cli.train_settings import read_settings, require_torch
from tulle.errors import ConfigError, RunInterruptedError, RunStateError

if TYPE_CHECKING:
    from tulle.audit.canary_training import TrainingAudit
    from tulle.mechanisms.entropy import NoiseSource
    from tulle.report.evidence import AuditResult
    from tulle.train.train_plan import TrainPlan

AUDIT_TRAIN_EPILOG = (
    "Example: tulle audit train --data synth:search --rows 20000 --epsilon 3 --canaries 2000"
    "\n\nExample: tulle audit train --data synth:search --rows 20000 --method nonprivate"
)

_ANEW = (
    "An audit cannot be resumed, because its coins are kept nowhere: run it under another --name, "
    "or without one. What a ledger was charged stays spent."
)
_STOPPED = f"stopped as asked. {_ANEW}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AuditTrainOptions(SettingOptions):
    """What is trained, and how it is attacked."""

    canaries: Annotated[
        int, typer.Option(help="Training rows whose labels become fair coins.", min=10)
    ] = 1000
    false_alarm_prob: Annotated[
        float, typer.Option(help="Largest chance that the lower bound is above the truth.")
    ] = 0.05
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs")
    name: Annotated[
        str | None,
        typer.Option(help="Of the run's folder [default: audit-METHOD-SOURCE, numbered if taken]."),
    ] = None
    ledger: Annotated[
        Path | None, typer.Option(help="Is charged for the run before it starts.")
    ] = None
    purpose: Annotated[
        str | None, typer.Option(help="As the budgets name it [default: training].")
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="No plan and progress on stderr.")] = False


def audit_train(options: AuditTrainOptions) -> None:
    """Train on data some of whose labels are coins, and guess the coins from the model.

    The run is a real one: it costs what its plan says, and leaves a folder whose card has the
    audit. Its model was trained on coins too, so it is not for serving. An attacker who sees
    the model alone proves little; a bound below the claim is no proof that the claim is loose.
    Counts of right guesses are exact: where the model reads sensitive columns, show them only to
    those who may see the rows. An audit that was interrupted cannot be resumed; start it anew.
    Ends with exit code 1 if the claim is violated.
    """
    require_torch()
    if options.purpose is not None and options.ledger is None:
        raise ConfigError("--purpose is for a ledger; give --ledger too, or leave it out.")
    settings = read_settings(options)
    with (
        stopping_cleanly(_STOPPED),
        chosen_data(settings.data, cache=options.runs / CACHE, quiet=options.quiet) as data,
    ):
        made = plan_run(settings, data)
        if not options.quiet:
            typer.echo(plan_line(made), err=True)
        base = f"audit-{made.method.kind}-{data.name}"
        path = _new_run(options, base)
        audit = _run(made, data, path, options)
        found = _write_card(audit, path)
    _print(audit, found, path, as_json=options.as_json)
    if audit.result.is_violated:
        raise typer.Exit(1)


def _new_run(options: AuditTrainOptions, base: str) -> Path:
    """A folder for the audit: what an earlier one left is never gone on with."""
    try:
        return new_run(options.runs, options.name, base)
    except RunStateError:
        raise RunStateError(f"run {options.name} is there already. {_ANEW}") from None


def _run(
    made: "TrainPlan", data: ChosenData, path: Path, options: AuditTrainOptions
) -> "TrainingAudit":
    from tulle.audit.canary_training import audit_training
    from tulle.train.run_options import RunOptions

    charge = training_charge(made, options.ledger, options.purpose)
    train_rows, _ = data.examples()
    with showing_training(quiet=options.quiet) as watch:
        try:
            return audit_training(
                train_rows,
                made,
                num_canaries=options.canaries,
                rng=_coins_source(options.seed),
                options=RunOptions(folder=path, seed=options.seed, charge=charge, watch=watch),
                false_alarm_prob=options.false_alarm_prob,
            )
        except RunInterruptedError:
            raise RunInterruptedError(_STOPPED) from None


def _coins_source(seed: int | None) -> "NoiseSource":
    """Never the words that the training draws, also where both can be repeated."""
    from tulle.mechanisms.entropy import SeededNoise, release_rng

    if seed is None:
        return release_rng()
    return SeededNoise(int.from_bytes(hashlib.sha256(f"coins {seed}".encode()).digest()[:8], "big"))


def _write_card(audit: "TrainingAudit", path: Path) -> "AuditResult":
    from tulle.report.card_file import write_card
    from tulle.report.training_card import training_card
    from tulle.runs.folder import RunFolder
    from tulle.runs.whole_files import reporting_disk_errors

    found = _evidence(audit)
    card = dataclasses.replace(training_card(RunFolder.open(path)), audit=found)
    with reporting_disk_errors(path / "card.json"):
        write_card(path, card)
    return found


def _evidence(audit: "TrainingAudit") -> "AuditResult":
    from tulle.report.evidence import AuditResult

    result, claim = audit.result, audit.run.plan.privacy.guarantee.epsilon
    lower_bound = result.curve_lower_bound
    if result.is_violated:  # The bound is rounded down, and the claim is proven wrong.
        lower_bound = max(lower_bound, math.nextafter(claim, math.inf))
    return AuditResult(
        method=f"one run with {result.guesses.num_canaries} label canaries, seen by its model",
        lower_bound=lower_bound,
        claim=claim,
        confidence=1 - result.false_alarm_prob,
    )


def _print(audit: "TrainingAudit", found: "AuditResult", path: Path, *, as_json: bool) -> None:
    from tulle.privacy.fields import null_if_infinite

    result, guesses = audit.result, audit.result.guesses
    facts: dict[str, object] = {
        "method": audit.run.plan.privacy.settings["method"],
        "claimed_epsilon": null_if_infinite(found.claim),
        "epsilon_lower_bound": result.epsilon_lower_bound,
        "curve_lower_bound": result.curve_lower_bound,
        "delta": result.delta,
        "confidence": found.confidence,
        "canaries": guesses.num_canaries,
        "guesses": guesses.num_guesses,
        "right_guesses": guesses.num_correct,
        "is_violated": result.is_violated,
        "run": str(path),
        "card": str(path / "card.json"),
    }
    if as_json:
        typer.echo(json.dumps(facts, allow_nan=False))
        return
    for name, value in facts.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        typer.echo(f"{name.replace('_', ' '):<22}{'none: no privacy' if value is None else shown}")


audit_train_command = command_taking(AuditTrainOptions, audit_train)
