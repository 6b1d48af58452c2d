"""Counting is exact, whatever the blocks and however little memory there is."""

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest

from tulle.data.features import vocabulary_counts
from tulle.data.features.hashing import ValueHasher
from tulle.data.features.vocabulary_counts import CountedColumn, RawCounts, count_in_parts
from tulle.data.schema import Kind
from tulle.errors import ConfigError, DataError

SALT = bytes(range(16))
COLUMNS = [
    CountedColumn(kind=Kind.CATEGORICAL, hasher=ValueHasher(column=name, salt=SALT))
    for name in ("a", "b")
]


def table(num_rows: int = 20_000) -> pl.DataFrame:
    generator = np.random.default_rng(5)
    many = generator.integers(0, 6000, num_rows)
    few = generator.integers(0, 50, num_rows)
    frame = pl.DataFrame({"a": [str(value) for value in many], "b": [f"v{v}" for v in few]})
    return frame.with_columns(b=pl.when(pl.col("b") == "v7").then(None).otherwise(pl.col("b")))


def in_blocks(frame: pl.DataFrame, size: int) -> Iterator[pl.DataFrame]:
    return (frame.slice(start, size) for start in range(0, len(frame), size))


def counts_of(parts: list[RawCounts], column: str) -> dict[int, int]:
    return {
        int(value): int(count)
        for part in parts
        for value, count in zip(part.hashes[column], part.counts[column], strict=True)
    }


def expected_counts(frame: pl.DataFrame, values: CountedColumn) -> dict[int, int]:
    tally = frame[values.column].drop_nulls().value_counts(name="rows")
    hashes = values.hasher.hashes(tally[values.column])
    return {int(h): count for h, count in zip(hashes, tally["rows"], strict=True)}


@pytest.mark.parametrize("size", [977, 20_000])
@pytest.mark.parametrize("max_values", [1000, 4000, 100_000])
def test_counts_are_exact_for_any_blocks_and_memory(size: int, max_values: int) -> None:
    frame = table()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    for rows in (frame, shuffled):
        parts = list(
            count_in_parts(
                lambda rows=rows: in_blocks(rows, size), COLUMNS, max_values_in_memory=max_values
            )
        )
        for values in COLUMNS:
            assert counts_of(parts, values.column) == expected_counts(frame, values)
        assert (len(parts) == 1) == (max_values == 100_000)


def test_parts_cover_all_hashes_in_order() -> None:
    parts = list(
        count_in_parts(lambda: in_blocks(table(), 500), COLUMNS, max_values_in_memory=1000)
    )
    edges = [parts[0].low, *(part.high for part in parts)]
    assert edges[0] == 0
    assert edges[-1] == 2**64
    assert edges == sorted(edges)
    for part in parts:
        for hashes in part.hashes.values():
            assert (np.diff(hashes.astype(object)) > 0).all()


def test_no_more_values_are_held_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    class WatchedCounter(vocabulary_counts._RangeCounter):
        def add(self, block: pl.DataFrame) -> int:
            num_rows = super().add(block)
            held.append(self._num_held())
            return num_rows

    monkeypatch.setattr(vocabulary_counts, "_RangeCounter", WatchedCounter)
    for _ in count_in_parts(lambda: in_blocks(table(), 500), COLUMNS, max_values_in_memory=1500):
        pass
    assert 750 < max(held) <= 1500


def test_missing_values_are_not_counted() -> None:
    frame = pl.DataFrame({"a": [None, None, "x"], "b": [None, None, None]})
    (part,) = count_in_parts(lambda: iter([frame]), COLUMNS, max_values_in_memory=1000)
    assert part.counts["a"].tolist() == [1]
    assert part.counts["b"].tolist() == []


def test_data_without_rows_have_no_counts() -> None:
    (part,) = count_in_parts(lambda: iter([]), COLUMNS, max_values_in_memory=1000)
    assert all(len(counts) == 0 for counts in part.counts.values())


def test_blocks_that_can_be_read_only_once_are_refused() -> None:
    once = in_blocks(table(), 500)
    with pytest.raises(DataError, match="read the data anew"):
        list(count_in_parts(lambda: once, COLUMNS, max_values_in_memory=1000))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match="column 'b' is not in the data"):
        list(
            count_in_parts(
                lambda: iter([pl.DataFrame({"a": ["x"]})]), COLUMNS, max_values_in_memory=1000
            )
        )


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_values_in_memory=10 must be >= 1000"):
        list(count_in_parts(lambda: iter([]), COLUMNS, max_values_in_memory=10))
