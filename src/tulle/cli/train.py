"""`tulle train`: one run from data to card."""

import contextlib
from typing import TYPE_CHECKING

import typer

from tulle.cli.clean_stop import stopping_cleanly
from tulle.cli.option_class import command_taking
from tulle.cli.run_names import find_run, new_run
from tulle.cli.train_charge import training_charge
from tulle.cli.train_data import ChosenData, chosen_data
from tulle.cli.train_options import TrainOptions
from tulle.cli.train_output import print_result
from tulle.cli.train_planning import plan_line, plan_run, read_finished, resumed_line
from tulle.cli.train_processes import CACHE, data_of_plan, follow_quietly, processes_of
from tulle.cli.train_progress import showing_training
from tulle.cli.train_settings import read_settings, require_torch
from tulle.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tulle.runs.folder import RunFolder
    from tulle.train.distributed.processes import Processes
    from tulle.train.examples import ExampleSet
    from tulle.train.fitting import FitResult
    from tulle.train.train_plan import TrainPlan

TRAIN_EPILOG = (
    "Example: tulle train --data synth:search --rows 20000 --method mosaic --epsilon 3"
    "\n\nExample: tulle train --data prepared --config run.toml --resume"
    "\n\nExample: tulle train --data prepared --method dp-sgd --epsilon 1 --noise banded --bands 16"
    "\n\nExample: tulle train --data prepared --method label-projection --epsilon 0.5"
    "\n\nExample: tulle train --data prepared --method hybrid --epsilon 3 --split ratio:0.25"
    "\n\nExample: tulle train --data prepared --method dp-sgd --epsilon 1 --ledger ledger.db "
    "--baseline nonprivate-prepared"
    "\n\nExample: tulle train --data prepared --method dp-sgd --epsilon 1 --processes 4"
    "\n\nExample: torchrun --nproc-per-node 2 -m tulle.cli train --data prepared --method dp-sgd "
    "--epsilon 3"
)

_DEVICES = ("cpu", "cuda")
_STOPPED = (
    "stopped as asked; run the same command to start, or with --resume to go on if the run had "
    "begun."
)


def train(options: TrainOptions) -> None:
    """Train a model under a guarantee; leave model, records and card in a run folder.

    The plan comes first; the ledger is charged before a label is randomized, a step is taken
    or a cell is summed. SIGTERM and SIGINT stop the run at a whole step. The same command with
    --resume goes on, also after a kill; mosaic begins anew then, and is not charged again.
    """
    require_torch()
    _check_options(options)
    with stopping_cleanly(_STOPPED), processes_of(options) as processes:
        if processes is not None and processes.rank > 0:
            follow_quietly(options, processes)
            return
        settings = None if options.finished_plan is not None else read_settings(options)
        choice = data_of_plan(options) if settings is None else settings.data
        cache = options.runs / CACHE
        with chosen_data(choice, cache=cache, quiet=options.quiet) as data:
            made = _finished(options) if settings is None else plan_run(settings, data)
            _run(made, data, options, processes)


def _run(
    made: "TrainPlan", data: ChosenData, options: TrainOptions, processes: "Processes | None"
) -> None:
    from tulle.report.card_file import write_card
    from tulle.report.training_card import relative_auc_loss, training_card
    from tulle.runs.folder import RunFolder
    from tulle.runs.whole_files import reporting_disk_errors
    from tulle.train.fitting import fit
    from tulle.train.run_options import RunOptions

    _check_steps(made, options)
    charge = training_charge(made, options.ledger, options.purpose, is_resumed=options.resume)
    baseline = _baseline(options)
    train_rows, test_rows = data.examples()
    _check_test(test_rows, baseline, options)
    base = f"{made.method.kind}-{data.name}"
    find = find_run if options.resume else new_run
    path = find(options.runs, options.name, base)
    if not options.quiet:
        with contextlib.suppress(OSError):
            typer.echo(plan_line(made), err=True)
            if options.resume and (line := resumed_line(made, path)) is not None:
                typer.echo(line, err=True)
    with showing_training(quiet=options.quiet) as watch:
        run_options = RunOptions(
            folder=path,
            resume=options.resume,
            seed=options.seed,
            device=options.device,
            charge=charge,
            watch=watch,
            checkpoint_every=options.checkpoint_every,
            processes=processes,
            test_name=data.test_name,
        )
        result = fit(train_rows, made, test=test_rows, options=run_options)
    if options.predictions is not None and test_rows is not None:
        _write_predictions(result, data, test_rows, options)
    run = RunFolder.open(path)
    card = training_card(run)
    with reporting_disk_errors(path / "card.json"):
        write_card(path, card)
    relative = None if baseline is None else relative_auc_loss(run, baseline)
    print_result(result, card, path, relative, as_json=options.as_json)


