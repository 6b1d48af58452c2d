"""Epochs: weeks that start at an hour which each browser draws once for itself.

So the loss of a site whose budget runs out late in an epoch falls on other days in other
browsers.
"""

import math

from tulle.measure.w3c.draws import Draws
from tulle.measure.w3c.limits import DAY_SECONDS

_HOUR_SECONDS = 3600


class EpochClock:
    """Turns a time in seconds into the number of its epoch."""

    def __init__(self, epoch_days: int, draws: Draws) -> None:
        self._period = epoch_days * DAY_SECONDS
        self._draws = draws
        self._start: int | None = None

    def epoch_of(self, seconds: int) -> int:
        """The epoch of a time. The first call draws the start, within an epoch before it."""
        if self._start is None:
            drawn = seconds - self._draws.epoch_start() * self._period
            self._start = math.floor(drawn / _HOUR_SECONDS) * _HOUR_SECONDS
        return (seconds - self._start) // self._period
