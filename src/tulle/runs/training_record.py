"""The record of a training run, from the folder that it left, and how it compares.

Utility figures are exact numbers about the rows that were tested on. A baseline is a model
of the raw training rows: how far a run is above it tells about them, so that figure is for
whoever runs both, and never on a card.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import check_count, check_finite, check_list
from tulle.privacy.release import Interval
from tulle.runs.folder import RunFolder
from tulle.runs.record import Record

if TYPE_CHECKING:
    from tulle.runs.card_entries import UtilityFigure

RESULT_FILE = "result.json"
AUC_LOSS = "AUC loss"

_BASELINE_METHOD = "nonprivate"
_CONFIDENCE = 0.95
"""Confidence of the intervals that a training run writes."""
_MORE_FIGURES = (
    ("log loss", "log_loss"),
    ("calibration, mean prediction over mean label", "calibration"),
    ("normalised cross-entropy", "normalised_cross_entropy"),
    ("log likelihood gained over the mean label", "relative_log_likelihood"),
    ("bidding utility, times that of bidding the mean label", "bidding_over_constant"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRecord(Record):
    """What a finished training run says about itself. Its plan is that of the run folder."""

    what: ClassVar[str] = RESULT_FILE
    formats: ClassVar[tuple[str, ...]] = ("tulle training result 1",)
    keys: ClassVar[tuple[str, ...]] = (
        *("format", "method", "epsilon", "delta", "label_epsilon", "noise_multiplier", "steps"),
        *("steps_lost", "seconds", "randomness", "accounting_note", "reproduction_only"),
        *("test", "metrics"),
    )
    libraries: ClassVar[tuple[str, ...]] = ("safetensors", "torch")

    method: str
    """The word of the training method."""
    epsilon: float | None
    """Epsilon of the headline guarantee; None if there is no guarantee."""
    delta: float
    label_epsilon: float | None
    """Epsilon of randomized labels; None if there were none."""
    noise_multiplier: float | None
    """Noise over clip norm of the private steps, or of cells; None if there were neither."""
    steps: int
    """Number of private steps that were planned."""
    steps_lost: int
    """Private steps that were charged and are not in the weights, after interruptions."""
    seconds: float
    test: str = ""
    """Which rows the metrics are of, in words."""
    metrics: Mapping[str, Any] | None
    """Figures of quality on the test rows; None if there were none."""

    @property
    def utility(self) -> "tuple[UtilityFigure, ...]":
        """Figures of quality for the card."""
        from tulle.runs.card_entries import UtilityFigure

        metrics = self.metrics
        if metrics is None:
            return ()
        low, high = check_list("auc_loss_interval", metrics["auc_loss_interval"])
        auc_loss = UtilityFigure(
            name=AUC_LOSS,
            value=metrics["auc_loss"],
            measured_on=self.test,
            interval=Interval(low=low, high=high, confidence=_CONFIDENCE),
        )
        others = (
            UtilityFigure(name=name, value=check_finite(name, metrics[key]), measured_on=self.test)
            for name, key in _MORE_FIGURES
            if key in metrics  # Results of earlier versions lack the last two.
        )
        return (auc_loss, *others)


def read_training(folder: RunFolder) -> TrainingRecord:
    """The record of a finished training run.

    Raises:
      RunStateError: There is none, or it is not one.
    """
    if not folder.path_of(RESULT_FILE).exists():
        raise RunStateError(
            f"{folder.path.name} is not finished; go on with it with `tulle train --resume`."
        )
    try:
        fields = TrainingRecord.read_fields(folder.read_json(RESULT_FILE))
        record = TrainingRecord(plan=folder.plan, **fields)
    except ConfigError as error:
        raise RunStateError(
            f"{folder.path.name}/{RESULT_FILE} is not that of a training run: {error}"
        ) from None
    # A seed was fixed when the folder was made, whatever the result says.
    is_secure = record.is_secure and folder.facts.get("seed") is None
    return dataclasses.replace(record, is_secure=is_secure)


def relative_auc_loss(folder: RunFolder, baseline: RunFolder) -> float:
    """Percent by which the AUC loss of a run is above that of a non-private one.

    Privacy:
      The baseline is raw, so this figure is not private. It is for those who may see the data.

    Raises:
      RunStateError: The run, or the baseline, is not finished.
      ConfigError: The baseline is not a non-private run.
      DataError: One of them was tested on other rows, or on none.
    """
    metrics = read_training(folder).metrics
    if metrics is None:
        raise DataError(f"run {folder.path.name} was tested on no rows; train it with test rows.")
    return relative_loss(metrics, baseline)


def relative_loss(metrics: Mapping[str, Any], baseline: RunFolder) -> float:
    """Percentage by which an AUC loss is above that of a non-private run.

    Args:
      metrics: Figures of quality, as a record has them.
      baseline: The folder of the non-private run.
    """
    check_baseline(
        baseline,
        num_rows=check_count("num_rows", metrics["num_rows"]),
        num_positives=check_count("num_positives", metrics["num_positives"]),
    )
    raw = check_finite("auc_loss of the baseline", _baseline_metrics(baseline)["auc_loss"])
    return 100 * (check_finite("auc_loss", metrics["auc_loss"]) - raw) / raw


def check_baseline(baseline: RunFolder, *, num_rows: int, num_positives: int) -> None:
    """Refuses a run that the AUC loss on such test rows cannot be compared with.

    Args:
      baseline: The folder of the non-private run.
      num_rows: Number of the test rows.
      num_positives: Number of those with label 1.

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


def _baseline_metrics(baseline: RunFolder) -> dict[str, Any]:
    record = read_training(baseline)
    if record.method != _BASELINE_METHOD:
        raise ConfigError(
            f"baseline {baseline.path.name} is a run of method {record.method}; "
            f"name one of method {_BASELINE_METHOD}."
        )
    metrics = record.metrics
    if metrics is None:
        raise DataError(
            f"baseline {baseline.path.name} was tested on no rows; train it with test rows."
        )
    return dict(metrics)
