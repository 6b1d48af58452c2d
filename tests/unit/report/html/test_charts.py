"""Charts draw the numbers they are given, to scale, and list them in their tables."""

import re

import pytest

from tulle.errors import DataError
from tulle.report.html.chart_svg import chart_svg
from tulle.report.html.charts import MOST_BARS, Axis, Bar, BarChart, Curve, CurveChart, MatrixChart
from tulle.report.html.curve_svg import is_cut


def _numbers(svg: str, tag: str, name: str) -> list[float]:
    return [float(found) for found in re.findall(rf'<{tag} [^>]*?\b{name}="([-\d.]+)"', svg)]


def test_bars_are_as_long_as_their_values() -> None:
    bars = (Bar(label="a", value=10.0), Bar(label="b", value=40.0), Bar(label="c", value=-20.0))
    svg = chart_svg(BarChart(name="n", value_name="v", bars=bars))
    a, b, c = _numbers(svg, "rect", "width")
    assert b / a == pytest.approx(4, rel=0.01)
    assert c / a == pytest.approx(2, rel=0.01)
    starts = _numbers(svg, "rect", "x")
    assert starts[2] + c == pytest.approx(starts[0], abs=0.05)  # all begin at zero


def test_intervals_reach_from_low_to_high() -> None:
    bar = Bar(label="a", value=50.0, low=25.0, high=100.0)
    svg = chart_svg(BarChart(name="n", value_name="v", bars=(bar,)))
    width = _numbers(svg, "rect", "width")[0]
    start = _numbers(svg, "rect", "x")[0]
    ends = [
        (float(x1), float(x2))
        for x1, x2 in re.findall(r'<line x1="([\d.]+)"[^>]*x2="([\d.]+)"[^>]*width="1.6"', svg)
    ]
    low, high = ends[0]
    assert (low - start) / width == pytest.approx(0.5, rel=0.01)
    assert (high - start) / width == pytest.approx(2.0, rel=0.01)
    assert "50 (25 to 100)" in svg


def test_a_value_that_is_not_known_has_no_bar() -> None:
    bars = (Bar(label="a", value=None), Bar(label="b", value=1.0))
    svg = chart_svg(BarChart(name="n", value_name="v", bars=bars))
    assert svg.count("<rect") == 1
    assert "unknown" in svg


def test_long_charts_are_cut_and_their_table_is_not() -> None:
    bars = tuple(Bar(label=f"b{n}", value=float(n)) for n in range(MOST_BARS + 5))
    chart = BarChart(name="n", value_name="v", bars=bars)
    assert chart_svg(chart).count("<rect") == MOST_BARS
    assert len(chart.to_table().rows) == MOST_BARS + 5


def test_points_of_a_curve_are_where_their_values_are() -> None:
    curve = Curve(label="c", xs=(0.0, 1.0, 4.0), ys=(0.0, 10.0, 30.0))
    svg = chart_svg(
        CurveChart(name="n", x_axis=Axis(name="x"), y_axis=Axis(name="y"), curves=(curve,))
    )
    xs, ys = _numbers(svg, "circle", "cx"), _numbers(svg, "circle", "cy")
    assert (xs[2] - xs[0]) / (xs[1] - xs[0]) == pytest.approx(4, rel=0.01)
    assert (ys[0] - ys[2]) / (ys[0] - ys[1]) == pytest.approx(3, rel=0.01)
    assert svg.count("<polyline") == 2  # the curve, and its mark in the legend


def _chart(*curves: Curve, low: float | None = None) -> CurveChart:
    return CurveChart(
        name="n", x_axis=Axis(name="x"), y_axis=Axis(name="y", low=low), curves=curves
    )


def test_values_beyond_the_axis_are_not_drawn_at_its_end() -> None:
    curve = Curve(label="", xs=(0.0, 1.0, 2.0), ys=(1.0, 0.0, -9.0))
    svg = chart_svg(_chart(curve, low=-1.0))
    assert svg.count("<circle") == 2
    (places,) = re.findall(r'points="([^"]+)"', svg)
    *_, last_x, last_y = map(float, places.replace(",", " ").split())
    bottom = max(_numbers(svg, "line", "y1"))
    xs = _numbers(svg, "circle", "cx")
    assert last_y == pytest.approx(bottom, abs=0.1)
    # The line is cut where it leaves the frame, soon after its second point.
    assert xs[1] < last_x < xs[1] + 0.2 * (xs[1] - xs[0])
    assert is_cut(_chart(curve, low=-1.0))
    assert not is_cut(_chart(curve))


