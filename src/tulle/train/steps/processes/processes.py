"""What processes of one run say to each other: the few collectives that training needs.

One process leads, the others follow: it tells them what comes next, and all take part.
Everything that is passed on may be raw. It stays between the processes of one run.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

LEADER = 0
"""The rank that owns the run: its folder, its ledger, the noise of dense sums."""


class Processes(Protocol):
    """This process and the others of a run. All must call the same methods in the same order.

    Every method raises `RunStateError` where another process has failed or is gone.
    """

    @property
    def rank(self) -> int:
        """Number of this process, from 0."""
        ...

    @property
    def size(self) -> int:
        """Number of processes."""
        ...

    @property
    def is_open(self) -> bool:
        """False once this process has left the others, or lost one of them."""
        ...

    def tell(self, message: Tensor) -> None:
        """The leader's message comes to all, in place. Followers wait for it for long."""
        ...

    def spread(self, values: Tensor) -> None:
        """The leader's values come to all, in place."""
        ...

    def sum_at_leader(self, values: Tensor) -> None:
        """The leader gets the sum of all, in place; the others are left with zeros."""
        ...

    def gather_numbers(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every process, in the order of ranks; all give equally many."""
        ...

    def exchange(self, values: Tensor, leaving: Sequence[int], arriving: Sequence[int]) -> Tensor:
        """Sends some rows to each process and gets rows from each.

        Args:
          values: Rows for rank 0, then for rank 1, …
          leaving: How many rows go to each rank.
          arriving: How many come from each rank; they are returned in this order.
        """
        ...

    def send(self, values: Tensor, rank: int) -> None:
        """Sends values to one process, which must `receive` them."""
        ...

    def receive(self, values: Tensor, rank: int) -> None:
        """Gets what one process sends, in place."""
        ...

    def fail(self, reason: str) -> None:
        """Leaves for good; the others hear the reason instead of waiting.

        Args:
          reason: Why this process leaves, in words that may be logged.
        """
        ...


_MOST_ENTRIES = 1 << 22
"""Most entries of small tensors that go in one message, because waiting for each would take longer
than sending it. A larger tensor goes alone, without being copied first."""


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
