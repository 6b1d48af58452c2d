import itertools

import numpy as np
import pytest
from scipy import sparse

from tulle.errors import ConfigError, DataError
from tulle.labels.linear.bounded_rows import BoundedFeatures
from tulle.labels.linear.label_sums import (
    LabelBlock,
    LabelSumsConfig,
    SumsNoise,
    release_label_sums,
)
from tulle.mechanisms.entropy import SeededNoise

FEATURES = BoundedFeatures(num_columns=4, max_norm=1.0)


def matrix(num_rows: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(num_rows, 4))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.coo_matrix])
def test_products_are_those_of_the_matrix(make: type) -> None:
    dense = matrix(30)
    dense[np.abs(dense) < 0.3] = 0
    rows = FEATURES.rows(make(dense))
    rng = np.random.default_rng(1)
    weights, values = rng.normal(size=4), rng.random(30)
    np.testing.assert_allclose(rows.dot(weights), dense @ weights, atol=1e-6)
    np.testing.assert_allclose(rows.sums(values), dense.T @ values, atol=1e-5)
    np.testing.assert_allclose(rows.square_sums(values), (dense**2).T @ values, atol=1e-5)
    outer = dense.T @ (values[:, None] * dense)
    np.testing.assert_allclose(rows.products(values), outer, atol=1e-5)
    least, most = rows.sum_bounds()
    np.testing.assert_allclose(least, np.minimum(dense, 0).sum(0), atol=1e-5)
    np.testing.assert_allclose(most, np.maximum(dense, 0).sum(0), atol=1e-5)


def test_cutting_to_the_grid_makes_no_row_longer_and_sums_whole() -> None:
    dense = matrix(200, seed=3)
    rows = FEATURES.rows(dense)
    cut = rows.steps.toarray() * rows.width
    assert (np.abs(cut) <= np.abs(dense)).all()
    np.testing.assert_allclose(cut, dense, atol=2.0**-24)
    is_counted = np.arange(200) % 3 == 0
    exact = sum(map(int, rows.steps.toarray()[is_counted, 0]))
    assert rows.exact_sums(is_counted)[0] == exact


@pytest.mark.parametrize("cap", [None, 1, 2])
def test_labels_move_the_sums_no_further_than_stated(cap: int | None) -> None:
    config = LabelSumsConfig(
        layout=FEATURES,
        noise=SumsNoise.GAUSSIAN,
        noise_multiplier=1.0,
        max_conversions_per_unit=cap,
    )
    row = matrix(1)
    # Opposite rows are the worst case of a unit.
    dense = row if cap is None else np.concatenate([row] * cap + [-row] * cap)
    units = None if cap is None else np.zeros(len(dense), np.int64)
    sums = [
        release_label_sums(
            [LabelBlock(rows=FEATURES.rows(dense), raw_labels=np.array(labels), units=units)],
            config,
            rng=SeededNoise(3),
        ).noisy_sums
        for labels in itertools.product((0, 1), repeat=len(dense))
    ]
    moved = max(np.linalg.norm(a - b) for a, b in itertools.combinations(sums, 2))
    stated = config.max_contribution * config.replace_factor
    assert moved <= stated * (1 + 1e-6)
    assert moved >= 0.99 * stated


def test_a_row_that_is_too_long_is_refused() -> None:
    for factor in (1.0001, 3.0, 1e200):
        with pytest.raises(DataError, match="max_norm=1"):
            FEATURES.rows(np.concatenate([matrix(5), factor * matrix(1)]))
    FEATURES.rows(matrix(50))


def test_entries_that_are_missing_or_too_many_are_refused() -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(DataError, match="NaN or infinity"):
            FEATURES.rows([[bad, 0, 0, 0]])
    with pytest.raises(DataError, match="shape"):
        FEATURES.rows(np.zeros((3, 5)))
    with pytest.raises(ConfigError, match="max_norm=0"):
        BoundedFeatures(num_columns=2, max_norm=0.0)
