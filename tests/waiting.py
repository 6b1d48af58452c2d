"""How tests wait: for a condition, with a limit that only a hang reaches."""

import time
from collections.abc import Callable

HANG_S = 900.0
"""Longest wait of any test, in seconds. No machine is so busy; what lasts longer hangs."""


def wait_until(condition: Callable[[], bool], what: str = "a condition") -> None:
    """Returns as soon as a condition holds."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, f"waited {HANG_S:g} s for {what}"
        time.sleep(0.01)
