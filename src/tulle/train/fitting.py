"""Training from end to end: plan, charge, randomized labels, private steps or cells, evaluation."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator

from tulle.data.prepared.dataset import PreparedDataset
from tulle.errors import ConfigError, DataError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.privacy.settings import Scalar
from tulle.quality.metrics import QualityMetrics
from tulle.runs.folder import RunFolder
from tulle.runs.interruption import stop_signals
from tulle.train.cells.cell_model import CellModel
from tulle.train.cells.cell_training import train_on_cells
from tulle.train.config_data import config_to_dict
from tulle.train.configs import HybridConfig, NonPrivateConfig, TrainConfig
from tulle.train.content_fingerprint import content_fingerprint
from tulle.train.devices import find_device
from tulle.train.distributed.messages import dismissing
from tulle.train.distributed.opening import Opening
from tulle.train.distributed.shareable import check_shareable
from tulle.train.examples import ExampleSet
from tulle.train.held_out_rows import check_held_out
from tulle.train.journal import FolderJournal, Journal, MemoryJournal
from tulle.train.label_reports import LabelReports, log_odds, with_reports
from tulle.train.label_training import calibrating_channel, first_log_odds, label_loss
from tulle.train.losses import (
    CrossEntropy,
    DebiasedCrossEntropy,
    ForwardCorrectedCrossEntropy,
    Loss,
)
from tulle.train.models.tower_model import TowerModel
from tulle.train.noise import expanded_description
from tulle.train.phases import LabelCorrection, LabelPhase
from tulle.train.plain_training import PlainTask, train_plain
from tulle.train.private_training import PHASE as PRIVATE
from tulle.train.private_training import PrivateSteps, train_privately
from tulle.train.run_charge import charge_run, check_charge
from tulle.train.run_context import RunContext
from tulle.train.run_options import RunOptions
from tulle.train.run_results import keep_cells, write_results
from tulle.train.train_plan import TrainPlan
from tulle.train.trained_model import TrainedModel
from tulle.train.training_rows import TrainingRows, bound_rows, shape_of

LABELS, PLAIN = "labels", "plain"


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


def fit(
    data: ExampleSet | PreparedDataset,
    config: TrainConfig | TrainPlan,
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
      The model, its checkpoints and records have the guarantee of `result.plan.plan`.
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
    data: ExampleSet | PreparedDataset, config: TrainConfig, *, seed: int | None = None
) -> TrainPlan:
    """The plan that `fit` would follow. Looks at numbers of rows and units alone."""
    examples = _examples(data, "training")
    return config.make(shape_of(examples, bound_rows(examples, config, _row_key(_source(seed)))))


def _fit(
    data: ExampleSet | PreparedDataset,
    config: TrainConfig | TrainPlan,
    test: ExampleSet | PreparedDataset | None,
    options: RunOptions,
) -> FitResult:
    start = time.monotonic()
    # Looked at first: a device that is missing must not cost a run its budget.
    device = find_device(options.device)
    examples = _examples(data, "training")
    test_examples = None if test is None else _examples(test, "test")
    with stop_signals() as stop, _open_run(examples, test_examples, config, options) as run:
        context = RunContext(
            device=device,
            rng=run.rng,
            journal=run.journal,
            stop=stop,
            watch=options.watch,
            checkpoint_every=options.checkpoint_every,
            noise_placement=options.noise_placement,
            products=options.products,
            noise_memory=options.noise_memory,
            processes=options.shared_processes,
        )
        model, steps = _train(examples, run, context)
        metrics = None if test_examples is None else model.evaluate(test_examples)
        result = FitResult(
            model=model,
            plan=run.plan,
            metrics=metrics,
            is_secure=run.rng.is_secure,
            noise_description=_noise_description(run, steps),
            seconds=time.monotonic() - start,
            folder=run.folder,
            num_steps_lost=0 if steps is None else run.plan.num_private_steps - steps.num_taken,
        )
        if run.folder is not None:
            write_results(result, run.folder, test_name=options.test_name)
    return result


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Run:
    plan: TrainPlan
    rows: TrainingRows
    rng: NoiseSource
    journal: Journal
    folder: RunFolder | None


@contextlib.contextmanager
def _open_run(
    examples: ExampleSet,
    test: ExampleSet | None,
    config: TrainConfig | TrainPlan,
    options: RunOptions,
) -> Iterator[_Run]:
    """Plans, checks the rows, opens or makes the folder, and charges the ledger."""
    rng = _source(options.seed)
    plain_config = config.config if isinstance(config, TrainPlan) else config
    if not isinstance(plain_config, TrainConfig):
        raise ConfigError(
            f"config of type {type(config).__name__} must be a config of tulle.train, e.g. "
            "HybridConfig().calibrate(epsilon=3, delta=1e-7)."
        )
    rows = bound_rows(examples, plain_config, _row_key(rng))
    shape = shape_of(examples, rows)
    plan = config if isinstance(config, TrainPlan) else config.make(shape)
    if plan.shape != shape:
        raise ConfigError(
            f"plan {plan.plan.name!r} was made for other data: features, roles or numbers of rows "
            "differ. Make it anew for these data with config.make(shape)."
        )
    _check_rows(examples, test, plan)
    _report_channel(plan, rows)
    if options.shared_processes is not None:
        check_shareable(plan)
    if options.folder is None:
        charge_run(plan, options.charge, folder=None)
        journal: Journal = MemoryJournal()
        yield _Run(plan=plan, rows=rows, rng=rng, journal=journal, folder=None)
        return
    if not options.resume:
        check_charge(plan, options.charge)
    folder = _folder(options, plan, examples)
    with folder.hold():
        charge_run(plan, options.charge, folder=folder)
        if options.seed is None:
            # Labels are kept for the rows they were drawn for, so a resumed run needs the same.
            rows = bound_rows(examples, plain_config, bytes.fromhex(folder.run_id))
        else:
            rng = SeededNoise(_resumed_seed(options.seed, len(folder.records.read())))
        folder.records.append({"kind": "started", "private": plan.plan.is_private}, durable=True)
        journal = FolderJournal(folder)
        yield _Run(plan=plan, rows=rows, rng=rng, journal=journal, folder=folder)


def _folder(options: RunOptions, plan: TrainPlan, examples: ExampleSet) -> RunFolder:
    settings = config_to_dict(plan.config)
    facts: dict[str, Scalar] = {
        "data_fingerprint": content_fingerprint(_seen(examples, plan)),
        "num_rows": examples.num_rows,
        "seed": options.seed,
    }
    if options.folder is None:
        raise ConfigError("folder=None: there is no run to open.")
    if not options.resume:
        return RunFolder.create(options.folder, settings=settings, plan=plan.plan, facts=facts)
    folder = RunFolder.open(options.folder)
    folder.check_same(settings=settings, plan=plan.plan, facts=facts)
    return folder


def _train(
    examples: ExampleSet, run: _Run, context: RunContext
) -> tuple[TrainedModel, PrivateSteps | None]:
    plan = run.plan
    if isinstance(plan.config, HybridConfig):
        return _train_on_cells(examples, run, context), None
    towers = plan.config
    model = towers.model.build(plan.shape.features, seed=towers.initial_seed, device=context.device)
    steps = None
    if plan.plain_phase is not None:
        task = PlainTask(
            name=PLAIN,
            phase=plan.plain_phase,
            loss=CrossEntropy(),
            order_seed=towers.initial_seed,
            epsilon=None,
        )
        rate = 0.5 if examples.labels is None else float(examples.labels.mean())
        model.output_bias.fill_(log_odds(rate))
        train_plain(model, examples, task, context)
    if plan.label_phase is not None:
        _train_on_labels(model, examples, run, context)
    if plan.private_phase is not None:
        chosen = run.rows.private_rows
        steps_examples = examples if chosen is None else examples.select(chosen)
        if context.processes is not None:
            Opening.of_run(plan, steps_examples, chosen, context).send(context.processes)
        steps = train_privately(model, steps_examples, plan, context)
    trained = TrainedModel(
        model=model,
        settings=towers.model,
        features=plan.shape.features,
        is_truncated=not plan.reads_sensitive,
        device=context.device,
        report_channel=_report_channel(plan, run.rows),
    )
    return trained, steps


def _train_on_cells(examples: ExampleSet, run: _Run, context: RunContext) -> TrainedModel:
    """Sums cells, or reads the model back that an earlier try of this run has kept."""
    plan, folder = run.plan, run.folder

    def train() -> CellModel:
        return train_on_cells(_seen(examples, plan), plan, context)

    model = train() if folder is None else keep_cells(plan, folder, train)
    return TrainedModel(
        model=model,
        settings=None,
        features=plan.shape.features,
        is_truncated=not model.reads_sensitive,
        device=context.device,
    )


def _noise_description(run: _Run, steps: PrivateSteps | None) -> str:
    if steps is not None:
        return steps.noise_description
    is_of_cells = isinstance(run.plan.config, HybridConfig)
    return expanded_description(run.rng) if is_of_cells else run.rng.description


def _train_on_labels(
    model: TowerModel, examples: ExampleSet, run: _Run, context: RunContext
) -> None:
    """Randomizes labels once, keeps them, and trains the truncated model on them."""
    plan = run.plan
    phase, epsilon = plan.label_phase, plan.label_epsilon
    if phase is None or epsilon is None or isinstance(plan.config, NonPrivateConfig):
        return
    chosen = run.rows.label_rows
    owned = examples if chosen is None else examples.select(chosen)
    drawn = LabelReports(epsilon=epsilon, num_sharing=run.rows.labels_sharing)
    noisy = context.journal.labels(lambda: drawn.draw(owned, rng=context.rng))
    if len(noisy) != owned.num_rows:
        raise DataError("the kept labels are of other rows; give the data of this run.")
    latest = context.journal.latest()
    if latest is not None and latest.phase == PRIVATE:
        return
    channel = drawn.channel()
    task = PlainTask(
        name=LABELS,
        phase=phase,
        loss=_label_loss(phase, epsilon)
        if drawn.num_sharing is None
        else label_loss(noisy, channel, phase),
        order_seed=plan.tower_config.initial_seed,
        epsilon=_labels_cost(plan, epsilon),
    )
    model.output_bias.fill_(first_log_odds(noisy, channel, phase))
    train_plain(model, with_reports(owned, noisy, channel), task, context)


def _report_channel(plan: TrainPlan, rows: TrainingRows) -> BinaryChannel | None:
    """What takes predictions from reports to labels, if the model saw reports as they were.

    Raises:
      ConfigError: Predictions cannot be taken back: the chances differ between rows.
    """
    phase, epsilon = plan.label_phase, plan.label_epsilon
    if phase is None or epsilon is None or phase.correction is not LabelCorrection.CALIBRATED:
        return None
    drawn = LabelReports(epsilon=epsilon, num_sharing=rows.labels_sharing)
    return calibrating_channel(drawn.channel(), phase)


def _label_loss(phase: LabelPhase, epsilon: float) -> Loss:
    """Where all labels have one epsilon: exact also where a chance is below all floats."""
    if phase.correction is LabelCorrection.DEBIASED:
        return DebiasedCrossEntropy(epsilon=epsilon, max_logit=phase.max_logit)
    if phase.correction is LabelCorrection.FORWARD:
        return ForwardCorrectedCrossEntropy(epsilon=epsilon)
    return CrossEntropy()


def _labels_cost(plan: TrainPlan, label_epsilon: float) -> float:
    unit = None if isinstance(plan.config, NonPrivateConfig) else plan.config.unit
    return label_epsilon * getattr(unit, "max_labels_per_user", 1)


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
    if plan.plan.is_private and examples.has_repeated_rows:
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
