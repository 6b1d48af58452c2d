"""What a release says about itself, and the card that is made from it.

A record is public. It holds the plan that was carried out, where the noise came from, and what
its job adds: the hash of a released table, the numbers of a measurement, the quality of a model.
Every verb that releases gives back a `Result`: the record with its plan, its card and its tables.
The record of a training run is read from its folder (`TrainingRecord`).
"""

import dataclasses
import functools
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from tulle.errors import ConfigError, DataError, RunStateError
from tulle.privacy.fields import (
    check_count,
    check_fields,
    check_finite,
    check_format,
    check_list,
    check_text,
    parse_json,
)
from tulle.privacy.guarantee import Interval
from tulle.privacy.plan import Plan
from tulle.runs.folder import RunFolder

if TYPE_CHECKING:
    import polars as pl

    from tulle.runs.card import Card
    from tulle.runs.card_entries import UtilityFigure

_NOISE_KEYS = ("description", "is_secure")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """A release as it is described to others. Every field is public information.

    A job adds fields of its own. Their values are text, counts or mappings, unless the job writes
    and reads them itself.
    """

    what: ClassVar[str] = "release record"
    """The name of such a record in messages."""
    formats: ClassVar[tuple[str, ...]] = ()
    """Formats that are read; the last one is written."""
    keys: ClassVar[tuple[str, ...]] = ()
    """Keys of the file in the order in which they are written."""
    libraries: ClassVar[tuple[str, ...]] = ("polars",)
    """Packages that made the release, beyond those of the accounting; the card names versions."""

    plan: Plan
    randomness: str
    """The source of the noise in words. Never its state."""
    is_secure: bool
    """False if the noise can be repeated."""
    accounting_note: str = ""
    """Which other accountant the claims come from, if one was used."""
    reproduction_only: bool = False
    """True if that accountant is not sound for the stated adjacency."""

    @property
    def utility(self) -> "tuple[UtilityFigure, ...]":
        """Figures of quality for the card."""
        return ()

    def frame(self, path: Path | None, name: str | None = None) -> "pl.DataFrame":
        """The released table, if the release is one.

        Args:
          path: Where the release was written; None if it was not.
          name: Which table, where a release has several.

        Raises:
          ConfigError: There is no such table.
          DataError: The file of the table is gone or cannot be read.
        """
        raise ConfigError(f"a {self.what} at {path} has no table {name or ''}; use its model.")

    def to_json(self) -> str:
        """The record as readable JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Plain data under the keys of the format, in their order."""
        return {key: self._written(key) for key in self.keys}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote, now or in an earlier version.

        Raises:
          ConfigError: A key is unknown or missing, or a value is not of its type.
        """
        return cls(**cls.read_fields(parse_json(cls.what, text)))

    @classmethod
    def read_fields(cls, data: object) -> dict[str, Any]:
        """The values of the fields that a file gives, checked by their types.

        Raises:
          ConfigError: A key is unknown or missing, or a value is not of its type.
        """
        check_format(cls.what, data, *cls.formats)
        fields = dict(check_fields(cls.what, data, cls.keys))
        del fields["format"]
        if "is_secure" not in cls.keys:
            noise = check_fields("randomness", fields["randomness"], _NOISE_KEYS)
            fields |= {"randomness": noise["description"], "is_secure": noise["is_secure"]}
        if "plan" in fields:
            fields["plan"] = Plan.from_dict(fields["plan"])
        fields["is_secure"] = fields["is_secure"] is True
        kinds = typing.get_type_hints(cls)
        may_be_empty = {field.name for field in dataclasses.fields(cls) if field.default == ""}
        for name, value in fields.items():
            if kinds[name] is int:
                check_count(name, value, least=0)
            elif kinds[name] is str and not (name in may_be_empty and value == ""):
                check_text(name, value)
        return fields

    def _written(self, key: str) -> Any:
        if key == "format":
            return self.formats[-1]
        if key == "randomness" and "is_secure" not in self.keys:
            return {"description": self.randomness, "is_secure": self.is_secure}
        value = getattr(self, key)
        if isinstance(value, Plan):
            return value.to_dict()
        return dict(value) if isinstance(value, Mapping) else value


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRecord(Record):
    """The record that lies beside a released table."""

    columns: Mapping[str, str]
    """Meaning of each column that the release added."""
    table: str
    """Name of the table's file, without its folder."""
    table_sha256: str
    """Hash of the table, so that it is never taken for that of another release."""

    def frame(self, path: Path | None, name: str | None = None) -> "pl.DataFrame":
        """The released table, read from its file; its name may be left out."""
        from tulle.data.tables.memory import read_row_table

        if name not in (None, self.table):
            raise ConfigError(f"there is no table {name!r}; there is {self.table!r}.")
        if path is None:
            raise ConfigError("the table was not written to a file; release it with an output.")
        return read_row_table(path)


