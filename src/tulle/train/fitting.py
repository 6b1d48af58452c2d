"""Training from end to end: plan, charge the ledger, train by the plan's method, evaluate.

The order matters. First comes every check that can refuse a run: libraries, device, features,
labels and ids in range, test rows. Then the ledger is charged, and only then a label is randomized,
a step is taken or a cell is summed. So a refusal costs no budget, and a crash can only over-count.
"""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, noise_source
from tulle.privacy.fields import Scalar, null_if_infinite
from tulle.quality.class_metrics import ClassMetrics
from tulle.quality.metrics import QualityMetrics
from tulle.quality.value_metrics import ValueMetrics
from tulle.runs.folder import RunFolder
from tulle.runs.record import RESULT_FILE, Result, TrainingRecord, relative_loss
from tulle.runs.records import StopRequest, stop_signals
from tulle.train.examples import (
    ExampleSet,
    IntArray,
    TrainingRows,
    bound_rows,
    content_fingerprint,
    shape_of,
)
from tulle.train.methods.catalogue import method_data
from tulle.train.methods.method import Method, Trained
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunContext, RunOptions, require_torch
from tulle.train.settings.units import UserLevel
from tulle.train.trained_model import TrainedModel
from tulle.train.training_run import TrainingRun, charge_run, check_charge, seen_part

