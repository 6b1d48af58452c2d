"""A training run on its way: what its method is handed, what it has paid, and what it keeps.

A run that is kept is known by the random id of its folder, and whatever it writes may be seen. So
its payment is marked released at once: it counts from then on, whatever becomes of the run, and a
run that goes on finds it.
"""

import dataclasses
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tulle.atomic_files import reporting_disk_errors
from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import check_list
from tulle.privacy.units import Adjacency
from tulle.runs.folder import RunFolder
from tulle.train.examples import ExampleSet, TrainingRows
from tulle.train.methods.method import Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.run_context import RunContext, RunOptions
from tulle.train.trained_model import (
    ENCODER_FILES,
    TrainedModel,
    clear_cut_exports,
    cut_exports,
    has_content,
    put_in_place,
    read_model_folder,
)

if TYPE_CHECKING:
    import torch

    from tulle.accounting.ledger import Ledger
    from tulle.accounting.spans import Moment
    from tulle.runs.charging import ReleaseCharge, ReleasePayments
    from tulle.train.steps.step_context import StepContext

MODEL_FOLDER = "model"
PLAN_FINGERPRINT = "plan_fingerprint"
"""Fact of a model of a run: the plan that it was trained by, which its card has too."""
MODEL_KEPT = "model kept"
"""Kind of the record that a model which is never made twice is in its folder."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRun:
    """A run that has been planned, checked and paid, as its method is handed it. Sensitive."""

    plan: TrainPlan
    examples: ExampleSet = dataclasses.field(repr=False)
    """All training rows."""
    rows: TrainingRows = dataclasses.field(repr=False)
    """Rows that take part in each phase."""
    context: RunContext = dataclasses.field(repr=False)
    options: RunOptions = dataclasses.field(repr=False)
    folder: RunFolder | None = dataclasses.field(repr=False)

    @property
    def seen(self) -> ExampleSet:
        """The part of the data that the plan may look at."""
        return seen_part(self.examples, self.plan)

    @functools.cached_property
    def step_context(self) -> "StepContext":
        """The surroundings of a method with steps: device, journal, processes."""
        from tulle.train.steps.step_context import (
            FolderJournal,
            MemoryJournal,
            StepContext,
            find_device,
        )

        options = self.options
        return StepContext(
            rng=self.context.rng,
            stop=self.context.stop,
            watch=self.context.watch,
            device=find_device(options.device),
            journal=MemoryJournal() if self.folder is None else FolderJournal(self.folder),
            checkpoint_every=options.checkpoint_every,
            noise_placement=options.noise_placement,
            products=options.products,
            noise_memory=options.noise_memory,
            processes=options.shared_processes,
        )

    def keep_model(self, train: Callable[[], TrainedModel]) -> TrainedModel:
        """Returns the model of an earlier try of this run, or else a fresh one, kept first.

        For methods that release their model in one piece. Those with steps keep checkpoints, and
        write the model at the end.

        Args:
          train: Makes the model.

        Privacy:
          A second model would cost a second time. So none is made once a byte of the first was
          written, which may have been seen, whatever became of the run after that.

        Raises:
          RunStateError: A model was kept, and is missing or damaged now; or the process was
            killed while it wrote one.
        """
        if self.folder is None:
            return train()
        path = self.folder.path_of(MODEL_FOLDER)
        was_kept = _has_record(self.folder, MODEL_KEPT)
        if not path.exists():
            self._adopt_whole_export(path)
        if not path.exists():
            if was_kept:
                raise _lost_model(self.folder, "is missing")
            if has_begun_model(self.folder):
                raise _lost_model(self.folder, "was cut off while it was written")
            model = train().with_encoder(self.options.encoder)
            model.write(path, self._plan_facts(), keep_cut=True)
        clear_cut_exports(path)
        if not was_kept:
            self.folder.records.append({"kind": MODEL_KEPT}, durable=True)
        try:
            kept = load_model(path)
        except DataError:
            raise _lost_model(self.folder, "is damaged") from None
        if kept.facts != self._plan_facts():
            raise _lost_model(self.folder, "is of another run")
        return kept

    def write_model(self, model: TrainedModel) -> None:
        """Writes the model of a run with steps, over that of an earlier end of the same run."""
        if self.folder is None or _has_record(self.folder, MODEL_KEPT):
            return
        path = self.folder.path_of(MODEL_FOLDER)
        clear_cut_exports(path)
        if path.exists():
            # Of an earlier end of this run; it may be damaged, or older than these weights.
            shutil.rmtree(path)
        model.with_encoder(self.options.encoder).write(path, self._plan_facts())

    def _plan_facts(self) -> dict[str, object]:
        return {PLAN_FINGERPRINT: self.plan.privacy.fingerprint()}

    def _adopt_whole_export(self, path: Path) -> None:
        """Puts a model in place that was whole when its process was killed."""
        for staged in cut_exports(path):
            try:
                is_whole = load_model(staged).facts == self._plan_facts()
            except DataError:
                continue
            if is_whole:
                with reporting_disk_errors(path):
                    put_in_place(staged, path)
                return


def has_begun_model(folder: RunFolder) -> bool:
    """True if a model is in the folder of a run, or at least a part of one."""
    path = folder.path_of(MODEL_FOLDER)
    is_on_disk = path.exists() or any(map(has_content, cut_exports(path)))
    return is_on_disk or _has_record(folder, MODEL_KEPT)


def seen_part(examples: ExampleSet, plan: TrainPlan) -> ExampleSet:
    """The part of the data that a plan may look at."""
    return examples if plan.reads_sensitive else examples.without_sensitive(examples.labels)


def training_charge(
    method: Method,
    ledger: "Ledger | os.PathLike[str] | str | None",
    *,
    purpose: str | None = None,
    at: "Moment | None" = None,
    until: "Moment | None" = None,
) -> "ReleaseCharge | None":
    """The charge for a run of a method, or None where no ledger pays.

    Args:
      method: What is run.
      ledger: A ledger or its path.
      purpose: What the ledger calls the run; None: "training".
      at: When the data are from, where a budget renews.
      until: Last day or time of the data.

    Raises:
      ConfigError: The method has no privacy that could be charged.
    """
    if ledger is purpose is at is until is None:
        return None
    # The ledger loads the accountant, which training with a finished plan does without.
    from tulle.runs.charging import charge_to

    if ledger is not None and not method.is_private:
        raise _uncharged()
    return charge_to(ledger, job="training", purpose=purpose, at=at, until=until)


def charge_run(
    plan: TrainPlan,
    charge: "ReleaseCharge | None",
    examples: ExampleSet,
    *,
    folder: RunFolder | None,
) -> None:
    """Charges a run once, before anything is drawn; a run that goes on has paid already.

    Vocabularies were charged when they were made and are not charged again.

    Args:
      plan: What the run promises.
      charge: Which ledger pays; None: none does.
      examples: The training rows, whose times are held against the time that is charged.
      folder: Folder that the run is kept in, held by this process; None if it is not kept.

    Raises:
      SpendRefusedError: A budget does not cover it. Nothing was spent.
      ConfigError: It is a baseline, which no budget can cover, or data of another time.
    """
    if charge is None:
        return
    books = _books(plan, charge)
    run_id = "" if folder is None else folder.run_id
    paid = books.paid(run_id) if run_id else None
    if paid is not None and paid.is_out:
        return
    _check_times(charge, examples)
    if paid is None:
        spend = books.pay(plan.privacy, run_id, event=plan.charged_event)
    else:
        spend = books.take_up(paid)
    with spend:
        pass


def check_charge(
    plan: TrainPlan, charge: "ReleaseCharge | None", examples: ExampleSet | None = None
) -> None:
    """Refuses what the ledger would refuse, before anything is written.

    Args:
      plan: What the run promises.
      charge: Which ledger pays; None: none does.
      examples: The training rows, if they are there already.

    Raises:
      SpendRefusedError: A budget does not cover it.
      ConfigError: It is a baseline, which no budget can cover, or data of another time.
    """
    if charge is None:
        return
    books = _books(plan, charge)
    if examples is not None:
        _check_times(charge, examples)
    books.check(plan.privacy, event=plan.charged_event)


def _check_times(charge: "ReleaseCharge", examples: ExampleSet) -> None:
    """Refuses to charge another time than the training rows are from."""
    if charge.at is None:
        return
    span = examples.time_span()
    if span is None:
        raise ConfigError(
            "at (--at) charges budgets that renew, and the training rows have no time to hold it "
            "against; name the time column in the schema, or use a budget that does not renew."
        )
    charge.check_span(*span, of="the time column of the training rows")


def _books(plan: TrainPlan, charge: "ReleaseCharge") -> "ReleasePayments":
    from tulle.runs.charging import ReleaseKind, ReleasePayments

    if not plan.method.is_private:
        raise _uncharged()
    # Public columns and numbers of rows are used as they are: only replace speaks of that.
    kind = ReleaseKind(name="training run", adjacency=Adjacency.REPLACE)
    return ReleasePayments(charge, kind)


def _uncharged() -> ConfigError:
    return ConfigError("a run without privacy cannot be charged; leave out the ledger (--ledger).")


def _has_record(folder: RunFolder, kind: str) -> bool:
    return any(record.get("kind") == kind for record in folder.records.read())


def _lost_model(folder: RunFolder, what: str) -> RunStateError:
    return RunStateError(
        f"{folder.path.name}/{MODEL_FOLDER} {what}, and it is never made twice for one price; "
        "restore it from a copy of this run, or begin a run of another name."
    )


_CELLS = "cells"


def load_model(folder: Path, *, device: "torch.device | str" = "cpu") -> TrainedModel:
    """Reads an exported model back, with every byte of its parameters checked.

    Args:
      folder: The folder of the model.
      device: Device that towers are put on; a model of cells stays in the memory of the host.

    Raises:
      DataError: The folder holds no exported model, or a file was cut or changed.
    """
    try:
        files = read_model_folder(folder)
        stored = check_list("features", files.description["features"])
        features = tuple(map(PreparedFeature.from_dict, stored))
        settings = files.description["settings"]
        kind = settings.get("kind") if isinstance(settings, dict) else None
        model: TrainedModel
        if kind == _CELLS:
            from tulle.train.methods.mosaic.trained_cells import cells_of

            model = cells_of(files, features)
        else:
            from tulle.train.models.trained_towers import towers_of

            model = towers_of(files, features, device)
    except (ConfigError, DataError) as error:
        # The readers of a folder that stands alone name the way out, too.
        reason = str(error).removesuffix(".").removesuffix("; copy the folder again")
        raise DataError(
            f"{folder.name} cannot be used: {reason}; copy the whole folder again from where the "
            "model was saved."
        ) from None
    has_encoder = all((folder / name).exists() for name in ENCODER_FILES)
    return model.with_encoder(folder) if has_encoder else model
