import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from tulle.errors import ConfigError, DataError
from tulle.quality.metrics import (
    CompetingBids,
    ExponentialBids,
    QualityMetrics,
    UniformBids,
    bidding_utility,
    evaluate_predictions,
    relative_auc_loss,
)

LABELS = [0, 1, 0, 1, 1, 0]
PROBABILITIES = [0.1, 0.9, 0.4, 0.4, 0.7, 0.7]


def kernel(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """1, 1/2 or 0 for each pair: the positive one is above, equal or below."""
    above = positives[:, None] > negatives[None, :]
    equal = positives[:, None] == negatives[None, :]
    return above + equal / 2


def delong_by_pairs(labels: np.ndarray, probabilities: np.ndarray) -> tuple[float, float]:
    wins = kernel(probabilities[labels == 1], probabilities[labels == 0])
    m, n = wins.shape
    variance = wins.mean(axis=1).var(ddof=1) / m + wins.mean(axis=0).var(ddof=1) / n
    return 1 - wins.mean(), math.sqrt(variance)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 12)), min_size=4, max_size=60).filter(
        lambda rows: 2 <= sum(label for label, _ in rows) <= len(rows) - 2
    )
)
def test_auc_loss_and_its_error_are_those_of_all_pairs(rows: list[tuple[bool, int]]) -> None:
    labels = np.array([label for label, _ in rows], float)
    probabilities = np.array([tens for _, tens in rows]) / 12
    made = evaluate_predictions(labels, probabilities)
    auc_loss, standard_error = delong_by_pairs(labels, probabilities)
    assert made.auc_loss == pytest.approx(auc_loss, abs=1e-12)
    assert made.auc_loss_standard_error == pytest.approx(standard_error, abs=1e-9)


def test_ties_count_half() -> None:
    # Nine pairs: six right, two tied (0.4 with 0.4, 0.7 with 0.7), one wrong (0.4 below 0.7).
    made = evaluate_predictions(LABELS, PROBABILITIES)
    assert made.auc_loss == pytest.approx((1 + 2 / 2) / 9)
    assert made.auc == 1 - made.auc_loss
    assert evaluate_predictions(LABELS, [0.5] * 6).auc_loss == 0.5
    assert evaluate_predictions([0, 1], [0.2, 0.3]).auc_loss == 0
    assert evaluate_predictions([1, 0], [0.2, 0.3]).auc_loss == 1


def test_log_loss_and_normalised_cross_entropy_are_the_formulas() -> None:
    made = evaluate_predictions(LABELS, PROBABILITIES)
    terms = [
        -math.log(p if label else 1 - p) for label, p in zip(LABELS, PROBABILITIES, strict=True)
    ]
    mean = sum(terms) / 6
    variance = sum((term - mean) ** 2 for term in terms) / 5
    assert made.log_loss == pytest.approx(mean)
    assert made.log_loss_standard_error == pytest.approx(math.sqrt(variance / 6))
    assert made.normalised_cross_entropy == pytest.approx(mean / math.log(2))
    constant = evaluate_predictions([0, 0, 0, 1], [0.25] * 4)
    assert constant.normalised_cross_entropy == pytest.approx(1)


def test_certain_and_wrong_predictions_have_a_finite_loss() -> None:
    single = evaluate_predictions([0, 1], np.array([1, 0], np.float32))
    assert single.log_loss == pytest.approx(-math.log(np.finfo(np.float32).eps))
    assert evaluate_predictions([0, 1], [1.0, 0.0]).log_loss == pytest.approx(52 * math.log(2))
    assert evaluate_predictions([0, 1], [False, True]).log_loss == pytest.approx(0, abs=1e-12)


def test_calibration_is_mean_prediction_over_mean_label() -> None:
    assert evaluate_predictions(LABELS, PROBABILITIES).calibration == pytest.approx(3.2 / 3)
    assert evaluate_predictions([0, 0, 0, 1], [0.5] * 4).calibration == pytest.approx(2)


