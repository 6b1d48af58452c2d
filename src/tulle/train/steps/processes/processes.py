"""What processes of one run say to each other: a few collectives, and the orders of the leader.

One process leads, the others follow: it tells them what comes next, and all take part.
Everything that is passed on may be raw. It stays between the processes of one run.
"""

import contextlib
import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor

from tulle.errors import DataError, RunStateError, TulleError
from tulle.mechanisms.entropy import NoiseSource, SeededNoise, release_rng
from tulle.train.examples import ExampleSet, IntArray, content_fingerprint
from tulle.train.run_context import NoisePlacement

if TYPE_CHECKING:
    from tulle.train.steps.step_context import Surroundings

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


class MessageKind(enum.Enum):
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

    kind: MessageKind
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
    return Message(kind=MessageKind(int(kind)), number=number, content=content.numpy().tobytes())


@contextlib.contextmanager
def dismissing(processes: Processes | None) -> Iterator[None]:
    """Lets the followers go at the end of the block, however it ends."""
    try:
        yield
    finally:
        if processes is not None and processes.rank == LEADER and processes.is_open:
            # The run is over in any case: who is gone by now is not missed.
            with contextlib.suppress(RunStateError):
                tell(processes, Message(kind=MessageKind.STOP))


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


_NUMBER = np.dtype("<i8")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Opening:
    """What the leader sends. Which rows were chosen may be secret."""

    plan: str
    """The plan of the run as JSON."""
    placement: NoisePlacement
    rows: IntArray | None
    """Training rows that private steps draw from; None for all."""
    fingerprint: str
    """Fingerprint of the same rows, as the leader has them."""
    seeds: tuple[int, ...] | None
    """Seeds of a run that can be repeated, one for each process; None for fresh keys."""

    @classmethod
    def of_run(
        cls, plan: str, examples: ExampleSet, rows: IntArray | None, around: "Surroundings"
    ) -> "Opening":
        """The opening of a run.

        Only a source with a fixed seed gives seeds to others: secret keys are drawn where
        they are used, and never sent.

        Args:
          plan: The plan of the run, as JSON.
          examples: The chosen rows.
          rows: Which they are, among all training rows.
          around: "Surroundings" of the leader.
        """
        size = 1 if around.processes is None else around.processes.size
        rng = around.rng
        return cls(
            plan=plan,
            placement=around.noise_placement,
            rows=rows,
            fingerprint=content_fingerprint(examples),
            seeds=None if rng.is_secure else tuple(int(word) for word in rng.words(size)),
        )

    def send(self, processes: Processes) -> None:
        """Tells all followers."""
        head = {
            "plan": self.plan,
            "placement": self.placement.value,
            "fingerprint": self.fingerprint,
            "seeds": self.seeds,
            "has_rows": self.rows is not None,
        }
        # JSON has no line breaks, so the first one ends it.
        content = json.dumps(head).encode() + b"\n"
        if self.rows is not None:
            content += self.rows.astype(_NUMBER).tobytes()
        tell(processes, Message(kind=MessageKind.OPEN, content=content))

    @classmethod
    def of_message(cls, message: Message) -> "Opening":
        """Reads what `send` told."""
        text, _, numbers = message.content.partition(b"\n")
        head = json.loads(text)
        rows = np.frombuffer(numbers, _NUMBER).astype(np.int64) if head["has_rows"] else None
        return cls(
            plan=head["plan"],
            placement=NoisePlacement(head["placement"]),
            rows=rows,
            fingerprint=head["fingerprint"],
            seeds=None if head["seeds"] is None else tuple(head["seeds"]),
        )

    def examples_of(self, data: ExampleSet) -> ExampleSet:
        """The chosen rows of a follower's data.

        Raises:
          DataError: They are not those of the leader.
        """
        is_within = self.rows is None or not len(self.rows) or self.rows.max() < data.num_rows
        examples = data if self.rows is None or not is_within else data.select(self.rows)
        if not is_within or content_fingerprint(examples) != self.fingerprint:
            raise DataError(
                "this process has other training rows than the leader of the run; give all "
                "processes the same data."
            )
        return examples

    def rng_of(self, rank: int) -> NoiseSource:
        """Randomness of one process's own."""
        return release_rng() if self.seeds is None else SeededNoise(self.seeds[rank])
