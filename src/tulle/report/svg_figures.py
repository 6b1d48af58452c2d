"""Figures as SVG text, the same bytes for the same numbers.

Text stays text, so that a page can be searched, and nothing but the figures themselves decides
what is written.
"""

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.atomic_files import stage_text, sync_folder
from tulle.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
"""Okabe and Ito's: told apart by most who do not see all colors."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "d")
LINES = ("-", "--", ":")

_SIZE_INCHES = (7.5, 4.2)
_SETTINGS: dict[Any, object] = {
    "svg.hashsalt": "tulle",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@contextmanager
def new_figure(title: str) -> Iterator[tuple["Figure", "Axes"]]:
    """An empty figure in the one style of all plots; the title may be empty."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots need matplotlib; pip install 'tulle[report]'.") from None

    with mpl.rc_context():
        # Not the settings of whoever runs it.
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = Figure(figsize=_SIZE_INCHES, layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if title:
            axes.set_title(title)
        yield figure, axes


def svg_text(figure: "Figure", title: str) -> str:
    """A figure that is done, as text."""
    text = io.StringIO()
    metadata = {"Date": None, "Creator": "tulle"} | ({"Title": title} if title else {})
    figure.savefig(text, format="svg", metadata=metadata)
    return text.getvalue()


def write_plot(path: Path, svg: str) -> None:
    """Writes a plot, as a whole or not at all, over the one that may be there."""
    staged = stage_text(path, svg)
    try:
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(path.parent)


def check_lengths(name: str, settings: Sequence[object], values: Sequence[object]) -> None:
    """Refuses a curve without points, or with a number that has no place.

    Args:
      name: Name of the curve, for the error message.
      settings: Places of the points.
      values: Values at these places.
    """
    if len(settings) != len(values) or not settings:
        raise DataError(
            f"{name!r} has {len(values)} values for {len(settings)} places; give as many, "
            "and at least one."
        )
