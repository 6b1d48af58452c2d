"""Charts in a file of their own: valid SVG with every chart, the same for the same numbers."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tulle.errors import ConfigError, DataError
from tulle.report.html.chart_svg import charts_svg, check_plot_name, write_charts
from tulle.report.html.charts import Axis, Bar, BarChart, Chart, Curve, CurveChart

SVG = "{http://www.w3.org/2000/svg}"


def curves(name: str, last: float = 0.4) -> Chart:
    return CurveChart(
        name=name,
        x_axis=Axis(name="epsilon"),
        y_axis=Axis(name="captured share", is_percent=True, low=-1.0),
        curves=(
            Curve(label="randomized response", xs=(1.0, 3.0), ys=(-4.0, last)),
            Curve(label="adaptive", xs=(1.0, 3.0), ys=(0.1, 0.6)),
        ),
    )


BARS = BarChart(name="Bars & <more>", value_name="lift", bars=(Bar(label="a", value=1.0),))


def test_every_chart_is_there_below_its_name() -> None:
    root = ET.fromstring(charts_svg([curves("search"), curves("display"), BARS]))  # noqa: S314
    assert root.tag == f"{SVG}svg"
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    for shown in ("search", "display", "Bars & <more>", "epsilon", "adaptive", "50%", "lift"):
        assert shown in texts
    assert "-400%" not in texts  # the axis is cut
    inner = list(root.findall(f"{SVG}svg"))
    places = [(float(svg.get("x", "")), float(svg.get("y", ""))) for svg in inner]
    assert places[0][1] == places[1][1] < places[2][1]
    assert places[0][0] == places[2][0] < places[1][0]
    _, _, width, height = map(float, root.get("viewBox", "").split())
    for svg, (left, top) in zip(inner, places, strict=True):
        assert left + float(svg.get("width", "")) <= width
        assert top + float(svg.get("height", "")) <= height


def test_colors_need_no_page_around_them() -> None:
    assert "var(" not in charts_svg([curves("search"), BARS])


def test_the_same_numbers_give_the_same_bytes_and_others_do_not() -> None:
    assert charts_svg([curves("a")]) == charts_svg([curves("a")])
    assert charts_svg([curves("a")]) != charts_svg([curves("a", last=0.5)])


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    write_charts(path, [curves("old")])
    write_charts(path, [curves("new")])
    assert path.read_text() == charts_svg([curves("new")])
    assert [found.name for found in tmp_path.iterdir()] == ["plot.svg"]


def test_what_cannot_be_plotted_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leave out the plot"):
        charts_svg([])
    with pytest.raises(ConfigError, match=r"must end in \.svg"):
        check_plot_name(tmp_path / "plot.png")
