"""Marks of an inline SVG: text that is always escaped, and numbers of fixed length.

Colors are those of the page, light or dark; outside of one they are those of a light page.
"""

import html

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
) -> str:
    """Words on one line.

    Args:
      x: Horizontal place of the anchor.
      y: Vertical place of the letters' base line, downwards.
      words: Text to show.
      anchor: Part of the text that is at the place: start, middle or end.
      color: Color of the letters.
      has_rim: Whether a rim hides lines behind the letters.
    """
    rim = f' stroke="{PANEL}" stroke-width="3" paint-order="stroke"' if has_rim else ""
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="{color}" '
        f'font-size="12"{rim}>{escape_html(words)}</text>'
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
