"""Starts the other processes of a run on this machine; this one leads them.

They find each other through a file in a folder of this user's, and talk over the loopback
interface: no port can be reached from outside.
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
from collections.abc import Callable, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch
from torch._C._distributed_c10d import FileStore

from tulle.errors import RunStateError, TulleError
from tulle.privacy.fields import check_count
from tulle.train.steps.processes.processes import Processes
from tulle.train.steps.processes.torch_processes import STEP_TIMEOUT, TorchProcesses, join_through
from tulle.train.steps.step_context import find_device

Follow = Callable[[Processes], None]

_INTERFACE, _THREADS = "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"
_SECONDS_TO_LEAVE = 10.0
_SECONDS_BETWEEN_LOOKS = 0.05


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
    added = {_INTERFACE: _loopback(), _THREADS: str(share)}
    added = {name: value for name, value in added.items() if name not in os.environ}
    os.environ.update(added)
    torch.set_num_threads(share)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        for name in added:
            del os.environ[name]


def _loopback() -> str:
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), "lo")
