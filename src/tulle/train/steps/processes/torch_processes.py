"""Processes that were started together, joined by torch.distributed.

Messages and numbers go by gloo, which works on any machine. Tensors go by gloo on CPUs and
by NCCL on GPUs. Nothing is encrypted: all machines must be in one network that you trust.
Processes that `local_processes` starts on this machine find each other through a file in a folder
of this user's, and talk over the loopback interface: no port can be reached from outside.
"""

import contextlib
import datetime
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import BroadcastOptions, FileStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from tulle.errors import ConfigError, RunStateError, TulleError
from tulle.privacy.fields import check_count
from tulle.train.steps.processes.processes import LEADER, Processes
from tulle.train.steps.step_context import find_device

STEP_TIMEOUT = datetime.timedelta(minutes=5)
"""Longest wait within a step, until a process that does not answer counts as lost."""
PATIENCE = datetime.timedelta(hours=24)
"""Longest wait of a follower for the leader, which randomizes labels, writes and evaluates."""

_FAILED = "failed"
_TIME_FOR_A_REASON = datetime.timedelta(seconds=2)  # A reason may come after the failure itself.
_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class TorchProcesses:
    """Processes joined by torch.distributed. Make one with `join_processes`."""

    def __init__(self, *, rank: int, size: int, store: Store, timeout: datetime.timedelta):
        self.rank, self.size = rank, size
        self._store, self._timeout = store, timeout

    @property
    def is_open(self) -> bool:
        """False once this process has left the others, or lost one of them."""
        return dist.is_initialized()

    def tell(self, message: Tensor) -> None:
        """The leader's message comes to all, in place. Followers wait for it for long."""
        options = BroadcastOptions()
        options.rootRank = LEADER
        # Followers wait here while the leader does what they have no part in.
        options.timeout = PATIENCE
        with self._explaining():
            _everybody().broadcast([message], options).wait()

    def spread(self, values: Tensor) -> None:
        """The leader's values come to all, in place."""
        with self._explaining():
            dist.broadcast(values, LEADER)

    def sum_at_leader(self, values: Tensor) -> None:
        """The leader gets the sum of all, in place; the others are left with zeros."""
        with self._explaining():
            dist.reduce(values, LEADER)
        if self.rank != LEADER:
            values.zero_()

    def gather_numbers(self, numbers: Sequence[int]) -> list[list[int]]:
        """The numbers of every process, in the order of ranks; all give equally many."""
        own = torch.tensor(numbers, dtype=torch.int64)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        with self._explaining():
            dist.all_gather(gathered, own)
        return [numbers.tolist() for numbers in gathered]

    def exchange(self, values: Tensor, leaving: Sequence[int], arriving: Sequence[int]) -> Tensor:
        """Sends some rows to each process and gets rows from each.

        Args:
          values: Rows to send, in the order of the processes that get them.
          leaving: Number of rows that go to each process.
          arriving: Number of rows that come from each process.

        Returns:
          The rows that came, in the order of the processes that sent them.
        """
        arrived = values.new_empty(sum(arriving), *values.shape[1:])
        with self._explaining():
            dist.all_to_all_single(arrived, values, list(arriving), list(leaving))
        return arrived

    def send(self, values: Tensor, rank: int) -> None:
        """Sends values to one process, which must `receive` them."""
        with self._explaining():
            dist.send(values, rank)

    def receive(self, values: Tensor, rank: int) -> None:
        """Gets what one process sends, in place."""
        with self._explaining():
            dist.recv(values, rank)

    def fail(self, reason: str) -> None:
        """Leaves for good; the others hear the reason instead of waiting."""
        with contextlib.suppress(RuntimeError):
            if not self._store.check([_FAILED]):
                self._store.set(_FAILED, reason)
        leave()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            # The connections of a group that lost a process are of no more use. Closing them
            # tells all others.
            reason = self._reason(error)
            leave()
            raise RunStateError(
                f"{reason}; what was done up to the last checkpoint is kept: run the same "
                "command with --resume to go on, with as many processes as you like."
            ) from error

    def _reason(self, error: Exception) -> str:
        with contextlib.suppress(RuntimeError):
            self._store.wait([_FAILED], _TIME_FOR_A_REASON)
            return str(self._store.get(_FAILED), "utf-8")
        if "timed out" in str(error).lower():
            return f"another process did not answer within {self._timeout.total_seconds():g} s"
        return "the connection to another process was lost: it was stopped, or is out of memory"


@contextlib.contextmanager
def join_processes(
    device: str = "cpu", *, timeout: datetime.timedelta = STEP_TIMEOUT
) -> Iterator[TorchProcesses]:
    """Joins the processes that torchrun started with this one, until the end of the block.

    Args:
      device: `cpu`, or `cuda`: each process then uses the GPU of its local rank.
      timeout: Longest wait for another process within a step.

    Raises:
      ConfigError: This process was not started by torchrun.
      RunStateError: The others cannot be reached.
    """
    if missing := [name for name in _VARIABLES if name not in os.environ]:
        raise ConfigError(
            f"{missing[0]} is not in the environment, so there are no processes to join; start "
            "the command with torchrun, or use --processes."
        )
    try:
        store, rank, size = next(rendezvous("env://", timeout=timeout))
    except (RuntimeError, ValueError) as error:
        raise RunStateError(
            "the processes cannot find each other; check MASTER_ADDR and MASTER_PORT, and that "
            "all of them were started."
        ) from error
    with join_through(store, rank=rank, size=size, device=device, timeout=timeout) as processes:
        yield processes


