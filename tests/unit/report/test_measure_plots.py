"""Plots are valid SVG that shows what it was given, and the same for the same numbers."""

import pathlib
import xml.etree.ElementTree as ET
from collections.abc import Callable

import matplotlib as mpl
import pytest

from tulle.errors import DataError
from tulle.report.measure_plots import (
    ErrorCurve,
    SliceErrors,
    plot_expected_error,
    plot_trust_curves,
)
from tulle.report.svg_figures import write_plot

SVG = "{http://www.w3.org/2000/svg}"
SLICES = [
    SliceErrors(
        label="campaign",
        expected_counts=[0, 12, 340, 5000],
        relative_errors=[0.56, 0.23, 0.008, 0.0006],
        noise_stddev=2.8,
    ),
    SliceErrors(label="campaign x day", expected_counts=[3, 9], relative_errors=[0.6, 0.3]),
]
CURVES = [
    ErrorCurve(label="central", settings=[100, 1000, 10_000], errors=[1.4, 1.4, 1.4]),
    ErrorCurve(label="randomized response", settings=[100, 1000, 10_000], errors=[10, 30, 96]),
]
PLOTS: dict[str, Callable[[], str]] = {
    "expected error": lambda: plot_expected_error(SLICES, tau=5, title="Plan & what $1 buys of $5"),
    "trust": lambda: plot_trust_curves(CURVES, setting_name="users"),
}
AXIS_LABELS = {
    "expected error": ("expected count of the slice", "expected relative error"),
    "trust": ("users", "standard deviation of a count"),
}
each_plot = pytest.mark.parametrize("name", PLOTS)


def parsed(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314  (it is our own)


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in parsed(svg).iter(f"{SVG}text")]


def marks(svg: str, group: str) -> int:
    (found,) = [e for e in parsed(svg).iter(f"{SVG}g") if e.get("id") == group]
    return len(list(found.iter(f"{SVG}use")))


@each_plot
def test_a_plot_is_svg_with_labelled_axes(name: str) -> None:
    svg = PLOTS[name]()
    assert parsed(svg).tag == f"{SVG}svg"
    for label in AXIS_LABELS[name]:
        assert label in texts(svg)


@each_plot
def test_equal_numbers_give_equal_bytes_without_a_date(name: str) -> None:
    svg = PLOTS[name]()
    assert svg == PLOTS[name]()
    assert "dc:date" not in svg


def test_every_slice_has_a_dot() -> None:
    svg = PLOTS["expected error"]()
    assert marks(svg, "slices-0") == 4
    assert marks(svg, "slices-1") == 2
    assert {"campaign", "campaign x day", "tau = 5"} <= set(texts(svg))
    assert 'id="curve-0"' in svg
    assert 'id="curve-1"' not in svg


def test_every_setting_of_a_curve_has_a_mark() -> None:
    svg = PLOTS["trust"]()
    assert [marks(svg, f"curve-{index}") for index in (0, 1)] == [3, 3]
    assert {"central", "randomized response"} <= set(texts(svg))


def test_many_curves_are_all_named_beside_the_plot() -> None:
    curves = [
        ErrorCurve(label=f"method {index}", settings=[1, 10], errors=[1 + index, 2 + index])
        for index in range(8)
    ]
    svg = plot_trust_curves(curves, setting_name="users")
    assert {curve.label for curve in curves} <= set(texts(svg))


def test_ticks_are_plain_numbers() -> None:
    svg = PLOTS["trust"]()
    assert {"100", "1,000", "10,000"} <= set(texts(svg))
    assert "$" not in svg


def test_other_numbers_give_another_plot() -> None:
    longer = ErrorCurve(label="central", settings=[100, 1000], errors=[1.4, 1.5])
    assert plot_trust_curves([longer], setting_name="users") != PLOTS["trust"]()


def test_a_title_is_shown_and_escaped() -> None:
    assert "Plan & what $1 buys of $5" in texts(PLOTS["expected error"]())


def test_settings_of_the_surroundings_change_nothing() -> None:
    expected = PLOTS["trust"]()
    with mpl.rc_context({"axes.facecolor": "black", "svg.fonttype": "path"}):
        assert PLOTS["trust"]() == expected
        assert mpl.rcParams["axes.facecolor"] == "black"


def test_lists_of_different_length_are_refused() -> None:
    with pytest.raises(DataError, match="2 values for 3 places"):
        plot_trust_curves([curve_of([1, 2, 3], [0.1, 0.2])], setting_name="users")
    with pytest.raises(DataError, match="at least one"):
        plot_trust_curves([curve_of([], [])], setting_name="users")


def curve_of(settings: list[float], errors: list[float]) -> ErrorCurve:
    return ErrorCurve(label="central", settings=settings, errors=errors)


def test_a_plot_replaces_the_one_that_is_there(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "plot.svg"
    write_plot(path, PLOTS["trust"]())
    write_plot(path, PLOTS["expected error"]())
    assert path.read_text() == PLOTS["expected error"]()
    assert [entry.name for entry in tmp_path.iterdir()] == ["plot.svg"]