def _check_options(options: TrainOptions) -> None:
    _check_device(options.device)
    if options.purpose is not None and options.ledger is None:
        raise ConfigError("--purpose is for a ledger; give --ledger too, or leave it out.")
    path = options.predictions
    if path is not None and path.exists():
        raise ConfigError(f"--predictions {path} exists; choose another name.")
    if path is not None and not path.parent.is_dir():
        raise ConfigError(f"--predictions {path} is in no folder that exists; make it first.")


def _check_device(name: str) -> None:
    """Refuses a device that is not there, before data are prepared or processes started."""
    from tulle.train.devices import count_gpus

    if name not in _DEVICES:
        raise ConfigError(f"--device {name} is unknown; use {' or '.join(_DEVICES)}.")
    if name == "cuda" and count_gpus() == 0:
        raise ConfigError("--device cuda is not there: torch finds no GPU; use --device cpu.")


def _check_steps(made: "TrainPlan", options: TrainOptions) -> None:
    """Refuses what only steps know, before anything is read or paid."""
    if made.method.has_steps_to_resume:
        return
    word = made.method.kind
    if options.checkpoint_every is not None:
        raise ConfigError(
            f"--checkpoint-every has no meaning for method {word}, which keeps nothing before its "
            "model is done; leave it out."
        )
    if options.device != "cpu":
        raise ConfigError(
            f"--device {options.device} has no meaning for method {word}, which sums on the CPU; "
            "leave it out."
        )


def _finished(options: TrainOptions) -> "TrainPlan":
    from tulle.accounting.plan_check import verify_plan

    if options.finished_plan is None:
        raise ConfigError("--finished-plan is missing.")
    made = read_finished(options.finished_plan)
    verify_plan(made.privacy)
    return made


def _baseline(options: TrainOptions) -> "RunFolder | None":
    from tulle.runs.folder import RunFolder

    if options.baseline is None:
        return None
    by_name = options.runs / options.baseline
    return RunFolder.open(by_name if (by_name / "run.json").exists() else options.baseline)


def _check_test(
    test_rows: "ExampleSet | None", baseline: "RunFolder | None", options: TrainOptions
) -> None:
    """Finds out before training what would spoil the figures after it."""
    from tulle.report.training_card import check_baseline

    if test_rows is None:
        for option in ("baseline", "predictions"):
            if getattr(options, option) is not None:
                raise ConfigError(f"--{option} needs test rows; give --test or --test-fraction.")
        return
    if test_rows.labels is None:
        raise DataError("the test rows have no label column; name one in the schema.")
    num_positives = int(test_rows.labels.sum())
    if num_positives in (0, test_rows.num_rows):
        raise DataError(
            "all test labels are the same, so the AUC is undefined; test on rows of both classes, "
            "or on none with --test-fraction 0."
        )
    if baseline is not None:
        check_baseline(baseline, num_rows=test_rows.num_rows, num_positives=num_positives)


def _write_predictions(
    result: "FitResult", data: ChosenData, test_rows: "ExampleSet", options: TrainOptions
) -> None:
    import numpy as np

    from tulle.data.prediction_file import write_predictions

    if options.predictions is None:
        raise ConfigError("--predictions is missing.")
    rows = np.arange(test_rows.num_rows) if data.test_rows is None else data.test_rows
    probabilities = result.model.predict_proba(test_rows)
    write_predictions(options.predictions, rows, probabilities)


train_command = command_taking(TrainOptions, train)
