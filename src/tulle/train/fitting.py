"""Training from end to end: plan, charge, randomized labels, private steps or cells, evaluation."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator

import torch

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.settings import Scalar
from tulle.quality.metrics import QualityMetrics
from tulle.runs.folder import RunFolder
from tulle.runs.interruption import StopRequest, stop_signals
from tulle.train.content_fingerprint import content_fingerprint
from tulle.train.devices import find_device
from tulle.train.distributed.messages import dismissing
from tulle.train.distributed.shareable import check_shareable
from tulle.train.examples import ExampleSet
from tulle.train.held_out_rows import check_held_out
from tulle.train.journal import FolderJournal, Journal, MemoryJournal
from tulle.train.methods.catalogue import method_data
from tulle.train.methods.method import Method
from tulle.train.run_charge import charge_run, check_charge
from tulle.train.run_context import RunContext
from tulle.train.run_options import RunOptions
from tulle.train.run_results import write_results
from tulle.train.train_plan import TrainPlan
from tulle.train.trained_model import TrainedModel
from tulle.train.training_rows import TrainingRows, bound_rows, shape_of


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitResult:
    """A trained model and how it came about."""

    model: TrainedModel
    plan: TrainPlan
    metrics: QualityMetrics | None
    """On the test rows; None if there were none."""
    is_secure: bool
    """False if the noise can be repeated."""
    noise_description: str
    seconds: float
    folder: RunFolder | None
    num_steps_lost: int = 0
    """Private steps that were charged and are not in the weights, after interruptions."""

    @property
    def noise_multiplier(self) -> float | None:
        """Noise over clip norm of the private steps, or of cells; None if there were neither."""
        return self.plan.noise_multiplier


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingRun:
    """A run that has been planned, checked and paid, as its method is handed it. Sensitive."""

    plan: TrainPlan
    examples: ExampleSet
    """All training rows."""
    rows: TrainingRows
    """Which of them take part in each phase."""
    context: RunContext
    folder: RunFolder | None

    @property
    def seen(self) -> ExampleSet:
        """The part of the data that the plan may look at."""
        return _seen(self.examples, self.plan)


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
    with dismissing(options.processes):
        return _fit(data, config, test, options)


def make_plan(
    data: ExampleSet | PreparedDataset, config: Method, *, seed: int | None = None
) -> TrainPlan:
    """The plan that `fit` would follow. Looks at numbers of rows and units alone."""
    examples = _examples(data, "training")
    return config.make(shape_of(examples, bound_rows(examples, config, _row_key(_source(seed)))))


def _fit(
    data: ExampleSet | PreparedDataset,
    method: Method | TrainPlan,
    test: ExampleSet | PreparedDataset | None,
    options: RunOptions,
) -> FitResult:
    start = time.monotonic()
    # Looked at first: a device that is missing must not cost a run its budget.
    device = find_device(options.device)
    examples = _examples(data, "training")
    test_examples = None if test is None else _examples(test, "test")
    with (
        stop_signals() as stop,
        _open_run(examples, test_examples, method, options, stop, device) as run,
    ):
        trained = run.plan.method.train(run)
        metrics = None if test_examples is None else trained.model.evaluate(test_examples)
        result = FitResult(
            model=trained.model,
            plan=run.plan,
            metrics=metrics,
            is_secure=run.context.rng.is_secure,
            noise_description=trained.noise_description,
            seconds=time.monotonic() - start,
            folder=run.folder,
            num_steps_lost=run.plan.num_private_steps - trained.num_private_steps,
        )
        if run.folder is not None:
            write_results(result, run.folder, test_name=options.test_name)
    return result


@contextlib.contextmanager
def _open_run(
    examples: ExampleSet,
    test: ExampleSet | None,
    method: Method | TrainPlan,
    options: RunOptions,
    stop: StopRequest,
    device: torch.device,
) -> Iterator[TrainingRun]:
    """Plans, checks the rows, opens or makes the folder, and charges the ledger."""
    rng = _source(options.seed)
    plan, rows = _planned(examples, method, _row_key(rng))
    _check_rows(examples, test, plan)
    plan.method.check_rows(rows)
    if options.shared_processes is not None:
        check_shareable(plan)
    if options.folder is None:
        charge_run(plan, options.charge, folder=None)
        context = _context(options, device, rng, MemoryJournal(), stop)
        yield TrainingRun(plan=plan, examples=examples, rows=rows, context=context, folder=None)
        return
    if not options.resume:
        check_charge(plan, options.charge)
    folder = _folder(options, plan, examples)
    with folder.hold():
        charge_run(plan, options.charge, folder=folder)
        if options.seed is None:
            # Labels are kept for the rows they were drawn for, so a resumed run needs the same.
            rows = bound_rows(examples, plan.method, bytes.fromhex(folder.run_id))
        else:
            rng = SeededNoise(_resumed_seed(options.seed, len(folder.records.read())))
        folder.records.append({"kind": "started", "private": plan.privacy.is_private}, durable=True)
        context = _context(options, device, rng, FolderJournal(folder), stop)
        yield TrainingRun(plan=plan, examples=examples, rows=rows, context=context, folder=folder)


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
        # A plan that was handed in may have been put together by hand.
        plan.verify()
    return plan, rows


def _context(
    options: RunOptions, device: torch.device, rng: NoiseSource, journal: Journal, stop: StopRequest
) -> RunContext:
    return RunContext(
        device=device,
        rng=rng,
        journal=journal,
        stop=stop,
        watch=options.watch,
        checkpoint_every=options.checkpoint_every,
        noise_placement=options.noise_placement,
        products=options.products,
        noise_memory=options.noise_memory,
        processes=options.shared_processes,
    )


def _folder(options: RunOptions, plan: TrainPlan, examples: ExampleSet) -> RunFolder:
    settings = method_data(plan.method)
    facts: dict[str, Scalar] = {
        "data_fingerprint": content_fingerprint(_seen(examples, plan)),
        "num_rows": examples.num_rows,
        "seed": options.seed,
    }
    if options.folder is None:
        raise ConfigError("folder=None: there is no run to open.")
    if not options.resume:
        return RunFolder.create(options.folder, settings=settings, plan=plan.privacy, facts=facts)
    folder = RunFolder.open(options.folder)
    folder.check_same(settings=settings, plan=plan.privacy, facts=facts)
    return folder


def _examples(data: ExampleSet | PreparedDataset, what: str) -> ExampleSet:
    if not isinstance(data, ExampleSet | PreparedDataset):
        raise ConfigError(
            f"{what} rows of type {type(data).__name__} must be a PreparedDataset or an "
            "ExampleSet; open a folder with PreparedDataset.open(folder)."
        )
    examples = ExampleSet.of(data) if isinstance(data, PreparedDataset) else data
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
            _seen(rows, plan).check()


def _seen(examples: ExampleSet, plan: TrainPlan) -> ExampleSet:
    """The part of the data that the plan may look at."""
    return examples if plan.reads_sensitive else examples.without_sensitive(examples.labels)


def _source(seed: int | None) -> NoiseSource:
    return release_rng() if seed is None else SeededNoise(seed)


def _row_key(rng: NoiseSource) -> bytes:
    return rng.words(4).tobytes()


def _resumed_seed(seed: int, num_records: int) -> int:
    """Another stream each time a seeded run goes on: its noise must not come twice."""
    if num_records == 0:
        return seed
    text = f"{seed} {num_records}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
