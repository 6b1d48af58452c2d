import numpy as np
import pytest
from scipy import optimize

from tulle.errors import ConfigError
from tulle.lab.linear_labels.feature_rows import BoundedFeatures
from tulle.lab.linear_labels.logistic_fit import LogisticProblem, fit_weights, sigmoid
from unit.lab.linear_labels.click_table import click_table

TABLE = click_table(400)
NUM_COLUMNS = TABLE.rows.fields.num_columns


def problem(ridge: float = 0.5, **changes: object) -> LogisticProblem:
    settings = {
        "rows": TABLE.rows,
        "sums": TABLE.exact_sums().noisy_sums,
        "ridges": np.full(NUM_COLUMNS, ridge),
        "centre": np.zeros(NUM_COLUMNS),
    }
    return LogisticProblem(**(settings | changes))


def loss_on_labels(weights: np.ndarray, ridge: float) -> float:
    """The textbook loss, row by row from labels."""
    signs = 2 * TABLE.labels - 1
    margins = signs * (TABLE.dense @ weights)
    return float(np.sum(np.logaddexp(0, -margins)) + 0.5 * ridge * weights @ weights)


def gradient_on_labels(weights: np.ndarray, ridge: float) -> np.ndarray:
    chances = 1 / (1 + np.exp(-TABLE.dense @ weights))
    return TABLE.dense.T @ (chances - TABLE.labels) + ridge * weights


@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient_from_sums_are_those_from_labels(seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=NUM_COLUMNS)
    assert problem().value(weights) == pytest.approx(loss_on_labels(weights, 0.5), rel=1e-13)
    np.testing.assert_allclose(
        problem().gradient(weights), gradient_on_labels(weights, 0.5), rtol=1e-12, atol=1e-11
    )


def test_the_gradient_is_the_slope_of_the_value() -> None:
    weights = np.random.default_rng(4).normal(size=NUM_COLUMNS)
    slopes = optimize.approx_fprime(weights, problem().value, 1e-6)
    np.testing.assert_allclose(problem().gradient(weights), slopes, atol=2e-3)


def test_without_noise_and_ridge_the_fit_is_that_of_an_independent_solver() -> None:
    found = fit_weights(problem(ridge=1e-7))
    peer = optimize.minimize(
        loss_on_labels,
        np.zeros(NUM_COLUMNS),
        args=(0.0,),
        jac=gradient_on_labels,
        method="BFGS",
        options={"gtol": 1e-6},
    )
    # Fields and the constant overlap, so weights are not unique; chances are.
    np.testing.assert_allclose(
        sigmoid(TABLE.dense @ found), sigmoid(TABLE.dense @ peer.x), atol=1e-6
    )


@pytest.mark.parametrize("ridge", [0.01, 1.0, 300.0])
def test_with_a_ridge_the_weights_are_those_of_an_independent_solver(ridge: float) -> None:
    found = fit_weights(problem(ridge=ridge))
    peer = optimize.minimize(
        loss_on_labels,
        np.zeros(NUM_COLUMNS),
        args=(ridge,),
        jac=gradient_on_labels,
        method="BFGS",
        options={"gtol": 1e-8},
    )
    np.testing.assert_allclose(found, peer.x, atol=1e-6)
    assert np.abs(problem(ridge=ridge).gradient(found)).max() < 1e-6


def test_real_features_are_fitted_alike() -> None:
    rng = np.random.default_rng(2)
    dense = np.concatenate([np.ones((300, 1)), rng.normal(size=(300, 2))], axis=1)
    dense /= 1.01 * np.linalg.norm(dense, axis=1).max()
    labels = (rng.random(300) < 0.3).astype(float)
    rows = BoundedFeatures(num_columns=3, max_norm=1.0).rows(dense)
    found = fit_weights(
        LogisticProblem(
            rows=rows, sums=rows.sums(labels), ridges=np.full(3, 0.1), centre=np.zeros(3)
        )
    )
    chances = sigmoid(dense @ found)
    np.testing.assert_allclose(dense.T @ (chances - labels) + 0.1 * found, 0, atol=1e-4)


def test_equal_rows_put_together_give_the_same_weights() -> None:
    found = fit_weights(problem())
    merged = fit_weights(problem(rows=TABLE.rows.distinct()))
    np.testing.assert_allclose(found, merged, atol=1e-9)


def test_the_fit_is_deterministic() -> None:
    np.testing.assert_array_equal(fit_weights(problem()), fit_weights(problem()))


def test_the_ridge_pulls_towards_the_centre() -> None:
    centre = np.linspace(-1, 1, NUM_COLUMNS)
    found = fit_weights(problem(ridge=1e8, centre=centre))
    np.testing.assert_allclose(found, centre, atol=1e-4)


def test_sums_that_no_labels_make_are_fitted_and_far_off_ones_too() -> None:
    rng = np.random.default_rng(5)
    for scale in (30.0, 3000.0):
        noisy = TABLE.exact_sums().noisy_sums + scale * rng.normal(size=NUM_COLUMNS)
        hard = problem(ridge=0.1, sums=noisy)
        found = fit_weights(hard)
        assert np.isfinite(found).all()
        assert np.abs(hard.gradient(found)).max() < 1e-4


def test_without_a_ridge_such_a_loss_has_no_lower_bound_so_zero_is_refused() -> None:
    too_many = TABLE.exact_sums().noisy_sums.copy()
    too_many[1] = TABLE.exact_sums().most_sums[1] + 5
    nearly = problem(ridge=1e-12, sums=too_many)
    direction = np.zeros(NUM_COLUMNS)
    direction[1] = 1.0
    values = [nearly.value(size * direction) for size in (1e2, 1e3, 1e4)]
    assert values[2] < values[1] < values[0] < 0
    with pytest.raises(ConfigError, match="no lower bound"):
        problem(ridge=0.0)
    with pytest.raises(ConfigError, match="ridge must be > 0"):
        problem(ridge=np.inf)


def test_the_sigmoid_is_stable() -> None:
    np.testing.assert_allclose(sigmoid(np.array([-1e4, 0.0, 1e4])), [0, 0.5, 1])
    assert sigmoid(np.array([-700.0]))[0] > 0


@pytest.mark.parametrize("ridge", [1e-3, 0.5, 30.0])
def test_exact_steps_and_conjugate_gradients_end_at_the_same_weights(
    ridge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = fit_weights(problem(ridge=ridge))
    repeated = fit_weights(problem(ridge=ridge, rows=TABLE.rows.distinct()))
    monkeypatch.setattr("tulle.lab.linear_labels.logistic_fit._MOST_DENSE", 0)
    iterated = fit_weights(problem(ridge=ridge))
    np.testing.assert_allclose(exact, iterated, atol=1e-6)
    np.testing.assert_allclose(exact, repeated, atol=1e-6)


def test_a_matrix_that_rounding_spoils_is_left_to_conjugate_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = fit_weights(problem())
    broken = -np.eye(NUM_COLUMNS)
    monkeypatch.setattr(type(TABLE.rows), "products", lambda _rows, _values: broken.copy() * 1e9)
    np.testing.assert_allclose(fit_weights(problem()), expected, atol=1e-6)


def test_a_looser_fit_is_above_the_least_loss_by_no_more_than_it_says() -> None:
    least = problem().value(fit_weights(problem()))
    for tolerance in (1.0, 0.1):
        loose = problem().value(fit_weights(problem(), tolerance=tolerance))
        assert least - 1e-9 <= loose <= least + tolerance**2
