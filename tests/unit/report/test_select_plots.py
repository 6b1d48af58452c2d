"""Plots of selection are valid SVG that shows what it was given, the same for the same numbers."""

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from tulle.errors import DataError
from tulle.report.select_plots import (
    CurveAxes,
    SelectionCurve,
    plot_lifts,
    plot_overtaking_grid,
    plot_selection_curves,
    plot_selection_panels,
)
from tulle.select.market.epsilon_sweep import (
    ADAPTIVE,
    PAPER_CUTOFF,
    SCALED,
    TUNED_CLIPPED,
    TUNED_CUTOFF,
    WITH_PRIOR,
)

SVG = "{http://www.w3.org/2000/svg}"
CURVES = [
    SelectionCurve(label="randomized response", settings=[1, 3, 5], values=[-4.4, -1.6, 0.45]),
    SelectionCurve(
        label="adaptive", settings=[1, 3, 5], values=[0.15, 0.61, 0.87], spreads=[0.1, 0.1, 0.1]
    ),
]
AXES = CurveAxes(setting_name="epsilon", value_name="captured share", lowest=-1.0)
LIFTS = {
    "a click, server": {"revenue": 0.3, "surplus": -0.2},
    "a click, uninformed": {"revenue": 0.5, "surplus": -0.4},
}
CELLS = {"3 candidates": {1.0: 1.5, 0.1: 6.0}, "15 candidates": {1.0: 2.5, 0.1: None}}
PLOTS: dict[str, Callable[[], str]] = {
    "curves": lambda: plot_selection_curves(CURVES, AXES, title="Search & $1"),
    "panels": lambda: plot_selection_panels({"search": CURVES, "display": CURVES[:1]}, AXES),
    "lifts": lambda: plot_lifts(LIFTS, value_name="lift"),
    "grid": lambda: plot_overtaking_grid(CELLS),
}
SHOWN = {
    "curves": ["epsilon", "captured share", "randomized response", "adaptive", "50%"],
    "panels": ["search", "display", "epsilon", "captured share", "adaptive"],
    "lifts": ["lift", "revenue", "surplus", "a click", "uninformed"],
    "grid": ["1.5", "2.5", "6", "–", "3 candidates", "0.1", "alpha: share of what devices know"],
}
each_plot = pytest.mark.parametrize("name", PLOTS)


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)  # noqa: S314  (it is our own)
    assert root.tag == f"{SVG}svg"
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def num_lines(svg: str, color: str) -> int:
    """Of three points, the one in the legend among them."""
    root = ET.fromstring(svg)  # noqa: S314  (it is our own)
    paths = [path for path in root.iter(f"{SVG}path") if color in path.get("style", "")]
    return sum(path.get("d", "").count("L") == 2 for path in paths)


@each_plot
def test_a_plot_shows_its_names_and_numbers(name: str) -> None:
    found = texts(PLOTS[name]())
    assert [text for text in SHOWN[name] if text not in found] == []


@each_plot
def test_the_same_numbers_give_the_same_bytes(name: str) -> None:
    assert PLOTS[name]() == PLOTS[name]()


def test_other_numbers_give_another_plot() -> None:
    other = SelectionCurve(label="randomized response", settings=[1, 3, 5], values=[-4, -1.6, 0])
    assert plot_selection_curves([other], AXES) != plot_selection_curves(CURVES[:1], AXES)


def test_a_mechanism_has_the_same_color_in_every_panel() -> None:
    svg = plot_selection_panels({"search": CURVES, "display": CURVES[1:]}, AXES)
    # The first of the two is missing in the second panel: its color must not move to the other.
    assert (num_lines(svg, "#0072b2"), num_lines(svg, "#d55e00")) == (2, 3)


@pytest.mark.parametrize("num_panels", [1, 2])
def test_long_labels_of_a_legend_are_inside_the_figure(num_panels: int) -> None:
    from matplotlib.textpath import TextPath

    labels = [PAPER_CUTOFF, TUNED_CUTOFF, ADAPTIVE, WITH_PRIOR, SCALED, TUNED_CLIPPED]
    curves = [SelectionCurve(label=label, settings=[1, 3], values=[0, 1]) for label in labels]
    svg = plot_selection_panels({f"market {n}": curves for n in range(num_panels)}, AXES)
    root = ET.fromstring(svg)  # noqa: S314  (it is our own)
    left, _, width, _ = map(float, root.get("viewBox", "").split())
    shown = {text.text: float(text.get("x", "nan")) for text in root.iter(f"{SVG}text")}
    for label in labels:
        length = TextPath((0, 0), label, size=8.33).get_extents().width
        assert left <= shown[label] < shown[label] + length <= left + width


def test_values_below_the_lowest_do_not_stretch_the_axis() -> None:
    ticks = texts(plot_selection_curves(CURVES, AXES))
    assert "−400%" not in ticks
    assert "-400%" not in ticks


@pytest.mark.parametrize(
    "plot",
    [
        lambda: plot_selection_panels({}, AXES),
        lambda: plot_lifts({}, value_name="lift"),
        lambda: plot_lifts({"a": {"x": 1.0}, "b": {"y": 1.0}}, value_name="lift"),
        lambda: plot_overtaking_grid({}),
        lambda: plot_overtaking_grid({"a": {1.0: 1.0}, "b": {0.5: 1.0}}),
        lambda: plot_selection_curves([SelectionCurve(label="a", settings=[1.0], values=[])], AXES),
    ],
)
def test_what_cannot_be_plotted_is_refused(plot: Callable[[], str]) -> None:
    with pytest.raises(DataError, match="at least one"):
        plot()
