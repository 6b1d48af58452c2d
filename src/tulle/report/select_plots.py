"""Plots of ad selection as SVG text.

They show expectations over a market, never single devices.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tulle.errors import DataError
from tulle.report.svg_figures import (
    COLORS,
    LINES,
    MARKERS,
    check_lengths,
    new_figure,
    svg_text,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_INCHES = (4.2, 3.2)
_LEAST_WIDTH_INCHES = 7.5
_BAR_WIDTH = 0.8
_MOST_PANELS_A_ROW = 2
_MOST_LEGEND_COLUMNS = 3
_LETTER_POINTS, _LINE_AND_GAPS_POINTS = 4.6, 36


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionCurve:
    """One mechanism over a setting, such as epsilon, gamma or the number of finalists."""

    label: str
    settings: Sequence[float]
    values: Sequence[float]
    spreads: Sequence[float] | None = None
    """Drawn as a band of one of them to each side. None for no band."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveAxes:
    """What is on the axes of curves."""

    setting_name: str
    value_name: str
    lowest: float | None = None
    """Values below it are cut off, so that one bad mechanism does not flatten the others."""
    highest: float | None = None
    is_percent: bool = True
    """Shows 0.5 as 50%."""


def plot_selection_curves(
    curves: Sequence[SelectionCurve], axes_settings: CurveAxes, *, title: str = ""
) -> str:
    """One line for each mechanism, e.g. the captured share over epsilon.

    Args:
      curves: One for each mechanism.
      axes_settings: Names of the axes and where they are cut.
      title: Above the plot; may be empty.
    """
    with new_figure(title) as (figure, axes):
        _draw_curves(axes, curves, axes_settings)
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        return svg_text(figure, title)


def plot_selection_panels(
    panels: Mapping[str, Sequence[SelectionCurve]], axes_settings: CurveAxes, *, title: str = ""
) -> str:
    """Several plots of curves side by side, with one legend for all of them.

    Args:
      panels: Curves by the title of their panel; a label has the same color in all panels.
      axes_settings: The same for all.
      title: Above the plot; may be empty.
    """
    if not panels:
        raise DataError("there is no panel to plot; give at least one.")
    labels = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    with new_figure("") as (figure, axes):
        figure.delaxes(axes)
        all_axes = _panel_axes(figure, len(panels))
        if title:
            figure.suptitle(title)
        handles: dict[str, Artist] = {}
        for panel, (name, curves) in zip(all_axes, panels.items(), strict=True):
            _draw_curves(panel, curves, axes_settings, labels=labels)
            panel.set_title(name, fontsize="medium")
            drawn, names = panel.get_legend_handles_labels()
            handles |= dict(zip(names, drawn, strict=True))
        figure.legend(
            [handles[label] for label in labels],
            labels,
            loc="outside lower center",
            ncols=_legend_columns(figure, labels),
            fontsize="small",
        )
        return svg_text(figure, title)


def plot_lifts(
    lifts: Mapping[str, Mapping[str, float]], *, value_name: str, title: str = ""
) -> str:
    """Bars of relative changes: one group for each setting, one bar for each metric.

    Args:
      lifts: By setting, then by metric; every setting has the same metrics.
      value_name: What the bars show.
      title: Above the plot; may be empty.
    """
    metrics = list(dict.fromkeys(metric for values in lifts.values() for metric in values))
    if not metrics or any(list(values) != metrics for values in lifts.values()):
        raise DataError("every setting needs the same metrics in the same order, at least one.")
    width = _BAR_WIDTH / len(metrics)
    with new_figure(title) as (figure, axes):
        for index, metric in enumerate(metrics):
            axes.bar(
                [place + (index - (len(metrics) - 1) / 2) * width for place in range(len(lifts))],
                [values[metric] for values in lifts.values()],
                width=width,
                color=COLORS[index % len(COLORS)],
                label=metric,
            )
        axes.axhline(0, color="#666666", linewidth=1)
        names = [name.replace(", ", "\n") for name in lifts]
        axes.set_xticks(range(len(lifts)), names, fontsize="x-small")
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(value_name)
        _tick_percents(axes)
        axes.legend(fontsize="small")
        return svg_text(figure, title)


