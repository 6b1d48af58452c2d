"""Plots of measurement errors as SVG text, the same bytes for the same numbers.

They show expected errors and noisy numbers only, never raw ones. Text stays text, so that a page
can be searched, and nothing but the figures themselves decides what is written.
"""

import dataclasses
import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tulle.durable_files import stage_text, sync_folder
from tulle.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888")
"""Okabe and Ito's: told apart by most who do not see all colors."""
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "d")
_LINES = ("-", "--", ":")
_MOST_LABELS_INSIDE = 4
_SIZE_INCHES = (7.5, 4.2)
_NUM_CURVE_POINTS = 60
"""Of names side by side under a plot; more are turned."""
_SETTINGS: dict[Any, object] = {
    "svg.hashsalt": "tulle",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SliceErrors:
    """Slices with the same noise, e.g. one level of a hierarchy."""

    label: str
    expected_counts: Sequence[float]
    relative_errors: Sequence[float]
    noise_stddev: float | None = None
    """Draws the error of every other slice size as a line. None for no line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorCurve:
    """Errors of one method over a setting."""

    label: str
    settings: Sequence[float]
    errors: Sequence[float]


def plot_expected_error(slices: Sequence[SliceErrors], *, tau: float, title: str = "") -> str:
    """Relative error against slice size: one dot a slice, and where sizes below tau end.

    Args:
      slices: Expected counts and errors. Counts of 0 are drawn at the left edge.
      tau: Counts below it are judged as if they were this.
      title: Above the plot; may be empty.
    """
    for group in slices:
        _check_lengths(group.label, group.expected_counts, group.relative_errors)
    sizes = [max(1.0, float(c)) for group in slices for c in group.expected_counts]
    least, most = min([1.0, *sizes]), max([10.0 * tau, *sizes])
    with _figure(title) as (figure, axes):
        for index, group in enumerate(slices):
            color = _COLORS[index % len(_COLORS)]
            axes.plot(
                [max(1.0, float(count)) for count in group.expected_counts],
                group.relative_errors,
                linestyle="none",
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=5,
                color=color,
                label=group.label,
                gid=f"slices-{index}",
            )
            if group.noise_stddev is not None:
                grid = _log_grid(least, most)
                errors = [group.noise_stddev / max(tau, size) for size in grid]
                axes.plot(grid, errors, color=color, linewidth=1, gid=f"curve-{index}")
        axes.axvline(tau, color="#666666", linestyle="--", linewidth=1, label=f"tau = {tau:g}")
        _label(axes, "expected count of the slice", "expected relative error")
        return _svg(figure, title)


def plot_trust_curves(curves: Sequence[ErrorCurve], *, setting_name: str, title: str = "") -> str:
    """Errors of several trust models over a setting, such as users or epsilon.

    Args:
      curves: One for each method.
      setting_name: What `settings` of the curves are.
      title: Above the plot; may be empty.
    """
    for curve in curves:
        _check_lengths(curve.label, curve.settings, curve.errors)
    with _figure(title) as (figure, axes):
        for index, curve in enumerate(curves):
            axes.plot(
                curve.settings,
                curve.errors,
                marker=_MARKERS[index % len(_MARKERS)],
                markersize=4,
                linewidth=1.4,
                # Equal curves lie on top of each other; dashes show all of them.
                linestyle=_LINES[index % len(_LINES)],
                color=_COLORS[index % len(_COLORS)],
                label=curve.label,
                gid=f"curve-{index}",
            )
        _label(axes, setting_name, "standard deviation of a count")
        return _svg(figure, title)


def write_plot(path: Path, svg: str) -> None:
    """Writes a plot, as a whole or not at all, over the one that may be there."""
    staged = stage_text(path, svg)
    try:
        os.replace(staged, path)
    finally:
        staged.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def _figure(title: str) -> Iterator[tuple["Figure", "Axes"]]:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("--plot needs matplotlib; pip install 'tulle[report]'.") from None

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


def _label(axes: "Axes", x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _tick_decades(axes)
    num_labels = len(axes.get_legend_handles_labels()[1])
    if num_labels > _MOST_LABELS_INSIDE:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif num_labels:
        axes.legend(fontsize="small")


def _tick_decades(axes: "Axes") -> None:
    """Numbers as text, at 1 and also at 2 and 5 where there are few decades."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        is_narrow = high < 100 * low
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if is_narrow else (1.0,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick_text(value)))
        axis.set_minor_formatter(NullFormatter())


def _tick_text(value: float) -> str:
    return f"{value:,.0f}" if 1 <= value < 1e6 else f"{value:g}"


def _svg(figure: "Figure", title: str) -> str:
    text = io.StringIO()
    metadata = {"Date": None, "Creator": "tulle"} | ({"Title": title} if title else {})
    figure.savefig(text, format="svg", metadata=metadata)
    return text.getvalue()


def _log_grid(least: float, most: float) -> list[float]:
    ratio = math.log(most / least) / (_NUM_CURVE_POINTS - 1)
    return [least * math.exp(ratio * index) for index in range(_NUM_CURVE_POINTS)]


def _check_lengths(name: str, settings: Sequence[object], values: Sequence[object]) -> None:
    if len(settings) != len(values) or not settings:
        raise DataError(
            f"{name!r} has {len(values)} values for {len(settings)} places; give as many, "
            "and at least one."
        )