def test_ranges_of_a_curve_reach_from_low_to_high_and_are_in_its_table() -> None:
    curve = Curve(label="c", xs=(1.0, 2.0), ys=(5.0, 6.0), ranges=((4.0, 8.0), (5.0, 7.0)))
    svg = chart_svg(_chart(curve))
    dots = _numbers(svg, "circle", "cy")
    spans = [
        (float(y1), float(y2))
        for x1, y1, x2, y2 in re.findall(
            r'<line x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"[^>]*width="1.4"', svg
        )
        if x1 == x2
    ]
    (low, high), _ = spans
    step = dots[0] - dots[1]
    assert low - dots[0] == pytest.approx(step, rel=0.01)
    assert dots[0] - high == pytest.approx(3 * step, rel=0.01)
    assert _chart(curve).to_table().rows == (("c", 1.0, 5.0, 4.0, 8.0), ("c", 2.0, 6.0, 5.0, 7.0))
    with pytest.raises(DataError, match="as many"):
        Curve(label="c", xs=(1.0, 2.0), ys=(5.0, 6.0), ranges=((4.0, 8.0),))


def test_a_reference_is_a_grey_line_without_dots() -> None:
    own = Curve(label="own", xs=(0.0, 1.0), ys=(0.0, 1.0))
    reference = Curve(label="level", xs=(0.0, 1.0), ys=(0.5, 0.5), is_reference=True)
    svg = chart_svg(_chart(own, reference))
    assert svg.count("<circle") == 3  # two points of the other curve, and its mark in the legend
    assert svg.count('stroke-dasharray="4 4"') == 2


def test_bars_to_compare_with_are_paler() -> None:
    bars = (Bar(label="a", value=1.0), Bar(label="b", value=1.0, is_muted=True))
    svg = chart_svg(BarChart(name="n", value_name="v", bars=bars))
    own, other = re.findall(r'<rect [^>]*fill="([^"]+)"', svg)
    assert own != other


def test_numbers_of_bars_have_as_many_decimals() -> None:
    bars = (Bar(label="a", value=2.0, low=1.0, high=3.0), Bar(label="b", value=12.345))
    svg = chart_svg(BarChart(name="n", value_name="v", bars=bars))
    assert ">2.0 (1.0 to 3.0)<" in svg
    assert ">12.3<" in svg


def test_the_table_of_curves_has_a_column_for_each() -> None:
    chart = CurveChart(
        name="n",
        x_axis=Axis(name="x"),
        y_axis=Axis(name="y"),
        curves=(
            Curve(label="a", xs=(1.0, 2.0), ys=(3.0, 4.0)),
            Curve(label="b", xs=(2.0,), ys=(5.0,)),
            Curve(label="none", xs=(), ys=()),
        ),
    )
    table = chart.to_table()
    assert table.head == ("x", "a", "b")
    assert table.rows == ((1.0, 3.0, None), (2.0, 4.0, 5.0))
    cloud = CurveChart(
        name="n",
        x_axis=Axis(name="x"),
        y_axis=Axis(name="y"),
        curves=(Curve(label="a", xs=(1.0, 1.0), ys=(3.0, 4.0), has_line=False),),
    )
    assert cloud.to_table().rows == (("a", 1.0, 3.0), ("a", 1.0, 4.0))
    assert "<polyline" not in chart_svg(cloud)


def test_shades_of_a_channel_follow_its_chances() -> None:
    chart = MatrixChart(
        name="n",
        row_name="in",
        column_name="out",
        row_labels=("0", "1"),
        column_labels=("0", "1"),
        values=((0.8, 0.2), (0.4, 0.6)),
    )
    svg = chart_svg(chart)
    assert _numbers(svg, "rect", "fill-opacity") == [1, 0.25, 0.5, 0.75]
    assert all(f"{chance}%" in svg for chance in (80, 20, 40, 60))
    assert chart.to_table().rows[0] == ("0", 0.8, 0.2)


def test_charts_without_content_are_refused() -> None:
    with pytest.raises(DataError, match="no bar"):
        BarChart(name="n", value_name="v", bars=())
    with pytest.raises(DataError, match="no point"):
        CurveChart(name="n", x_axis=Axis(name="x"), y_axis=Axis(name="y"), curves=())
    with pytest.raises(DataError, match="as many"):
        Curve(label="c", xs=(1.0,), ys=())
    with pytest.raises(DataError, match="one value for each"):
        MatrixChart(
            name="n",
            row_name="in",
            column_name="out",
            row_labels=("0",),
            column_labels=("0", "1"),
            values=((1.0,),),
        )