def test_deciles_have_equal_counts_in_the_order_of_predictions() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.random(1005)
    labels = rng.random(1005) < probabilities
    made = evaluate_predictions(labels, probabilities)
    order = np.argsort(probabilities)
    groups = np.array_split(order, 10)
    assert [group.num_rows for group in made.deciles] == [101] * 5 + [100] * 5
    for found, rows in zip(made.deciles, groups, strict=True):
        assert found.mean_prediction == pytest.approx(probabilities[rows].mean())
        assert found.mean_label == pytest.approx(labels[rows].mean())
    distances = [abs(probabilities[rows].mean() - labels[rows].mean()) for rows in groups]
    weights = [len(rows) / 1005 for rows in groups]
    assert made.calibration_error == pytest.approx(np.dot(distances, weights))


def test_calibration_does_not_depend_on_the_order_of_the_rows() -> None:
    # All predictions are equal and right on average; sorted by label, groups cut from the
    # rows in their order would be all 0 or all 1.
    made = evaluate_predictions([0] * 30 + [1] * 10, [0.25] * 40)
    assert made.calibration_error == pytest.approx(0)
    assert evaluate_predictions([1, 0, 0, 0] * 10, [0.25] * 40) == made


def test_fewer_than_ten_rows_make_fewer_groups() -> None:
    assert [group.num_rows for group in evaluate_predictions([0, 1, 1], [0.1] * 3).deciles] == [
        1,
        1,
        1,
    ]


def test_one_row_of_a_class_gives_no_standard_error() -> None:
    made = evaluate_predictions([0, 0, 1], [0.1, 0.5, 0.4])
    assert made.auc_loss == 0.5
    assert made.auc_loss_standard_error == math.inf
    assert made.auc_loss_interval == (0, 1)
    assert made.to_dict()["auc_loss_standard_error"] is None


def simulate(rng: np.random.Generator, num_runs: int) -> list[QualityMetrics]:
    """Scores of two normal laws one standard deviation apart: AUC = Phi(1 / sqrt(2))."""
    labels = np.repeat([0, 1], [300, 60])
    scores = rng.normal(size=(num_runs, 360)) + labels
    return [evaluate_predictions(labels, row) for row in 1 / (1 + np.exp(-scores))]


def test_the_interval_covers_the_true_auc_about_as_often_as_it_says() -> None:
    true_loss = math.erfc(1 / 2) / 2
    runs = simulate(np.random.default_rng(7), 4000)
    losses = np.array([run.auc_loss for run in runs])
    errors = np.array([run.auc_loss_standard_error for run in runs])
    lower, upper = np.array([run.auc_loss_interval for run in runs]).T
    covered = np.mean((lower <= true_loss) & (true_loss <= upper))
    # Six standard deviations (0.0034 each) and 0.01 for the normal law being a limit only.
    assert covered == pytest.approx(0.95, abs=0.031)
    too_short = np.mean(abs(losses - true_loss) <= 0.75 * (upper - lower) / 2)
    assert too_short != pytest.approx(0.95, abs=0.031)

    # The spread of 4000 normal draws is known to 1.12%: 6.2 of that. Coverage alone would
    # let intervals pass that are 25% too long.
    spread = losses.std(ddof=1)
    stated = np.sqrt(np.mean(errors**2))
    assert spread / stated == pytest.approx(1, abs=0.07)
    for wrong in (0.9, 1.1):
        assert spread / (wrong * stated) != pytest.approx(1, abs=0.07)


def test_large_inputs_keep_their_precision() -> None:
    rng = np.random.default_rng(1)
    labels = rng.random(200_000) < 0.1
    probabilities = rng.random(200_000).astype(np.float32)
    made = evaluate_predictions(labels, probabilities)
    positives = np.sort(probabilities[labels])
    negatives = probabilities[~labels]
    below = np.searchsorted(positives, negatives, "left").sum(dtype=np.int64)
    equal = np.searchsorted(positives, negatives, "right").sum(dtype=np.int64) - below
    exact = (int(below) + int(equal) / 2) / (len(positives) * len(negatives))
    assert made.auc_loss == pytest.approx(exact, rel=1e-12)
    assert made.num_positives == labels.sum()
    assert made.num_rows == 200_000


