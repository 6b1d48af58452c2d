"""Marks of an inline SVG, and the places of values on its axes.

Text is always escaped, and numbers have a fixed length. Colors are those of the page, light or
dark; outside of one they are those of a light page.
"""

import dataclasses
import html
import math
from collections.abc import Sequence

from tulle.report.html.charts import Axis, short_number

WIDTH = 380.0
"""Width of every chart, in its own units: at 390 pixels letters stay legible."""
INK, FAINT = "var(--ink, #1b1f24)", "var(--faint, #57606a)"
GRID, AXIS = "var(--grid, #e3e6ea)", "var(--axis, #8c959f)"
PANEL, ON_SHADE = "var(--panel, #ffffff)", "#ffffff"
SERIES = (
    *("var(--series-1, #0072b2)", "var(--series-2, #d55e00)", "var(--series-3, #009e73)"),
    *("var(--series-4, #cc79a7)", "var(--series-5, #e69f00)", "var(--series-6, #56b4e9)"),
    *(INK, AXIS),
)
"""Okabe and Ito's colors; paler ones on dark pages."""
LETTER_WIDTH = 7.0
"""Approximate width of a small letter."""

_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Steps between numbers on an axis, each times a power of ten."""
_FEW_DECADES = 2
"""Most powers of ten on a logarithmic axis that also has numbers at 2 and 5."""


def svg_document(name: str, height: float, marks: list[str]) -> str:
    """A whole SVG with its name for those who do not see it.

    Args:
      name: What the chart shows.
      height: Height of the drawing.
      marks: Elements of the drawing, those behind first.
    """
    title = escape_html(name)
    return (
        f'<svg viewBox="0 0 {_n(WIDTH)} {_n(height)}" role="img" aria-label="{title}">'
        f"<title>{title}</title>{''.join(marks)}</svg>"
    )


def line(x1: float, y1: float, x2: float, y2: float, *, color: str, width: float = 1) -> str:
    """A straight line.

    Args:
      x1: Horizontal place of its first end.
      y1: Vertical place of its first end, downwards.
      x2: Horizontal place of its other end.
      y2: Vertical place of its other end, downwards.
      color: Color of the line.
      width: Thickness of the line.
    """
    return (
        f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" stroke="{color}" '
        f'stroke-width="{_n(width)}"/>'
    )


def path(points: list[tuple[float, float]], *, color: str, dashes: str = "") -> str:
    """A line through points.

    Args:
      points: Places that it goes through, from left and from the top.
      color: Color of the line.
      dashes: Lengths of dashes and gaps; empty for a solid line.
    """
    places = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.8" '
        f'stroke-linejoin="round"{dashed}/>'
    )


def box(x: float, y: float, width: float, height: float, *, color: str, opacity: float = 1) -> str:
    """A filled rectangle.

    Args:
      x: Place of its left side.
      y: Place of its upper side, downwards.
      width: Width; less than half a unit is drawn as that, so that it can be seen.
      height: Height.
      color: Color that fills it.
      opacity: Opacity from 0 to 1.
    """
    return (
        f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(max(width, 0.5))}" height="{_n(height)}" '
        f'fill="{color}" fill-opacity="{_n(opacity)}"/>'
    )


def dot(x: float, y: float, *, color: str, radius: float) -> str:
    """A round mark.

    Args:
      x: Horizontal place of its centre.
      y: Vertical place of its centre, downwards.
      color: Color that fills it.
      radius: Radius of the mark.
    """
    return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{color}"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    color: str = INK,
    has_rim: bool = True,
    turn: float = 0,
) -> str:
    """Words on one line.

    Args:
      x: Horizontal place of the anchor.
      y: Vertical place of the letters' base line, downwards.
      words: Text to show.
      anchor: Part of the text that is at the place: start, middle or end.
      color: Color of the letters.
      has_rim: Whether a rim hides lines behind the letters.
      turn: Degrees by which they rise around their anchor.
    """
    rim = f' stroke="{PANEL}" stroke-width="3" paint-order="stroke"' if has_rim else ""
    turned = f' transform="rotate({_n(-turn)} {_n(x)} {_n(y)})"' if turn else ""
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="{color}" '
        f'font-size="12"{rim}{turned}>{escape_html(words)}</text>'
    )


def shortened(words: str, *, width: float) -> str:
    """Words that fit a width, with an ellipsis where they were cut."""
    room = max(4, int(width / LETTER_WIDTH))
    return words if len(words) <= room else f"{words[: room - 1]}…"


def _n(value: float) -> str:
    """Two decimals, without a minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")


def escape_html(words: str) -> str:
    """Text for an element or a quoted attribute."""
    # Marks without a shape could turn around the order of what is read.
    visible = "".join(
        character if character.isprintable() or character in "\n\t" else "\ufffd"
        for character in words
    )
    return html.escape(visible, quote=True)


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
