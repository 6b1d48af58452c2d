"""Figures of predicted classes, against scikit-learn and against what they must be."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from tulle.errors import DataError
from tulle.quality import evaluate_classes


def predictions(num_rows: int = 2_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    odds = rng.gamma([4.0, 1.0, 0.5], size=(num_rows, 3))
    chances = odds / odds.sum(axis=1, keepdims=True)
    return (rng.random((num_rows, 1)) > chances.cumsum(axis=1)).sum(axis=1), chances


def test_figures_agree_with_scikit_learn() -> None:
    labels, chances = predictions()
    found = evaluate_classes(labels, chances, classes=["none", "cart", "sale"])
    assert found.log_loss == pytest.approx(log_loss(labels, chances))
    assert found.accuracy == accuracy_score(labels, chances.argmax(axis=1))
    assert found.auc == pytest.approx(roc_auc_score(labels, chances, multi_class="ovr"))
    assert found.most_frequent == np.bincount(labels).max() / len(labels)
    assert json.loads(json.dumps(found.to_dict()))["classes"][1]["name"] == "cart"


def test_predicting_frequencies_is_what_others_are_compared_with() -> None:
    labels, _ = predictions()
    rates = np.bincount(labels) / len(labels)
    found = evaluate_classes(labels, np.tile(rates, (len(labels), 1)))
    assert found.normalised_cross_entropy == pytest.approx(1)
    assert found.accuracy == found.most_frequent
    assert found.auc == 0.5
    assert found.calibration_error == pytest.approx(0, abs=1e-12)


def test_calibration_of_a_class_is_mean_prediction_over_rate() -> None:
    labels, chances = predictions()
    tilted = chances * [1.0, 2.0, 1.0]
    tilted /= tilted.sum(axis=1, keepdims=True)
    none, cart, _ = evaluate_classes(labels, tilted).classes
    assert cart.calibration == pytest.approx(tilted[:, 1].mean() / (labels == 1).mean())
    assert cart.calibration > 1.3
    assert none.calibration is not None
    assert none.calibration < 1
    assert [one.name for one in evaluate_classes(labels, tilted).classes] == ["0", "1", "2"]


def test_a_class_that_does_not_occur_has_no_ranking() -> None:
    found = evaluate_classes([0, 1, 1, 0], np.full((4, 3), 1 / 3))
    assert found.classes[2].auc is found.classes[2].calibration is None
    assert found.auc == 0.5


@pytest.mark.parametrize(
    ("labels", "chances", "problem"),
    [
        ([0, 1], [[0.5, 0.5]], "shape"),
        ([0, 1], [0.5, 0.5], "shape"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "no number of a class"),
        ([0, 1], [[0.5, 0.6], [0.5, 0.5]], "add up to 1"),
        ([0, 1], [[1.5, -0.5], [0.5, 0.5]], "add up to 1"),
        ([0, 1], [[np.nan, 0.5], [0.5, 0.5]], "add up to 1"),
        ([1, 1], [[0.5, 0.5], [0.5, 0.5]], "one class"),
        ([], np.empty((0, 2)), "no rows"),
        ([0, 1], [[1, 0], [0, 1]], "floats"),
    ],
)
def test_what_cannot_be_compared_is_refused(labels: object, chances: object, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        evaluate_classes(np.asarray(labels), np.asarray(chances))


def test_names_must_be_as_many_as_columns() -> None:
    with pytest.raises(DataError, match="one name for each"):
        evaluate_classes([0, 1], np.full((2, 2), 0.5), classes=["a", "b", "c"])
