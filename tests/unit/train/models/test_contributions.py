"""Contributions equal per-example gradients that are written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tulle.train.models import contributions
from tulle.train.models.contributions import (
    BatchReads,
    BiasContribution,
    DenseGradient,
    LinearContribution,
    RowGradient,
    SortedReads,
    TableContribution,
    TableReads,
)


def normal(*shape: int, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def row_gradient(contribution: TableContribution, weights: Tensor) -> RowGradient:
    (gradient,) = contribution.weighted_sum(weights)
    assert isinstance(gradient, RowGradient)
    return gradient


def written_out(ids: Tensor, grads: Tensor, num_rows: int) -> Tensor:
    """[batch, rows x dim]: every example's gradient of the whole table."""
    table = torch.zeros(len(ids), num_rows, grads.shape[2], dtype=grads.dtype)
    for example, reads in enumerate(ids.tolist()):
        for read, row in enumerate(reads):
            table[example, row] += grads[example, read]
    return table.flatten(1)


@settings(max_examples=60)
@given(
    batch=st.integers(0, 5),
    num_reads=st.integers(0, 5),
    dim=st.integers(1, 4),
    num_rows=st.integers(1, 6),
    seed=st.integers(0, 2**31),
)
def test_a_table_contribution_equals_gradients_written_out(
    batch: int, num_reads: int, dim: int, num_rows: int, seed: int
) -> None:
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(num_rows, (batch, num_reads), generator=rng)
    grads = normal(batch, num_reads, dim, seed=seed)
    full = written_out(ids, grads, num_rows)
    contribution = TableContribution(table="t", ids=ids, grads=grads)
    torch.testing.assert_close(contribution.squared_norms(), full.square().sum(1))
    left, right = torch.randint(max(batch, 1), (2, 4 if batch else 0), generator=rng)
    torch.testing.assert_close(
        contribution.inner_products(left, right), (full[left] * full[right]).sum(1)
    )
    weights = torch.rand(batch, generator=rng, dtype=torch.float64)
    gradient = row_gradient(contribution, weights)
    assert gradient.rows.tolist() == sorted(set(ids.flatten().tolist()))
    assert gradient.rows.dtype == torch.int64
    table = torch.zeros(num_rows, dim, dtype=torch.float64)
    table[gradient.rows] = gradient.values
    torch.testing.assert_close(table.flatten(), weights @ full)


@settings(max_examples=30)
@given(
    batch=st.integers(0, 5),
    num_inputs=st.integers(0, 4),
    num_outputs=st.integers(1, 4),
    num_zeros=st.integers(0, 2),
    has_bias=st.booleans(),
)
def test_a_linear_contribution_equals_gradients_written_out(
    batch: int, num_inputs: int, num_outputs: int, num_zeros: int, has_bias: bool
) -> None:
    inputs, grads = normal(batch, num_inputs), normal(batch, num_outputs, seed=1)
    padded = torch.cat([inputs, torch.zeros(batch, num_zeros).double()], dim=1)
    weight = grads.unsqueeze(2) * padded.unsqueeze(1)
    full = torch.cat([weight.flatten(1), grads], dim=1) if has_bias else weight.flatten(1)
    contribution = LinearContribution(
        weight="w",
        bias="b" if has_bias else None,
        inputs=inputs,
        output_grads=grads,
        num_zero_inputs=num_zeros,
    )
    torch.testing.assert_close(contribution.squared_norms(), full.square().sum(1))
    left, right = torch.arange(batch), torch.arange(batch).flip(0)
    torch.testing.assert_close(
        contribution.inner_products(left, right), (full[left] * full[right]).sum(1)
    )
    weights = torch.linspace(0, 1, batch, dtype=torch.float64)
    gradients = contribution.weighted_sum(weights)
    assert [g.name for g in gradients] == (["w", "b"] if has_bias else ["w"])
    assert gradients[0].values.shape == (num_outputs, num_inputs + num_zeros)
    found = torch.cat([g.values.flatten() for g in gradients])
    torch.testing.assert_close(found, weights @ full)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (0,)])
