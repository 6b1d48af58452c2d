"""What test rows must be like: of both classes, and none that training protects."""

import numpy as np

from tulle.errors import DataError
from tulle.train.examples import ExampleSet, IntArray
from tulle.train.train_plan import TrainPlan
from tulle.train.unit_level import UserLevel


def check_held_out(examples: ExampleSet, test: ExampleSet, plan: TrainPlan) -> None:
    """Refuses test rows whose figures would fail, or would tell about training rows.

    Rows of two different data sets are taken for different rows.

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
