"""The verbs of `tulle.train`: plan a run, and carry it out."""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tulle.atomic_files import reporting_disk_errors
from tulle.errors import ConfigError, DataError, reason_of
from tulle.runs.folder import RunFolder
from tulle.runs.record import check_baseline
from tulle.train import fitting
from tulle.train.continuing import Start, StartLike, read_start
from tulle.train.examples import ExampleSet, planned_shape
from tulle.train.fitting import FitResult
from tulle.train.methods.catalogue import chosen_method
from tulle.train.methods.method import Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunOptions, Watch
from tulle.train.settings.units import UnitLevel, check_unit_word, is_unit_word
from tulle.train.training_data import (
    SYNTHETIC,
    DataChoice,
    TrainingData,
    check_files,
    encoded_rows,
    synthetic_name,
)
from tulle.train.training_data import Watch as DataWatch
from tulle.train.training_run import check_charge, training_charge

if TYPE_CHECKING:
    from tulle.accounting.ledger import Ledger
    from tulle.accounting.spans import Moment
    from tulle.data.features.feature_plan import FeaturePlan
    from tulle.data.named_logs import SchemaLike
    from tulle.train.steps.processes.processes import Processes

FilePath = str | os.PathLike[str]
MethodLike = str | Method | Mapping[str, Any]
"""A word such as "mosaic", a method with its settings, or the same as plain data."""


def plan(
    data: object,
    schema: "SchemaLike | None" = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    method: MethodLike = "mosaic",
    unit: UnitLevel | str | None = None,
    clip: float | None = None,
    classes: Sequence[str | int] | None = None,
    from_model: StartLike | None = None,
    keep_evidence: float | None = None,
    allow_constant: bool = False,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    features: "FeaturePlan | None" = None,
    test: object = None,
    rows: int | None = None,
    synth_seed: int | None = None,
    cache: FilePath | None = None,
    output: FilePath | None = None,
    watch_data: DataWatch | None = None,
) -> TrainPlan:
    """Says what a training run would promise and do. Nothing is spent.

    Args:
      data: Files of a log, a table of polars, pandas, Arrow or DuckDB, a prepared dataset or its
        folder, or the name of a synthetic log such as "synth:search".
      schema: Roles of the columns: a Schema, plain data, or a TOML or JSON file.
      epsilon: The guarantee; needed unless the method has none, or has its target.
      delta: Probability that the bound may fail; None: 1e-7, or 0 for methods that need none.
      method: "mosaic", "hybrid", "rr", "dp-sgd", "label-projection" or "nonprivate", or a method
        with its settings.
      unit: Who is protected: "example" for one row, or "user" for all rows of one user, also by
        the name of the column that says whose each row is; "user per month" and "user per 30 days"
        are for those in one window of time. None: users if the data name them, else rows.
      clip: Largest value that a label counts as, if labels are values such as amounts or counts:
        a public number, chosen without looking at them. None: labels are 0 or 1.
      classes: Names of all classes, if labels are classes: public, and never read from the labels.
      from_model: Released model of Mosaic that training continues from: the folder of a model or
        of a finished run, or what a fit gave back. Schema and encoder are then those of the model.
      keep_evidence: Fraction of the evidence for the weights of that model that is kept, as data
        change over time; 1 keeps all. None: 0.7.
      allow_constant: Train also where so few rows can be expected to give a constant.
      layout: Name of a public log, in place of a schema or with one.
      allow_public: Columns that may be public though a known log protects them.
      features: What becomes of the columns; None: `tulle.data.default_features`.
      test: Share of the rows to test on, 0.2 unless it is said; 0 for none; or other rows, given
        as `data` is.
      rows: Number of rows of a synthetic log.
      synth_seed: Seed of a synthetic log.
      cache: Folder of prepared logs; None: that of the user.
      output: New file (.json) of the plan, for `fit(plan=…)` on this machine or another.
      watch_data: Function that is told how far a synthetic log has come.

    Privacy:
      Numbers of rows and unit ids are looked at, which are public under replace. No label and no
      feature is.

    Raises:
      ConfigError: The target cannot be met on so many rows, or data with a unit column and no
        choice of what is protected.
    """
    start = read_start(from_model, keep_evidence)
    choice = DataChoice(
        source=data,
        schema=schema,
        layout=layout,
        allow_public=allow_public,
        features=features,
        encoder=start.encoder,
        test=test,
        rows=rows,
        synth_seed=synth_seed,
        cache=None if cache is None else Path(cache),
        watch=watch_data,
    )
    named = dict[str, Any](epsilon=epsilon, delta=delta, unit=unit, clip=clip, classes=classes)
    named["allow_constant"] = allow_constant or None
    chosen = _chosen(None, start, choice, method, named)
    choice = _read_by(choice, chosen)
    rows_to_plan = TrainingData(choice).planned
    made = chosen.make(planned_shape(rows_to_plan, chosen))
    if output is not None:
        made.save(Path(output))
    return made


