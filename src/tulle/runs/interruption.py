"""Stopping at a good moment when somebody asks for it."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@dataclasses.dataclass
class StopRequest:
    """Whether somebody asked this process to stop."""

    requested: bool = False


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turns SIGTERM and SIGINT into a request that a loop can look at.

    A second SIGINT raises KeyboardInterrupt: the wish is urgent. A signal that the
    process was started to ignore stays ignored. Outside the main thread, where Python
    allows no handlers, nothing is installed and the request never comes.
    """
    request, num_interrupts = StopRequest(), 0

    def note(number: int, _frame: FrameType | None) -> None:
        nonlocal num_interrupts
        request.requested = True
        num_interrupts += number == signal.SIGINT
        if num_interrupts > 1:
            raise KeyboardInterrupt

    with contextlib.ExitStack() as restoring:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN:
                    # None: a handler that was not installed from Python and cannot be put back.
                    restoring.callback(
                        signal.signal, number, signal.SIG_DFL if old is None else old
                    )
                    signal.signal(number, note)
        yield request
