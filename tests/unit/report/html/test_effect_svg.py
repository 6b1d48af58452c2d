"""Pictures of effects: every number has its place, and labels stay inside."""

import math
import re

import pytest

from tulle.errors import DataError
from tulle.report.html.chart_svg import chart_svg
from tulle.report.html.charts import Bar, Chart, HeatChart, StepChart, WaterfallChart
from tulle.report.html.page import Figure, Page, Section
from tulle.report.html.page_text import render_html, render_markdown
from tulle.report.html.svg_marks import LETTER_WIDTH, SERIES, WIDTH
from unit.report.html.html_checks import faults_of
from unit.report.html.sample_releases import HOSTILE

BLUE, ORANGE = SERIES[0], SERIES[1]
HOURS = tuple(
    Bar(label=f"{hour:02d}:00", value=math.sin(hour), low=math.sin(hour) - 0.1, high=1.2)
    for hour in range(24)
)
LOOSE = Bar(label="missing", value=0.0, low=-2.0, high=2.0)
LONG = tuple(f"campaign number {number} of a long name" for number in range(12))
WHOLE = (
    StepChart(name="steps", x_name="hour", y_name="effect", bars=(*HOURS, LOOSE), num_joined=24),
    StepChart(name="one step", x_name="hour", y_name="effect", bars=(LOOSE,), num_joined=0),
    HeatChart(
        name="heat",
        row_name="campaign",
        column_name="device",
        value_name="effect",
        row_labels=LONG,
        column_labels=LONG[:8],
        values=tuple(tuple(0.1 * (row - column) for column in range(8)) for row in range(12)),
    ),
    WaterfallChart(
        name="sum",
        value_name="log odds",
        start_label="start",
        start=-2.0,
        parts=(Bar(label="a", value=1.5, low=1.4, high=1.6), Bar(label="b", value=-0.5)),
        end_label=HOSTILE,
    ),
)


@pytest.mark.parametrize("chart", WHOLE, ids=lambda chart: chart.name)
def test_a_picture_is_whole_and_inside_its_frame(chart: Chart) -> None:
    page = Page(title="t", verdict="v", is_private=None, sections=(Section("s", (Figure(chart),)),))
    assert faults_of(render_html(page)) == []
    assert render_markdown(page)
    svg = chart_svg(chart)
    for x, y, width, height in re.findall(
        r'<rect x="([\d.-]+)" y="([\d.-]+)" width="([\d.]+)" height="([\d.-]+)"', svg
    ):
        assert float(x) >= 0
        assert float(x) + float(width) <= WIDTH
        assert float(height) >= 0
        assert float(y) >= 0
    for x, anchor, words in re.findall(
        r'<text x="([\d.-]+)" y="[\d.-]+" text-anchor="(\w+)" [^>]*?>([^<]*)<', svg
    ):
        if "rotate" not in svg[svg.index(words) - 90 : svg.index(words)]:
            length = LETTER_WIDTH * len(words.replace("&lt;", "<").replace("&gt;", ">")) * 0.8
            left = float(x) - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
            assert left > -8, words


def test_a_sum_goes_from_part_to_part() -> None:
    chart = WHOLE[3]
    assert isinstance(chart, WaterfallChart)
    assert chart.sums == (-2.0, -0.5, -1.0)
    rows = chart.to_table().rows
    assert rows[0] == ("start", None, None, None, -2.0)
    assert rows[1] == ("a", 1.5, 1.4, 1.6, -0.5)
    assert rows[-1][-1] == -1.0
    svg = chart_svg(chart)
    boxes = re.findall(r'<rect x="([\d.]+)"[^>]*?width="([\d.]+)"[^>]*fill="([^"]+)"', svg)
    up, down = boxes[1], boxes[2]
    assert (up[2], down[2]) == (ORANGE, BLUE)
    # Down starts where up ended, and a part is as wide as its change.
    assert float(up[0]) + float(up[1]) == pytest.approx(float(down[0]) + float(down[1]), abs=0.02)
    assert float(up[1]) == pytest.approx(3 * float(down[1]), abs=0.05)


def test_shades_have_the_color_of_the_sign_and_the_strength_of_the_size() -> None:
    values = ((0.5, -1.0), (0.0, 0.25))
    chart = HeatChart(
        name="heat",
        row_name="a",
        column_name="b",
        value_name="effect",
        row_labels=("x", "y"),
        column_labels=("u", "v"),
        values=values,
        ranges=tuple(tuple((value - 1, value + 1) for value in row) for row in values),
    )
    found = re.findall(r'fill="([^"]+)" fill-opacity="([\d.]+)"', chart_svg(chart))[:4]
    assert [color for color, _ in found[:2]] == [ORANGE, BLUE]
    assert [float(opacity) for _, opacity in found] == [0.45, 0.9, 0.0, pytest.approx(0.23)]
    assert ">-1.0</text>" in chart_svg(chart)
    assert chart.to_table().rows[1] == ("x", "v", -1.0, -2.0, 0.0)


def test_values_that_stand_apart_are_not_joined() -> None:
    joined = StepChart(name="s", x_name="x", y_name="y", bars=HOURS[:3], num_joined=3)
    apart = StepChart(name="s", x_name="x", y_name="y", bars=HOURS[:3], num_joined=1)

    def rises(chart: StepChart) -> int:
        lines = re.findall(
            r'<line x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"[^>]*"1.8"', chart_svg(chart)
        )
        return sum(start == end for start, end in lines)

    assert (rises(joined), rises(apart)) == (2, 0)
    assert joined.to_table().head == ("x", "y", "low", "high")


def test_a_picture_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="no step; leave it out"):
        StepChart(name="s", x_name="x", y_name="y", bars=(), num_joined=0)
    with pytest.raises(DataError, match="one value for each row and column"):
        HeatChart(
            name="h",
            row_name="a",
            column_name="b",
            value_name="v",
            row_labels=("x",),
            column_labels=("u", "v"),
            values=((1.0,),),
        )