def fit(
    data: object,
    schema: "SchemaLike | None" = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    method: MethodLike = "mosaic",
    unit: UnitLevel | str | None = None,
    clip: float | None = None,
    classes: Sequence[str | int] | None = None,
    allow_constant: bool = False,
    plan: TrainPlan | FilePath | None = None,
    from_model: StartLike | None = None,
    keep_evidence: float | None = None,
    layout: str | None = None,
    allow_public: Sequence[str] = (),
    features: "FeaturePlan | None" = None,
    test: object = None,
    rows: int | None = None,
    synth_seed: int | None = None,
    cache: FilePath | None = None,
    output: FilePath | None = None,
    ledger: "Ledger | FilePath | None" = None,
    purpose: str | None = None,
    at: "Moment | None" = None,
    until: "Moment | None" = None,
    seed: int | None = None,
    resume: bool = False,
    predictions: FilePath | None = None,
    baseline: FilePath | None = None,
    device: str = "cpu",
    processes: "int | Processes | None" = None,
    checkpoint_every: int | None = None,
    watch: Watch | None = None,
    watch_data: DataWatch | None = None,
    watch_plan: Callable[[TrainPlan], None] | None = None,
) -> FitResult:
    """Trains one model, once for one payment.

    The plan is made first; then rows are read and checked; then the ledger is charged; then labels
    are randomized, steps taken or cells summed. A run with an output that was stopped or killed
    goes on with `resume=True`, and is not charged again.

    Args:
      data: The same as for `plan`.
      schema: The same as for `plan`.
      epsilon: The same as for `plan`.
      delta: The same as for `plan`.
      method: The same as for `plan`.
      unit: The same as for `plan`.
      clip: The same as for `plan`.
      classes: The same as for `plan`.
      allow_constant: The same as for `plan`.
      plan: What `plan` gave for the same data, or its file; then no method, epsilon or unit.
      from_model: The same as for `plan`. With a plan, the model that it was made for.
      keep_evidence: The same as for `plan`.
      layout: The same as for `plan`.
      allow_public: The same as for `plan`.
      features: The same as for `plan`.
      test: The same as for `plan`. Figures of test rows are exact, and the guarantee does not cover
        them.
      rows: The same as for `plan`.
      synth_seed: The same as for `plan`.
      cache: The same as for `plan`.
      output: New folder of the run, with model, encoder, records and card: what `tulle.load`
        takes. None: the model stays in memory.
      ledger: A ledger or its path. It is charged once, before anything is drawn.
      purpose: What the ledger calls the run; None: "training".
      at: When the data are from, where a budget renews: a day or a time, also as text.
      until: Last day or time of the data.
      seed: Makes all noise repeatable. Then the release is not private.
      resume: Go on with the run in `output`.
      predictions: New Parquet file of the predictions of the test rows.
      baseline: Folder of a run without privacy on the same rows, to compare AUC losses.
      device: "cpu" or "cuda".
      processes: Number of processes of this machine that take private steps together.
      checkpoint_every: Number of steps between checkpoints; None: twenty checkpoints a phase.
      watch: Function that is told how far training has come.
      watch_data: Function that is told how far preparing a log has come.
      watch_plan: Function that is told the plan, before a label or feature is read.

    Privacy:
      The model, its checkpoints and records have the guarantee of `result.plan`, for the unit
      and the columns that it names. Each fit spends anew: fits of the same rows add up, also if
      all but the best are thrown away. Numbers of rows and public columns are taken for public.

    Raises:
      ConfigError: Rows are too few for the target, or a setting does not fit the method.
      DataError: A column is missing, a label is not 0 or 1 (or no value, if there is a clip, or
        none of the classes), or test rows are trained on.
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      RunStateError: The folder belongs to another run, or the run cannot go on.
      RunInterruptedError: SIGTERM or SIGINT came; what was done is kept.
    """
    named = dict[str, Any](epsilon=epsilon, delta=delta, unit=unit, clip=clip, classes=classes)
    named["allow_constant"] = allow_constant or None
    made = _finished(plan, method, {**named, "keep_evidence": keep_evidence})
    start = read_start(from_model, keep_evidence)
    choice = DataChoice(
        source=data,
        schema=schema,
        layout=layout,
        allow_public=allow_public,
        features=features,
        encoder=start.encoder,
        test=test,
        rows=rows,
        synth_seed=synth_seed,
        cache=None if cache is None else Path(cache),
        watch=watch_data,
    )
    chosen = _chosen(made, start, choice, method, named)
    charge = training_charge(chosen, ledger, purpose=purpose, at=at, until=until)
    _check_new_file(predictions)
    chosen.check_steps(device=device, checkpoint_every=checkpoint_every)
    opened = TrainingData(choice := _read_by(choice, chosen))
    made = made or chosen.make(planned_shape(opened.planned, chosen))
    check_charge(made, None if resume else charge)
    if watch_plan is not None:
        watch_plan(made)
    train_rows, test_rows, compared = _checked_rows(opened, baseline, predictions)
    with _sharing(processes, choice, device) as shared:
        options = RunOptions(
            folder=None if output is None else Path(output),
            resume=resume,
            seed=seed,
            device=device,
            charge=charge,
            watch=watch,
            checkpoint_every=checkpoint_every,
            processes=shared,
            encoder=opened.encoder,
            earlier=start.earlier,
            test_name=opened.test_name,
        )
        result = fitting.fit(train_rows, made, test=test_rows, options=options)
    _write_predictions(result, opened, test_rows, predictions)
    return _finished_result(result, compared)


