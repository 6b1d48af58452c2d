"""What the leader tells its followers to do."""

import contextlib
import dataclasses
import enum
from collections.abc import Iterator

import torch
from torch import Tensor

from tulle.errors import RunStateError, TulleError
from tulle.train.distributed.processes import LEADER, Processes


class Kind(enum.Enum):
    """What comes next. All processes do it together."""

    OPEN = 0
    """Private steps are about to begin: the plan and the rows follow."""
    SHARE = 1
    """Takes weights and state from the leader; the number is the first step."""
    TAKE = 2
    """One private step; the number is its learning rate."""
    STATE = 3
    """Gives weights and state to the leader."""
    STOP = 4
    """The run is over for followers."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Message:
    """One order of the leader."""

    kind: Kind
    number: float = 0.0
    content: bytes = b""


def tell(processes: Processes, message: Message) -> None:
    """Tells all followers, which must `hear`."""
    # A double holds every step number and every learning rate as it is.
    head = [float(message.kind.value), message.number, float(len(message.content))]
    processes.tell(torch.tensor(head, dtype=torch.float64))
    if message.content:
        processes.spread(_as_tensor(message.content))


def hear(processes: Processes) -> Message:
    """The next message of the leader."""
    head = torch.zeros(3, dtype=torch.float64)
    processes.tell(head)
    kind, number, size = head.tolist()
    content = torch.zeros(int(size), dtype=torch.uint8)
    if len(content):
        processes.spread(content)
    return Message(kind=Kind(int(kind)), number=number, content=content.numpy().tobytes())


@contextlib.contextmanager
def dismissing(processes: Processes | None) -> Iterator[None]:
    """Lets the followers go at the end of the block, however it ends."""
    try:
        yield
    finally:
        if processes is not None and processes.rank == LEADER and processes.is_open:
            # The run is over in any case: who is gone by now is not missed.
            with contextlib.suppress(RunStateError):
                tell(processes, Message(kind=Kind.STOP))


@contextlib.contextmanager
def failing_together(processes: Processes) -> Iterator[None]:
    """Whatever fails in this process ends the run in all of them: nobody waits in vain."""
    try:
        yield
    except BaseException as error:
        if processes.is_open:
            # The words of other errors may hold data, and go to every process's log.
            words = f": {error}" if isinstance(error, TulleError) else ""
            processes.fail(
                f"process {processes.rank} of {processes.size} failed with "
                f"{type(error).__name__}{words.rstrip('.')}"
            )
        raise


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
