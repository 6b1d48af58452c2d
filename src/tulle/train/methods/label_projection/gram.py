"""Inner products of the logit gradients of a batch with each other and with given sums.

For a layer the gradient of a row is an outer product, so the matrix of all inner products is
the product, entry by entry, of two small ones. For a table it is a sum over pairs of reads of
one table row. No gradient of a single row is built.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tulle.errors import ConfigError
from tulle.train.models.contributions import (
    BiasContribution,
    Contribution,
    LinearContribution,
    SortedReads,
    TableContribution,
    TableReads,
)
from tulle.train.models.linear_models import FactorContribution

# Bounds each temporary tensor to 16 MiB of float32, however many rows are shared. Changes speed and
# memory alone.
_NUMBERS_AT_A_TIME = 1 << 22
_DENSE_SHARE = 8
"""Table rows that more than one in so many examples read are multiplied as whole columns."""


def gram_matrix(contributions: Sequence[Contribution]) -> Tensor:
    """[batch, batch]: the inner products of the gradients of all pairs of examples.

    Privacy:
      As sensitive as the features: public where these are.
    """
    parts = [_gram(contribution) for contribution in contributions]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def inner_products(
    contributions: Sequence[Contribution],
    sums: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
) -> Tensor:
    """[batch]: the inner product of each example's gradient with given sums.

    Args:
      contributions: Gradients of the batch.
      sums: Sums by parameter, each of its shape, or [table rows, dim] for a table.
      rows: Rows that the sums are of, by table; distinct and in order. All rows that the
        batch reads must be among them.

    Privacy:
      Post-processing of the sums, where the features are public.
    """
    parts = [_products(contribution, sums, rows) for contribution in contributions]
    return torch.stack(parts).sum(0)


def _gram(contribution: Contribution) -> Tensor:
    match contribution:
        case LinearContribution():
            inputs = contribution.inputs @ contribution.inputs.t()
            if contribution.bias is not None:
                inputs += 1
            return inputs.mul_(contribution.output_grads @ contribution.output_grads.t())
        case BiasContribution():
            return _bias_rows(contribution) @ _bias_rows(contribution).t()
        case TableContribution():
            return _table_gram(contribution)
        case FactorContribution():
            return _table_gram(contribution.as_table())
    raise _unknown(contribution)


def _products(
    contribution: Contribution, sums: Mapping[str, Tensor], rows: Mapping[str, Tensor]
) -> Tensor:
    match contribution:
        case LinearContribution():
            used = sums[contribution.weight][:, : contribution.inputs.shape[1]]
            outputs = contribution.inputs @ used.t()
            if contribution.bias is not None:
                outputs += sums[contribution.bias]
            return outputs.mul_(contribution.output_grads).sum(1)
        case BiasContribution():
            return _bias_rows(contribution) @ sums[contribution.name]
        case TableContribution():
            places = torch.searchsorted(rows[contribution.table], contribution.ids)
            return (contribution.grads * sums[contribution.table][places]).sum((1, 2))
        case FactorContribution():
            return _products(contribution.as_table(), sums, rows)
    raise _unknown(contribution)


def _bias_rows(contribution: BiasContribution) -> Tensor:
    grads = contribution.grads
    return grads if grads.dim() == 2 else grads.unsqueeze(1)


def _table_gram(contribution: TableContribution) -> Tensor:
    reads = contribution.reads or TableReads(table=contribution.table, rows=contribution.ids)
    in_order = reads.in_order
    grads = contribution.grads.flatten(0, 1)[in_order.order]
    num_examples = len(contribution.ids)
    gram = grads.new_zeros(num_examples, num_examples)
    is_frequent = in_order.counts * _DENSE_SHARE > num_examples
    _add_frequent(gram, grads, in_order, is_frequent)
    _add_rare(gram, grads, in_order, is_frequent)
    return gram


def _add_frequent(gram: Tensor, grads: Tensor, reads: SortedReads, is_frequent: Tensor) -> None:
    """Rows that many examples read: the gradients of all examples by them, times themselves."""
    row_of_read = _rows_of_reads(reads)
    places = is_frequent.cumsum(0) - 1
    num_frequent, dim = int(is_frequent.sum()), grads.shape[1]
    size = max(1, _NUMBERS_AT_A_TIME // max(1, len(gram) * dim))
    for first in range(0, num_frequent, size):
        num_columns = min(size, num_frequent - first)
        place = places[row_of_read] - first
        is_here = is_frequent[row_of_read] & (place >= 0) & (place < num_columns)
        columns = grads.new_zeros(len(gram) * num_columns, dim)
        target = reads.examples[is_here] * num_columns + place[is_here]
        columns.index_add_(0, target, grads[is_here])
        flat = columns.view(len(gram), num_columns * dim)
        gram.addmm_(flat, flat.t())


def _add_rare(gram: Tensor, grads: Tensor, reads: SortedReads, is_frequent: Tensor) -> None:
    """Rows that few examples read: pair by pair of their reads."""
    row_of_read = _rows_of_reads(reads)
    positions = (~is_frequent[row_of_read]).nonzero().squeeze(1)
    if not len(positions):
        return
    counts, examples = reads.counts, reads.examples
    most = int(counts[row_of_read[positions]].max())
    for some in torch.split(positions, max(1, _NUMBERS_AT_A_TIME // (most * grads.shape[1]))):
        of_some = counts[row_of_read[some]]
        left = some.repeat_interleave(of_some)
        begins = (of_some.cumsum(0) - of_some).repeat_interleave(of_some)
        offsets = torch.arange(len(left), device=left.device) - begins
        right = reads.starts[row_of_read[left]] + offsets
        products = (grads[left] * grads[right]).sum(1)
        gram.view(-1).index_add_(0, examples[left] * len(gram) + examples[right], products)


def _rows_of_reads(reads: SortedReads) -> Tensor:
    numbers = torch.arange(len(reads.rows), device=reads.rows.device)
    return numbers.repeat_interleave(reads.counts)


def _unknown(contribution: Contribution) -> ConfigError:
    return ConfigError(
        f"no inner products are known for {type(contribution).__name__}; use logistic regression, "
        "an MLP or a factorization machine."
    )
