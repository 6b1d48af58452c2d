import numpy as np
import polars as pl
import pytest

from tulle.data.description import DistinctValues


def counted(values: pl.Series, capacity: int, rows_per_block: int = 10_000) -> DistinctValues:
    distinct = DistinctValues(capacity)
    for start in range(0, len(values), rows_per_block):
        distinct.add(values.slice(start, rows_per_block))
    return distinct


@pytest.mark.parametrize("dtype", [pl.Int64, pl.String])
def test_few_values_are_counted_exactly(dtype: type[pl.DataType]) -> None:
    values = pl.Series(np.arange(60_000) % 4_000).cast(dtype)
    distinct = counted(values, capacity=4_000)
    assert distinct.num_distinct == 4_000
    assert distinct.relative_error == 0
    assert set(distinct.times) == {15}


@pytest.mark.parametrize("dtype", [pl.Int64, pl.String])
def test_many_values_are_estimated_within_the_stated_error(dtype: type[pl.DataType]) -> None:
    capacity = 1 << 14
    # 300,000 values, each of them three times, in blocks that share no order with them.
    values = pl.Series(np.random.default_rng(7).permutation(np.arange(900_000) % 300_000))
    distinct = counted(values.cast(dtype), capacity, rows_per_block=100_000)
    assert distinct.relative_error == pytest.approx(1.2 / 128)
    # Six standard errors; a count of rows, or of the sample alone, is far outside.
    assert distinct.num_distinct == pytest.approx(300_000, rel=6 * distinct.relative_error)
    assert capacity / 4 < len(distinct.times) <= capacity
    assert set(distinct.times) == {3}


def test_nulls_are_no_values() -> None:
    distinct = counted(pl.Series([None, "a", None, "a", "b"]), 10)
    assert distinct.num_distinct == 2
    assert distinct.times.tolist() == [1, 2]


def test_nothing_has_no_values() -> None:
    distinct = DistinctValues(10)
    assert distinct.num_distinct == 0
    distinct.add(pl.Series([None, None]))
    assert distinct.num_distinct == 0
    assert distinct.times.tolist() == []
