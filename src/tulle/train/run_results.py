"""What a finished run leaves in its folder: the model, and the facts for its card."""

import shutil
from typing import TYPE_CHECKING, Any

from tulle.privacy.fields import null_if_infinite
from tulle.runs.folder import RunFolder
from tulle.train.configs import Accounting, DpSgdConfig, HybridConfig, method_name
from tulle.train.export import clear_cut_exports, export_model
from tulle.train.exported_model import REPORT_PROBS
from tulle.train.train_plan import TrainPlan
from tulle.train.trained_model import TrainedModel

if TYPE_CHECKING:
    from tulle.train.fitting import FitResult

RESULT_FILE = "result.json"
MODEL_FOLDER = "model"
_FORMAT = "tulle training result 1"
_PAPER_NOTE = (
    "noise was set by Renyi accounting under add-or-remove, as in the papers; it says nothing "
    "sound about replaced labels and columns"
)


def write_results(result: "FitResult", folder: RunFolder, *, test_name: str) -> None:
    """Exports the model and writes result.json, last and whole.

    Args:
      result: Of the run in this folder.
      folder: Where to.
      test_name: Which rows the metrics are of, in words for the card.
    """
    path = folder.path_of(MODEL_FOLDER)
    clear_cut_exports(path)
    if path.exists():
        # Of an earlier end of this run; it may be damaged, or older than these weights.
        shutil.rmtree(path)
    trained = result.model
    export_model(
        path,
        trained.model,
        trained.settings,
        trained.features,
        truncated=trained.is_truncated,
        facts={"plan_fingerprint": result.plan.plan.fingerprint()} | _report_facts(trained),
    )
    folder.write_json(RESULT_FILE, result_to_dict(result, test_name=test_name))


def result_to_dict(result: "FitResult", *, test_name: str) -> dict[str, Any]:
    """Plain data about a finished run; all of it may be shown beside its card."""
    plan = result.plan
    guarantee = plan.plan.guarantee
    is_paper = _is_paper(plan)
    return {
        "format": _FORMAT,
        "method": method_name(plan.config),
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


def _report_facts(trained: TrainedModel) -> dict[str, object]:
    """What the loader of an exported model needs if its weights predict reports."""
    channel = trained.report_channel
    if channel is None:
        return {}
    return {REPORT_PROBS: [float(channel.prob_if_negative), float(channel.prob_if_positive)]}


def _is_paper(plan: TrainPlan) -> bool:
    config = plan.config
    return (
        isinstance(config, HybridConfig | DpSgdConfig)
        and config.accounting is Accounting.PAPER_RDP
        and plan.sampler is not None
    )