def plot_overtaking_grid(
    cells: Mapping[str, Mapping[float, float | None]], *, title: str = ""
) -> str:
    """From which epsilon on one mechanism is ahead, by kind of auction and alpha.

    Args:
      cells: Epsilons by group of auctions, then by alpha. None where it never is ahead.
      title: Above the plot; may be empty.
    """
    alphas = sorted({alpha for row in cells.values() for alpha in row}, reverse=True)
    if not alphas or any(set(row) != set(alphas) for row in cells.values()):
        raise DataError("every group of auctions needs the same alphas, at least one.")
    values = [[cells[group][alpha] for group in cells] for alpha in alphas]
    with new_figure(title) as (figure, axes):
        # What never happens is drawn white, with a dash.
        shown = [[float("nan") if cell is None else cell for cell in row] for row in values]
        axes.imshow(shown, cmap="Blues", aspect="auto", vmin=0, vmax=_largest(values) * 1.6)
        for row, cells_of_row in enumerate(values):
            for column, cell in enumerate(cells_of_row):
                text = "–" if cell is None else f"{cell:g}"
                axes.text(column, row, text, ha="center", va="center")
        axes.set_xticks(range(len(cells)), list(cells))
        axes.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
        axes.grid(visible=False)
        axes.set_xlabel("auctions")
        axes.set_ylabel("alpha: share of what devices know")
        return svg_text(figure, title)


def _draw_curves(
    axes: "Axes",
    curves: Sequence[SelectionCurve],
    axes_settings: CurveAxes,
    *,
    labels: Sequence[str] = (),
) -> None:
    order = list(labels) or [curve.label for curve in curves]
    for curve in curves:
        check_lengths(curve.label, curve.settings, curve.values)
        index = order.index(curve.label)
        axes.plot(
            curve.settings,
            curve.values,
            marker=MARKERS[index % len(MARKERS)],
            markersize=4,
            linewidth=1.4,
            # Equal curves lie on top of each other; dashes show all of them.
            linestyle=LINES[index % len(LINES)],
            color=COLORS[index % len(COLORS)],
            label=curve.label,
        )
        if curve.spreads is not None:
            check_lengths(curve.label, curve.settings, curve.spreads)
            _draw_band(axes, curve, curve.spreads, COLORS[index % len(COLORS)])
    if any(value < 0 for curve in curves for value in curve.values):
        axes.axhline(0, color="#666666", linewidth=1)
    axes.set_ylim(axes_settings.lowest, axes_settings.highest)
    axes.set_xlabel(axes_settings.setting_name)
    axes.set_ylabel(axes_settings.value_name)
    if axes_settings.is_percent:
        _tick_percents(axes)


def _draw_band(axes: "Axes", curve: SelectionCurve, spreads: Sequence[float], color: str) -> None:
    axes.fill_between(
        curve.settings,
        [value - spread for value, spread in zip(curve.values, spreads, strict=True)],
        [value + spread for value, spread in zip(curve.values, spreads, strict=True)],
        color=color,
        alpha=0.15,
        linewidth=0,
    )


def _panel_axes(figure: "Figure", num_panels: int) -> list["Axes"]:
    columns = min(num_panels, _MOST_PANELS_A_ROW)
    rows = -(-num_panels // columns)
    width, height = _PANEL_INCHES
    # The legend below needs its width whatever the number of panels.
    figure.set_size_inches(max(columns * width, _LEAST_WIDTH_INCHES), rows * height + 0.6)
    panels = [figure.add_subplot(rows, columns, place + 1) for place in range(num_panels)]
    for panel in panels:
        for side in ("top", "right"):
            panel.spines[side].set_visible(False)
    return panels


def _legend_columns(figure: "Figure", labels: Sequence[str]) -> int:
    """As many as the width has room for, by the longest label in small letters."""
    widest = _LETTER_POINTS * max(len(label) for label in labels) + _LINE_AND_GAPS_POINTS
    num_fitting = int(72 * figure.get_figwidth() / widest)
    return max(min(len(labels), num_fitting, _MOST_LEGEND_COLUMNS), 1)


def _tick_percents(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))


def _largest(values: Sequence[Sequence[float | None]]) -> float:
    return max((cell for row in values for cell in row if cell is not None), default=1.0)
