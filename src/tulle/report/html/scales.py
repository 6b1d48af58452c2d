"""Places of values on an axis, and which of them get a number."""

import dataclasses
import math
from collections.abc import Sequence

from tulle.report.html.charts import Axis
from tulle.report.html.tables import short_number

_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_FEW_DECADES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scale:
    """A range of values on a range of places."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Place of a value; beyond an end it is at the end."""
        return self.free_place(min(max(value, self.low), self.high))

    def free_place(self, value: float) -> float:
        """Place of a value, also beyond the ends."""
        low, high, found = self.low, self.high, value
        if self.is_log:
            low, high, found = math.log(low), math.log(high), math.log(found)
        return self.start + (self.end - self.start) * (found - low) / (high - low)

    def contains(self, value: float) -> bool:
        """Whether the value has a place of its own."""
        return self.low <= value <= self.high


def scale_of(axis: Axis, values: Sequence[float], *, start: float, end: float) -> Scale:
    """A scale that has room for the values, within the limits of its axis.

    Args:
      axis: Limits of the axis, and whether it is logarithmic.
      values: Values to show. Those that are not finite have no place, nor on a logarithmic axis
        those that are not positive.
      start: Place of the least value on the drawing.
      end: Place of the largest value on the drawing.
    """
    shown = [value for value in values if math.isfinite(value) and (value > 0 or not axis.is_log)]
    low = min(shown, default=1.0)
    high = max(shown, default=1.0)
    low = low if axis.low is None else max(low, axis.low)
    high = high if axis.high is None else min(high, axis.high)
    if axis.is_log:
        low, high = _round_end(low, up=False), _round_end(high, up=True)
    if not low < high:
        low, high = (low / 2, low * 2) if axis.is_log else (low - 0.5, low + 0.5)
    elif not axis.is_log:
        # Curves that end at the frame are cut in half by it.
        margin = 0.04 * (high - low)
        low, high = (0.0 if 0 <= low < margin * 3 else low - margin), high + margin
    return Scale(low=low, high=high, start=start, end=end, is_log=axis.is_log)


def ticks(scale: Scale, *, most: int) -> list[float]:
    """Round values of a scale, `most` or fewer where that is possible."""
    return _log_ticks(scale, most) if scale.is_log else _linear_ticks(scale, most)


def tick_text(value: float, *, is_percent: bool) -> str:
    """A tick in few letters."""
    if is_percent:
        return f"{short_number(round(100 * value, 6))}%"
    if abs(value) >= 1e6:
        return f"{value:.3g}".replace("e+0", "e")
    return short_number(round(value, 12))


def _round_end(value: float, *, up: bool) -> float:
    """The next 1, 2 or 5 times a power of ten, so that both ends of an axis have a number."""
    power = 10.0 ** math.floor(math.log10(value))
    found = [part * power for part in (1.0, 2.0, 5.0, 10.0)]
    if up:
        return min(end for end in found if end >= value * (1 - 1e-9))
    return max(end for end in found if end <= value * (1 + 1e-9))


def _linear_ticks(scale: Scale, most: int) -> list[float]:
    size = 10.0 ** math.floor(math.log10((scale.high - scale.low) / most))
    for factor in _NICE_STEPS:
        step = size * factor
        first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
        if last - first < most:
            break
    return [number * step for number in range(first, last + 1)]


def _log_ticks(scale: Scale, most: int) -> list[float]:
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    parts = (1.0, 2.0, 5.0) if last - first <= _FEW_DECADES else (1.0,)
    every = max(1, math.ceil((last - first) * len(parts) / most)) if len(parts) == 1 else 1
    found = [part * 10.0**power for power in range(first, last + 1, every) for part in parts]
    return [v for v in found if scale.low * (1 - 1e-9) <= v <= scale.high * (1 + 1e-9)]