RecordType = TypeVar("RecordType", bound=Record)
PlanType = TypeVar("PlanType")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Result(Generic[RecordType, PlanType]):
    """One release, drawn now or found again. Everything in it was paid for and may be shown."""

    plan: PlanType
    """What was promised and carried out."""
    record: RecordType
    """What is public about the release: plan, source of the noise, and the facts of its job."""
    path: Path | None
    """Path of the released file; None if it was not written to one."""
    is_stored: bool = False
    """True if it was released before, so that nothing was spent or drawn."""

    @functools.cached_property
    def card(self) -> "Card":
        """The card of the release, with every epsilon computed again from the plan."""
        return card_of(self.record)

    def to_polars(self, name: str | None = None) -> "pl.DataFrame":
        """The released table as a polars frame.

        Args:
          name: Which table, where a release has several. May be left out if there is one.

        Raises:
          ConfigError: There is no such table, or several and no name.
          DataError: The file of the table is gone or cannot be read.
        """
        return self.record.frame(self.path, name)

    def to_pandas(self, name: str | None = None) -> Any:
        """The released table as a pandas frame; see `to_polars`."""
        import pandas as pd  # type: ignore[import-untyped]

        # By way of Arrow it would need pyarrow, which nothing else here does.
        frame = self.to_polars(name)
        return pd.DataFrame({column.name: column.to_list() for column in frame})

    def __repr__(self) -> str:
        guarantee = self.card.plan.guarantee
        where = "not written to a file" if self.path is None else str(self.path)
        stored = " (released before; nothing was spent)" if self.is_stored else ""
        return f"{self.card.verdict}\n  guarantee  {guarantee}\n  path       {where}{stored}"

    def _repr_html_(self) -> str:
        """The page of the release, for notebooks."""
        # A page is made of a finished release, a layer above; only a notebook asks for it.
        from tulle.report.verbs import notebook_html

        return notebook_html(self.record, self.card)


def card_of(record: Record) -> "Card":
    """The card of a release, whatever its job.

    Privacy:
      Epsilon is computed again from the plan. The record holds public information alone; its
      utility figures are not protected, and the card lists the rows behind them.

    Raises:
      ConfigError: The plan claims a smaller epsilon than its events give.
    """
    # The accountant is loaded for a card alone: training with a finished plan does without it.
    from tulle.runs.card import Randomness, build_card
    from tulle.runs.card_entries import collect_provenance

    return build_card(
        record.plan,
        randomness=Randomness(description=record.randomness, is_secure=record.is_secure),
        provenance=collect_provenance(more_libraries=record.libraries),
        utility=record.utility,
        accounting_note=record.accounting_note,
        reproduction_only=record.reproduction_only,
    )


RESULT_FILE = "result.json"
AUC, AUC_LOSS = "AUC", "AUC loss"

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
_FIGURES_OF_VALUES = (
    ("R2, share of the variance of clipped labels explained", "r_squared"),
    ("mean squared error", "mean_squared_error"),
    ("mean absolute error", "mean_absolute_error"),
    ("calibration, mean prediction over mean label", "calibration"),
    ("bidding utility, times that of bidding the mean label", "bidding_over_constant"),
)
"""Figures of models that predict values: name on the card, and key in the record."""
_FIGURES_OF_CLASSES = (
    ("accuracy, rows whose likeliest class is right", "accuracy"),
    ("accuracy of always predicting the most frequent class", "most_frequent"),
    ("log loss of the classes", "log_loss"),
    ("log loss over that of the frequencies of classes", "normalised_cross_entropy"),
    ("AUC of each class against all others, mean", "auc"),
    ("calibration error over the classes", "calibration_error"),
)
"""The same of models that predict classes."""


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
        if "auc_loss" not in metrics:
            figures = _FIGURES_OF_CLASSES if "accuracy" in metrics else _FIGURES_OF_VALUES
            return tuple(
                UtilityFigure(
                    name=name, value=check_finite(name, metrics[key]), measured_on=self.test
                )
                for name, key in figures
            )
        low, high = check_list("auc_loss_interval", metrics["auc_loss_interval"])
        auc, auc_loss = (
            UtilityFigure(name=name, value=value, measured_on=self.test, interval=interval)
            for name, value, interval in (
                (AUC, 1 - metrics["auc_loss"], _interval(1 - high, 1 - low)),
                (AUC_LOSS, metrics["auc_loss"], _interval(low, high)),
            )
        )
        others = (
            UtilityFigure(name=name, value=check_finite(name, metrics[key]), measured_on=self.test)
            for name, key in _MORE_FIGURES
            if key in metrics  # Results of earlier versions lack the last two.
        )
        return (auc, auc_loss, *others)


def _interval(low: float, high: float) -> Interval:
    return Interval(low=low, high=high, confidence=_CONFIDENCE)


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
    if "auc_loss" not in metrics:
        raise DataError(
            "this run predicts values or classes, which have no AUC loss to compare; leave the "
            "baseline out."
        )
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
