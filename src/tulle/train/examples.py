"""The rows that training and evaluation look at, in memory or mapped from disk.

Public and sensitive ids are separate arrays, so code that must not see a sensitive
column is handed a set that has none.
"""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.format import PreparedFeature
from tulle.errors import DataError
from tulle.mechanisms.binary_channel import BinaryChannel
from tulle.privacy.columns import ColumnRoles
from tulle.privacy.events import Event

IntArray = NDArray[np.int64]

_ROWS_CHECKED_AT_ONCE = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExampleBatch:
    """Some rows as tensors. Sensitive: never log or save it."""

    public_ids: Tensor
    sensitive_ids: Tensor | None
    labels: Tensor | None
    report_probs: Tensor | None = None
    """[rows, 2]: see `ExampleSet.report_probs`."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExampleSet:
    """Rows with their features and labels. The content is raw data."""

    features: tuple[PreparedFeature, ...]
    columns: ColumnRoles
    public_features: NDArray[np.int32]
    sensitive_features: NDArray[np.int32] | None
    """None if the sensitive columns cannot be reached from here."""
    labels: NDArray[np.float32] | None
    """One for each of `rows`."""
    units: NDArray[np.int64] | None = None
    """One for each of `rows`."""
    report_probs: NDArray[np.float64] | None = None
    """[rows, 2], one pair for each of `rows`: the labels are reports, and these are the chances
    of a report of 1 for a true label of 0 and of 1. None: the same for all, or no reports."""
    rows: IntArray | None = None
    """Which rows of the features these are, in order and perhaps repeatedly; None for all."""
    vocabulary_event: Event | None = None
    fingerprint: str = ""
    """Of the data they are from; empty for data in memory."""

    @classmethod
    def of(cls, dataset: PreparedDataset, rows: IntArray | None = None) -> "ExampleSet":
        """The rows of a prepared dataset, or some of them.

        Raises:
          DataError: Labels are not 0 and 1, or an id is beyond its feature.
        """
        if dataset.num_classes != 2:
            raise DataError(
                f"labels have {dataset.num_classes} classes; training is for labels 0 and 1. "
                "Prepare the data with two classes."
            )
        examples = cls(
            features=dataset.features,
            columns=dataset.schema.roles,
            public_features=dataset.public_features,
            sensitive_features=dataset.sensitive_features,
            labels=dataset.labels,
            units=dataset.units,
            vocabulary_event=dataset.vocabulary_event,
            fingerprint=dataset.fingerprint,
        )
        examples.check()
        return examples if rows is None else examples.select(rows)

    @property
    def num_rows(self) -> int:
        """Rows, repeated ones counted each time."""
        return len(self.public_features) if self.rows is None else len(self.rows)

    @property
    def has_repeated_rows(self) -> bool:
        """True if a row is there more than once."""
        if self.rows is None or bool((np.diff(self.rows) > 0).all()):
            return False
        return len(np.unique(self.rows)) < len(self.rows)

    def select(self, rows: IntArray) -> "ExampleSet":
        """Some of these rows, by their place among them."""
        return dataclasses.replace(
            self,
            rows=rows if self.rows is None else self.rows[rows],
            labels=None if self.labels is None else self.labels[rows],
            units=None if self.units is None else self.units[rows],
            report_probs=None if self.report_probs is None else self.report_probs[rows],
        )

    def without_sensitive(self, labels: NDArray[np.float32] | None = None) -> "ExampleSet":
        """The same rows without their sensitive columns, and with other labels or none.

        What is returned holds no reference to the sensitive columns or the true labels.
        """
        return dataclasses.replace(
            self,
            features=tuple(feature for feature in self.features if feature.role == "public"),
            sensitive_features=None,
            labels=labels,
            # The chances belong to the labels that they came with.
            report_probs=self.report_probs if labels is self.labels else None,
        )

    def batch(self, indices: IntArray, device: torch.device) -> ExampleBatch:
        """Rows by their place among these, as tensors."""
        rows = indices if self.rows is None else self.rows[indices]
        sensitive, labels, probs = self.sensitive_features, self.labels, self.report_probs
        return ExampleBatch(
            public_ids=_ids(self.public_features, rows, device),
            sensitive_ids=None if sensitive is None else _ids(sensitive, rows, device),
            labels=None if labels is None else torch.from_numpy(labels[indices]).to(device),
            report_probs=None if probs is None else torch.from_numpy(probs[indices]).to(device),
        )

    def check(self) -> None:
        """Looks at every label and id once.

        Raises:
          DataError: A label is not 0 or 1, an id is not one of its feature, or a column is
            missing or has another length.
        """
        for name, values in (("labels", self.labels), ("units", self.units)):
            if values is not None and len(values) != self.num_rows:
                raise DataError(f"{name} must have one entry for each row; prepare the data again.")
        self.check_labels()
        if self.report_probs is not None:
            _check_report_probs(self.report_probs, self.num_rows)
        groups = (("public", self.public_features), ("sensitive", self.sensitive_features))
        for role, ids in groups:
            named = [feature for feature in self.features if feature.role == role]
            if ids is None and named:
                raise DataError(
                    f"feature {named[0].name!r} is named and its ids are missing; give them, or "
                    "leave it out."
                )
            if ids is not None:
                if len(ids) != len(self.public_features):
                    raise DataError(f"{role} ids are of another number of rows than public ids.")
                _check_ids(named, ids)

    def check_labels(self) -> None:
        """Looks at every label once.

        Raises:
          DataError: A label is not 0 or 1.
        """
        if self.labels is not None and not np.isin(self.labels, (0, 1)).all():
            raise DataError(
                "a label is not 0 or 1; mend the label column, or prepare the data again."
            )


def _check_report_probs(probs: NDArray[np.float64], num_rows: int) -> None:
    if probs.shape != (num_rows, 2):
        raise DataError(
            f"report_probs have the shape {probs.shape}; give two chances for each of the "
            f"{num_rows} rows."
        )
    BinaryChannel(prob_if_negative=probs[:, 0], prob_if_positive=probs[:, 1])


def _check_ids(features: list[PreparedFeature], ids: NDArray[np.int32]) -> None:
    if ids.shape[1] != len(features):
        raise DataError(
            f"there are ids of {ids.shape[1]} features where {len(features)} are named; "
            "prepare the data again."
        )
    limits = np.array([feature.num_ids for feature in features])
    for start in range(0, len(ids), _ROWS_CHECKED_AT_ONCE):
        part = ids[start : start + _ROWS_CHECKED_AT_ONCE]
        if part.size == 0:
            continue
        is_wrong = (part.min(axis=0) < 0) | (part.max(axis=0) >= limits)
        if is_wrong.any():
            name = features[int(np.flatnonzero(is_wrong)[0])].name
            raise DataError(
                f"feature {name!r} has an id outside its range; prepare the data again, "
                "with the encoder of the training data if this is a test set."
            )


def _ids(ids: NDArray[np.int32], rows: IntArray, device: torch.device) -> Tensor:
    return torch.from_numpy(ids[rows]).to(device, torch.int64)
