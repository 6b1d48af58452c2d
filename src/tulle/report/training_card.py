"""The card of a training run, from the folder that it left.

Utility figures are exact numbers about the rows that were tested on. A baseline is a model
of the raw training rows: how far a run is above it tells about them, so that figure is for
whoever runs both, and never on a card.
"""

from typing import Any

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import (
    check_count,
    check_fields,
    check_finite,
    check_format,
    check_list,
    check_text,
)
from tulle.privacy.release import Interval
from tulle.report.card import Card, Randomness, build_card
from tulle.report.evidence import UtilityFigure
from tulle.report.provenance import collect_provenance
from tulle.runs.folder import RunFolder

RESULT_FILE = "result.json"
AUC_LOSS = "AUC loss"

_FORMAT = "tulle training result 1"
_KEYS = (
    *("format", "method", "epsilon", "delta", "label_epsilon", "noise_multiplier", "steps"),
    *("steps_lost", "seconds", "randomness", "accounting_note", "reproduction_only"),
    *("test", "metrics"),
)
_LIBRARIES = ("safetensors", "torch")
_BASELINE_METHOD = "nonprivate"
_CONFIDENCE = 0.95


def training_card(folder: RunFolder) -> Card:
    """The card of a finished run.

    Privacy:
      Epsilon is computed again from the plan. Utility figures are not protected: the card
      lists the rows behind them.

    Raises:
      RunStateError: The run is not finished.
    """
    result = read_result(folder)
    note, is_reproduction = result["accounting_note"], result["reproduction_only"]
    return build_card(
        folder.plan,
        randomness=_randomness(folder, result),
        provenance=collect_provenance(more_libraries=_LIBRARIES),
        utility=_utility(result),
        accounting_note=note,
        reproduction_only=is_reproduction,
    )


def relative_auc_loss(folder: RunFolder, baseline: RunFolder) -> float:
    """By how many percent the AUC loss of a run is above that of a non-private one.

    Privacy:
      The baseline is raw, so this figure is not private. It is for those who may see the data.

    Raises:
      RunStateError: The run, or the baseline, is not finished.
      ConfigError: The baseline is not a non-private run.
      DataError: One of them was tested on other rows, or on none.
    """
    metrics = read_result(folder)["metrics"]
    if metrics is None:
        raise DataError(f"run {folder.path.name} was tested on no rows; train it with test rows.")
    check_baseline(
        baseline,
        num_rows=check_count("num_rows", metrics["num_rows"]),
        num_positives=check_count("num_positives", metrics["num_positives"]),
    )
    raw = check_finite("auc_loss of the baseline", _baseline_metrics(baseline)["auc_loss"])
    return 100 * (check_finite("auc_loss", metrics["auc_loss"]) - raw) / raw


def check_baseline(baseline: RunFolder, *, num_rows: int, num_positives: int) -> None:
    """Refuses a run that the AUC loss on such test rows cannot be compared with.

    Raises:
      RunStateError: It is not finished.
      ConfigError: It is not a non-private run.
      DataError: It was tested on other rows, or on none, or ranks all of them right.
    """
    metrics = _baseline_metrics(baseline)
    if (metrics["num_rows"], metrics["num_positives"]) != (num_rows, num_positives):
        raise DataError(
            f"baseline {baseline.path.name} was tested on other rows; train it on the same data "
            "with the same test rows."
        )
    if metrics["auc_loss"] == 0:
        raise DataError(
            f"baseline {baseline.path.name} has auc_loss=0 and nothing is relative to it; leave "
            "it out and compare auc_loss itself."
        )


def read_result(folder: RunFolder) -> dict[str, Any]:
    """What result.json of a finished training run says.

    Raises:
      RunStateError: There is none, or it is not one.
    """
    if not folder.path_of(RESULT_FILE).exists():
        raise RunStateError(
            f"{folder.path.name} is not finished; go on with it with `tulle train --resume`."
        )
    try:
        data = folder.read_json(RESULT_FILE)
        check_format(RESULT_FILE, data, _FORMAT)
        result = check_fields(RESULT_FILE, data, _KEYS)
        check_text("method", result["method"])
    except ConfigError as error:
        raise RunStateError(
            f"{folder.path.name}/{RESULT_FILE} is not that of a training run: {error}"
        ) from None
    return result


def _randomness(folder: RunFolder, result: dict[str, Any]) -> Randomness:
    data = check_fields("randomness", result["randomness"], ("description", "is_secure"))
    # A seed was fixed when the folder was made, whatever the result says.
    is_secure = data["is_secure"] and folder.facts.get("seed") is None
    return Randomness(description=data["description"], is_secure=is_secure)


def _utility(result: dict[str, Any]) -> tuple[UtilityFigure, ...]:
    metrics, test = result["metrics"], result["test"]
    if metrics is None:
        return ()
    others = tuple(
        UtilityFigure(name=name, value=check_finite(name, metrics[key]), measured_on=test)
        for name, key in (
            ("log loss", "log_loss"),
            ("calibration, mean prediction over mean label", "calibration"),
            ("normalised cross-entropy", "normalised_cross_entropy"),
            ("log likelihood gained over the mean label", "relative_log_likelihood"),
            ("bidding utility, times that of bidding the mean label", "bidding_over_constant"),
        )
        if key in metrics  # Results of earlier versions lack the last two.
    )
    return (_auc_loss(metrics, test), *others)


def _auc_loss(metrics: dict[str, Any], test: str) -> UtilityFigure:
    low, high = check_list("auc_loss_interval", metrics["auc_loss_interval"])
    return UtilityFigure(
        name=AUC_LOSS,
        value=metrics["auc_loss"],
        measured_on=test,
        interval=Interval(low=low, high=high, confidence=_CONFIDENCE),
    )


def _baseline_metrics(baseline: RunFolder) -> dict[str, Any]:
    result = read_result(baseline)
    if result["method"] != _BASELINE_METHOD:
        raise ConfigError(
            f"baseline {baseline.path.name} is a run of method {result['method']}; "
            f"name one of method {_BASELINE_METHOD}."
        )
    metrics = result["metrics"]
    if metrics is None:
        raise DataError(
            f"baseline {baseline.path.name} was tested on no rows; train it with test rows."
        )
    return dict(metrics)
