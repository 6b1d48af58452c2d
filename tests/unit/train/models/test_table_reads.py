"""Sorted reads say which rows a batch reads, who reads them, and which reads are repeats."""

import pytest
import torch
from torch import Tensor

from tulle.train.models.contributions import BatchReads, SortedReads, TableReads


def reads_of(rows: Tensor) -> TableReads:
    return TableReads(table="table", rows=rows)


def assert_right(found: SortedReads, rows: Tensor) -> None:
    """Against a loop over all reads."""
    flat = rows.flatten().tolist()
    num_features = rows.shape[1]
    order = sorted(range(len(flat)), key=lambda place: (flat[place], place))
    assert found.order.tolist() == order
    assert found.rows.tolist() == sorted(set(flat))
    assert found.rows.dtype == torch.int64
    assert found.starts.tolist() == [
        next(i for i, place in enumerate(order) if flat[place] == row) for row in sorted(set(flat))
    ]
    assert found.examples.tolist() == [place // num_features for place in order]
    seen: set[tuple[int, int]] = set()
    for place, is_repeat in zip(order, found.is_repeat.tolist(), strict=True):
        read = (place // num_features, flat[place])
        assert is_repeat == (read in seen)
        seen.add(read)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_rows", [1, 4, 1000])
def test_reads_are_in_the_order_of_their_rows(num_rows: int, seed: int) -> None:
    rows = torch.randint(num_rows, (30, 4), generator=torch.Generator().manual_seed(seed))
    assert_right(reads_of(rows).in_order, rows)


def test_rows_beyond_32_bits_are_told_apart() -> None:
    rows = torch.tensor([[5, 2**32 + 5], [2**31, 5], [2**33, 2**33]])
    assert_right(reads_of(rows).in_order, rows)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_a_batch_without_reads_has_no_rows(shape: tuple[int, int]) -> None:
    found = reads_of(torch.zeros(shape, dtype=torch.int64)).in_order
    for values in (found.rows, found.starts, found.order, found.examples, found.is_repeat):
        assert values.shape == (0,)


def test_rows_are_sorted_once() -> None:
    reads = reads_of(torch.tensor([[3, 1]]))
    assert reads.in_order is reads.in_order


def test_ids_stay_as_they_are() -> None:
    rows = torch.tensor([[3, 1], [1, 1]])
    reads = reads_of(rows)
    assert reads.in_order.rows.tolist() == [1, 3]
    assert reads.rows.tolist() == [[3, 1], [1, 1]]


def test_the_truncated_form_reads_the_public_tables_alone() -> None:
    public, sensitive = reads_of(torch.tensor([[0]])), reads_of(torch.tensor([[1]]))
    whole = BatchReads(num_rows=1, public=(public,), sensitive=(sensitive,))
    truncated = BatchReads(num_rows=1, public=(public,), sensitive=None)
    assert whole.tables == (public, sensitive)
    assert truncated.tables == (public,)