_PAPER_NOTE = (
    "noise was set by Renyi accounting under add-or-remove, as in the papers; it says nothing "
    "sound about replaced labels and columns"
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitResult(Result[TrainingRecord, TrainPlan]):
    """A trained model and how it came about."""

    model: TrainedModel
    """The model, which predicts and can be saved."""
    metrics: QualityMetrics | None
    """Quality on the test rows; None if there were none."""
    folder: RunFolder | None
    """Folder that the run is kept in; None if it is not kept."""
    relative_auc_loss: float | None = None
    """Percent by which the AUC loss is above that of a baseline; None if there was no baseline.
    Not private: it is for those who may see the data."""
    value_metrics: ValueMetrics | None = None
    """Quality on the test rows of a model that predicts values, in place of `metrics`."""
    class_metrics: ClassMetrics | None = None
    """Quality on the test rows of a model that predicts classes, in place of `metrics`."""

    def compared_with(self, baseline: RunFolder) -> "FitResult":
        """Returns the same result with its AUC loss relative to that of a run without privacy."""
        if self.value_metrics is not None:
            raise DataError(
                "the run predicts values, which have no AUC loss; leave the baseline out."
            )
        if self.class_metrics is not None:
            raise DataError(
                "the run predicts classes, and an AUC loss is compared for labels of 0 and 1; "
                "leave the baseline out."
            )
        if self.metrics is None:
            raise DataError("the run was tested on no rows; train it with test rows.")
        relative = relative_loss(self.metrics.to_dict(), baseline)
        return dataclasses.replace(self, relative_auc_loss=relative)

    @property
    def is_secure(self) -> bool:
        """False if the noise can be repeated."""
        return self.record.is_secure

    @property
    def noise_description(self) -> str:
        """The source of the noise in words."""
        return self.record.randomness

    @property
    def seconds(self) -> float:
        """Seconds that the run took, from its first look at the data."""
        return self.record.seconds

    @property
    def remark(self) -> str:
        """What training has ended with, such as a constant; empty if there is nothing to say."""
        return self.model.remark

    @property
    def num_steps_lost(self) -> int:
        """Number of private steps that were charged but lost to interruptions."""
        return self.record.steps_lost

    @property
    def noise_multiplier(self) -> float | None:
        """Noise multiplier (standard deviation / sensitivity) of DP-SGD steps or of cell sums.

        None for methods without Gaussian noise.
        """
        return self.plan.noise_multiplier


def fit(
    data: ExampleSet | PreparedDataset,
    config: Method | TrainPlan,
    *,
    test: ExampleSet | PreparedDataset | None = None,
    options: RunOptions | None = None,
) -> FitResult:
    """Trains one model.

    Args:
      data: Training rows.
      config: A calibrated config, or the finished plan of one for exactly such data.
      test: Rows to evaluate on. Their figures are exact, and the guarantee of the
        training rows does not speak about them.
      options: Run folder, device, ledger, seed, and processes that share the private steps.

    Privacy:
      The model, its checkpoints and records have the guarantee of `result.plan.privacy`.
      Labels are randomized once; sensitive columns are read by private steps or cells alone.
      The ledger is charged before a label is randomized, a step is taken or a cell is summed;
      that labels and ids are in range is checked first. `NonPrivateConfig` has no guarantee.

    Raises:
      ConfigError: No target, a plan for other data, or no such device.
      DataError: Labels that are not 0 and 1, ids out of range, no unit where one is needed,
        private training on a row that is there twice, or test rows that are trained on or of
        one class alone.
      RunStateError: The folder belongs to another run, training diverged, or one of several
        processes was lost.
      RunInterruptedError: SIGTERM or SIGINT came; what was done is kept.
    """
    options = options or RunOptions()
    if options.processes is None:
        return _fit(data, config, test, options)
    from tulle.train.steps.processes.processes import dismissing

    with dismissing(options.processes):
        return _fit(data, config, test, options)


def make_plan(
    data: ExampleSet | PreparedDataset, config: Method, *, seed: int | None = None
) -> TrainPlan:
    """The plan that `fit` would follow. It depends on numbers of rows and units alone.

    Args:
      data: Training rows.
      config: A calibrated config.
      seed: Seed of the choice of rows where a user has too many; None for a secret choice. Only
        which rows are chosen depends on it, not the plan.
    """
    examples = _examples(data, "training", config.num_classes)
    return config.make(
        shape_of(examples, bound_rows(examples, config, _row_key(noise_source(seed))))
    )


def _fit(
    data: ExampleSet | PreparedDataset,
    method: Method | TrainPlan,
    test: ExampleSet | PreparedDataset | None,
    options: RunOptions,
) -> FitResult:
    start = time.monotonic()
    # Checked first: what is missing on this machine must not cost a run its budget.
    _check_machine(method.method if isinstance(method, TrainPlan) else method, options)
    num_classes = _num_classes(method)
    examples = _examples(data, "training", num_classes)
    test_examples = None if test is None else _examples(test, "test", num_classes)
    with (
        stop_signals() as stop,
        _open_run(examples, test_examples, method, options, stop) as run,
    ):
        trained = run.plan.method.train(run)
        if run.folder is not None and (remark := trained.model.remark):
            run.folder.records.append({"kind": "remark", "text": remark}, durable=True)
        found = _metrics(trained, test_examples)
        record = _record(run, trained, found, seconds=time.monotonic() - start)
        if run.folder is not None:
            run.write_model(trained.model)
            # Written last and atomically: its presence says that the run is finished.
            run.folder.write_json(RESULT_FILE, record.to_dict())
    return FitResult(
        plan=run.plan,
        record=record,
        path=options.folder,
        model=trained.model.with_encoder(options.encoder),
        metrics=found if isinstance(found, QualityMetrics) else None,
        value_metrics=found if isinstance(found, ValueMetrics) else None,
        class_metrics=found if isinstance(found, ClassMetrics) else None,
        folder=run.folder,
    )


def _metrics(
    trained: Trained, test: ExampleSet | None
) -> QualityMetrics | ValueMetrics | ClassMetrics | None:
    """Figures of quality on the test rows, of the kind that the model's predictions have."""
    if test is None:
        return None
    if trained.model.clip is not None:
        return trained.model.evaluate_values(test)
    if trained.model.classes is not None:
        return trained.model.evaluate_classes(test)
    return trained.model.evaluate(test)


@contextlib.contextmanager
def _open_run(
    examples: ExampleSet,
    test: ExampleSet | None,
    method: Method | TrainPlan,
    options: RunOptions,
    stop: StopRequest,
) -> Iterator[TrainingRun]:
    """Plans, checks the rows, opens or makes the folder, and charges the ledger.

    Args:
      examples: Training rows.
      test: Test rows; None if there are none.
      method: A calibrated config, or the finished plan of one.
      options: Run folder, device, ledger, seed and processes.
      stop: Becomes true when the process is asked to stop.
    """
    rng = noise_source(options.seed)
    plan, rows = _planned(examples, method, _row_key(rng))
    plan.method.check_start(options.earlier, plan.shape.features)
    _check_rows(examples, test, plan)
    plan.method.check_rows(rows)
    if not options.resume:
        plan.method.check_noise(plan.shape, plan.noise_multiplier)
    if options.shared_processes is not None:
        from tulle.train.methods.private_steps import check_shareable

        check_shareable(plan)
    if options.folder is None:
        charge_run(plan, options.charge, examples, folder=None)
        yield _run(plan, examples, rows, options, rng, stop, folder=None)
        return
    if not options.resume:
        # Before the folder is made: a budget that is too small should leave nothing behind.
        check_charge(plan, options.charge, examples)
    folder = _folder(options.folder, options, plan, examples)
    with folder.hold():
        charge_run(plan, options.charge, examples, folder=folder)
        if options.seed is None:
            # Randomized labels are kept for the rows that they were drawn for, so a resumed run
            # must choose the same rows of each user: the id of the run is the key of the choice.
            rows = bound_rows(examples, plan.method, bytes.fromhex(folder.run_id))
        else:
            rng = SeededNoise(_resumed_seed(options.seed, len(folder.records.read())))
        folder.records.append({"kind": "started", "private": plan.privacy.is_private}, durable=True)
        yield _run(plan, examples, rows, options, rng, stop, folder=folder)


def _planned(
    examples: ExampleSet, method: Method | TrainPlan, row_key: bytes
) -> tuple[TrainPlan, TrainingRows]:
    """The plan of a run and the rows that it lets each unit contribute."""
    chosen = method.method if isinstance(method, TrainPlan) else method
    if not isinstance(chosen, Method):
        raise ConfigError(
            f"config of type {type(method).__name__} must be a config of tulle.train, e.g. "
            "MosaicConfig().calibrate(epsilon=3, delta=1e-7)."
        )
    rows = bound_rows(examples, chosen, row_key)
    shape = shape_of(examples, rows)
    plan = method if isinstance(method, TrainPlan) else chosen.make(shape)
    if plan.shape != shape:
        raise ConfigError(
            f"plan {plan.privacy.name!r} was made for other data: features, roles or numbers of "
            "rows differ. Make it anew for these data with config.make(shape)."
        )
    if isinstance(method, TrainPlan):
        # A plan that was handed in may have been put together by hand, so its epsilons are
        # computed again.
        plan.verify()
    return plan, rows


def _run(
    plan: TrainPlan,
    examples: ExampleSet,
    rows: TrainingRows,
    options: RunOptions,
    rng: NoiseSource,
    stop: StopRequest,
    *,
    folder: RunFolder | None,
) -> TrainingRun:
    return TrainingRun(
        plan=plan,
        examples=examples,
        rows=rows,
        context=RunContext(rng=rng, stop=stop, watch=options.watch),
        options=options,
        folder=folder,
    )


def _folder(path: Path, options: RunOptions, plan: TrainPlan, examples: ExampleSet) -> RunFolder:
    settings = method_data(plan.method)
    facts: dict[str, Scalar] = {
        "data_fingerprint": content_fingerprint(seen_part(examples, plan)),
        "num_rows": examples.num_rows,
        "seed": options.seed,
    }
    if not options.resume:
        return RunFolder.create(path, settings=settings, plan=plan.privacy, facts=facts)
    folder = RunFolder.open(path)
    folder.check_same(settings=settings, plan=plan.privacy, facts=facts)
    return folder


def _num_classes(method: Method | TrainPlan) -> int | None:
    """What labels the method learns; those of 0 and 1 where it is none and is refused later."""
    chosen = method.method if isinstance(method, TrainPlan) else method
    return chosen.num_classes if isinstance(chosen, Method) else 2


def _examples(data: ExampleSet | PreparedDataset, what: str, num_classes: int | None) -> ExampleSet:
    if not isinstance(data, ExampleSet | PreparedDataset):
        raise ConfigError(
            f"{what} rows of type {type(data).__name__} must be a PreparedDataset or an "
            "ExampleSet; open a folder with PreparedDataset.open(folder)."
        )
    if isinstance(data, PreparedDataset):
        examples = ExampleSet.of(data, num_classes=num_classes)
    else:
        examples = data.with_classes(num_classes)
    if examples.num_rows == 0:
        raise DataError(f"there are no {what} rows; give at least one.")
    if examples.labels is None:
        raise DataError(f"the {what} rows have no label column; name one in the schema.")
    if examples.report_probs is not None:
        raise DataError(
            f"the labels of the {what} rows are randomized reports; train on reports with "
            "tulle.train.fit_on_reports(), and evaluate with tulle.quality.evaluate_on_reports()."
        )
    return examples


def _check_rows(examples: ExampleSet, test: ExampleSet | None, plan: TrainPlan) -> None:
    """Refuses rows that the run could not finish with, before it costs anything."""
    if plan.privacy.is_private and examples.has_repeated_rows:
        raise DataError(
            "some training rows are there more than once, so that noise for one row would not hide "
            "them; pass each row once."
        )
    if test is not None:
        check_held_out(examples, test, plan)
    for rows in (examples, test):
        if rows is not None and not rows.fingerprint:  # `ExampleSet.of` has checked all others.
            seen_part(rows, plan).check()


def check_held_out(examples: ExampleSet, test: ExampleSet, plan: TrainPlan) -> None:
    """Refuses test rows whose figures would fail, or would tell about training rows.

    Rows of two different data sets are taken for different rows.

    Args:
      examples: Training rows.
      test: Test rows.
      plan: Plan of the run, which says who is protected.

    Raises:
      DataError: Other features, one class alone, or rows that are trained on; if users are
        protected, also other rows of the same users.
    """
    if test.features != examples.features:
        raise DataError(
            "the test rows have other features than the training rows; prepare them alike "
            "(tulle data prepare --like)."
        )
    if test.labels is not None and np.all(test.labels == test.labels[0]):
        raise DataError(
            "all test labels are the same, so the AUC (or R2) is undefined; test on rows of "
            "both classes, or of different values, or on none."
        )
    method = plan.method
    if not method.is_private or not _are_of_one_dataset(examples, test):
        return
    if _shares_rows(examples, test):
        raise DataError(
            "rows that are trained on are among the test rows, and figures of test rows are exact; "
            "test on other rows, or on none."
        )
    if isinstance(method.unit, UserLevel) and _shares_users(examples, test):
        raise DataError(
            "users that are trained on have rows among the test rows, and figures of test rows "
            "are exact; split by user (tulle.data.splits.split_by_unit), or test on none."
        )


def _are_of_one_dataset(examples: ExampleSet, test: ExampleSet) -> bool:
    if examples.fingerprint and test.fingerprint:
        return examples.fingerprint == test.fingerprint
    return test.public_features is examples.public_features


def _shares_rows(examples: ExampleSet, test: ExampleSet) -> bool:
    is_trained_on = np.zeros(len(examples.public_features), np.bool_)
    is_trained_on[_places(examples)] = True
    return bool(is_trained_on[_places(test)].any())


def _shares_users(examples: ExampleSet, test: ExampleSet) -> bool:
    if examples.units is None or test.units is None:
        return False
    return bool(np.isin(np.unique(test.units), examples.units).any())


def _places(examples: ExampleSet) -> IntArray | slice:
    return slice(None) if examples.rows is None else examples.rows


def _check_machine(method: Method, options: RunOptions) -> None:
    """Refuses a run that this machine lacks a library or a device for."""
    if not isinstance(method, Method) or not method.needs_torch:
        return
    require_torch(f"method {method.kind}")
    from tulle.train.steps.step_context import find_device

    find_device(options.device)


def _record(
    run: TrainingRun,
    trained: Trained,
    metrics: QualityMetrics | ValueMetrics | ClassMetrics | None,
    *,
    seconds: float,
) -> TrainingRecord:
    """The record of a finished run; all of it may be shown beside its card.

    Args:
      run: The run that was carried out.
      trained: The model and the facts that the method returned.
      metrics: Quality on the test rows; None if there were none.
      seconds: Seconds that the run took.
    """
    plan = run.plan
    guarantee = plan.privacy.guarantee
    return TrainingRecord(
        plan=plan.privacy,
        randomness=trained.noise_description,
        is_secure=run.context.rng.is_secure,
        accounting_note=_PAPER_NOTE if plan.is_paper else "",
        reproduction_only=plan.is_paper,
        method=plan.method.kind,
        epsilon=null_if_infinite(guarantee.epsilon),
        delta=guarantee.delta,
        label_epsilon=plan.method.label_epsilon,
        noise_multiplier=plan.noise_multiplier,
        steps=plan.num_private_steps,
        steps_lost=plan.num_private_steps - trained.num_private_steps,
        seconds=seconds,
        test=run.options.test_name,
        metrics=None if metrics is None else metrics.to_dict(),
    )


def _row_key(rng: NoiseSource) -> bytes:
    return rng.words(4).tobytes()


def _resumed_seed(seed: int, num_records: int) -> int:
    """Seed of a run that goes on: another one each time, since its noise must not come twice."""
    if num_records == 0:
        return seed
    text = f"{seed} {num_records}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
