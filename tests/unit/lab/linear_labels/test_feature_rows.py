import itertools

import numpy as np
import pytest
from scipy import sparse

from tulle.errors import ConfigError, DataError
from tulle.lab.linear_labels.feature_rows import BoundedFeatures, OneHotFields, OneHotRows
from tulle.lab.linear_labels.label_sums import (
    LabelBlock,
    LabelSumsConfig,
    SumsNoise,
    release_label_sums,
)
from tulle.mechanisms.entropy import SeededNoise

FIELDS = OneHotFields(num_ids=(3, 2, 4))
IDS = np.random.default_rng(0).integers(0, FIELDS.num_ids, (60, 3)).astype(np.int32)


def dense(ids: np.ndarray) -> np.ndarray:
    parts = [np.eye(k)[ids[:, field]] for field, k in enumerate(FIELDS.num_ids)]
    return np.concatenate([np.ones((len(ids), 1)), *parts], axis=1)


def test_products_are_those_of_the_dense_matrix() -> None:
    rng = np.random.default_rng(1)
    weights, values = rng.normal(size=FIELDS.num_columns), rng.normal(size=60)
    rows = FIELDS.rows(IDS)
    np.testing.assert_allclose(rows.dot(weights), dense(IDS) @ weights, rtol=1e-12)
    np.testing.assert_allclose(rows.sums(values), dense(IDS).T @ values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        rows.square_sums(values), (dense(IDS) ** 2).T @ values, rtol=1e-12, atol=1e-12
    )
    outer = dense(IDS).T @ (values[:, None] * dense(IDS))
    np.testing.assert_allclose(rows.products(values), outer, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(rows.exact_sums(values > 0), dense(IDS).T @ (values > 0))
    np.testing.assert_array_equal(rows.sum_bounds()[1], dense(IDS).sum(0))


def test_every_row_has_as_many_ones_as_fields_and_a_constant() -> None:
    assert FIELDS.num_ones == 4
    assert FIELDS.num_columns == 10
    assert FIELDS.starts == (1, 4, 6)
    assert (dense(IDS).sum(1) == FIELDS.num_ones).all()


def test_many_blocks_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.arange(10.0)
    whole = FIELDS.rows(IDS)
    expected = whole.dot(weights), whole.sums(np.arange(60.0))
    products = whole.products(np.arange(60.0))
    monkeypatch.setattr("tulle.lab.linear_labels.feature_rows._ROWS_AT_ONCE", 7)
    np.testing.assert_array_equal(whole.products(np.arange(60.0)), products)
    np.testing.assert_array_equal(whole.dot(weights), expected[0])
    np.testing.assert_array_equal(whole.sums(np.arange(60.0)), expected[1])


def test_equal_rows_put_together_have_the_same_sums() -> None:
    rows = FIELDS.rows(IDS)
    merged = rows.distinct()
    assert len(merged.ids) < len(IDS)
    assert merged.num_rows == rows.num_rows == 60
    np.testing.assert_array_equal(merged.sum_bounds()[1], rows.sum_bounds()[1])
    twice = OneHotRows(fields=FIELDS, ids=IDS, repeats=np.full(60, 2.0)).distinct()
    np.testing.assert_array_equal(twice.sum_bounds()[1], 2 * rows.sum_bounds()[1])
    weights = np.random.default_rng(2).normal(size=10)
    chances = [1 / (1 + np.exp(-table.dot(weights))) for table in (rows, merged)]
    np.testing.assert_allclose(merged.sums(chances[1]), rows.sums(chances[0]), rtol=1e-12)


def test_ids_outside_of_their_field_are_refused() -> None:
    for bad in ([[3, 0, 0]], [[0, -1, 0]], [[0, 0, 4]]):
        with pytest.raises(DataError, match="ids must be"):
            FIELDS.rows(bad)
    for bad in ([[0, 0]], [0, 0, 0], [[0.0, 0.0, 0.0]]):
        with pytest.raises(DataError, match="shape"):
            FIELDS.rows(bad)


def test_no_field_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one field"):
        OneHotFields(num_ids=())
    with pytest.raises(ConfigError, match=r"num_ids\[1\]=0"):
        OneHotFields(num_ids=(2, 0))


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