def test_relative_loss_is_in_percent_of_the_baseline() -> None:
    baseline = evaluate_predictions(LABELS, PROBABILITIES)
    worse = dataclasses.replace(baseline, auc_loss=baseline.auc_loss * 1.25)
    assert relative_auc_loss(worse, baseline) == pytest.approx(25)
    assert relative_auc_loss(baseline, worse) == pytest.approx(-20)
    with pytest.raises(DataError, match="auc_loss=0"):
        relative_auc_loss(worse, dataclasses.replace(baseline, auc_loss=0.0))
    with pytest.raises(DataError, match="different test rows"):
        relative_auc_loss(worse, dataclasses.replace(baseline, num_rows=7))


def test_plain_data_survives_json() -> None:
    made = evaluate_predictions(LABELS, PROBABILITIES)
    data = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert data["auc_loss"] == made.auc_loss
    assert data["auc_loss_interval"] == list(made.auc_loss_interval)
    assert data["deciles"][0] == {"mean_prediction": 0.1, "mean_label": 0.0, "num_rows": 1}
    assert set(data) == {field.name for field in dataclasses.fields(made)}


@pytest.mark.parametrize("label", [2, -1, 0.5, math.nan])
def test_a_label_that_is_neither_0_nor_1_is_refused(label: float) -> None:
    with pytest.raises(DataError, match="labels must be the numbers 0 and 1"):
        evaluate_predictions([0, 1, label], [0.1, 0.2, 0.3])


def test_labels_as_text_are_refused() -> None:
    with pytest.raises(DataError, match="labels must be the numbers 0 and 1"):
        evaluate_predictions(["0", "1"], [0.1, 0.2])


@pytest.mark.parametrize("probability", [-1e-9, 1.0000001, math.nan, math.inf])
def test_a_probability_outside_0_to_1_is_refused(probability: float) -> None:
    with pytest.raises(DataError, match=r"probabilities must lie in \[0, 1\]"):
        evaluate_predictions([0, 1], [0.5, probability])
    with pytest.raises(DataError, match="must be numbers"):
        evaluate_predictions([0, 1], ["0.5", "0.5"])


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_is_refused(label: int) -> None:
    with pytest.raises(DataError, match=f"all labels are {label}: .* the AUC is undefined"):
        evaluate_predictions([label] * 3, [0.1, 0.2, 0.3])


def test_wrong_shapes_are_refused() -> None:
    shapes = [(3,), (2,), (3, 1), (1, 3), (), (0,)]
    for first, second in itertools.product(shapes, shapes):
        if (first, second) not in {((3,), (3,)), ((2,), (2,))}:
            with pytest.raises(DataError, match="one number a row"):
                evaluate_predictions(np.zeros(first), np.full(second, 0.5))


DENSITIES = {
    "exponential": (ExponentialBids(mean=0.3), lambda c: math.exp(-c / 0.3) / 0.3),
    "uniform": (UniformBids(highest=0.8), lambda c: float(c < 0.8) / 0.8),
}


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("bid", [0.0, 1e-4, 0.2, 0.8, 3.0])
def test_chances_and_prices_are_the_integrals_of_the_density(name: str, bid: float) -> None:
    law, density = DENSITIES[name]
    jumps = [0.8] if bid > 0.8 else None
    won = quad(density, 0, bid, points=jumps)[0]
    paid = quad(lambda c: c * density(c), 0, bid, points=jumps)[0]
    assert law.win_prob(np.array([bid])) == pytest.approx([won], abs=1e-9)
    assert law.expected_price(np.array([bid])) == pytest.approx([paid], abs=1e-9)