@contextlib.contextmanager
def join_through(
    store: Store,
    *,
    rank: int,
    size: int,
    device: str = "cpu",
    timeout: datetime.timedelta = STEP_TIMEOUT,
) -> Iterator[TorchProcesses]:
    """Joins processes that share a store.

    Args:
      store: Store of torch.distributed through which the processes find each other.
      rank: Number of this process, from 0 on.
      size: Number of all processes.
      device: Device that the processes compute on: 'cpu' or 'cuda'.
      timeout: Longest time to wait for the others in one exchange.
    """
    if dist.is_initialized():
        raise ConfigError(
            "this process is in a group of torch.distributed already; leave it first with "
            "torch.distributed.destroy_process_group()."
        )
    is_cuda = find_device(device).type == "cuda"
    if is_cuda:
        torch.cuda.set_device(_own_gpu(int(os.environ.get("LOCAL_RANK", rank))))
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if is_cuda else "gloo",
            store=PrefixStore("collectives", store),
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
        own = PrefixStore("tulle", store)
        processes = TorchProcesses(rank=rank, size=size, store=own, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        leave()
        raise RunStateError(
            f"process {rank} of {size} found not all others within {timeout.total_seconds():g} s; "
            "check that all of them were started, with the same command."
        ) from error
    try:
        yield processes
    finally:
        leave()


def leave() -> None:
    """Closes all connections of this process to the others."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _everybody() -> dist.ProcessGroup:
    group = dist.group.WORLD
    if group is None:
        raise RuntimeError("this process has left the others")
    return group


def _own_gpu(number: int) -> int:
    num_gpus = torch.cuda.device_count()
    if number >= num_gpus:
        raise ConfigError(
            f"process {number} of this machine has no GPU of its own: torch finds {num_gpus}; "
            "start no more processes than there are GPUs, or use --device cpu."
        )
    return number


Follow = Callable[[Processes], None]

_INTERFACE, _THREADS = "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"
_SECONDS_TO_LEAVE = 10.0  # A follower ends by itself; one that hangs is killed after this.
_SECONDS_BETWEEN_LOOKS = 0.05  # Short beside the seconds in which a process imports torch.


@contextlib.contextmanager
def local_processes(
    size: int,
    follow: Follow,
    *,
    device: str = "cpu",
    timeout: datetime.timedelta = STEP_TIMEOUT,
) -> Iterator[TorchProcesses]:
    """This process and size - 1 more on this machine, until the end of the block.

    Args:
      size: Number of processes, this one included.
      follow: What each of the others does, e.g. open the data and call `follow_fit`. It is
        sent to them, so it must be a function of a module, and should hold no data.
      device: `cpu`, or `cuda`: each process then uses a GPU of its own.
      timeout: Longest wait for another process within a step.

    Raises:
      ConfigError: There is no such device.
      RunStateError: A process could not be started.
    """
    check_count("size", size)
    find_device(device)
    with (
        tempfile.TemporaryDirectory(prefix="tulle-") as folder,
        _environment(size),
        contextlib.ExitStack() as ending,
    ):
        path = Path(folder) / "store"
        start = multiprocessing.get_context("spawn").Process
        followers = [
            start(target=_follow, args=(follow, path, rank, size, device, timeout), daemon=True)
            for rank in range(1, size)
        ]
        for follower in followers:
            follower.start()
            ending.callback(_end, follower)
        store = FileStore(str(path), size)
        _wait_for_all(store, followers)
        with join_through(store, rank=0, size=size, device=device, timeout=timeout) as processes:
            yield processes


def _follow(
    follow: Follow, path: Path, rank: int, size: int, device: str, timeout: datetime.timedelta
) -> None:
    """All that a started process does. The leader hears of its errors, and prints them."""
    # Ctrl-C reaches all processes of a terminal; the leader alone acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    store = FileStore(str(path), size)
    store.set(_arrival(rank), "yes")
    try:
        with join_through(store, rank=rank, size=size, device=device, timeout=timeout) as processes:
            follow(processes)
    except TulleError:
        sys.exit(1)


def _wait_for_all(store: FileStore, followers: list[SpawnProcess]) -> None:
    """Joining would wait for long for a process that could not even start."""
    arrivals = [_arrival(rank) for rank in range(1, len(followers) + 1)]
    deadline = time.monotonic() + STEP_TIMEOUT.total_seconds()
    while arrivals and not store.check(arrivals):
        codes = [follower.exitcode for follower in followers if follower.exitcode is not None]
        if codes or time.monotonic() > deadline:
            shown = f"it ended with exit code {codes[0]}" if codes else "it does not answer"
            raise RunStateError(
                f"another process could not be started: {shown}; see what it printed, or use "
                "one process."
            )
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _arrival(rank: int) -> str:
    return f"arrived {rank}"


def _end(follower: SpawnProcess) -> None:
    """A follower ends by itself once its leader is gone; none is left behind."""
    follower.join(_SECONDS_TO_LEAVE)
    if follower.is_alive():
        follower.kill()
        follower.join()


@contextlib.contextmanager
def _environment(size: int) -> Iterator[None]:
    """Connections within this machine, and processor cores shared out."""
    num_threads = torch.get_num_threads()
    share = max(1, num_threads // size)
    names = [name for _, name in socket.if_nameindex()]
    loopback = next((name for name in names if name.startswith("lo")), "lo")
    added = {_INTERFACE: loopback, _THREADS: str(share)}
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(added)
    torch.set_num_threads(share)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        for name in added:
            del os.environ[name]
