"""Figures of predicted values: right where they can be computed by hand."""

import json

import numpy as np
import pytest

from tulle.errors import DataError
from tulle.quality.metrics import UniformBids
from tulle.quality.value_metrics import earnings, evaluate_values


def values(num_rows: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Amounts that are 0 for most rows, and their true expected values."""
    rng = np.random.default_rng(seed)
    means = rng.gamma(2.0, 5.0, num_rows)
    sold = rng.random(num_rows) < 0.1
    return sold * rng.exponential(1.0, num_rows) * means / 0.1, means


def test_errors_are_those_of_small_tables() -> None:
    found = evaluate_values([0.0, 2.0, 4.0], [1.0, 2.0, 6.0])
    assert found.mean_squared_error == pytest.approx(5 / 3)
    assert found.mean_absolute_error == pytest.approx(1.0)
    assert found.r_squared == pytest.approx(1 - 5 / 8)
    assert found.calibration == pytest.approx(1.5)
    assert found.num_rows == 3


def test_the_expected_value_is_the_best_prediction() -> None:
    labels, means = values()
    best = evaluate_values(labels, means)
    for other in (0.5 * means, 2 * means, np.full_like(means, labels.mean())):
        worse = evaluate_values(labels, other)
        assert worse.mean_squared_error > best.mean_squared_error
        assert worse.bidding_utility < best.bidding_utility
        assert worse.r_squared < best.r_squared
    assert best.calibration == pytest.approx(1.0, abs=0.1)
    assert best.bidding_over_constant > 1


def test_a_constant_explains_nothing_and_earns_what_a_constant_earns() -> None:
    labels, _ = values()
    found = evaluate_values(labels, np.full_like(labels, labels.mean()))
    assert found.r_squared == pytest.approx(0, abs=1e-12)
    assert found.bidding_over_constant == pytest.approx(1)
    assert found.calibration == pytest.approx(1)


def test_earnings_are_those_of_a_simulated_auction() -> None:
    labels, means = values(200_000)
    rng = np.random.default_rng(1)
    for law, bids in (
        (None, rng.exponential(labels.mean(), len(labels))),
        (UniformBids(highest=30.0), rng.uniform(0, 30, len(labels))),
    ):
        simulated = np.where(means > bids, labels - bids, 0.0)
        error = 5 * simulated.std() / np.sqrt(len(labels))
        assert earnings(labels, means, law).value == pytest.approx(simulated.mean(), abs=error)


def test_standard_errors_cover_what_other_rows_would_give() -> None:
    found = [evaluate_values(*values(4_000, seed)) for seed in range(60)]
    for name in ("mean_squared_error", "r_squared"):
        spread = np.std([getattr(one, name) for one in found])
        stated = np.mean([getattr(one, f"{name}_standard_error") for one in found])
        assert stated == pytest.approx(spread, rel=0.4)


def test_the_figures_are_plain_data() -> None:
    found = evaluate_values(*values(100))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["num_rows"] == 100
    assert len(data["deciles"]) == 10


@pytest.mark.parametrize(
    ("labels", "predictions", "reason"),
    [
        ([1.0, 2.0], [1.0], "shape"),
        ([], [], "at least one"),
        ([1.0, -2.0], [1.0, 1.0], "labels must be finite"),
        ([1.0, 2.0], [1.0, float("nan")], "predictions must be finite"),
        ([1.0, 1.0], [1.0, 2.0], "all labels are the same"),
        (["a", "b"], [1.0, 2.0], "must be numbers"),
    ],
)
def test_what_cannot_be_judged_is_refused(labels: list, predictions: list, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        evaluate_values(labels, predictions)