def _read_by(choice: DataChoice, method: Method) -> DataChoice:
    """The data as a method reads them: which columns, and what labels may be."""
    return dataclasses.replace(
        choice,
        public_only=method.reads_labels_alone,
        num_classes=method.num_classes,
        classes=method.class_names,
    )


def check_unit(unit: object, choice: DataChoice) -> None:
    """Refuses a word for the unit that is neither known nor the unit column of the data.

    This comes before a method is asked whether it protects users: a misspelt word is then not
    taken for a column, and the refusal speaks of what was written. No row is read.

    Args:
      unit: What was said; only text is looked at.
      choice: The data.

    Raises:
      ConfigError: The word is unknown.
    """
    if isinstance(unit, str) and not is_unit_word(unit):
        column, others = _unit_column(choice)
        check_unit_word(unit, column, others=others)


def _unit_column(choice: DataChoice) -> tuple[str | None, Sequence[str]]:
    """The column that says whose each row is, if it is there, and others that may be meant."""
    source = choice.source
    if isinstance(source, str) and source.startswith(SYNTHETIC):
        from tulle.data.formats.public import LAYOUTS

        return LAYOUTS[synthetic_name(source)].schema.unit, ()
    if (rows := encoded_rows(choice)) is not None:
        return rows.planned().columns.unit, ()
    from tulle.data.tables.rows import column_names

    check_files(choice)
    log = choice.open_log()
    schema = log.layout.schema
    if not log.paths or choice.layout is not None:
        return schema.unit, ()
    names = column_names(log.paths[0])
    # The first line of a file without a header is a row, and no name of a column.
    is_header = not set(names).isdisjoint(schema.used)
    return schema.unit if schema.unit in names else None, names if is_header else ()


def _finished_result(result: FitResult, baseline: RunFolder | None) -> FitResult:
    """Writes the card of a run that is kept, and compares the run with a baseline."""
    if result.path is not None:
        _write_card(result, result.path)
    return result if baseline is None else result.compared_with(baseline)


def _write_card(result: FitResult, folder: Path) -> None:
    try:
        from tulle.runs.card import write_card
    except ImportError:
        # A machine that only trains: a card says epsilons that were computed again, so it is made
        # where the accountant is, by going on with the finished run.
        return
    with reporting_disk_errors(folder / "card.json"):
        write_card(folder, result.card)


def follow(data: DataChoice, processes: "Processes", *, device: str = "cpu") -> None:
    """Takes part in the private steps of a `fit` that another process leads, on the same data.

    Args:
      data: The data of the run.
      processes: The processes of the run, this one not being the leader.
      device: "cpu" or "cuda".

    Privacy:
      The same as for `fit`. What this process holds in memory is raw or not yet private; none of it
      leaves the processes of the run.
    """
    from tulle.train.methods.private_training import follow_fit
    from tulle.train.steps.processes.processes import failing_together

    with failing_together(processes):
        train_rows, _ = TrainingData(data).examples()
        follow_fit(train_rows, processes, device=device)


