"""How far a run has come, for whoever watches it. Nothing here is raw."""

import dataclasses
import time
from collections.abc import Callable

_WINDOW_SECONDS = 2.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """One moment of a run. It may be shown and logged."""

    phase: str
    step: int
    """Steps done."""
    num_steps: int
    examples_per_second: float
    loss: float | None
    """Noisy, or on released labels; None before the first one."""
    epsilon: float | None
    """Spent at most by now; None for a run without privacy."""


Watch = Callable[[Progress], None]


class SpeedMeter:
    """Examples a second over the last moments. It counts expected, not drawn, sizes."""

    def __init__(self) -> None:
        self._start = self._window_start = time.monotonic()
        self._in_window = 0.0
        self._speed = 0.0

    def add(self, num_examples: float) -> float:
        """The speed after so many more."""
        self._in_window += num_examples
        elapsed = time.monotonic() - self._window_start
        if elapsed >= _WINDOW_SECONDS or self._speed == 0:
            self._speed = self._in_window / max(elapsed, 1e-9)
        if elapsed >= _WINDOW_SECONDS:
            self._window_start, self._in_window = time.monotonic(), 0.0
        return self._speed


class SmoothLoss:
    """A running mean of losses."""

    def __init__(self, decay: float = 0.95) -> None:
        self._decay = decay
        self._sum = self._weight = 0.0

    def add(self, loss: float) -> float:
        """The mean after one more."""
        self._sum = self._decay * self._sum + (1 - self._decay) * loss
        self._weight = self._decay * self._weight + (1 - self._decay)
        return self._sum / self._weight
