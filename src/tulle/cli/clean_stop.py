"""SIGTERM ends a command as an interrupt does: what it had begun is cleared away."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from tulle.errors import RunInterruptedError


@contextlib.contextmanager
def stopping_cleanly(message: str) -> Iterator[None]:
    """Turns SIGTERM into an error with this message while the block runs."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise RunInterruptedError(message)

    try:
        old = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # Not in the main thread, where Python allows no handlers.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)
