"""What a finished run leaves in its folder: the model, and the facts for its card."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.errors import DataError, RunStateError
from tulle.privacy.fields import null_if_infinite
from tulle.runs.folder import RunFolder
from tulle.runs.whole_files import reporting_disk_errors
from tulle.train.export import export_model, load_model
from tulle.train.exported_model import REPORT_PROBS
from tulle.train.methods.mosaic.cell_export import export_cells
from tulle.train.methods.mosaic.cell_model import CellModel
from tulle.train.model_folder import clear_cut_exports, cut_exports, has_content, put_in_place
from tulle.train.train_plan import TrainPlan
from tulle.train.trained_model import TrainedModel

if TYPE_CHECKING:
    from tulle.train.fitting import FitResult

RESULT_FILE = "result.json"
MODEL_FOLDER = "model"
MODEL_KEPT = "model kept"
"""Kind of the record that a model of cells is in its folder."""
_FORMAT = "tulle training result 1"
_PAPER_NOTE = (
    "noise was set by Renyi accounting under add-or-remove, as in the papers; it says nothing "
    "sound about replaced labels and columns"
)


def write_results(result: "FitResult", folder: RunFolder, *, test_name: str) -> None:
    """Exports the model and writes result.json, last and whole.

    Args:
      result: Of the run in this folder. A model of cells is there already, see `keep_cells`.
      folder: Where to.
      test_name: Which rows the metrics are of, in words for the card.
    """
    _export_towers(result, folder)
    folder.write_json(RESULT_FILE, result_to_dict(result, test_name=test_name))


def keep_cells(plan: TrainPlan, folder: RunFolder, train: Callable[[], CellModel]) -> CellModel:
    """The model of a run on cells: that of an earlier try, or else a fresh one, kept first.

    Args:
      plan: Of the run.
      folder: Of the run, held by this process.
      train: Makes the model.

    Privacy:
      A second model would cost a second time. So none is made once a byte of the first was
      written, which may have been seen, whatever became of the run after that.

    Raises:
      RunStateError: A model was kept, and is missing or damaged now; or the process was killed
        while it wrote one.
    """
    path = folder.path_of(MODEL_FOLDER)
    was_kept = _has_record(folder, MODEL_KEPT)
    if not path.exists():
        _adopt_whole_export(plan, path)
    if not path.exists():
        if was_kept:
            raise _lost_model(folder, "is missing")
        if has_begun_model(folder):
            raise _lost_model(folder, "was cut off while it was written")
        facts = _plan_facts(plan)
        export_cells(path, train(), plan.shape.features, facts=facts, keep_cut=True)
    clear_cut_exports(path)
    if not was_kept:
        folder.records.append({"kind": MODEL_KEPT}, durable=True)
    try:
        model = load_model(path).model
    except DataError:
        raise _lost_model(folder, "is damaged") from None
    if not isinstance(model, CellModel):
        raise _lost_model(folder, "is of another method")
    return model


def has_begun_model(folder: RunFolder) -> bool:
    """Whether a model of cells is in the folder of a run, or at least a part of one."""
    path = folder.path_of(MODEL_FOLDER)
    is_on_disk = path.exists() or any(map(has_content, cut_exports(path)))
    return is_on_disk or _has_record(folder, MODEL_KEPT)


def _has_record(folder: RunFolder, kind: str) -> bool:
    return any(record.get("kind") == kind for record in folder.records.read())


def _adopt_whole_export(plan: TrainPlan, path: Path) -> None:
    """Puts a model in place that was whole when its process was killed."""
    for staged in cut_exports(path):
        try:
            is_whole = load_model(staged).facts == _plan_facts(plan)
        except DataError:
            continue
        if is_whole:
            with reporting_disk_errors(path):
                put_in_place(staged, path)
            return


def _export_towers(result: "FitResult", folder: RunFolder) -> None:
    trained = result.model
    if isinstance(trained.model, CellModel) or trained.settings is None:
        return
    path = folder.path_of(MODEL_FOLDER)
    clear_cut_exports(path)
    if path.exists():
        # Of an earlier end of this run; it may be damaged, or older than these weights.
        shutil.rmtree(path)
    export_model(
        path,
        trained.model,
        trained.settings,
        trained.features,
        truncated=trained.is_truncated,
        facts=_plan_facts(result.plan) | _report_facts(trained),
    )


def result_to_dict(result: "FitResult", *, test_name: str) -> dict[str, Any]:
    """Plain data about a finished run; all of it may be shown beside its card."""
    plan = result.plan
    guarantee = plan.privacy.guarantee
    is_paper = plan.is_paper
    return {
        "format": _FORMAT,
        "method": plan.method.kind,
        "epsilon": null_if_infinite(guarantee.epsilon),
        "delta": guarantee.delta,
        "label_epsilon": plan.label_epsilon,
        "noise_multiplier": plan.noise_multiplier,
        "steps": plan.num_private_steps,
        "steps_lost": result.num_steps_lost,
        "seconds": result.seconds,
        "randomness": {
            "description": result.noise_description,
            "is_secure": result.is_secure,
        },
        "accounting_note": _PAPER_NOTE if is_paper else "",
        "reproduction_only": is_paper,
        "test": test_name,
        "metrics": None if result.metrics is None else result.metrics.to_dict(),
    }


def _plan_facts(plan: TrainPlan) -> dict[str, object]:
    return {"plan_fingerprint": plan.privacy.fingerprint()}


def _lost_model(folder: RunFolder, what: str) -> RunStateError:
    return RunStateError(
        f"{folder.path.name}/{MODEL_FOLDER} {what}, and cells are never summed twice for one "
        "price; restore it from a copy of this run, or begin a run of another name."
    )


def _report_facts(trained: TrainedModel) -> dict[str, object]:
    """What the loader of an exported model needs if its weights predict reports."""
    channel = trained.report_channel
    if channel is None:
        return {}
    return {REPORT_PROBS: [float(channel.prob_if_negative), float(channel.prob_if_positive)]}