def test_a_bias_contribution_is_its_gradients(shape: tuple[int, ...]) -> None:
    grads = normal(*shape)
    full = grads.reshape(shape[0], shape[1] if len(shape) == 2 else 1)
    contribution = BiasContribution(name="b", grads=grads)
    torch.testing.assert_close(contribution.squared_norms(), full.square().sum(1))
    ends = torch.tensor([0, shape[0] - 1])[: shape[0]]
    torch.testing.assert_close(
        contribution.inner_products(ends, ends.flip(0)), (full[ends] * full[ends.flip(0)]).sum(1)
    )
    (gradient,) = contribution.weighted_sum(torch.full(shape[:1], 0.5).double())
    assert isinstance(gradient, DenseGradient)
    torch.testing.assert_close(gradient.values, 0.5 * full.sum(0))


def test_reads_of_one_row_that_cancel_leave_an_accurate_norm() -> None:
    grads = torch.tensor([[[1e4, 0.0], [-1e4, 0.0], [0.0, 1e-3]]])
    contribution = TableContribution(table="t", ids=torch.tensor([[7, 7, 2]]), grads=grads)
    torch.testing.assert_close(contribution.squared_norms(), torch.tensor([1e-6]))


def test_only_reads_by_the_same_example_are_merged() -> None:
    grads = torch.ones(2, 2, 1)
    contribution = TableContribution(table="t", ids=torch.tensor([[1, 2], [1, 2]]), grads=grads)
    torch.testing.assert_close(contribution.squared_norms(), torch.tensor([2.0, 2.0]))


def test_rows_beyond_32_bits_stay_apart() -> None:
    ids = torch.tensor([[5, 5 + 2**32, 5]])
    contribution = TableContribution(table="t", ids=ids, grads=torch.ones(1, 3, 1))
    assert contribution.squared_norms().tolist() == [5]
    gradient = row_gradient(contribution, torch.ones(1))
    assert gradient.rows.tolist() == [5, 5 + 2**32]
    assert gradient.values.tolist() == [[2], [1]]


@pytest.mark.parametrize("limit", [1, 100])
def test_inner_products_do_not_depend_on_the_chunks(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = torch.randint(3, (8, 3), generator=torch.Generator().manual_seed(0))
    parts = [
        TableContribution(table="t", ids=ids, grads=normal(8, 3, 2)),
        LinearContribution(
            weight="w", bias="b", inputs=normal(8, 3), output_grads=normal(8, 2, seed=1)
        ),
    ]
    left, right = torch.cartesian_prod(torch.arange(8), torch.arange(8)).t()
    for part in parts:
        whole = part.inner_products(left, right)
        with monkeypatch.context() as patch:
            patch.setattr(contributions, "_NUMBERS_AT_A_TIME", limit)
            torch.testing.assert_close(part.inner_products(left, right), whole)


def test_gradients_need_not_be_contiguous() -> None:
    ids = torch.tensor([[0, 1], [1, 1]])
    wide = normal(2, 2, 6)
    part = TableContribution(table="t", ids=ids, grads=wide[:, :, 2:4])
    copied = TableContribution(table="t", ids=ids, grads=wide[:, :, 2:4].contiguous())
    torch.testing.assert_close(part.squared_norms(), copied.squared_norms())
    weights = torch.tensor([0.25, 1.0]).double()
    found, wanted = row_gradient(part, weights), row_gradient(copied, weights)
    torch.testing.assert_close(found.values, wanted.values)


def test_both_ways_to_sum_rows_agree() -> None:
    ids = torch.randint(5, (9, 4), generator=torch.Generator().manual_seed(0))
    contribution = TableContribution(table="t", ids=ids, grads=normal(9, 4, 3))
    weights = torch.linspace(0, 1, 9, dtype=torch.float64)
    gradient = row_gradient(contribution, weights)
    scattered = contribution._scattered_sum(weights, gradient.rows)
    torch.testing.assert_close(scattered, gradient.values)


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
