"""What processes of one run say to each other: the few collectives that training needs.

One process leads, the others follow: it tells them what comes next, and all take part.
Everything that is passed on may be raw. It stays between the processes of one run.
"""

from collections.abc import Sequence
from typing import Protocol

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
          reason: In words that may be logged.
        """
        ...
