"""Log loss against a constant predictor: its value, its error, and what it can tell."""

import math

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.quality.metrics import evaluate_predictions, relative_log_likelihood

LABELS = [0, 1, 0, 1, 1, 0]
PROBABILITIES = [0.1, 0.9, 0.4, 0.4, 0.7, 0.7]


def test_it_is_one_minus_log_loss_over_that_of_the_mean_label() -> None:
    terms = [
        -math.log(p if label else 1 - p) for label, p in zip(LABELS, PROBABILITIES, strict=True)
    ]
    found = relative_log_likelihood(LABELS, PROBABILITIES)
    assert found.value == pytest.approx(1 - sum(terms) / 6 / math.log(2))
    metrics = evaluate_predictions(LABELS, PROBABILITIES)
    assert metrics.relative_log_likelihood == found.value
    assert metrics.relative_log_likelihood_standard_error == found.standard_error
    assert metrics.normalised_cross_entropy == pytest.approx(1 - found.value)


def test_the_mean_label_has_none_and_a_prophet_has_all() -> None:
    assert relative_log_likelihood([0, 0, 0, 1], [0.25] * 4).value == pytest.approx(0)
    assert relative_log_likelihood([0, 0, 0, 1], [0, 0, 0, 1]).value == pytest.approx(1)
    assert relative_log_likelihood([0, 0, 0, 1], [0.9] * 4).value < 0


def test_it_sees_wrong_chances_that_the_auc_does_not() -> None:
    rng = np.random.default_rng(3)
    chances = rng.beta(1, 9, 20_000)
    labels = rng.random(20_000) < chances
    right, high = (evaluate_predictions(labels, p) for p in (chances, chances**0.3))
    assert right.auc_loss == high.auc_loss
    assert right.relative_log_likelihood > 0.05
    assert high.relative_log_likelihood < 0


def test_the_standard_error_is_the_spread_over_samples() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(3000):
        chances = rng.beta(1, 4, 800)
        found.append(relative_log_likelihood(rng.random(800) < chances, chances))
    spread = np.std([estimate.value for estimate in found], ddof=1)
    stated = math.sqrt(np.mean([estimate.standard_error**2 for estimate in found]))
    # 3000 draws know a spread to 1.3%: 6.2 of that.
    assert spread / stated == pytest.approx(1, abs=0.08)
    for wrong in (0.9, 1.1):
        assert spread / (wrong * stated) != pytest.approx(1, abs=0.08)


def test_one_class_alone_is_refused() -> None:
    with pytest.raises(DataError, match="all labels are 0"):
        relative_log_likelihood([0, 0], [0.1, 0.2])
