"""The rows that training and evaluation look at, in memory or mapped from disk.

Public and sensitive ids are separate arrays, so code that must not see a sensitive column is handed
a set that has none. Where users are protected, at most some rows of each take part.
"""

import dataclasses
import hashlib
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tulle.data.contribution import (
    draw_rows_with_replacement,
    keep_first_rows,
    keep_random_rows,
    windows_of,
)
from tulle.data.prepared.dataset import PreparedDataset
from tulle.data.prepared.feature import PreparedFeature
from tulle.errors import DataError
from tulle.mechanisms.noisy_reports import BinaryChannel
from tulle.privacy.events import Event
from tulle.privacy.plan import ColumnRoles
from tulle.train.settings.units import DataShape, RowChoice, UnitLevel, UserLevel, chosen_level

if TYPE_CHECKING:
    from tulle.data.table_arrays import TableArrays
    from tulle.train.methods.method import Method

IntArray = NDArray[np.int64]

# Ids may be a mapped file: a block stays in memory between its least and its largest id.
_ROWS_CHECKED_AT_ONCE = 1 << 20
# Times are Unix seconds, in which every day has the same length.
_SECONDS_PER_DAY = 86_400


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExampleSet:
    """Rows with their features and labels. The content is raw data."""

    features: tuple[PreparedFeature, ...]
    columns: ColumnRoles
    public_features: NDArray[np.int32]
    sensitive_features: NDArray[np.int32] | None
    """Ids of sensitive columns; None if these columns cannot be reached from here."""
    labels: NDArray[np.float32] | None
    """Labels, one for each of `rows`; None if there are none."""
    num_classes: int | None = 2
    """Labels are whole numbers from 0 to num_classes - 1; None: any values from 0 on."""
    units: NDArray[np.int64] | None = None
    """Ids of the units, one for each of `rows`; None if the data have no unit column."""
    report_probs: NDArray[np.float64] | None = None
    """[rows, 2], one pair for each of `rows`: the labels are reports, and these are the
    probabilities of a report of 1 for a true label of 0 and of 1. None: the same for all, or no
    reports."""
    rows: IntArray | None = None
    """Which rows of the features these are, in order and perhaps repeatedly; None for all."""
    vocabulary_event: Event | None = None
    fingerprint: str = ""
    """Fingerprint of the dataset that the rows are from; empty for data in memory."""
    times: NDArray[np.int64] | None = None
    """Seconds since 1970 of all rows of the features; None if they are not known."""
    days: NDArray[np.int32] | None = None
    """Days since 1970 of all rows of the features; None if they are not known."""
    weights: NDArray[np.float32] | None = None
    """How much each of `rows` counts against the heaviest, from 0 to 1, which is public; None if
    all count alike."""

    @classmethod
    def of(
        cls,
        dataset: PreparedDataset,
        rows: IntArray | None = None,
        *,
        num_classes: int | None = 2,
    ) -> "ExampleSet":
        """The rows of a prepared dataset, or some of them.

        Args:
          dataset: The dataset.
          rows: Places of the rows to take; None: all.
          num_classes: Number of classes that the labels must have; None: they are taken for
            values, whatever they were prepared as.

        Raises:
          DataError: Labels are others, or an id is beyond its feature.
        """
        if num_classes is not None and dataset.num_classes != num_classes:
            raise _other_labels(dataset.num_classes, num_classes)
        examples = cls(
            num_classes=num_classes,
            features=dataset.features,
            columns=dataset.schema.roles,
            public_features=dataset.public_features,
            sensitive_features=dataset.sensitive_features,
            labels=dataset.labels,
            units=dataset.units,
            vocabulary_event=dataset.vocabulary_event,
            fingerprint=dataset.fingerprint,
            times=dataset.times,
            days=dataset.days,
            weights=relative_weights(dataset.weights),
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

    @property
    def seconds(self) -> NDArray[np.int64] | None:
        """Seconds since 1970 of each of these rows; None if they are not known."""
        found = seconds_of_rows(self.times, self.days)
        return found if found is None or self.rows is None else found[self.rows]

    def time_span(self) -> tuple[int, int] | None:
        """First and last second of all rows of the data; None if they have no time.

        Rows that are not among these count too: a span that is too long charges too much.
        """
        if self.times is not None:
            return int(self.times.min()), int(self.times.max())
        if self.days is not None:
            first, last = int(self.days.min()), int(self.days.max())
            # A day lasts until its last second.
            return first * _SECONDS_PER_DAY, (last + 1) * _SECONDS_PER_DAY - 1
        return None

    def select(self, rows: IntArray) -> "ExampleSet":
        """Some of these rows, by their place among them."""
        return dataclasses.replace(
            self,
            rows=rows if self.rows is None else self.rows[rows],
            labels=None if self.labels is None else self.labels[rows],
            units=None if self.units is None else self.units[rows],
            report_probs=None if self.report_probs is None else self.report_probs[rows],
            weights=None if self.weights is None else self.weights[rows],
        )

    def with_classes(self, num_classes: int | None) -> "ExampleSet":
        """The same rows, with labels that must be such classes; None: values."""
        return dataclasses.replace(self, num_classes=num_classes)

    def without_sensitive(self, labels: NDArray[np.float32] | None = None) -> "ExampleSet":
        """The same rows without their sensitive columns, and with other labels or none.

        What is returned holds no reference to the sensitive columns or the true labels.
        """
        return dataclasses.replace(
            self,
            features=tuple(feature for feature in self.features if feature.role == "public"),
            sensitive_features=None,
            labels=labels,
            # The probabilities belong to the labels that they came with.
            report_probs=self.report_probs if labels is self.labels else None,
        )

    def check(self) -> None:
        """Looks at every label and id once.

        Raises:
          DataError: A label is not 0 or 1, an id is not one of its feature, or a column is
            missing or has another length.
        """
        columns = (("labels", self.labels), ("units", self.units), ("weights", self.weights))
        for name, values in columns:
            if values is not None and len(values) != self.num_rows:
                raise DataError(f"{name} must have one entry for each row; prepare the data again.")
        if self.weights is not None and not ((self.weights >= 0) & (self.weights <= 1)).all():
            raise DataError(
                "a weight is not from 0 to 1; divide all weights by the largest of them."
            )
        self.check_labels()
        if self.report_probs is not None:
            _check_report_probs(self.report_probs, self.num_rows)
        self._check_features()

    def _check_features(self) -> None:
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
          DataError: A label is not 0 or 1, or not what else `num_classes` says.
        """
        labels = self.labels
        if labels is None:
            return
        if self.num_classes is None:
            if not (np.isfinite(labels).all() and (labels >= 0).all()):
                raise DataError(
                    "a label is missing, infinite or below 0, and values are clipped to [0, clip]. "
                    "Mend or drop such rows; to learn values below 0, add a constant to all labels."
                )
        elif not np.isin(labels, range(self.num_classes)).all():
            most = self.num_classes - 1
            raise DataError(
                f"a label is not {'0 or 1' if most == 1 else f'a whole number from 0 to {most}'}; "
                "mend the label column, or prepare the data again."
            )


def _other_labels(found: int | None, wanted: int) -> DataError:
    """What is said of a dataset whose labels are not what a method learns."""
    if found is None:
        return DataError(
            "the labels are values; learn them by method mosaic with a clip (--clip 400), or "
            f"prepare the data with {wanted} classes."
        )
    if wanted == 2:
        return DataError(
            f"labels have {found} classes; training is for labels 0 and 1. Name the classes in the "
            "order of their numbers to learn them by method mosaic, classes=['none', 'sale'], or "
            "prepare the data with two classes."
        )
    return DataError(
        f"labels have {found} classes, and {wanted} are named; name all of them, or prepare the "
        f"data with {wanted} classes."
    )


def _check_report_probs(probs: NDArray[np.float64], num_rows: int) -> None:
    if probs.shape != (num_rows, 2):
        raise DataError(
            f"report_probs have the shape {probs.shape}; give two probabilities for each of the "
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


def content_fingerprint(examples: ExampleSet) -> str:
    """Ties a run to its rows: their data set and which of it they are."""
    digest = hashlib.sha256(examples.fingerprint.encode())
    if not examples.fingerprint:
        content = (examples.public_features, examples.sensitive_features, examples.labels)
        for part in (*content, examples.units, examples.weights):
            if part is not None:
                digest.update(np.ascontiguousarray(part).tobytes())
    if examples.rows is not None:
        digest.update(examples.rows.tobytes())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlannedRows:
    """What a plan may know of rows: their number, and whose each is. Sensitive: unit ids."""

    features: tuple[PreparedFeature, ...]
    columns: ColumnRoles
    num_rows: int
    units: NDArray[np.int64] | None
    vocabulary_event: Event | None = None
    seconds: NDArray[np.int64] | None = None
    """Seconds since 1970 of each row; None if they are not known."""

    def select(self, rows: IntArray) -> "PlannedRows":
        """Some of these rows, by their place among them."""
        units = None if self.units is None else self.units[rows]
        seconds = None if self.seconds is None else self.seconds[rows]
        return dataclasses.replace(self, num_rows=len(rows), units=units, seconds=seconds)


def seconds_of_rows(
    times: NDArray[np.int64] | None, days: NDArray[np.int32] | None
) -> NDArray[np.int64] | None:
    """Seconds since 1970 of rows of which the second or the day is known; None without either."""
    if times is not None:
        return times
    return None if days is None else days.astype(np.int64) * _SECONDS_PER_DAY


def examples_of(arrays: "TableArrays") -> ExampleSet:
    """The rows of a table as a set of examples."""
    return ExampleSet(
        features=arrays.features,
        columns=arrays.schema.roles,
        public_features=arrays.public_features,
        sensitive_features=arrays.sensitive_features,
        labels=arrays.labels,
        units=arrays.units,
        times=arrays.times,
        days=arrays.days,
        weights=relative_weights(arrays.weights),
    )


def relative_weights(raw_weights: NDArray[np.float32] | None) -> NDArray[np.float32] | None:
    """Weights against the largest of them, from 0 to 1; None if there are none.

    Privacy:
      The weights of all rows are public, so their largest is, too.

    Raises:
      DataError: All weights are 0.
    """
    if raw_weights is None or not len(raw_weights):
        return raw_weights
    largest = raw_weights.max()
    if not largest > 0:
        raise DataError(
            "the weights of all rows are zero, so that no row counts; give some row one above 0."
        )
    relative: NDArray[np.float32] = raw_weights / largest
    return relative


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingRows:
    """The rows of each phase, by their place among the examples; None for all."""

    label_rows: IntArray | None = None
    """Rows whose labels are randomized."""
    private_rows: IntArray | None = None
    """Rows that private steps sample from."""
    labels_sharing: IntArray | None = None
    """Number of labels of the user that share an epsilon, one for each of `label_rows`; None if
    each label has an epsilon of its own."""
    num_users: int | None = None
    """Number of users; None if single rows are protected."""


def bound_rows(examples: ExampleSet, method: "Method", key: bytes) -> TrainingRows:
    """Keeps what the method lets each unit contribute.

    Args:
      examples: All rows.
      method: "Method" whose unit says whom it protects.
      key: Secret bytes for random choices, at least 16.

    Privacy:
      Looks at unit ids alone, which are public under replace. No release.
    """
    unit = _user_level(method, examples)
    if unit is None:
        return TrainingRows()
    units = _units(examples, unit)
    if not method.chooses_rows:
        return TrainingRows(num_users=int(np.unique(units).size))
    label_rows = _choose(units, unit.label_cap, unit.choice, key + b" labels")
    is_shared = unit.max_sharing_labels_per_user is not None
    return TrainingRows(
        label_rows=label_rows,
        labels_sharing=_num_of_same_unit(units[label_rows]) if is_shared else None,
        private_rows=_choose(units, unit.max_rows_per_user, unit.choice, key + b" steps"),
        num_users=int(np.unique(units).size),
    )


def planned_shape(examples: PlannedRows, method: "Method") -> DataShape:
    """What `shape_of` would say of the bounded rows, without choosing any.

    How many rows of each unit are kept does not depend on which.

    Privacy:
      As for `bound_rows`.
    """
    shape = shape_of(examples, TrainingRows())
    unit = _user_level(method, examples)
    if unit is None:
        return shape
    _, counts = np.unique(_units(examples, unit), return_counts=True)
    if not method.chooses_rows:
        return dataclasses.replace(shape, num_users=counts.size)
    return dataclasses.replace(
        shape,
        num_label_rows=_num_chosen(counts, unit.label_cap, unit.choice),
        num_private_rows=_num_chosen(counts, unit.max_rows_per_user, unit.choice),
        num_users=counts.size,
    )


def shape_of(examples: ExampleSet | PlannedRows, rows: TrainingRows) -> DataShape:
    """What a plan may know of these examples."""
    labels, steps = rows.label_rows, rows.private_rows
    return DataShape(
        features=examples.features,
        columns=examples.columns,
        num_label_rows=examples.num_rows if labels is None else len(labels),
        num_private_rows=examples.num_rows if steps is None else len(steps),
        num_users=rows.num_users,
        vocabulary_event=examples.vocabulary_event,
    )


def _user_level(method: "Method", examples: ExampleSet | PlannedRows) -> UserLevel | None:
    """The users that a method protects, which may be left to the data; None for single rows."""
    if not method.is_private:
        return None
    level = chosen_level(method.unit, examples.columns.unit)
    return level if isinstance(level, UserLevel) else None


def unit_ids(examples: ExampleSet | PlannedRows, level: UnitLevel | None) -> IntArray | None:
    """Number of the unit that each row belongs to; None if each row is a unit of its own.

    Args:
      examples: Rows with the ids of their owners and, for a unit with a window, their times.
      level: What is protected together.

    Raises:
      DataError: The data do not say whose each row is, or when it was.
    """
    return _units(examples, level) if isinstance(level, UserLevel) else None


def _units(examples: ExampleSet | PlannedRows, level: UserLevel) -> IntArray:
    if examples.units is None:
        raise DataError(
            "unit='user' needs data with a unit column that says whose each row is; "
            "name it in the schema, or protect each example."
        )
    if level.windows is None:
        return examples.units
    if (seconds := examples.seconds) is None:
        raise DataError(
            f"unit='{level.unit}' has a window of time, and the data have no time; name the time "
            "column in the schema, or protect all rows of a user with unit='user'."
        )
    if isinstance(examples, ExampleSet) and examples.times is None:
        level.windows.check_days("the time column of the training rows")
    windows = windows_of(seconds, level.windows)
    windows -= windows.min(initial=0)
    _, owners = np.unique(examples.units, return_inverse=True)
    numbers: IntArray = owners * (int(windows.max(initial=0)) + 1) + windows
    return numbers


def _num_chosen(counts: NDArray[np.int64], max_rows: int, choice: RowChoice) -> int:
    if choice is RowChoice.WITH_REPLACEMENT:
        return counts.size * max_rows
    return int(np.minimum(counts, max_rows).sum())


def _choose(units: NDArray[np.int64], max_rows: int, choice: RowChoice, key: bytes) -> IntArray:
    if choice is RowChoice.FIRST:
        return keep_first_rows(units, max_rows_per_unit=max_rows).rows
    if choice is RowChoice.RANDOM:
        return keep_random_rows(units, max_rows_per_unit=max_rows, key=key).rows
    return draw_rows_with_replacement(units, max_rows_per_unit=max_rows, key=key).rows


def _num_of_same_unit(units: NDArray[np.int64]) -> IntArray:
    _, group, counts = np.unique(units, return_inverse=True, return_counts=True)
    return counts[group].astype(np.int64)
