"""Many small tensors in one message: waiting for each would take longer than sending it."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from tulle.train.distributed.processes import Processes

_MOST_ENTRIES = 1 << 22
"""Of a bundle. A larger tensor goes alone, without being copied first."""


def sum_all_at_leader(tensors: Iterable[Tensor], processes: Processes) -> None:
    """The leader gets the sums over all processes, in place; others are left with zeros."""
    _by_bundles(tensors, processes.sum_at_leader)


def spread_all(tensors: Iterable[Tensor], processes: Processes) -> None:
    """The leader's values come to all processes, in place."""
    _by_bundles(tensors, processes.spread)


def _by_bundles(tensors: Iterable[Tensor], send: Callable[[Tensor], None]) -> None:
    for bundle in _bundles(tensors):
        if len(bundle) == 1 and bundle[0].is_contiguous():
            send(bundle[0])
            continue
        flat = torch.cat([values.reshape(-1) for values in bundle])
        send(flat)
        parts = torch.split(flat, [values.numel() for values in bundle])
        for values, part in zip(bundle, parts, strict=True):
            values.copy_(part.view(values.shape))


def _bundles(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one type, as many as fit. Every process must make the same ones."""
    bundle: list[Tensor] = []
    for values in tensors:
        size = sum(other.numel() for other in bundle) + values.numel()
        if bundle and (size > _MOST_ENTRIES or bundle[0].dtype != values.dtype):
            yield bundle
            bundle = []
        bundle.append(values)
    if bundle:
        yield bundle
