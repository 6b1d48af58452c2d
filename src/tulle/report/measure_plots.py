"""Plots of measurement errors. They show expected errors and noisy numbers, never raw ones."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tulle.report.svg_figures import COLORS, LINES, MARKERS, check_lengths, new_figure, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LABELS_INSIDE = 4
"""Most labels of a legend that is drawn inside its plot; a longer legend is drawn beside it."""
_NUM_CURVE_POINTS = 60
"""Number of points that a line of expected errors is drawn through."""


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
        check_lengths(group.label, group.expected_counts, group.relative_errors)
    sizes = [max(1.0, float(c)) for group in slices for c in group.expected_counts]
    least, most = min([1.0, *sizes]), max([10.0 * tau, *sizes])
    with new_figure(title) as (figure, axes):
        for index, group in enumerate(slices):
            color = COLORS[index % len(COLORS)]
            axes.plot(
                [max(1.0, float(count)) for count in group.expected_counts],
                group.relative_errors,
                linestyle="none",
                marker=MARKERS[index % len(MARKERS)],
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
        return svg_text(figure, title)


def plot_trust_curves(curves: Sequence[ErrorCurve], *, setting_name: str, title: str = "") -> str:
    """Errors of several trust models over a setting, such as users or epsilon.

    Args:
      curves: One for each method.
      setting_name: What `settings` of the curves are.
      title: Above the plot; may be empty.
    """
    for curve in curves:
        check_lengths(curve.label, curve.settings, curve.errors)
    with new_figure(title) as (figure, axes):
        for index, curve in enumerate(curves):
            axes.plot(
                curve.settings,
                curve.errors,
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                linewidth=1.4,
                # Equal curves lie on top of each other; dashes show all of them.
                linestyle=LINES[index % len(LINES)],
                color=COLORS[index % len(COLORS)],
                label=curve.label,
                gid=f"curve-{index}",
            )
        _label(axes, setting_name, "standard deviation of a count")
        return svg_text(figure, title)


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


def _log_grid(least: float, most: float) -> list[float]:
    ratio = math.log(most / least) / (_NUM_CURVE_POINTS - 1)
    return [least * math.exp(ratio * index) for index in range(_NUM_CURVE_POINTS)]
