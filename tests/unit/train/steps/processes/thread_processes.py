"""Processes of a run as threads of one: the same calls, without connections."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from tulle.errors import RunStateError
from waiting import HANG_S

Result = TypeVar("Result")


class _Meeting:
    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=HANG_S)
        self.brought: list[Any] = [None] * size
        self.sent = {(a, b): queue.Queue[Tensor]() for a in range(size) for b in range(size)}
        self.reason: str | None = None

    def break_up(self) -> None:
        """Ends all meetings to come; those who are on their way out of the last one may leave."""
        is_emptying = 1
        with self.barrier._cond:
            self.barrier._cond.wait_for(lambda: self.barrier._state != is_emptying)
            self.barrier._break()


class ThreadProcesses:
    """One of several threads that meet in every collective."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self.rank, self.size = rank, meeting.size
        self.is_open = True
        self._meeting = meeting

    def tell(self, message: Tensor) -> None:
        self.spread(message)

    def spread(self, values: Tensor) -> None:
        (first, *_) = self._meet(values.clone())
        values.copy_(first)

    def sum_at_leader(self, values: Tensor) -> None:
        parts = self._meet(values.clone())
        values.zero_()
        if self.rank == 0:
            for part in parts:
                values += part

    def gather_numbers(self, numbers: Sequence[int]) -> list[list[int]]:
        return self._meet(list(numbers))

    def exchange(self, values: Tensor, leaving: Sequence[int], arriving: Sequence[int]) -> Tensor:
        assert len(values) == sum(leaving)
        met = self._meet([part.clone() for part in torch.split(values, list(leaving))])
        arrived = [parts[self.rank] for parts in met]
        assert [len(part) for part in arrived] == list(arriving)
        return torch.cat(arrived)

    def send(self, values: Tensor, rank: int) -> None:
        self._meeting.sent[self.rank, rank].put(values.clone())

    def receive(self, values: Tensor, rank: int) -> None:
        sent = self._meeting.sent[rank, self.rank].get(timeout=HANG_S)
        assert sent.shape == values.shape
        values.copy_(sent)

    def fail(self, reason: str) -> None:
        self._meeting.reason = self._meeting.reason or reason
        self.is_open = False
        self._meeting.break_up()

    def _meet(self, brought: Any) -> list[Any]:
        meeting = self._meeting
        try:
            meeting.barrier.wait()
            meeting.brought[self.rank] = brought
            meeting.barrier.wait()
            found = list(meeting.brought)
            meeting.barrier.wait()
        except threading.BrokenBarrierError:
            self.is_open = False
            raise RunStateError(meeting.reason or "another thread is gone") from None
        return found


def run_together(
    size: int, work: Callable[[ThreadProcesses], Result], *, pass_errors: bool = False
) -> list[Result]:
    """Runs the same function in all processes and returns what each returned.

    Args:
      size: Number of processes.
      work: Called with each process.
      pass_errors: Return errors among the results.
    """
    meeting = _Meeting(size)
    first_error: list[BaseException] = []

    def run(rank: int) -> Result | BaseException:
        try:
            return work(ThreadProcesses(meeting, rank))
        except BaseException as error:
            first_error.append(error)
            meeting.break_up()
            return error

    with ThreadPoolExecutor(size) as pool:
        results = list(pool.map(run, range(size)))
    if first_error and not pass_errors:
        raise first_error[0]
    return results  # type: ignore[return-value]
