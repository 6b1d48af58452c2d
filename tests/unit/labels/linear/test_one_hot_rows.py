import numpy as np
import pytest

from tulle.errors import ConfigError, DataError
from tulle.labels.linear.one_hot_rows import OneHotFields, OneHotRows

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
    monkeypatch.setattr("tulle.labels.linear.one_hot_rows._ROWS_AT_ONCE", 7)
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