def _chosen(
    made: TrainPlan | None,
    start: Start,
    choice: DataChoice,
    method: MethodLike,
    named: Mapping[str, Any],
) -> Method:
    """The method of a finished plan, or else the one that was named, and where it starts."""
    check_unit(named["unit"], choice)
    if made is not None:
        made.method.check_start(start.earlier)
        return made.method
    chosen = chosen_method(method, **named)
    return chosen if start.earlier is None else chosen.continued(start.earlier)


def _finished(
    plan: TrainPlan | FilePath | None, method: MethodLike, given: Mapping[str, object]
) -> TrainPlan | None:
    """A plan that was made before; a machine with the accountant computes its epsilons again."""
    if plan is None:
        return None
    given = {"method": None if method == "mosaic" else method, **given}
    for name, value in given.items():
        if value is not None:
            raise ConfigError(
                f"plan has all settings of the run, and {name}={value!r} is given too; leave it "
                "out."
            )
    made = plan if isinstance(plan, TrainPlan) else read_plan(Path(plan))
    made.verify()
    return made


def read_plan(path: Path) -> TrainPlan:
    """Reads the plan that `plan(output=…)` wrote.

    Raises:
      DataError: The file cannot be read.
      ConfigError: It is no plan of this version.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"plan={path.name!r} cannot be read: {reason_of(error)}; make it with "
            "tulle.train.plan(output=…)."
        ) from None
    return TrainPlan.from_json(text)


def _check_new_file(path: FilePath | None) -> None:
    if path is None:
        return
    if Path(path).exists():
        raise ConfigError(f"predictions={os.fspath(path)!r} exists; choose another name.")
    if not Path(path).parent.is_dir():
        raise ConfigError(
            f"predictions={os.fspath(path)!r} is in no folder that exists; make it first."
        )


def _checked_rows(
    data: TrainingData, baseline: FilePath | None, predictions: FilePath | None
) -> tuple[ExampleSet, ExampleSet | None, RunFolder | None]:
    """Rows to train and to test on, and the baseline; refuses what would spoil figures later."""
    compared = None if baseline is None else RunFolder.open(Path(baseline))
    train_rows, test_rows = data.examples()
    if test_rows is None:
        for name, value in (("baseline", baseline), ("predictions", predictions)):
            if value is not None:
                raise ConfigError(f"{name} needs test rows; give test=0.2 or other rows.")
        return train_rows, None, None
    if test_rows.labels is None:
        raise DataError("the test rows have no label column; name one in the schema.")
    if (test_rows.labels == test_rows.labels[0]).all():
        raise DataError(
            "all test labels are the same, so the AUC (or R2) is undefined; test on rows of "
            "both classes, or of different values, or on none with test=0."
        )
    if compared is not None:
        if test_rows.num_classes is None:
            raise ConfigError(
                "baseline compares AUC losses, and labels are values, which have none; leave it "
                "out, or compare the mean squared errors of two runs."
            )
        if test_rows.num_classes > 2:
            raise ConfigError(
                "baseline compares AUC losses of labels of 0 and 1, and labels are classes; leave "
                "it out, or compare the log losses of two runs."
            )
        num_positives = int(test_rows.labels.sum())
        check_baseline(compared, num_rows=test_rows.num_rows, num_positives=num_positives)
    return train_rows, test_rows, compared


def _write_predictions(
    result: FitResult, data: TrainingData, test_rows: ExampleSet | None, path: FilePath | None
) -> None:
    if path is None or test_rows is None:
        return
    from tulle.data.prediction_file import write_predictions

    rows = np.arange(test_rows.num_rows) if data.test_rows is None else data.test_rows
    predicted = result.model.predict(test_rows)
    model = result.model
    write_predictions(
        Path(path), rows, predicted, are_values=model.clip is not None, classes=model.classes
    )


@contextlib.contextmanager
def _sharing(
    processes: "int | Processes | None", choice: DataChoice, device: str
) -> "Iterator[Processes | None]":
    if not isinstance(processes, int):
        yield processes
    elif processes == 1:
        yield None
    else:
        from tulle.train.steps.processes.torch_processes import local_processes

        if not isinstance(choice.source, str | os.PathLike | list | tuple):
            raise ConfigError(
                f"processes={processes} need data that each of them can open; give files or a "
                "prepared dataset in place of a table in memory."
            )
        # Who watches is here, and cannot be sent to others.
        sent = functools.partial(_follow, dataclasses.replace(choice, watch=None), device)
        with local_processes(processes, sent, device=device) as local:
            yield local


def _follow(choice: DataChoice, device: str, processes: "Processes") -> None:
    follow(choice, processes, device=device)
