"""Which rows take part: all of them, or at most some of each user's; and which may be tested on."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from tulle.data.contribution import (
    draw_rows_with_replacement,
    keep_first_rows,
    keep_random_rows,
)
from tulle.errors import DataError
from tulle.train.examples import ExampleSet, IntArray, PlannedRows
from tulle.train.methods.method import Method
from tulle.train.methods.train_plan import TrainPlan
from tulle.train.settings.units import DataShape, RowChoice, UserLevel


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


def bound_rows(examples: ExampleSet, method: Method, key: bytes) -> TrainingRows:
    """Keeps what the method lets each unit contribute.

    Args:
      examples: All rows.
      method: Method whose unit says whom it protects.
      key: Secret bytes for random choices, at least 16.

    Privacy:
      Looks at unit ids alone, which are public under replace. No release.
    """
    unit = _user_level(method)
    if unit is None:
        return TrainingRows()
    units = _units(examples)
    label_rows = _choose(units, unit.label_cap, unit.choice, key + b" labels")
    is_shared = unit.max_sharing_labels_per_user is not None
    return TrainingRows(
        label_rows=label_rows,
        labels_sharing=_rows_of_same_unit(units[label_rows]) if is_shared else None,
        private_rows=_choose(units, unit.max_rows_per_user, unit.choice, key + b" steps"),
        num_users=int(np.unique(units).size),
    )


def planned_shape(examples: PlannedRows, method: Method) -> DataShape:
    """What `shape_of` would say of the bounded rows, without choosing any.

    How many rows of each unit are kept does not depend on which.

    Privacy:
      As for `bound_rows`.
    """
    shape = shape_of(examples, TrainingRows())
    unit = _user_level(method)
    if unit is None:
        return shape
    _, counts = np.unique(_units(examples), return_counts=True)
    return dataclasses.replace(
        shape,
        num_label_rows=_num_chosen(counts, unit.label_cap, unit.choice),
        num_private_rows=_num_chosen(counts, unit.max_rows_per_user, unit.choice),
        num_users=counts.size,
    )


def shape_of(examples: "ExampleSet | PlannedRows", rows: TrainingRows) -> DataShape:
    """What a plan may know of these examples."""
    return DataShape(
        features=examples.features,
        columns=examples.columns,
        num_label_rows=_count(rows.label_rows, examples),
        num_private_rows=_count(rows.private_rows, examples),
        num_users=rows.num_users,
        vocabulary_event=examples.vocabulary_event,
    )


def _user_level(method: Method) -> UserLevel | None:
    return method.unit if isinstance(method.unit, UserLevel) else None


def _units(examples: "ExampleSet | PlannedRows") -> NDArray[np.int64]:
    if examples.units is None:
        raise DataError(
            "unit='user' needs data with a unit column that says whose each row is; "
            "name it in the schema, or protect each example."
        )
    return examples.units


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


def _rows_of_same_unit(units: NDArray[np.int64]) -> IntArray:
    _, group, counts = np.unique(units, return_inverse=True, return_counts=True)
    return counts[group].astype(np.int64)


def _count(rows: IntArray | None, examples: "ExampleSet | PlannedRows") -> int:
    return examples.num_rows if rows is None else len(rows)


def check_held_out(examples: ExampleSet, test: ExampleSet, plan: TrainPlan) -> None:
    """Refuses test rows whose figures would fail, or would tell about training rows.

    Rows of two different data sets are taken for different rows.

    Args:
      examples: Training rows.
      test: Test rows.
      plan: Plan of the run, which says who is protected.

    Raises:
      DataError: Other features, one class alone, or rows that are trained on; if users are
        protected, also other rows of the same users.
    """
    if test.features != examples.features:
        raise DataError(
            "the test rows have other features than the training rows; prepare them alike "
            "(tulle data prepare --like)."
        )
    if test.labels is not None and np.all(test.labels == test.labels[0]):
        raise DataError(
            "all test labels are the same, so the AUC is undefined; test on rows of both classes, "
            "or on none."
        )
    method = plan.method
    if not method.is_private or not _are_of_one_dataset(examples, test):
        return
    if _shares_rows(examples, test):
        raise DataError(
            "rows that are trained on are among the test rows, and figures of test rows are exact; "
            "test on other rows, or on none."
        )
    if isinstance(method.unit, UserLevel) and _shares_users(examples, test):
        raise DataError(
            "users that are trained on have rows among the test rows, and figures of test rows "
            "are exact; split by user (tulle.data.splits.split_by_unit), or test on none."
        )


def _are_of_one_dataset(examples: ExampleSet, test: ExampleSet) -> bool:
    if examples.fingerprint and test.fingerprint:
        return examples.fingerprint == test.fingerprint
    return test.public_features is examples.public_features


def _shares_rows(examples: ExampleSet, test: ExampleSet) -> bool:
    is_trained_on = np.zeros(len(examples.public_features), np.bool_)
    is_trained_on[_places(examples)] = True
    return bool(is_trained_on[_places(test)].any())


def _shares_users(examples: ExampleSet, test: ExampleSet) -> bool:
    if examples.units is None or test.units is None:
        return False
    return bool(np.isin(np.unique(test.units), examples.units).any())


def _places(examples: ExampleSet) -> IntArray | slice:
    return slice(None) if examples.rows is None else examples.rows