def test_the_utility_is_the_mean_of_value_minus_price_where_the_bid_wins() -> None:
    labels, chances, values = np.array([1, 0, 1]), np.array([0.5, 0.2, 0.1]), np.array([2, 3, 1])
    made = bidding_utility(labels, chances, values, UniformBids(highest=2.0))
    competing = np.linspace(0, 2, 200_001)[:-1] + 5e-6
    earned = [
        np.where(competing < v * p, v * y - competing, 0).mean()
        for y, p, v in zip(labels, chances, values, strict=True)
    ]
    assert made.utility.value == pytest.approx(np.mean(earned), abs=1e-5)
    assert made.utility.standard_error == pytest.approx(np.std(earned, ddof=1) / 3**0.5, abs=1e-5)


@pytest.mark.parametrize("law", [None, ExponentialBids(mean=0.02), UniformBids(highest=0.5)])
def test_of_two_predictions_with_one_auc_the_miscalibrated_one_earns_less(
    law: CompetingBids | None,
) -> None:
    rng = np.random.default_rng(0)
    chances = rng.beta(1, 15, 100_000)
    labels = rng.random(100_000) < chances
    right = bidding_utility(labels, chances, competing=law)
    for wrong in (np.sqrt(chances), chances**2, np.minimum(1, 3 * chances)):
        found = bidding_utility(labels, wrong, competing=law)
        metrics = evaluate_predictions(labels, wrong)
        if wrong.max() < 1:
            assert metrics.auc_loss == evaluate_predictions(labels, chances).auc_loss
        gap = right.utility.value - found.utility.value
        assert gap > 0.02 * right.utility.value
        assert found.over_constant < right.over_constant


def test_the_true_chance_is_the_best_bid_of_a_row() -> None:
    labels = np.repeat([0, 1], [70, 30])
    earned = {
        p: bidding_utility(labels, np.full(100, p)).utility.value for p in np.linspace(0, 1, 101)
    }
    assert max(earned, key=lambda p: earned[p]) == pytest.approx(0.3)


def test_the_constant_earns_one_and_the_oracle_all() -> None:
    labels, base_rate = [0, 0, 0, 1], 0.25
    constant = bidding_utility(labels, [base_rate] * 4)
    assert constant.over_constant == pytest.approx(1)
    # With a mean competing bid of r, bidding r earns r / e.
    assert constant.utility.value == pytest.approx(base_rate / math.e)
    assert bidding_utility(labels, labels).share_of_oracle == pytest.approx(1)
    assert 0 < constant.share_of_oracle < 1
    metrics = evaluate_predictions(labels, [base_rate] * 4)
    assert metrics.bidding_over_constant == pytest.approx(1)
    assert metrics.bidding_share_of_oracle == pytest.approx(constant.share_of_oracle)


def test_uniform_competition_above_all_bids_is_the_squared_error() -> None:
    rng = np.random.default_rng(1)
    labels, chances = rng.random(500) < 0.3, rng.random(500)
    made = bidding_utility(labels, chances, competing=UniformBids(highest=1.0))
    squared = np.mean((labels - chances) ** 2)
    assert made.utility.value == pytest.approx((labels.mean() - squared) / 2)


@pytest.mark.parametrize("law", [ExponentialBids, UniformBids])
@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_a_competition_without_positive_bids_is_refused(law: type, number: float) -> None:
    name = "mean" if law is ExponentialBids else "highest"
    with pytest.raises(ConfigError, match=f"{name}="):
        law(**{name: number})


def test_values_that_are_no_amounts_are_refused() -> None:
    for values in ([1.0], ["1", "2"], [1.0, -1.0], [1.0, math.nan]):
        with pytest.raises(DataError, match="values"):
            bidding_utility([0, 1], [0.1, 0.2], values)
    with pytest.raises(DataError, match="have the value 0"):
        bidding_utility([0, 1], [0.1, 0.2], [1.0, 0.0])
