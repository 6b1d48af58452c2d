import dataclasses
import math

import numpy as np
import pytest

from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.noise_ridge import constant_model, noise_ridge
from unit.labels.linear.click_table import click_table

TABLE = click_table(20_000, (8, 30, 60), seed=3, bias=-2.0)


@pytest.mark.parametrize("stddev", [1.0, 30.0])
def test_the_ridge_is_the_best_for_the_stated_noise(stddev: float) -> None:
    sums = TABLE.exact_sums(noise_stddev=stddev)
    fitted = noise_ridge(sums, TABLE.rows)
    rate = 1 / (1 + math.exp(-fitted.centre[0]))
    for column in (1, 20, 70):
        h = rate * (1 - rate) * sums.most_sums[column]
        t = fitted.weight_variance
        trials = np.geomspace(1e-3, 1e7, 20_001)
        errors = (trials**2 * t + stddev**2 + h) / (h + trials) ** 2
        assert fitted.ridges[column] == pytest.approx(trials[np.argmin(errors)], rel=1e-3)


def test_rare_features_shrink_most() -> None:
    fitted = noise_ridge(TABLE.exact_sums(noise_stddev=30.0), TABLE.rows)
    counts = TABLE.exact_sums().most_sums[1:]
    order = np.argsort(counts[counts > 0])
    ridges = fitted.ridges[1:][counts > 0][order]
    assert (np.diff(ridges) <= 1e-9).all()
    assert ridges[0] > 10 * ridges[-1]


@pytest.mark.parametrize("stddev", [0.01, 10.0])
def test_the_variance_of_the_weights_is_found_from_noisy_sums(stddev: float) -> None:
    exact = TABLE.exact_sums(noise_stddev=stddev)
    noise = stddev * np.random.default_rng(1).normal(size=len(exact.noisy_sums))
    sums = dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)
    # Weights were drawn with a variance of 0.49; other fields and the logit's bend blur it.
    assert 0.2 < noise_ridge(sums, TABLE.rows).weight_variance < 1.0


def test_noise_alone_shows_no_weights() -> None:
    exact = TABLE.exact_sums(noise_stddev=2000.0)
    noise = 2000 * np.random.default_rng(2).normal(size=len(exact.noisy_sums))
    sums = dataclasses.replace(exact, noisy_sums=exact.noisy_sums + noise)
    fitted = noise_ridge(sums, TABLE.rows)
    assert (fitted.ridges[1:] > 100).all()


def test_the_constant_model_predicts_the_mean_label() -> None:
    rate = TABLE.labels.mean()
    found = constant_model(TABLE.exact_sums(), TABLE.rows)
    assert found[0] == pytest.approx(math.log(rate / (1 - rate)), rel=1e-9)
    assert not found[1:].any()


@pytest.mark.parametrize("total", [-500.0, 0.0, 20_000.0, 30_000.0])
def test_an_impossible_total_gives_a_finite_constant(total: float) -> None:
    exact = TABLE.exact_sums(noise_stddev=100.0)
    noisy = exact.noisy_sums.copy()
    noisy[0] = total
    found = constant_model(dataclasses.replace(exact, noisy_sums=noisy), TABLE.rows)
    expected = math.log(100 / 19_900) * (1 if total < 10_000 else -1)
    assert found[0] == pytest.approx(expected, rel=1e-9)


def test_noise_beyond_the_rows_says_nothing_about_the_mean() -> None:
    assert constant_model(TABLE.exact_sums(noise_stddev=1e6), TABLE.rows)[0] == 0.0


def test_the_constant_of_real_features_is_found_and_fitted() -> None:
    features = BoundedFeatures(num_columns=3, max_norm=2.0)
    dense = np.random.default_rng(0).uniform(-1, 1, (1000, 3))
    assert features.rows(dense).constant is None
    dense[:, 1] = -0.5
    rows = features.rows(dense)
    assert rows.constant == (1, -0.5)
    least, most = rows.sum_bounds()
    sums = dataclasses.replace(
        TABLE.exact_sums(noise_stddev=1.0),
        noisy_sums=np.array([0.0, -0.5 * 30, 0.0]),
        least_sums=least,
        most_sums=most,
        num_rows=1000,
        layout=features,
    )
    chances = 1 / (1 + np.exp(-rows.dot(constant_model(sums, rows))))
    np.testing.assert_allclose(chances, 0.03, rtol=1e-9)
    assert not constant_model(sums, features.rows(np.eye(3))).any()
